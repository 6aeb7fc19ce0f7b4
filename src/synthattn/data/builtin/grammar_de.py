"""English-German sentence pairs from a grammar: a translation corpus of any size that needs no download.

The vocabulary is small and the grammar is not: gender, case and number agree, verbs move to the second place or to the
end, prefixes split off, pronouns take the gender of German nouns. A German sentence is a function of the English one.
"""

import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import TypeVar

from synthattn.data.builtin import lexicon_de as lexicon
from synthattn.data.builtin.clauses_de import (
    CAN,
    COULD,
    MODALS,
    PAST_MODALS,
    Clause,
    Modal,
    Negation,
    Tense,
    english,
    english_predicate,
    english_question,
    german,
    german_infinitive,
    german_shared,
)
from synthattn.data.builtin.generated import GeneratedSource
from synthattn.data.builtin.inflect_de import Case, contracted, relative_pronoun, slot
from synthattn.data.builtin.lexicon_de import Adjective, Noun, Pair, Verb
from synthattn.data.builtin.phrases_de import (
    ALL,
    BARE,
    EVERY,
    MANY,
    NO,
    NOT_A,
    NOT_BARE,
    POSSESSIVES,
    PRONOUNS,
    SOME,
    THE,
    THIS,
    THREE,
    TWO,
    WHO,
    YOU,
    YOU_POLITE,
    A,
    Determiner,
    Phrase,
    gap,
    name_phrase,
    noun_phrase,
    pronoun_for,
)

VERSION = 1
_HELD_OUT = 1000

T = TypeVar("T")
Sentences = tuple[str, str]


@cache
def _nouns(kinds: frozenset[str]) -> tuple[Noun, ...]:
    return tuple(noun for noun in lexicon.NOUNS if noun.kinds & kinds)


@cache
def _adjectives(noun: Noun) -> tuple[Adjective, ...]:
    # "Junger Junge" says it twice.
    fitting = (adjective for adjective in lexicon.ADJECTIVES if adjective.kinds & noun.kinds)
    return tuple(adjective for adjective in fitting if not noun.de.lower().startswith(adjective.de))


_STATES = tuple(adjective for adjective in lexicon.ADJECTIVES if adjective.de in lexicon.STATES)
# Colours are not compared.
_COLOURS = frozenset({"rot", "blau", "grün", "gelb", "weiß", "schwarz", "braun", "grau"})
# No thing is both; colours exclude each other too.
_OPPOSITES = (
    {"alt", "neu"},
    {"groß", "klein"},
    {"teuer", "billig"},
    {"schwer", "leicht"},
    {"sauber", "schmutzig"},
    {"schnell", "langsam"},
    {"interessant", "langweilig"},
    {"spannend", "langweilig"},
    {"lustig", "langweilig"},
    {"lang", "kurz"},
    {"alt", "modern"},
)
# Too far to walk, or at least no rooms.
_FAR = tuple(p for p in lexicon.PLACES if p.noun.de in ("Stadt", "Dorf", "Insel", "Strand", "See", "Hotel", "Schloss"))
_OUTSIDE = tuple(p for p in lexicon.PLACES if p.to[0] == "to")
_PERSON = frozenset({"person"})
_NEAR = _nouns(frozenset({"furniture"}))
_BUILDINGS = _nouns(frozenset({"building"}))
# Their subjects are things, or they are hardly done on purpose.
_UNWILLING = ("gehören", "kennen", "verlieren", "vergessen", "hören", "liegen", "stehen", "abfahren", "weinen", "haben")
_BY_FRAME: dict[str, tuple[Verb, ...]] = {}
for _verb in lexicon.VERBS:
    _BY_FRAME[_verb.frame] = (*_BY_FRAME.get(_verb.frame, ()), _verb)
_FRAMES = ("acc", "intransitive", "dat", "give", "explain", "prep", "motion", "position", "placing")
_FRAME_WEIGHTS = (40, 14, 10, 12, 4, 8, 8, 6, 4)
_TIMES: dict[Tense, tuple[Pair, ...]] = {
    "past": lexicon.PAST_TIMES,
    "present": lexicon.HABIT_TIMES,
    "future": lexicon.NEXT_TIMES,
    "perfect": (),
}
_ONE = (THE, A, THIS, EVERY)
_ONE_WEIGHTS = (52, 26, 10, 4)
_SEVERAL = (THE, BARE, THIS, MANY, ALL, SOME, TWO, THREE)
_SEVERAL_WEIGHTS = (40, 22, 10, 8, 5, 6, 6, 4)
_RELATED: frozenset[str] = frozenset({"kin"})
_STRANGERS = tuple(noun for noun in _nouns(_PERSON) if not noun.kinds & _RELATED)


def _clashes(adjective: Adjective, text: str) -> bool:
    """Whether a text says the same of something already, or the opposite."""
    words = text.split(" ")
    for other in lexicon.ADJECTIVES:
        pair = {other.de, adjective.de}
        if other.en in words and (len(pair) == 1 or pair in _OPPOSITES or pair <= _COLOURS):
            return True
    return False


