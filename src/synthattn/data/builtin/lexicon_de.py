"""The words of ``lexicon_de.tsv``, one to a line, with the forms that cannot be derived."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, TypeVar

T = TypeVar("T")
Case = Literal["nom", "acc", "dat"]
Gender = Literal["m", "f", "n"]


@dataclass(frozen=True, slots=True)
class Noun:
    """A noun in both languages; a mass noun has no plural, a weak one an ending in all cases but the nominative."""

    de: str
    gender: Gender
    de_plural: str
    weak: str
    en: str
    en_plural: str
    kinds: str
    at: str = "in in"
    to: str = "to in acc"


@dataclass(frozen=True, slots=True)
class Adjective:
    """An adjective: ``stem`` takes endings (``teur``), ``de`` stands alone (``teuer``)."""

    de: str
    stem: str
    en: str
    kinds: str


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb in both languages; ``infinitive``, ``third`` and ``participle`` are without the separable prefix."""

    prefix: str
    infinitive: str
    third: str
    participle: str
    aux: str
    en: str
    en_past: str
    particle: str
    en_preposition: str
    frame: str
    subjects: str
    objects: str = ""
    de_preposition: str = ""
    case: Case = "acc"
    stative: str = ""


@cache
def share(kinds: str, others: str) -> bool:
    """Return whether two lists of words have one in common."""
    return not set(kinds.split()).isdisjoint(others.split())


def rows(kind: str, make: Callable[..., T]) -> tuple[T, ...]:
    """Make something of the fields of every line of a kind."""
    lines = Path(__file__).with_name("lexicon_de.tsv").read_text(encoding="utf-8").splitlines()
    return tuple(make(*line.split("\t")[1:]) for line in lines if line.startswith(f"{kind}\t"))


NOUNS = rows("noun", Noun)
ADJECTIVES = rows("adjective", Adjective)
VERBS = rows("verb", Verb)
FINITE = {third: (first, second, third, plural) for first, second, third, plural in rows("finite", lambda *row: row)}
"""Forms of the verbs that are irregular in the present, or that have a simple past, by their third person."""
NAMES: tuple[tuple[str, Gender], ...] = rows("name", lambda name, gender: (name, gender))
TIMES: tuple[tuple[str, str, str], ...] = rows("time", lambda tense, en, de: (tense, en, de))
