"""English-German sentence pairs from a grammar: a translation corpus of any size that needs no download.

A clause is a set of words by their role, and a language is an order of roles: German verbs move to the second place or
to the end, prefixes split off, and articles, adjectives and pronouns take gender and case from nouns. The German
sentence is a function of the English one.
"""

import random
import re
from dataclasses import dataclass, replace
from functools import cache

from synthattn.data.builtin import phrases_de as phrases
from synthattn.data.builtin.generated import generator
from synthattn.data.builtin.phrases_de import Adjective, Noun, Phrase, Verb, share
from synthattn.data.builtin.words import third_person

VERSION = 2
Sentences = tuple[str, str]

_OBJECTS = "verb preposition acc_pronoun particle dat acc prepositional predicate place time"
ENGLISH = {
    "main": f"opening subject aux not often {_OBJECTS}",
    "question": f"opening aux subject often {_OBJECTS}",
    "infinitive": _OBJECTS,
}
_MIDDLE = "acc_pronoun dat_pronoun time dat acc often not new place prepositional predicate"
GERMAN = {
    "main": f"subject finite {_MIDDLE} end after",
    "question": f"opening finite subject {_MIDDLE} end after",
    "final": f"opening subject {_MIDDLE} last after",
    "infinitive": f"{_MIDDLE} zu after",
}
# The German finite form of each English auxiliary; any other tense is "present" or "past".
MODALS = {"can": "kann", "must": "muss", "should": "sollte", "will": "wird"}
_TENSES = {"present": 38, "past": 34, "can": 8, "must": 6, "should": 6, "will": 8}
_FRAMES = {"acc": 40, "intransitive": 14, "dat": 12, "give": 14, "prep": 8, "motion": 8, "be": 8}
_DETERMINERS = (phrases.THE, phrases.A, phrases.THIS, phrases.EVERY, *phrases.POSSESSIVES)
_OF_PLURALS = (phrases.THE, phrases.BARE, phrases.THIS, phrases.TWO, *phrases.POSSESSIVES)
_WEIGHTS = (48, 25, 8, 4, 3, 3, 3, 3, 3)


@dataclass(frozen=True, slots=True)
class Clause:
    """Words of both languages by their role; the verbs are added when the order is known."""

    subject: Phrase
    verb: Verb
    tense: str
    negated: bool
    en: dict[str, str]
    de: dict[str, str]
    acc: Phrase | None = None


def _ordered(order: str, words: dict[str, str]) -> str:
    return " ".join(words[role] for role in order.split() if words.get(role))


def english(clause: Clause, order: str, opening: str = "") -> str:
    """Put the English words in an order of ``ENGLISH``."""
    verb, tense, third = clause.verb, clause.tense, clause.subject.person == 3 and not clause.subject.plural
    plural = clause.subject.plural or clause.subject.person == 2
    if order == "infinitive":
        aux, main = "", verb.en
    elif tense in MODALS:
        aux, main = tense, verb.en
    elif verb.frame == "be":
        present = "are" if plural else "is" if third else "am"
        aux, main = present if tense == "present" else "were" if plural else "was", ""
    elif order == "question" or clause.negated:
        aux, main = "did" if tense == "past" else "does" if third else "do", verb.en
    else:
        aux, main = "", verb.en_past if tense == "past" else third_person(verb.en) if third else verb.en
    words = {"opening": opening, "aux": aux, "verb": main, "not": "not" if clause.negated else ""}
    return _ordered(ENGLISH[order], clause.en | words).replace("can not", "cannot")


def german(clause: Clause, order: str, opening: str = "") -> str:
    """Put the German words in an order of ``GERMAN``; the past is the perfect but for ``war`` and ``hatte``."""
    verb, tense = clause.verb, clause.tense
    third, end = verb.third, verb.prefix
    if tense in MODALS:
        third, end = MODALS[tense], verb.prefix + verb.infinitive
    elif tense == "past" and verb.infinitive in ("sein", "haben"):
        third = {"sein": "war", "haben": "hatte"}[verb.infinitive]
    elif tense == "past":
        third, end = "ist" if verb.aux == "sein" else "hat", verb.prefix + verb.participle
    finite = _finite(third, verb.infinitive, clause.subject)
    last = end + finite if end == verb.prefix else f"{end} {finite}"
    zu = f"{verb.prefix}zu{verb.infinitive}" if verb.prefix else f"zu {verb.infinitive}"
    words = {"opening": opening, "finite": finite, "end": end, "last": last, "zu": zu}
    return _ordered(GERMAN[order], clause.de | words)