def _maybe(rng: random.Random, probability: float) -> bool:
    return rng.random() < probability


def _one(rng: random.Random, items: Sequence[T]) -> T:
    return items[int(rng.random() * len(items))]


def _name(rng: random.Random, *, owns: bool = False) -> Phrase:
    while True:
        name, gender = _one(rng, lexicon.NAMES)
        if not (owns and name in lexicon.NO_GENITIVE):
            return name_phrase(name, gender)


def _owner(rng: random.Random, owned: Noun) -> Phrase:
    """Somebody in the genitive."""
    if _maybe(rng, 0.5):
        return _name(rng, owns=True)
    noun = _one(rng, _STRANGERS)
    while noun is owned:
        noun = _one(rng, _STRANGERS)
    return noun_phrase(noun, _maybe(rng, 0.15), THE)


def _indefinite(noun: Noun, plural: bool, negated: bool) -> Determiner:
    if noun.mass or plural:
        return NOT_BARE if negated else BARE
    return NOT_A if negated else A


def _noun_phrase(
    rng: random.Random,
    nouns: Sequence[Noun],
    *,
    avoid: Phrase | None = None,
    known: bool = False,
    negated: bool = False,
) -> Phrase:
    """A phrase with one of the nouns. ``known``: definite; ``negated``: an indefinite one is made of ``kein``."""
    noun = _one(rng, nouns)
    while avoid is not None and avoid.noun is noun and len(nouns) > 1:
        noun = _one(rng, nouns)
    plural = not noun.mass and "parent" not in noun.kinds and _maybe(rng, 0.25)
    choices = _adjectives(noun)
    adjective = _one(rng, choices) if choices and _maybe(rng, 0.33) else None
    if noun.kinds & _RELATED:
        if _maybe(rng, 0.15):
            return noun_phrase(noun, plural, THE, adjective, _owner(rng, noun))
        return noun_phrase(noun, plural, _one(rng, POSSESSIVES), adjective)
    chance = rng.random()
    if chance < 0.12:
        return noun_phrase(noun, plural, _one(rng, POSSESSIVES), adjective)
    if chance < 0.18 and not noun.mass:
        return noun_phrase(noun, plural, THE, adjective, _owner(rng, noun))
    if noun.mass:
        determiner = THE if known or _maybe(rng, 0.3) else _indefinite(noun, plural, negated)
    elif known:
        determiner = THE if _maybe(rng, 0.85) else THIS
    elif negated:
        # Whether "all" is inside a negation or outside would be anybody's guess.
        determiner = THE if _maybe(rng, 0.4) else _indefinite(noun, plural, negated)
    elif plural:
        determiner = rng.choices(_SEVERAL, _SEVERAL_WEIGHTS)[0]
    else:
        determiner = rng.choices(_ONE, _ONE_WEIGHTS)[0]
    return noun_phrase(noun, plural, determiner, adjective)


def _subject(rng: random.Random, verb: Verb, *, known: bool = False) -> Phrase:
    if "person" in verb.subjects:
        chance = rng.random()
        if chance < 0.3:
            return _one(rng, PRONOUNS)
        if chance < 0.42:
            return _name(rng)
    nouns = _nouns(verb.subjects)
    if not known and _maybe(rng, 0.02):
        return noun_phrase(_one(rng, nouns), _maybe(rng, 0.3), NO)
    return _noun_phrase(rng, nouns, known=known or _maybe(rng, 0.4))


def _object(
    rng: random.Random,
    verb: Verb,
    kinds: frozenset[str],
    subject: Phrase,
    *,
    known: bool = False,
    negated: bool = False,
) -> Phrase:
    if "person" in kinds and _maybe(rng, 0.3):
        if _maybe(rng, 0.3):
            name = _name(rng)
            if name.en != subject.en:
                return name
        others = [p for p in PRONOUNS if p.person == 3 or p.person != subject.person]
        return _one(rng, others)
    return _noun_phrase(rng, _nouns(kinds), avoid=subject, known=known, negated=negated)


def _place(rng: random.Random) -> Pair:
    """Where something happens."""
    place = _one(rng, lexicon.PLACES)
    return _at(rng, place.noun, place.at)


def _destination(rng: random.Random, verb: Verb) -> Pair:
    ways = {"fahren": _OUTSIDE, "reisen": _FAR, "fliegen": _FAR}
    place = _one(rng, ways.get(verb.infinitive, lexicon.PLACES))
    english_to, german_to, case = place.to
    phrase = _place_phrase(rng, place.noun)
    return Pair(f"{english_to} {phrase.en}", contracted(german_to, phrase.de[case], phrase.article))


def _place_phrase(rng: random.Random, noun: Noun) -> Phrase:
    choices = _adjectives(noun)
    adjective = _one(rng, choices) if choices and _maybe(rng, 0.25) else None
    determiner = rng.choices((THE, A, THIS, _one(rng, POSSESSIVES)), (75, 10, 5, 10))[0]
    return noun_phrase(noun, False, determiner, adjective)


