"""Noun phrases and pronouns in both languages, with all the forms that a clause may ask for."""

from dataclasses import dataclass, replace
from typing import Literal

from synthattn.data.builtin.inflect_de import (
    ARTICLE,
    Case,
    Declension,
    Slot,
    adjective_ending,
    der_word,
    ein_word,
    noun_form,
    slot,
)
from synthattn.data.builtin.inflect_en import possessive, with_article
from synthattn.data.builtin.lexicon_de import Adjective, Gender, Noun

_CASES: tuple[Case, ...] = ("nom", "acc", "dat", "gen")


@dataclass(frozen=True, slots=True)
class Phrase:
    """Somebody or something. German has one text for each case, English one for subjects and one for the rest."""

    en: str
    en_object: str
    de: dict[Case, str]
    where: Slot
    person: int = 3
    plural: bool = False
    definite: bool = True
    pronoun: bool = False
    article: bool = False
    """Whether it starts with the definite article, which prepositions contract with."""
    noun: Noun | None = None
    relative: tuple[str, str] | None = None
    """A relative clause, English and German: the clause knows where to put it."""

    @property
    def third_singular(self) -> bool:
        return self.person == 3 and not self.plural


@dataclass(frozen=True, slots=True)
class Determiner:
    """``style`` says how the German word is inflected and what follows it."""

    en: str
    en_plural: str
    de: str
    style: Literal["article", "der", "ein", "strong", "fixed", "none"]

    @property
    def definite(self) -> bool:
        return self.style in ("article", "der") or (self.style == "ein" and self.de not in ("ein", "kein"))

    def german(self, case: Case, where: Slot) -> str:
        match self.style:
            case "article":
                return ARTICLE[case][where]
            case "ein":
                # The plural of "ein" is no word at all.
                return "" if self.de == "ein" and where == "pl" else ein_word(self.de, case, where)
            case "der" | "strong":
                return der_word(self.de, case, where)
            case _:
                return self.de

    def declension(self, where: Slot) -> Declension:
        if self.style in ("article", "der"):
            return "weak"
        if self.style == "ein" and not (self.de == "ein" and where == "pl"):
            return "mixed"
        return "strong"


THE = Determiner("the", "the", "", "article")
THIS = Determiner("this", "these", "dies", "der")
EVERY = Determiner("every", "", "jed", "der")
ALL = Determiner("", "all", "all", "der")
A = Determiner("a", "", "ein", "ein")
NO = Determiner("no", "no", "kein", "ein")
NOT_A = Determiner("a", "", "kein", "ein")
"""What ``a`` becomes in German when the English verb is negated."""
BARE = Determiner("", "", "", "none")
NOT_BARE = Determiner("", "", "kein", "ein")
MANY = Determiner("", "many", "viel", "strong")
SOME = Determiner("", "some", "einig", "strong")
TWO = Determiner("", "two", "zwei", "fixed")
THREE = Determiner("", "three", "drei", "fixed")
POSSESSIVES: tuple[Determiner, ...] = (
    Determiner("my", "my", "mein", "ein"),
    Determiner("your", "your", "dein", "ein"),
    Determiner("his", "his", "sein", "ein"),
    Determiner("her", "her", "ihr", "ein"),
    Determiner("our", "our", "unser", "ein"),
    Determiner("their", "their", "ihr", "ein"),
)


def noun_phrase(
    noun: Noun,
    plural: bool,
    determiner: Determiner,
    adjective: Adjective | None = None,
    owner: Phrase | None = None,
) -> Phrase:
    """A noun with what stands before it. An owner takes the place of the English determiner.

    A name stands before its German noun, which is then as if it had no article (``Annas altes Auto``); any other owner
    follows in the genitive (``das alte Auto des Arztes``).
    """
    where = slot(noun.gender, plural)
    word = noun.en_plural if plural else noun.en
    if adjective is not None:
        word = f"{adjective.en} {word}"
    named = owner is not None and owner.noun is None
    if owner is not None:
        en = f"{possessive(owner.en, owner.plural)} {word}"
    elif determiner.en == "a" and not plural:
        en = with_article(word)
    else:
        en = f"{determiner.en_plural if plural else determiner.en} {word}".strip()
    declension: Declension = "strong" if named else determiner.declension(where)
    de: dict[Case, str] = {}
    for case in _CASES:
        parts = [owner.de["gen"] if named and owner is not None else determiner.german(case, where)]
        if adjective is not None:
            parts.append(adjective.stem + adjective_ending(declension, case, where))
        parts.append(noun_form(noun, plural, case))
        if owner is not None and not named:
            parts.append(owner.de["gen"])
        de[case] = " ".join(part for part in parts if part)
    definite = owner is not None or determiner.definite
    article = determiner.style == "article" and not named
    return Phrase(en, en, de, where, plural=plural, definite=definite, article=article, noun=noun)


def name_phrase(name: str, gender: Gender) -> Phrase:
    return Phrase(name, name, {"nom": name, "acc": name, "dat": name, "gen": name + "s"}, gender)


def _pronoun(en: str, de: str, where: Slot, person: int = 3, plural: bool = False) -> Phrase:
    subject, other = en.split()
    nom, acc, dat = de.split()
    return Phrase(subject, other, {"nom": nom, "acc": acc, "dat": dat}, where, person, plural, pronoun=True)


I = _pronoun("I me", "ich mich mir", "m", person=1)  # noqa: E741
YOU = _pronoun("you you", "du dich dir", "m", person=2)
HE = _pronoun("he him", "er ihn ihm", "m")
SHE = _pronoun("she her", "sie sie ihr", "f")
WE = _pronoun("we us", "wir uns uns", "pl", person=1, plural=True)
THEY = _pronoun("they them", "sie sie ihnen", "pl", plural=True)
# Polite: the verb is that of "they", in English that of "you".
YOU_POLITE = _pronoun("you you", "Sie Sie Ihnen", "pl", person=2, plural=True)
PRONOUNS: tuple[Phrase, ...] = (I, YOU, HE, SHE, WE, THEY)
_IT: dict[Slot, Phrase] = {
    "m": _pronoun("it it", "er ihn ihm", "m"),
    "f": _pronoun("it it", "sie sie ihr", "f"),
    "n": _pronoun("it it", "es es ihm", "n"),
}
WHO = replace(_pronoun("who who", "wer wen wem", "m"), pronoun=False)


def pronoun_for(phrase: Phrase) -> Phrase:
    """The pronoun that refers to a phrase: English asks what it is, German for the gender of its noun."""
    if phrase.pronoun:
        return phrase
    if phrase.plural:
        return THEY
    if phrase.noun is None or "person" in phrase.noun.kinds:
        return SHE if phrase.where == "f" else HE
    return _IT[phrase.where]


def gap(where: Slot, plural: bool) -> Phrase:
    """Nothing, where a relative pronoun or a question word has moved away from; verbs still agree with it."""
    return Phrase("", "", dict.fromkeys(_CASES, ""), where, plural=plural)