def _finite(third: str, infinitive: str, subject: Phrase) -> str:
    number = 3 if subject.plural else subject.person - 1
    if third in phrases.FINITE:
        return phrases.FINITE[third][number]
    stem = third.removesuffix("t")
    second = third if stem.endswith(("s", "ß", "z")) else stem + "st"
    return (infinitive.removesuffix("n"), second, third, infinitive)[number]


@cache
def _nouns(kinds: str) -> tuple[Noun, ...]:
    return tuple(noun for noun in phrases.NOUNS if share(noun.kinds, kinds))


@cache
def _adjectives(kinds: str) -> tuple[Adjective, ...]:
    return tuple(adjective for adjective in phrases.ADJECTIVES if share(adjective.kinds, kinds))


@cache
def _verbs(frames: str, role: str = "subjects", kinds: str = "") -> tuple[Verb, ...]:
    return tuple(v for v in phrases.VERBS if share(v.frame, frames) and (not kinds or share(getattr(v, role), kinds)))


def _tense(rng: random.Random) -> str:
    return rng.choices(list(_TENSES), list(_TENSES.values()))[0]


def _phrase(rng: random.Random, kinds: str, definite: bool = False, negated: bool = False) -> Phrase:
    """Return a phrase with a noun of one of the kinds; if ``negated``, an indefinite phrase is made with ``kein``."""
    noun = rng.choice(_nouns(kinds))
    plural = bool(noun.de_plural) and rng.random() < 0.25
    adjectives = _adjectives(noun.kinds)
    adjective = rng.choice(adjectives) if adjectives and rng.random() < 0.3 else None
    determiner = rng.choices(_OF_PLURALS if plural else _DETERMINERS, _WEIGHTS)[0]
    if share(noun.kinds, "kin"):
        determiner = rng.choice(phrases.POSSESSIVES)
    elif not determiner.definite and (definite or negated or not noun.de_plural):
        determiner = phrases.THE if definite else phrases.NOT_A if negated else phrases.BARE
    return phrases.noun_phrase(noun, plural, determiner, adjective)


def _somebody(rng: random.Random, kinds: str, subject: Phrase, definite: bool = False, negated: bool = False) -> Phrase:
    """Return a pronoun, a name or a phrase other than the subject, since reflexive sentences are not made."""
    chance = rng.random() if share(kinds, "person") else 1.0
    if chance < 0.28:
        return rng.choice([p for p in phrases.PEOPLE if p.person == 3 or p.person != subject.person])
    if chance < 0.38:
        found = phrases.name(*rng.choice(phrases.NAMES))
        return phrases.PRONOUNS["they"] if found.en == subject.en else found
    return _phrase(rng, kinds, definite, negated)