def _at(rng: random.Random, noun: Noun, prepositions: tuple[str, str]) -> Pair:
    phrase = _place_phrase(rng, noun)
    return Pair(f"{prepositions[0]} {phrase.en}", contracted(prepositions[1], phrase.de["dat"], phrase.article))


def _companion(rng: random.Random, subject: Phrase) -> Pair:
    """``with`` takes the dative, ``without`` the accusative."""
    phrase = _noun_phrase(rng, _nouns(_PERSON), avoid=subject, known=True)
    if _maybe(rng, 0.7):
        return Pair(f"with {phrase.en_object}", contracted("mit", phrase.de["dat"], phrase.article))
    return Pair(f"without {phrase.en_object}", f"ohne {phrase.de['acc']}")


def _position(rng: random.Random, verb: Verb) -> Pair:
    """Where somebody lives, or something stands."""
    if "home" in verb.objects:
        homes = [place for place in lexicon.PLACES if "home" in place.noun.kinds]
        place = _one(rng, homes)
        return _at(rng, place.noun, place.at)
    if "seat" in verb.objects:
        return _at(rng, _one(rng, _nouns(verb.objects)), lexicon.NEAR_FURNITURE[0])
    return _at(rng, _one(rng, _NEAR), _one(rng, lexicon.NEAR_FURNITURE))


def _tense(rng: random.Random, verb: Verb) -> tuple[Tense, Modal | None]:
    chance = rng.random()
    if verb.stative:
        return ("present" if chance < 0.65 else "past"), None
    if chance < 0.34:
        return "present", None
    if chance < 0.66:
        return "past", None
    if chance < 0.75:
        return "future", None
    if chance < 0.83:
        return "perfect", None
    if verb.whole in _UNWILLING or "person" not in verb.subjects:
        return "past", None
    if chance < 0.95:
        return "present", _one(rng, MODALS)
    return "past", _one(rng, PAST_MODALS)


def _negation(rng: random.Random, tense: Tense, modal: Modal | None, subject: Phrase) -> str:
    """``not``, ``never``, ``already`` or nothing; not below a quantifier, whose scope would be unclear."""
    first = subject.en.split(" ")[0]
    if first in ("no", "every", "all", "many", "some") or not (subject.definite or subject.pronoun):
        return ""
    if tense == "perfect":
        return rng.choices(("already", "not yet", "never yet", ""), (40, 30, 20, 10))[0]
    if _maybe(rng, 0.17):
        return "not"
    return "never" if modal is None and tense != "future" and _maybe(rng, 0.03) else ""


def _ambiguous_past(verb: Verb, subject: Phrase, negation: str) -> bool:
    """Whether the English past looks like the present: ``they read``, ``I put``."""
    return verb.en == verb.en_past and not subject.third_singular and negation not in ("not",)


def _clause(
    rng: random.Random,
    *,
    verb: Verb | None = None,
    subject: Phrase | None = None,
    tense: Tense | None = None,
    modal: Modal | None = None,
    negation: str | None = None,
    plain: bool = False,
) -> Clause:
    """A random clause, with whatever is given. ``plain``: nothing but the verb and what it needs."""
    if verb is None:
        verb = _one(rng, _BY_FRAME[rng.choices(_FRAMES, _FRAME_WEIGHTS)[0]])
    if tense is None:
        tense, modal = _tense(rng, verb)
    if subject is None:
        subject = _subject(rng, verb)
    if negation is None:
        negation = _negation(rng, tense, modal, subject)
    if tense == "past" and modal is None and _ambiguous_past(verb, subject, negation):
        tense = "present"
    negated = negation in ("not", "not yet")
    acc = dat = prep = None
    places: tuple[Pair, ...] = ()
    match verb.frame:
        case "acc":
            acc = _object(rng, verb, verb.objects, subject, negated=negated)
        case "dat":
            dat = _object(rng, verb, verb.objects, subject, known=negated)
        case "give" | "explain":
            dat = _object(rng, verb, _PERSON, subject, known=_maybe(rng, 0.75) or bool(negation))
            acc = _noun_phrase(rng, _nouns(verb.objects), negated=negated, known=verb.frame == "explain" or dat.pronoun)
        case "prep":
            prep = _object(rng, verb, verb.objects, subject, known=negated)
        case "placing":
            acc = _noun_phrase(rng, _nouns(verb.objects), known=True)
            furniture = _place_phrase(rng, _one(rng, _NEAR))
            en, de = _one(rng, lexicon.NEAR_FURNITURE)
            places = (Pair(f"{en} {furniture.en}", contracted(de, furniture.de["acc"], False)),)
        case "motion":
            places = (_destination(rng, verb),)
            if verb.infinitive == "reisen" and _maybe(rng, 0.5):
                places = (_one(rng, lexicon.RIDES), *places)
        case "position":
            places = (_position(rng, verb),)
        case "intransitive":
            pass
    kein = acc is not None and acc.noun is not None and negated and not acc.definite
    clause = Clause(
        subject,
        verb,
        tense,
        modal,
        acc,
        dat,
        prep,
        places=places,
        negation=_negation_with(negation, kein),
    )
    return clause if plain else _with_circumstances(rng, clause)


