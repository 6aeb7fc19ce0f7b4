"""German and English words of ``lexicon_de.tsv``, and noun phrases of both languages: determiner, adjective, noun."""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

from synthattn.data.builtin.words import rows, with_article

Case = Literal["nom", "acc", "dat"]
Gender = Literal["m", "f", "n"]
Slot = Literal["m", "f", "n", "pl"]
CASES: tuple[Case, ...] = ("nom", "acc", "dat")


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


def _lexicon(kind: str) -> list[Any]:
    return rows("lexicon_de.tsv", kind)


NOUNS = [Noun(*row) for row in _lexicon("noun")]
ADJECTIVES = [Adjective(*row) for row in _lexicon("adjective")]
VERBS = [Verb(*row) for row in _lexicon("verb")]
FINITE: dict[str, list[str]] = {row[2]: row for row in _lexicon("finite")}
"""Forms of the verbs that are irregular in the present, or that have a simple past, by their third person."""
NAMES: list[tuple[str, Gender]] = _lexicon("name")
TIMES: list[tuple[str, str, str]] = _lexicon("time")


def _table(nom: str, acc: str, dat: str) -> dict[tuple[Case, Slot], str]:
    slots: tuple[Slot, ...] = ("m", "f", "n", "pl")
    rows = zip(CASES, (nom, acc, dat), strict=True)
    return {(case, slot): form for case, row in rows for slot, form in zip(slots, row.split(), strict=True)}


ARTICLE = _table("der die das die", "den die das die", "dem der dem den")
RELATIVE = ARTICLE | {("dat", "pl"): "denen"}
_STRONG = _table("er e es e", "en e es e", "em er em en")
_WEAK = _table("e e e en", "en e e en", "en en en en")
# Where ein, kein and the possessives have no ending, and the adjective must show the gender.
_BARE = {("nom", "m"), ("nom", "n"), ("acc", "n")}
_CONTRACTED = {"in dem": "im", "in das": "ins", "an dem": "am", "an das": "ans", "zu dem": "zum", "zu der": "zur"}
_CONTRACTED |= {"von dem": "vom"}


@dataclass(frozen=True, slots=True)
class Determiner:
    """A determiner: its style says how the German word is inflected, and which endings follow it."""

    en: str
    en_plural: str
    de: str
    style: Literal["article", "der", "ein", "fixed"]

    @property
    def definite(self) -> bool:
        return self.style == "article" or self.de == "dies" or self in POSSESSIVES

    def inflected(self, case: Case, slot: Slot) -> tuple[str, str]:
        """Return the German word, and the ending of an adjective after it."""
        at = case, slot
        match self.style:
            case "article":
                return ARTICLE[at], _WEAK[at]
            case "der":
                return self.de + _STRONG[at], _WEAK[at]
            case "ein" if at in _BARE:
                return self.de, _STRONG[at]
            case "ein":
                return self.de + _STRONG[at], _WEAK[at]
            case _:
                return self.de, _STRONG[at]


THE = Determiner("the", "the", "", "article")
THIS = Determiner("this", "these", "dies", "der")
EVERY = Determiner("every", "", "jed", "der")
A = Determiner("a", "", "ein", "ein")
NOT_A = Determiner("a", "", "kein", "ein")
BARE = Determiner("", "", "", "fixed")
TWO = Determiner("", "two", "zwei", "fixed")
POSSESSIVES = tuple(
    Determiner(en, en, de, "ein")
    for en, de in (("my", "mein"), ("your", "dein"), ("his", "sein"), ("her", "ihr"), ("our", "unser"))
)


@dataclass(frozen=True, slots=True)
class Phrase:
    """A phrase for somebody or something, with its number, person and gender."""

    en: str
    en_object: str
    de: dict[Case, str]
    slot: Slot
    person: Literal[1, 2, 3] = 3
    pronoun: bool = False
    determiner: Determiner = THE
    noun: Noun | None = None
    relative: str = ""
    """A German relative clause: it follows a subject, or the whole clause if an object is described."""

    @property
    def plural(self) -> bool:
        return self.slot == "pl"

    @property
    def kinds(self) -> str:
        return "person" if self.noun is None else self.noun.kinds


def noun_phrase(noun: Noun, plural: bool, determiner: Determiner, adjective: Adjective | None = None) -> Phrase:
    """Return a noun with its determiner and perhaps an adjective, in all cases."""
    slot: Slot = "pl" if plural else noun.gender
    word = noun.en_plural if plural else noun.en
    if adjective is not None:
        word = f"{adjective.en} {word}"
    if determiner.en == "a":
        en = with_article(word) if noun.de_plural and not plural else word
    else:
        en = f"{determiner.en_plural if plural else determiner.en} {word}".strip()
    de: dict[Case, str] = {}
    for case in CASES:
        before, ending = determiner.inflected(case, slot)
        described = "" if adjective is None else adjective.stem + ending
        de[case] = " ".join(part for part in (before, described, _form(noun, plural, case)) if part)
    return Phrase(en, en, de, slot, determiner=determiner, noun=noun)


def _form(noun: Noun, plural: bool, case: Case) -> str:
    if plural:
        return noun.de_plural + "n" * (case == "dat" and not noun.de_plural.endswith(("n", "s")))
    return noun.de + noun.weak * (case != "nom")


def name(text: str, gender: Gender) -> Phrase:
    return Phrase(text, text, dict.fromkeys(CASES, text), gender)


def _pronoun(en: str, en_object: str, nom: str, acc: str, dat: str, slot: Slot, person: str) -> Phrase:
    number = 1 if person == "1" else 2 if person == "2" else 3
    return Phrase(en, en_object, {"nom": nom, "acc": acc, "dat": dat}, slot, number, pronoun=True)


PRONOUNS = {row[0]: _pronoun(*row) for row in _lexicon("pronoun")}
PEOPLE = tuple(PRONOUNS[en] for en in ("I", "you", "he", "she", "we", "they"))
WHO = replace(PRONOUNS["who"], pronoun=False)


def pronoun_for(phrase: Phrase) -> Phrase:
    """Return the pronoun for a phrase: English asks what it is, German for the gender of its noun."""
    if phrase.pronoun:
        return phrase
    found = replace(PRONOUNS[{"m": "he", "f": "she", "n": "it", "pl": "they"}[phrase.slot]], noun=phrase.noun)
    return found if phrase.plural or share(phrase.kinds, "person") else replace(found, en="it", en_object="it")


def gap(phrase: Phrase) -> Phrase:
    """Return an empty phrase for the place that a relative pronoun or a question word has left; verbs agree with it."""
    return replace(phrase, en="", en_object="", de=dict.fromkeys(CASES, ""), pronoun=False)


def after_preposition(preposition: str, phrase: Phrase, case: Case) -> str:
    """Return both words, as one with a definite article where there is one for both."""
    article, _, rest = phrase.de[case].partition(" ")
    both = _CONTRACTED.get(f"{preposition} {article}")
    return f"{both} {rest}" if both else f"{preposition} {phrase.de[case]}"
