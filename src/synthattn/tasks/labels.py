"""Names of classes, and the ways in which files write them."""

from typing import Any

from synthattn.messages import suggestion


class Labels:
    """The classes of a task, in the order of their numbers.

    Files write a class as its name, its number, or for two classes as true and false.
    """

    def __init__(self, *names: str) -> None:
        self.names = names

    def __len__(self) -> int:
        return len(self.names)

    def number(self, value: Any, where: str) -> int:
        if isinstance(value, bool) and len(self.names) == 2:
            return int(value)
        text = str(value).strip()
        if text in self.names:
            return self.names.index(text)
        lowered = [name.lower() for name in self.names]
        if text.lower() in lowered:
            return lowered.index(text.lower())
        if text.removesuffix(".0").isdigit() and int(text.removesuffix(".0")) < len(self.names):
            return int(text.removesuffix(".0"))
        raise ValueError(f"{where}: unknown label {value!r}{suggestion(text, self.names)}")

    def parse(self, text: str) -> int | None:
        """The class that a generated text names, None where it names none."""
        text = text.strip()
        return self.names.index(text) if text in self.names else None