def _negation_with(negation: str, kein: bool) -> Negation:
    match negation:
        case "not":
            return "kein" if kein else "not"
        case "not yet":
            return "not yet kein" if kein else "not yet"
        case "never":
            return "never"
        case "never yet":
            return "never yet"
        case "already":
            return "already"
        case _:
            return ""


def _with_circumstances(rng: random.Random, clause: Clause) -> Clause:
    """When, how often, how, with whom and where. Rarely all of it, and little beside a negation."""
    verb = clause.verb
    time = frequency = manner = None
    places = clause.places
    upcoming: Tense = "future" if clause.modal is not None and not clause.modal.is_past else clause.tense
    if clause.tense != "perfect" and not verb.stative:
        if not (clause.negation and upcoming == "present") and _maybe(rng, 0.35):
            time = _one(rng, _TIMES[upcoming])
        elif upcoming == "present" and not clause.negation and _maybe(rng, 0.25):
            frequency = _one(rng, lexicon.FREQUENCIES)
    if not clause.negation and not verb.stative:
        if verb.whole in lexicon.MANNERS and frequency is None and _maybe(rng, 0.4):
            manner = _one(rng, lexicon.MANNERS[verb.whole])
        if verb.frame in ("acc", "intransitive") and clause.subject.where != "n" and _maybe(rng, 0.15):
            if "person" in verb.subjects and clause.acc is None and (manner is None or manner.en != "alone"):
                places = (_companion(rng, clause.subject), *places)
        elif _may_be_placed(clause) and _maybe(rng, 0.25):
            places = (*places, _place(rng))
    return replace(clause, time=time, frequency=frequency, manner=manner, places=places)


# They say or imply where they happen.
_PLACELESS = {"abfahren", "zurückkommen", "ausgehen", "weglaufen", "bauen", "putzen", "aufräumen", "abschließen"}
_PLACELESS |= {"aufhängen", "fernsehen", "schwimmen", "lachen"}


def _may_be_placed(clause: Clause) -> bool:
    verb, acc = clause.verb, clause.acc
    if verb.frame not in ("acc", "intransitive", "dat", "prep") or verb.whole in _PLACELESS:
        return False
    return acc is None or acc.noun is None or not acc.noun.kinds & {"place", "sight", "building", "fixture"}


def _with_relatives(rng: random.Random, clause: Clause) -> Clause:
    """Now and then, somebody or something is described by a clause."""
    if _can_be_described(clause.subject) and _maybe(rng, 0.1):
        return replace(clause, subject=_described(rng, clause.subject, clause.verb))
    # An object's relative clause must be able to leave it for the end without being misread.
    if clause.places or clause.time is not None or clause.manner is not None or clause.negation:
        return clause
    if clause.acc is not None and _can_be_described(clause.acc) and _maybe(rng, 0.15):
        return replace(clause, acc=_described(rng, clause.acc, clause.verb))
    if clause.acc is None and clause.dat is not None and _can_be_described(clause.dat) and _maybe(rng, 0.15):
        return replace(clause, dat=_described(rng, clause.dat, clause.verb))
    return clause


def _can_be_described(phrase: Phrase) -> bool:
    if phrase.noun is None or phrase.relative is not None or phrase.noun.kinds & _RELATED:
        return False
    return phrase.en.startswith(("the ", "a ", "an ", "every ", "many ", "two ", "three ")) and "'" not in phrase.en


def _described(rng: random.Random, phrase: Phrase, verb: Verb) -> Phrase:
    """The phrase with a relative clause that does not use the main verb again, or as it was."""
    noun = phrase.noun
    if noun is None:
        return phrase
    hole = replace(gap(slot(noun.gender, phrase.plural), phrase.plural), noun=noun)
    person = "person" in noun.kinds
    chance = rng.random()
    case: Case = "nom"
    acting = _verbs_with("subjects", noun, ("acc", "intransitive", "dat", "motion", "position", "prep"))
    wanted = _verbs_with("objects", noun, ("acc",))
    if chance < 0.4 and acting:
        clause = _relative_clause(rng, _one(rng, acting), hole)
    elif chance < 0.75 and wanted:
        case = "acc"
        clause = replace(_relative_clause(rng, _one(rng, wanted)), acc=hole)
    elif chance < 0.9 and person:
        case = "dat"
        helping = [v for v in _BY_FRAME["dat"] if not v.stative]
        clause = replace(_relative_clause(rng, _one(rng, helping)), dat=hole)
    elif _adjectives(noun):
        adjective = _one(rng, _adjectives(noun))
        if _clashes(adjective, phrase.en):
            return phrase
        clause = Clause(hole, lexicon.BE, "present", predicate=Pair(adjective.en, adjective.de))
    else:
        return phrase
    if clause.verb is verb or (clause.subject.noun is noun and case != "nom"):
        return phrase
    opening = "who" if person and case == "nom" else "that"
    relative = f"{opening} {english(clause)}", german(clause, "final", word=relative_pronoun(case, hole.where))
    return replace(phrase, relative=relative)