def _clause(rng: random.Random, verb: Verb | None, tense: str, plain: bool = False, **given: Phrase) -> Clause:
    """Return a random clause with given phrases by their case; if ``plain``, without optional parts."""
    verb = verb or rng.choice(_verbs(rng.choices(list(_FRAMES), list(_FRAMES.values()))[0]))
    frame, acc, dat = verb.frame, given.get("acc"), given.get("dat")
    subject = given.get("nom") or _somebody(rng, verb.subjects, phrases.WHO, plain or rng.random() < 0.4)
    if not (plain or given) and rng.random() < 0.12:
        subject = _with_relative(rng, subject, verb)
    if (verb.stative and tense in MODALS) or (tense == "past" and verb.en == verb.en_past):
        tense = "present"  # "they read" is taken for the present
    negated = not (plain or given) and subject.determiner.definite and tense != "must" and rng.random() < 0.18
    plain = plain or bool(subject.relative)
    en = {"subject": subject.en, "preposition": verb.en_preposition, "particle": verb.particle}
    de = {"subject": subject.de["nom"] + subject.relative}
    if frame in ("dat", "give"):
        dat = dat or _somebody(rng, "person" if frame == "give" else verb.objects, subject, definite=negated)
        en["dat"], de["dat_pronoun" if dat.pronoun else "dat"] = dat.en_object, dat.de["dat"]
    if frame == "give":
        acc = _phrase(rng, verb.objects, negated=negated)
    elif frame == "acc" and acc is None:
        acc = _somebody(rng, verb.objects, subject, negated=negated)
        acc = acc if plain or rng.random() < 0.85 else _with_relative(rng, acc, verb)
        plain = plain or bool(acc.relative)
    elif frame == "prep":
        other = _somebody(rng, verb.objects, subject, definite=negated)
        en["prepositional"] = other.en_object
        de["prepositional"] = phrases.after_preposition(verb.de_preposition, other, verb.case)
    elif frame == "be":
        fitting = rng.choice([a for a in _adjectives(subject.kinds) if a.en not in subject.en])
        en["predicate"], de["predicate"] = fitting.en, fitting.de
    if acc is not None:
        en["acc_pronoun" if acc.pronoun else "acc"], de["after"] = acc.en_object, acc.relative
        de["acc_pronoun" if acc.pronoun else "acc" if acc.determiner.definite else "new"] = acc.de["acc"]
    if negated and (acc is None or acc.determiner.definite):
        de["not"] = "nicht"
    if frame == "motion" or (not (plain or negated) and frame == "intransitive" and rng.random() < 0.4):
        en["place"], de["place"] = _place(rng, verb)
    if not (plain or verb.stative) and rng.random() < 0.4:
        role = "often" if tense == "present" and not negated and rng.random() < 0.4 else "time"
        when = role if role == "often" else "future" if tense in MODALS else tense
        en[role], de[role] = rng.choice([(en, de) for kind, en, de in phrases.TIMES if kind == when])
    return Clause(subject, verb, tense, negated, en, de, acc)


def _place(rng: random.Random, verb: Verb) -> Sentences:
    """Return a place to be in or to go to, with the preposition and the case that it needs."""
    noun = rng.choice(_nouns(verb.objects or "place"))
    adjectives = _adjectives(noun.kinds)
    adjective = rng.choice(adjectives) if adjectives and rng.random() < 0.2 else None
    place = phrases.noun_phrase(noun, False, rng.choice((phrases.THE, phrases.THE, phrases.A)), adjective)
    en, de, case = (noun.to if verb.frame == "motion" else f"{noun.at} dat").split()
    return f"{en} {place.en}", phrases.after_preposition(de, place, "dat" if case == "dat" else "acc")


def _with_relative(rng: random.Random, phrase: Phrase, but: Verb) -> Phrase:
    """Add a relative clause whose subject or object is the phrase, if there is a verb for it."""
    case = rng.choice(phrases.CASES)
    role, frames = ("subjects", " ".join(_FRAMES)) if case == "nom" else ("objects", case)
    verbs = [verb for verb in _verbs(frames, role, phrase.kinds) if verb is not but]
    if phrase.noun is None or share(phrase.kinds, "kin") or not verbs:
        return phrase
    clause = _clause(rng, rng.choice(verbs), rng.choice(("present", "past")), plain=True, **{case: phrases.gap(phrase)})
    word = "who" if case == "nom" and share(phrase.kinds, "person") else "that"
    en = f"{phrase.en} {english(clause, 'main', word)}"
    relative = f", {german(clause, 'final', phrases.RELATIVE[case, phrase.slot])},"
    return replace(phrase, en=en, en_object=en, relative=relative)


def _statement(rng: random.Random) -> Sentences:
    clause = _clause(rng, None, _tense(rng))
    if "time" not in clause.en or rng.random() < 0.5:
        return f"{english(clause, 'main')}.", f"{german(clause, 'main')}."
    time = clause.en.pop("time"), clause.de.pop("time")
    return f"{english(clause, 'main', f'{time[0]},')}.", f"{german(clause, 'question', time[1])}."


