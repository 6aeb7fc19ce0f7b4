"""Data that comes with the package: generated, or read from what is installed anyway. Nothing is downloaded."""

import inspect
from collections.abc import Callable
from urllib.parse import parse_qsl

from synthattn.data.builtin.dialogue import dialogue_source
from synthattn.data.builtin.docs import DocsSource
from synthattn.data.builtin.grammar_de import grammar_source
from synthattn.data.builtin.listops import listops_source
from synthattn.data.builtin.suites import TOYS
from synthattn.data.builtin.summaries import summaries_source
from synthattn.data.source import Source
from synthattn.messages import suggestion

BUILTINS: dict[str, Callable[..., Source]] = {
    "grammar-de": grammar_source,
    "summaries": summaries_source,
    "dialogue": dialogue_source,
    "docs": DocsSource,
    "listops": listops_source,
    **TOYS,
}

__all__ = ["BUILTINS", "open_builtin"]


def open_builtin(name: str) -> Source:
    """Open a built-in source by its name, with options after a question mark: ``grammar-de?size=50000&seed=7``."""
    label, _, query = name.removeprefix("builtin:").partition("?")
    if label not in BUILTINS:
        raise ValueError(f"there is no built-in data {label!r}{suggestion(label, BUILTINS)}")
    make = BUILTINS[label]
    known = [option for option in inspect.signature(make).parameters if option != "name"]
    options: dict[str, int] = {}
    for option, value in parse_qsl(query, keep_blank_values=True):
        if option not in known:
            raise ValueError(f"{label} has no option {option!r}{suggestion(option, known)}")
        try:
            options[option] = int(value)
        except ValueError:
            raise ValueError(f"{option} of {label} must be a whole number, got {value!r}") from None
    return make(name, **options)