def _relative_clause(rng: random.Random, verb: Verb, subject: Phrase | None = None) -> Clause:
    tense: Tense = "present" if verb.stative or _maybe(rng, 0.4) else "past"
    subject = _subject(rng, verb, known=True) if subject is None else subject
    return _clause(rng, verb=verb, subject=subject, tense=tense, negation="", plain=True)


@cache
def _verbs_with(role: str, noun: Noun, frames: tuple[str, ...]) -> tuple[Verb, ...]:
    kinds: Callable[[Verb], Iterable[str]] = (lambda v: v.subjects) if role == "subjects" else (lambda v: v.objects)
    return tuple(v for frame in frames for v in _BY_FRAME[frame] if noun.kinds.intersection(kinds(v)))


def _statement(rng: random.Random) -> Sentences:
    clause = _with_relatives(rng, _clause(rng))
    opening = clause.time or clause.frequency
    front = opening is not None and opening.starts and _maybe(rng, 0.5)
    return english(clause, front=front) + ".", german(clause, "main", front=front) + "."


def _yes_no(rng: random.Random) -> Sentences:
    clause = _question_clause(rng)
    return english_question(clause) + "?", german(clause, "question") + "?"


def _question_clause(rng: random.Random, subject: Phrase | None = None) -> Clause:
    verb = _one(rng, _BY_FRAME[rng.choices(_FRAMES, _FRAME_WEIGHTS)[0]])
    if subject is None:
        subject = _subject(rng, verb, known=True)
    elif "person" not in verb.subjects:
        verb = _one(rng, _BY_FRAME["give"])
    tense, modal = _tense(rng, verb)
    if tense == "perfect":
        tense = "past"
    if modal is COULD:
        # "Could you" asks for a favour more often than about the past.
        modal = CAN
        tense = "present"
    negation = "not" if _maybe(rng, 0.08) else ""
    return _clause(rng, verb=verb, subject=subject, tense=tense, modal=modal, negation=negation)


def _wh(rng: random.Random) -> Sentences:
    kind = rng.choice(("who", "what", "whom", "whom dative", "prep", "why", "when", "where", "where is"))
    if kind == "who":
        verb = _one(rng, [v for v in _BY_FRAME[rng.choice(("acc", "dat", "give"))] if "person" in v.subjects])
        clause = _clause(rng, verb=verb, subject=WHO, tense=rng.choice(("present", "past")), negation="")
        return english(clause) + "?", german(clause, "main") + "?"
    if kind == "where is":
        things = _nouns(frozenset({"portable", "clothing", "public", "building", "pet"}))
        clause = Clause(_noun_phrase(rng, things, known=True), lexicon.BE, rng.choice(("present", "past")))
        return english_question(clause, "where") + "?", german(clause, "question", word="wo") + "?"
    if kind in ("why", "when", "where"):
        clause = _question_clause(rng)
        if kind == "when":
            clause = replace(clause, time=None, frequency=None)
        if kind == "where" and clause.verb.frame in ("motion", "placing"):
            word = "wohin"
            clause = replace(clause, places=())
        elif kind == "where":
            if clause.verb.frame != "position" and not _may_be_placed(clause):
                return _wh(rng)
            word = "wo"
            clause = replace(clause, places=())
        else:
            word = {"why": "warum", "when": "wann"}[kind]
        return english_question(clause, kind) + "?", german(clause, "question", word=word) + "?"
    return _object_question(rng, kind)


def _object_question(rng: random.Random, kind: str) -> Sentences:
    """Questions for an object: German asks in its case, English does not."""
    hole = gap("m", False)
    if kind == "what":
        verb = _one(rng, [v for v in _BY_FRAME["acc"] if not v.objects & _PERSON and not v.en_prep])
        words = "what", "was"
    elif kind == "whom":
        verb = _one(rng, [v for v in _BY_FRAME["acc"] if v.objects & _PERSON])
        words = "who", "wen"
    elif kind == "whom dative":
        verb = _one(rng, [v for v in _BY_FRAME["dat"] if "person" in v.subjects])
        words = "who", "wem"
    else:
        verb = _one(rng, _BY_FRAME["prep"])
        words = "who", f"{verb.de_prep} {'wen' if verb.de_case == 'acc' else 'wem'}"
    subject = _subject(rng, verb, known=True)
    tense, modal = _tense(rng, verb)
    if tense == "perfect" or modal is COULD:
        tense, modal = "past", None
    clause = _clause(rng, verb=verb, subject=subject, tense=tense, modal=modal, negation="")
    if kind == "prep":
        # Nothing may part the English preposition from the end.
        clause = replace(clause, prep=None, time=None, manner=None, places=())
    else:
        clause = replace(clause, dat=hole) if kind == "whom dative" else replace(clause, acc=hole)
    return english_question(clause, words[0]) + "?", german(clause, "question", word=words[1]) + "?"