def _question(rng: random.Random) -> Sentences:
    en, de = rng.choice((("", ""), ("why", "warum"), ("when", "wann")))
    clause = _clause(rng, None, _tense(rng), plain=True)
    return f"{english(clause, 'question', en)}?", f"{german(clause, 'question', de)}?"


def _object_question(rng: random.Random) -> Sentences:
    """Ask for somebody or something; the German question word has a case, the English one does not."""
    case = rng.choice(phrases.CASES)
    verb = rng.choice(_verbs("acc" if case == "nom" else case, kinds="person"))
    if case == "nom":
        clause = _clause(rng, verb, _tense(rng), nom=phrases.WHO)
        return f"{english(clause, 'main')}?", f"{german(clause, 'main')}?"
    clause = _clause(rng, verb, _tense(rng), plain=True, **{case: phrases.gap(phrases.WHO)})
    en, de = ("who", phrases.WHO.de[case]) if share(verb.objects, "person") else ("what", "was")
    return f"{english(clause, 'question', en)}?", f"{german(clause, 'question', de)}?"


def _adverbial(rng: random.Random) -> Sentences:
    """Return a main clause with a reason, a concession or a time; its pronouns agree with their nouns."""
    main = _clause(rng, None, rng.choice(("present", "past")), plain=True)
    acc, tense = main.acc, main.tense
    en, de = rng.choice((("because", "weil"), ("although", "obwohl"), ("when", "als" if tense == "past" else "wenn")))
    person = share(main.subject.kinds, "person")
    if person and acc is not None and acc.noun and not share(acc.kinds, "person") and _adjectives(acc.kinds):
        sub = _clause(rng, _verbs("be")[0], tense, plain=True, nom=phrases.pronoun_for(acc))
    elif person and main.subject.slot != "n" and rng.random() < 0.6:
        sub = _clause(rng, _verbs("be")[0], tense, plain=True, nom=phrases.pronoun_for(main.subject))
    else:
        sub = _clause(rng, None, tense, plain=True)
    if sub.tense != tense:
        return _adverbial(rng)
    sub_en, sub_de = english(sub, "main", en), german(sub, "final", de)
    if rng.random() < 0.4:
        return f"{sub_en}, {english(main, 'main')}.", f"{sub_de}, {german(main, 'question')}."
    return f"{english(main, 'main')} {sub_en}.", f"{german(main, 'main')}, {sub_de}."


def _content(rng: random.Random) -> Sentences:
    """Return a verb of saying, asking or trying with its clause or infinitive."""
    main = _clause(rng, rng.choice(_verbs("that whether to")), rng.choice(("present", "past")), plain=True)
    en, de = english(main, "main"), german(main, "main")
    if main.verb.frame == "to":
        deed = rng.choice([verb for verb in _verbs("acc dat give intransitive motion") if not verb.stative])
        clause = _clause(rng, deed, "will", plain=True, nom=main.subject)
        return f"{en} to {english(clause, 'infinitive')}.", f"{de}, {german(clause, 'infinitive')}."
    clause = _clause(rng, None, "past" if main.tense == "past" else _tense(rng))
    if main.tense == "past" and clause.tense != "past":
        return _content(rng)
    conjunction = "dass" if main.verb.frame == "that" else "ob"
    return f"{en} {english(clause, 'main', main.verb.frame)}.", f"{de}, {german(clause, 'final', conjunction)}."


_KINDS = {_statement: 44, _question: 8, _object_question: 7, _adverbial: 20, _content: 16}


def _finished(text: str) -> str:
    """Capitalise a sentence, and drop commas in front of other marks."""
    text = re.sub(r",+\s*(?=[,.?])", "", text.replace(" ,", ","))
    return text[0].upper() + text[1:]


def sentence_pair(rng: random.Random) -> dict[str, str]:
    """Return a sentence and its translation."""
    en, de = rng.choices(list(_KINDS), list(_KINDS.values()))[0](rng)
    return {"en": _finished(en), "de": _finished(de)}


grammar_source = generator(
    "grammar-de",
    VERSION,
    sentence_pair,
    lambda example: example["en"],
    default=20_000,
    held_out=1000,
    note="English-German sentences generated from a grammar",
)
"""Make a source of pairs with the fields ``en`` and ``de``."""
