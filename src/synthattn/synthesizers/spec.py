"""Parse specs such as ``random+vanilla`` or ``factorized_random(rank=16)`` into frozen dataclasses that print back.

``spec = term ("+" term)*``, ``term = name [ "(" option ("," option)* ")" ]``, ``option = name "=" value``; spaces do
not matter. A table gives the names and a dataclass of options for each, so that other families of layers can use the
same grammar.
"""

import dataclasses
import math
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from synthattn.messages import suggestion

if typing.TYPE_CHECKING:
    from synthattn.synthesizers.base import Sizes, Synthesizer


@dataclass(frozen=True)
class Term:
    """One synthesizer and its options: a frozen dataclass whose fields are the options."""

    name: ClassVar[str]
    synthesizer: ClassVar[Callable[..., Any]]

    def build(self, sizes: "Sizes") -> "Synthesizer":
        """Build the synthesizer for a layer of these sizes, from the options in their order."""
        return self.synthesizer(sizes, *vars(self).values())

    def after_resize(self, synthesizer: "Synthesizer") -> "Term":
        """Return the term that builds this synthesizer with its sizes after ``resize_max_length``."""
        return self

    def __str__(self) -> str:
        """Return the shortest text that parses to this term, without options that have their default."""
        options = [
            f"{field.name}={_show(getattr(self, field.name))}"
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default
        ]
        return f"{self.name}({', '.join(options)})" if options else self.name


@dataclass(frozen=True)
class Spec:
    """One term, or a mixture of several."""

    terms: tuple[Term, ...]

    def __str__(self) -> str:
        return "+".join(str(term) for term in self.terms)


_TERM = re.compile(r"\s*([^\s()+,=]+)\s*(?:\(([^()]*)\)\s*)?")
_OPTION = re.compile(r"\s*([^\s=]+)\s*=\s*([^\s=]+)\s*")


def parse(text: str, table: Mapping[str, type[Term]]) -> Spec:
    """Parse a spec. Raise a ValueError of one line that says what is wrong and what was probably meant."""
    terms = []
    end = 0
    while True:
        match = _TERM.match(text, end)
        if match is None:
            what = "a name" if end == len(text) else f"a name at {text[end:]!r}"
            raise _malformed(text, f"expected {what}")
        terms.append(_term(text, match[1], match[2], table))
        end = match.end()
        if end == len(text):
            return Spec(tuple(terms))
        if text[end] != "+":
            raise _malformed(text, f"expected '+' or the end at {text[end:]!r}")
        end += 1


def _term(text: str, name: str, options: str | None, table: Mapping[str, type[Term]]) -> Term:
    if name not in table:
        raise ValueError(f"unknown attention {name!r}{suggestion(name, table)}")
    kind = table[name]
    types_of = typing.get_type_hints(kind)
    known = {field.name: types_of[field.name] for field in dataclasses.fields(kind)}
    values: dict[str, Any] = {}
    for option in [] if options is None or not options.strip() else options.split(","):
        match = _OPTION.fullmatch(option)
        if match is None:
            raise _malformed(text, f"expected name=value at {option.strip()!r}")
        key, value = match[1], match[2]
        if key not in known:
            raise ValueError(f"{name} has no option {key!r}{suggestion(key, known)}")
        if key in values:
            raise _malformed(text, f"option {key!r} of {name} is given twice")
        values[key] = _value(name, key, value, known[key])
    return kind(**values)


_TRUTH = {"true": True, "false": False}


def _value(name: str, key: str, text: str, kind: Any) -> Any:
    kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    if bool in kinds and text.lower() in _TRUTH:
        return _TRUTH[text.lower()]
    if int in kinds and re.fullmatch(r"[+-]?[0-9]{1,9}", text):
        return int(text)
    if float in kinds:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if math.isfinite(number):
            return number
    wanted = {bool: "true or false", int: "a whole number", float: "a number"}
    expected = " or ".join(wanted[k] for k in kinds if k in wanted)
    raise ValueError(f"{name}: {key} must be {expected}, got {text!r}")


def _show(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _malformed(text: str, problem: str) -> ValueError:
    return ValueError(f"malformed attention {text!r}: {problem}; write for example 'factorized_random(rank=8)+vanilla'")


def at_least_one(name: str, option: str, value: int) -> None:
    """Raise a ValueError if a count is below 1."""
    if value < 1:
        raise ValueError(f"{name}: {option} must be at least 1, got {value}")


def positive(name: str, option: str, value: float) -> None:
    """Raise a ValueError if a number is not positive."""
    if not value > 0:
        raise ValueError(f"{name}: {option} must be positive, got {value}")