def _address(rng: random.Random) -> Sentences:
    """Somebody is asked by name; a surname makes the German polite."""
    polite = _maybe(rng, 0.6)
    while True:
        clause = _question_clause(rng, YOU_POLITE if polite else YOU)
        en, de = english_question(clause), german(clause, "question")
        # "your" would have to be polite too.
        if not polite or not re.search(r"\byour\b", en):
            break
    if polite:
        title, anrede = _one(rng, lexicon.TITLES)
        surname = _one(rng, lexicon.SURNAMES)
        return f"{title} {surname}, {en}?", f"{anrede} {surname}, {de}?"
    name = _name(rng).en
    return f"{name}, {en}?", f"{name}, {de}?"


def _adverbial(rng: random.Random) -> Sentences:
    """A main clause with a reason, a concession, a condition or a time."""
    tense: Tense = "past" if _maybe(rng, 0.5) else "present"
    main = _person_clause(rng, tense)
    # One answer to "when" is enough.
    main = replace(main, time=None, frequency=None)
    tense = main.tense
    conjunctions = [("because", "weil"), ("although", "obwohl"), ("before", "bevor"), ("while", "während")]
    conjunctions += [("when", "als")] if tense == "past" else [("when", "wenn"), ("if", "wenn"), ("if", "wenn")]
    en, de = _one(rng, conjunctions)
    if en == "if":
        main = replace(main, tense="future") if main.modal is None and not main.verb.past else main
    sub_en, sub_de = _subordinate(rng, main, tense, en, de)
    main_en, main_de = english(main), german(main, "main")
    if _maybe(rng, 0.4):
        inverted = german(main, "question")
        return f"{en} {sub_en}, {main_en}.", f"{sub_de}, {inverted}."
    return f"{main_en} {en} {sub_en}.", f"{main_de}, {sub_de}."


def _person_clause(rng: random.Random, tense: Tense) -> Clause:
    """Something that people do, in a tense that another clause can share."""
    while True:
        verb = _one(rng, _BY_FRAME[rng.choices(_FRAMES, _FRAME_WEIGHTS)[0]])
        if "person" in verb.subjects:
            break
    subject = _subject(rng, verb, known=True)
    modal = None
    if not verb.stative and verb.whole not in _UNWILLING and _maybe(rng, 0.2):
        modal = _one(rng, PAST_MODALS if tense == "past" else MODALS)
    negation = "not" if _maybe(rng, 0.15) else ""
    return _clause(rng, verb=verb, subject=subject, tense=tense, modal=modal, negation=negation)


def _subordinate(rng: random.Random, main: Clause, tense: Tense, en: str, de: str) -> Sentences:
    """What follows the conjunction: the weather, the subject's state, or what somebody else does."""
    chance = rng.random()
    subject = main.subject
    sex_is_clear = subject.pronoun or subject.noun is None or subject.where != "n"
    if en != "before" and chance < 0.15:
        now, then = _one(rng, lexicon.WEATHER)
        text, before, verb = then if tense == "past" else now
        return text, f"{de} {before} {verb}"
    people = subject.noun is None or "person" in subject.noun.kinds
    if en in ("because", "although", "when", "if") and chance < 0.5 and sex_is_clear and people:
        state = _one(rng, _STATES)
        clause = Clause(pronoun_for(subject), lexicon.BE, tense, predicate=Pair(state.en, state.de))
        if _maybe(rng, 0.2):
            clause = replace(clause, negation="not")
    else:
        clause = _person_clause(rng, tense)
        if clause.tense != tense:
            # "they read" was too unclear; the weather is not.
            now, then = _one(rng, lexicon.WEATHER)
            text, before, verb = then if tense == "past" else now
            return text, f"{de} {before} {verb}"
        if en in ("before", "while"):
            clause = replace(clause, modal=None, negation=_without_negation(clause))
            if tense == "past" and _ambiguous_past(clause.verb, clause.subject, clause.negation):
                return _subordinate(rng, main, tense, en, de)
        clause = replace(clause, time=None)
    return english(clause), german(clause, "final", word=de)


def _without_negation(clause: Clause) -> Negation:
    """A phrase made of ``kein`` stays negated; all else can be affirmed."""
    return "kein" if clause.negation == "kein" else ""


def _content(rng: random.Random) -> Sentences:
    """``that``, ``whether`` and question words after verbs of saying and asking."""
    chance = rng.random()
    speaker = _subject(rng, lexicon.KNOW, known=True)
    if chance < 0.55:
        verb = _one(rng, lexicon.SAYING)
        tense: Tense = "past" if _maybe(rng, 0.35) and verb.en != "hope" else "present"
        main = Clause(
            speaker, verb, tense, negation="not" if verb.en in ("know", "believe") and _maybe(rng, 0.3) else ""
        )
        opening, conjunction = "that", "dass"
        if verb.en == "hope":
            clause = _clause(rng, tense="future", negation="")
        else:
            clause = _person_clause(rng, "past") if tense == "past" else _clause(rng)
    else:
        asks = _maybe(rng, 0.5)
        main = Clause(speaker, lexicon.ASK if asks else lexicon.KNOW, negation="" if asks else "not")
        opening, conjunction = rng.choice((("whether", "ob"), ("whether", "ob"), ("when", "wann"), ("why", "warum")))
        clause = _question_clause(rng)
        if opening == "when":
            clause = replace(clause, time=None, frequency=None)
    if clause.tense == "present" and main.tense == "past":
        return _content(rng)
    return (
        f"{english(main)} {opening} {english(clause)}.",
        f"{german(main, 'main')}, {german(clause, 'final', word=conjunction)}.",
    )


