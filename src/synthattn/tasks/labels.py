"""Names of classes, in the ways in which files write them."""

from typing import Any

from synthattn.messages import shortened, suggestion


def whole_number(text: str) -> int | None:
    """Return the number that a text of decimal digits means; None for any other text."""
    # Python refuses to convert several thousand digits.
    return int(text) if text.isdecimal() and len(text) <= 100 else None


class Labels:
    """The classes of a task, in the order of their numbers.

    Files write a class as its name, its number, or for two classes as true and false.
    """

    def __init__(self, *names: str) -> None:
        self.names = names
        # If names are equal, the first one counts.
        self._numbers = {name: n for n, name in reversed(list(enumerate(names)))}
        self._lowered = {name.lower(): n for n, name in reversed(list(enumerate(names)))}

    def __len__(self) -> int:
        return len(self.names)

    def find(self, name: str) -> int | None:
        """Return the number of the class with exactly this name; None if there is none."""
        return self._numbers.get(name)

    def number(self, value: Any, where: str) -> int:
        """Return the number of the class that a value in a file means."""
        if isinstance(value, bool) and len(self.names) == 2:
            return int(value)
        text = str(value).strip()
        for found in (self._numbers.get(text), self._lowered.get(text.lower()), self._written_as_number(text)):
            if found is not None:
                return found
        raise ValueError(f"{where}: unknown label {shortened(repr(value))}{suggestion(text, self.names)}")

    def parse(self, text: str) -> int | None:
        """Return the class that a generated text names; None if it names none."""
        return self.find(text.strip())

    def _written_as_number(self, text: str) -> int | None:
        number = whole_number(text.removesuffix(".0"))
        return number if number is not None and number < len(self.names) else None
