"""Words and templates of the built-in data, and English forms that can be derived."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any


def rows(file: str, kind: str) -> list[list[str]]:
    """Return the fields of all lines of a kind in a table of this folder."""
    lines = Path(__file__).with_name(file).read_text(encoding="utf-8").splitlines()
    return [line.split("\t")[1:] for line in lines if line.startswith(f"{kind}\t")]


def templates(kind: str) -> Sequence[Any]:
    """Return the templates of a kind; a field that ends in a bar is a list."""
    return [
        tuple(field[:-1].split("|") if field.endswith("|") else field for field in row)
        for row in rows("templates.tsv", kind)
    ]


LISTS: dict[str, list[str]] = {name: entries.split("|") for name, entries in rows("templates.tsv", "list")}
"""Words and sentences that templates are filled with, by their kind."""


def with_article(phrase: str) -> str:
    """Put ``a`` or ``an`` before a phrase."""
    return ("an " if phrase[0] in "aeiou" or phrase.startswith("honest") else "a ") + phrase


def third_person(verb: str) -> str:
    if verb == "have":
        return "has"
    if verb.endswith(("s", "sh", "ch", "x", "o")):
        return verb + "es"
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb[:-1] + "ies"
    return verb + "s"