def _about_it(rng: random.Random) -> Sentences:
    """A thing, and then a pronoun that stands for it: German needs the noun's gender."""
    things = _nouns(frozenset({"thing", "clothing", "text", "private"}))
    if _maybe(rng, 0.4):
        return _done_to_it(rng)
    thing = _noun_phrase(rng, things, known=True)
    if thing.noun is None or "'" in thing.en:
        return _about_it(rng)
    adjective, other = rng.sample(_adjectives(thing.noun), 2)
    if _clashes(adjective, f"{other.en} {thing.en}") or _clashes(other, thing.en):
        return _about_it(rng)
    tense: Tense = rng.choice(("present", "past"))
    it = pronoun_for(thing)
    second = Clause(
        it, lexicon.BE, tense, predicate=Pair(other.en, other.de), negation="not" if _maybe(rng, 0.2) else ""
    )
    if _maybe(rng, 0.35):
        first = Clause(thing, lexicon.BE, tense, predicate=Pair(adjective.en, adjective.de))
        return f"{english(first)}, but {english(second)}.", f"{german(first, 'main')}, aber {german(second, 'main')}."
    verbs = [v for v in _verbs_with("objects", thing.noun, ("acc",)) if not v.past]
    verb = _one(rng, verbs)
    modal = _one(rng, PAST_MODALS if tense == "past" else MODALS) if not verb.stative and _maybe(rng, 0.2) else None
    first = Clause(_human(rng), verb, tense, modal, acc=thing)
    if modal is None and tense == "past" and _ambiguous_past(verb, first.subject, ""):
        return _about_it(rng)
    if _maybe(rng, 0.5):
        return (
            f"{english(first)} because {english(second)}.",
            f"{german(first, 'main')}, {german(second, 'final', word='weil')}.",
        )
    en, de = english(second), german(second, "main")
    return f"{english(first)}. {_capitalised(en)}.", f"{german(first, 'main')}. {_capitalised(de)}."


def _human(rng: random.Random) -> Phrase:
    return _subject(rng, lexicon.KNOW, known=True)


def _done_to_it(rng: random.Random) -> Sentences:
    """``She buys the lamp and repairs it``: one subject, two verbs, and an accusative pronoun."""
    things = _nouns(frozenset({"thing", "clothing", "text", "private", "portable"}))
    thing = _noun_phrase(rng, things, known=_maybe(rng, 0.6))
    if thing.noun is None or thing.en.split(" ")[0] in ("no", "every", "all", "many"):
        return _done_to_it(rng)
    verbs = [v for v in _verbs_with("objects", thing.noun, ("acc", "give", "explain")) if not v.stative]
    firsts = [
        v for v in verbs if v.frame == "acc" and v.infinitive in ("kaufen", "finden", "holen", "nehmen", "stehlen")
    ]
    seconds = [v for v in verbs if v not in firsts and v.infinitive not in ("sehen", "suchen") and v.prefix != "aus"]
    if not firsts or not seconds:
        return _done_to_it(rng)
    subject = _human(rng)
    tense: Tense = rng.choice(("present", "past"))
    first = Clause(subject, _one(rng, firsts), tense, acc=thing)
    verb = _one(rng, seconds)
    dat = _object(rng, verb, _PERSON, subject, known=True) if verb.frame != "acc" else None
    second = Clause(subject, verb, tense, acc=pronoun_for(thing), dat=dat)
    if tense == "past" and _ambiguous_past(verb, subject, ""):
        return _done_to_it(rng)
    return (
        f"{english(first)} and {english_predicate(second)}.",
        f"{german(first, 'main')} und {german_shared(second)}.",
    )


def _being(rng: random.Random) -> Sentences:
    """Properties, comparisons and places with ``be``."""
    tense: Tense = "present" if _maybe(rng, 0.6) else "past"
    nouns = [n for n in lexicon.NOUNS if len(_adjectives(n)) > 2]
    chance = rng.random()
    subject = _noun_phrase(rng, nouns, known=True)
    noun = subject.noun
    if noun is None:
        return _being(rng)
    negation: Negation = "not" if _maybe(rng, 0.2) else ""
    if chance < 0.4:
        adjectives = [a for a in _adjectives(noun) if not _clashes(a, subject.en)]
        adjective = _one(rng, adjectives)
        clause = Clause(subject, lexicon.BE, tense, predicate=Pair(adjective.en, adjective.de), negation=negation)
    elif chance < 0.7:
        adjectives = [a for a in _adjectives(noun) if a.de not in _COLOURS and not _clashes(a, subject.en)]
        if not adjectives:
            return _being(rng)
        adjective = _one(rng, adjectives)
        rivals = [n for n in _nouns(adjective.kinds) if n is not noun and n.kinds & noun.kinds]
        if not rivals:
            return _being(rng)
        rival = _noun_phrase(rng, rivals, known=True)
        if _clashes(adjective, rival.en):
            return _being(rng)
        than = Pair(f"{adjective.en_more} than {rival.en}", f"{adjective.de_more} als {rival.de['nom']}")
        clause = Clause(subject, lexicon.BE, tense, predicate=than, negation=negation)
    else:
        things = _nouns(frozenset({"lies", "stands", "toy", "pet", "private"}))
        thing = _noun_phrase(rng, things, known=True)
        if thing.noun is not None and "private" in thing.noun.kinds:
            where = _at(rng, _one(rng, _BUILDINGS), _one(rng, lexicon.NEAR_BUILDINGS))
        else:
            where = _at(rng, _one(rng, _NEAR), _one(rng, lexicon.NEAR_FURNITURE))
        clause = Clause(thing, lexicon.BE, tense, places=(where,), negation=negation)
    return english(clause) + ".", german(clause, "main") + "."


def _there_is(rng: random.Random) -> Sentences:
    things = _nouns(frozenset({"furniture", "stands", "hangs", "pet"}))
    noun = _one(rng, things)
    plural = _maybe(rng, 0.4)
    absent = _maybe(rng, 0.25)
    determiner = NO if absent else (rng.choice((MANY, SOME, TWO, THREE)) if plural else A)
    adjective = _one(rng, _adjectives(noun)) if _maybe(rng, 0.3) else None
    thing = noun_phrase(noun, plural, determiner, adjective)
    place = _place(rng)
    is_past = _maybe(rng, 0.3)
    en = ("were" if plural else "was") if is_past else ("are" if plural else "is")
    return (
        f"there {en} {thing.en} {place.en}.",
        f"{place.de} {'gab' if is_past else 'gibt'} es {thing.de['acc']}.",
    )


def _trying(rng: random.Random) -> Sentences:
    """``try to open the door``: an infinitive with ``zu``."""
    verb = _one(rng, lexicon.TRYING)
    subject = _human(rng)
    tense: Tense = "past" if _maybe(rng, 0.5) else "present"
    main = Clause(subject, verb, tense)
    while True:
        deed = _one(rng, _BY_FRAME[rng.choices(_FRAMES, _FRAME_WEIGHTS)[0]])
        if "person" in deed.subjects and not deed.stative and deed.whole not in _UNWILLING:
            break
    clause = _clause(rng, verb=deed, subject=subject, tense="present", negation="")
    clause = replace(clause, time=None, frequency=None)
    return (
        f"{english(main)} to {english_predicate(clause, infinitive=True)}.",
        f"{german(main, 'main')}, {german_infinitive(clause)}.",
    )


_PLEASE = lexicon.Verb(
    "gefallen", "gefällt", "gefallen", "haben", "like", "liked", "liked", "dat", _PERSON, _PERSON, stative=True
)


def _liking(rng: random.Random) -> Sentences:
    """Who likes is the subject in English, and what is liked is the subject in German."""
    who = _human(rng)
    kinds = frozenset({"clothing", "thing", "sight", "text", "private"})
    what = _noun_phrase(rng, _nouns(kinds), known=True)
    tense: Tense = "present" if _maybe(rng, 0.6) else "past"
    negation: Negation = "not" if _maybe(rng, 0.25) else ""
    liker = Clause(who, _PLEASE, tense, acc=what, negation=negation)
    pleaser = Clause(what, _PLEASE, tense, negation=negation)
    finite, rest = german(pleaser, "question").split(" ", 1)
    if who.pronoun and _maybe(rng, 0.4):
        return english_question(liker) + "?", f"{finite} {who.de['dat']} {rest}?"
    return english(liker) + ".", f"{who.de['dat']} {finite} {rest}."


_KINDS: tuple[Callable[[random.Random], Sentences], ...] = (
    _statement,
    _yes_no,
    _wh,
    _address,
    _adverbial,
    _content,
    _about_it,
    _being,
    _there_is,
    _trying,
    _liking,
)
_KIND_WEIGHTS = (36, 7, 8, 3, 14, 9, 9, 5, 2, 5, 2)


def _capitalised(text: str) -> str:
    return text[0].upper() + text[1:]


def _finished(text: str) -> str:
    """Commas that meet another mark give way to it."""
    return _capitalised(re.sub(r",+(?=[.,?])", "", text))


def sentence_pair(rng: random.Random) -> dict[str, str]:
    """A sentence and its translation."""
    en, de = rng.choices(_KINDS, _KIND_WEIGHTS)[0](rng)
    return {"en": _finished(en), "de": _finished(de)}


def grammar_source(name: str = "builtin:grammar-de", *, size: int = 20_000, seed: int = 0) -> GeneratedSource:
    """Pairs with the fields ``en`` and ``de``; ``size`` of them for training and up to 1,000 each held out."""
    return GeneratedSource(
        name,
        "grammar-de",
        VERSION,
        sentence_pair,
        lambda example: example["en"],
        size=size,
        held_out=_HELD_OUT,
        seed=seed,
        note="English-German sentences generated from a grammar",
    )
