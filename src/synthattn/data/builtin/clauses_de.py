"""One clause, put into words twice: in English order, and in German order for each kind of German clause."""

from dataclasses import dataclass
from typing import Literal

from synthattn.data.builtin.inflect_de import contracted, past, present
from synthattn.data.builtin.inflect_en import third_person
from synthattn.data.builtin.lexicon_de import BE, Pair, Verb
from synthattn.data.builtin.phrases_de import Phrase

Tense = Literal["present", "past", "future", "perfect"]
Negation = Literal["", "not", "kein", "never", "not yet", "not yet kein", "already", "never yet"]
Form = Literal["main", "question", "final"]


@dataclass(frozen=True, slots=True)
class Modal:
    """A modal verb. English ones are auxiliaries (``can``), or verbs with ``to`` (``want``), or ``be allowed``."""

    en: str
    style: Literal["auxiliary", "verb", "allowed"]
    de: str
    plural: str
    is_past: bool = False

    def german(self, person: int, plural: bool) -> str:
        if plural:
            return self.plural
        if person != 2:
            return self.de
        return self.de + ("t" if self.de.endswith("s") else "st")


CAN = Modal("can", "auxiliary", "kann", "können")
SHOULD = Modal("should", "auxiliary", "sollte", "sollten")
WANT = Modal("want", "verb", "will", "wollen")
HAVE_TO = Modal("have", "verb", "muss", "müssen")
MAY = Modal("be", "allowed", "darf", "dürfen")
COULD = Modal("could", "auxiliary", "konnte", "konnten", True)
WANTED = Modal("want", "verb", "wollte", "wollten", True)
HAD_TO = Modal("have", "verb", "musste", "mussten", True)
WAS_ALLOWED = Modal("be", "allowed", "durfte", "durften", True)
MODALS = (CAN, SHOULD, WANT, HAVE_TO, MAY)
PAST_MODALS = (COULD, WANTED, HAD_TO, WAS_ALLOWED)

# English before the verb, English at the end, German.
_ADVERBS: dict[str, tuple[str, str, str]] = {
    "": ("", "", ""),
    "not": ("not", "", "nicht"),
    "kein": ("not", "", ""),
    "never": ("never", "", "nie"),
    "not yet": ("not", "yet", "noch nicht"),
    "not yet kein": ("not", "yet", "noch"),
    "already": ("already", "", "schon"),
    "never yet": ("never", "", "noch nie"),
}
_WILL = {1: "werde", 2: "wirst", 3: "wird"}
_HABEN = {1: "habe", 2: "hast", 3: "hat"}
_SEIN = {1: "bin", 2: "bist", 3: "ist"}


@dataclass(frozen=True, slots=True)
class Clause:
    """Who does what to whom, when, how and where."""

    subject: Phrase
    verb: Verb
    tense: Tense = "present"
    modal: Modal | None = None
    acc: Phrase | None = None
    dat: Phrase | None = None
    prep: Phrase | None = None
    """The object of the verb's own preposition."""
    time: Pair | None = None
    frequency: Pair | None = None
    manner: Pair | None = None
    places: tuple[Pair, ...] = ()
    """Companions, means, places and directions, in German order; English has them in the opposite order."""
    predicate: Pair | None = None
    negation: Negation = ""

    @property
    def relatives(self) -> tuple[Phrase, ...]:
        """The objects with a relative clause, which follows the whole German clause."""
        return tuple(p for p in (self.acc, self.dat, self.prep) if p is not None and p.relative is not None)


def _be(subject: Phrase, is_past: bool) -> str:
    many = subject.plural or subject.person == 2
    if is_past:
        return "were" if many else "was"
    return "are" if many else "am" if subject.person == 1 else "is"


def _english_finite(verb: str, past_form: str, subject: Phrase, is_past: bool, split: bool) -> tuple[str, str]:
    """The auxiliary and the verb; ``do`` where an auxiliary is needed."""
    if split:
        return ("did" if is_past else "does" if subject.third_singular else "do"), verb
    if is_past:
        return "", past_form
    return "", third_person(verb) if subject.third_singular else verb


def _english_verbs(clause: Clause, split: bool) -> tuple[str, str]:
    verb, subject, modal = clause.verb, clause.subject, clause.modal
    if modal is not None:
        if modal.style == "auxiliary":
            return modal.en, verb.en
        if modal.style == "allowed":
            return _be(subject, modal.is_past), f"allowed to {verb.en}"
        past_form = "had" if modal.en == "have" else modal.en + "ed"
        aux, form = _english_finite(modal.en, past_form, subject, modal.is_past, split)
        return aux, f"{form} to {verb.en}"
    if clause.tense == "future":
        return "will", verb.en
    if clause.tense == "perfect":
        return "has" if subject.third_singular else "have", verb.en_participle
    if verb is BE:
        return _be(subject, clause.tense == "past"), ""
    return _english_finite(verb.en, verb.en_past, subject, clause.tense == "past", split)


def _english_objects(clause: Clause) -> list[str]:
    """Objects with the verb's particle and prepositions."""
    verb, acc, dat = clause.verb, clause.acc, clause.dat
    named = [_with_relative(p) for p in (acc,) if p is not None]
    if clause.prep is not None:
        return [verb.particle, verb.en_prep, _with_relative(clause.prep)]
    if dat is None:
        particle_last = acc is not None and acc.pronoun
        parts = [verb.en_prep, *named]
        return [*parts, verb.particle] if particle_last else [verb.particle, *parts]
    if acc is None:
        return [verb.particle, verb.en_prep, _with_relative(dat)]
    if acc.pronoun or verb.frame == "explain":
        return [*named, "to", _with_relative(dat)]
    return [_with_relative(dat), *named]


def _with_relative(phrase: Phrase) -> str:
    return phrase.en_object if phrase.relative is None else f"{phrase.en_object} {phrase.relative[0]}"


def _joined(parts: list[str]) -> str:
    return " ".join(part for part in parts if part)


def english_predicate(clause: Clause, *, front: bool = False, infinitive: bool = False) -> str:
    """All but the subject. ``front``: the time has moved to the front. ``infinitive``: after ``to``."""
    before, after, _ = _ADVERBS[clause.negation]
    aux, main = ("", clause.verb.en) if infinitive else _english_verbs(clause, before == "not")
    often = "" if clause.frequency is None or front else clause.frequency.en
    if aux == "can" and before == "not":
        aux, before = "cannot", ""
    return _joined([aux, before, often, main, *_english_rest(clause, front), after])


def _english_rest(clause: Clause, front: bool) -> list[str]:
    return [
        *_english_objects(clause),
        "" if clause.predicate is None else clause.predicate.en,
        "" if clause.manner is None else clause.manner.en,
        *(place.en for place in reversed(clause.places)),
        "" if clause.time is None or front else clause.time.en,
    ]


def english(clause: Clause, *, front: bool = False) -> str:
    """A statement, or what follows a conjunction."""
    subject = clause.subject
    text = subject.en if subject.relative is None else f"{subject.en} {subject.relative[0]}"
    statement = _joined([text, english_predicate(clause, front=front)])
    opening = clause.time or clause.frequency
    if not front or opening is None:
        return statement
    return f"{opening.en}, {statement}" if " " in opening.en else f"{opening.en} {statement}"


def english_question(clause: Clause, word: str = "") -> str:
    """A question; ``word`` asks for what is missing."""
    before, after, _ = _ADVERBS[clause.negation]
    aux, main = _english_verbs(clause, True)
    often = "" if clause.frequency is None else clause.frequency.en
    return _joined([word, aux, clause.subject.en, before, often, main, *_english_rest(clause, False), after])


def _german_verbs(clause: Clause) -> tuple[str, list[str]]:
    """The finite verb, and what closes the clause after the objects, in that order."""
    verb, person, plural = clause.verb, clause.subject.person, clause.subject.plural
    if clause.modal is not None:
        return clause.modal.german(person, plural), [verb.whole]
    if clause.tense == "future":
        return "werden" if plural else _WILL[person], [verb.whole]
    if clause.tense == "present":
        return present(verb, person, plural), []
    if clause.tense == "past" and verb.past:
        return past(verb.past, person, plural), []
    if verb.aux == "sein":
        return "sind" if plural else _SEIN[person], [verb.prefix + verb.participle]
    return "haben" if plural else _HABEN[person], [verb.prefix + verb.participle]


def german_middle(clause: Clause, *, front: bool = False) -> list[str]:
    """What stands between the German verbs: pronouns, time, what is known, adverbs, what is new, place."""
    acc, dat, verb = clause.acc, clause.dat, clause.verb
    early: list[str] = []
    if acc is not None and acc.pronoun:
        early.append(acc.de["acc"])
    if dat is not None and dat.pronoun:
        early.append(dat.de["dat"])
    time = "" if clause.time is None or front else clause.time.de
    known: list[str] = []
    new: list[str] = []
    if dat is not None and not dat.pronoun:
        (known if dat.definite or acc is not None else new).append(dat.de["dat"])
    if acc is not None and not acc.pronoun:
        (known if acc.definite else new).append(acc.de["acc"])
    adverbs = [
        "" if clause.frequency is None or front else clause.frequency.de,
        _ADVERBS[clause.negation][2],
        "" if clause.manner is None else clause.manner.de,
    ]
    late = [place.de for place in clause.places]
    if clause.prep is not None:
        late.append(contracted(verb.de_prep, clause.prep.de[verb.de_case], clause.prep.article))
    if clause.predicate is not None:
        late.append(clause.predicate.de)
    return [*early, time, *known, *adverbs, *new, *late]


def german(clause: Clause, form: Form, *, front: bool = False, word: str = "") -> str:
    """A clause with its verb second, first or last. ``word`` opens it: a question word or a conjunction.

    A subject's relative clause stays with it, between commas; those of objects follow the clause.
    """
    subject = clause.subject.de["nom"]
    if clause.subject.relative is not None:
        subject += f", {clause.subject.relative[1]},"
    finite, closing = _german_verbs(clause)
    middle = german_middle(clause, front=front)
    if form == "final":
        if not closing:
            finite = clause.verb.prefix + finite
        parts = [word, subject, *middle, *closing, finite]
    else:
        if not closing:
            closing = [clause.verb.prefix]
        opening = clause.time or clause.frequency
        if front and opening is not None:
            parts = [opening.de, finite, subject, *middle, *closing]
        elif form == "question":
            parts = [word, finite, subject, *middle, *closing]
        else:
            parts = [subject, finite, *middle, *closing]
    text = _joined(parts)
    for phrase in clause.relatives:
        if phrase.relative is not None:
            text += f", {phrase.relative[1]}"
    return text


def german_infinitive(clause: Clause) -> str:
    """An infinitive with ``zu``, which stands inside a separable verb."""
    verb = clause.verb
    last = [f"{verb.prefix}zu{verb.infinitive}"] if verb.prefix else ["zu", verb.infinitive]
    return _joined([*german_middle(clause), *last])


def german_shared(clause: Clause) -> str:
    """What follows ``und`` when the subject is said already, and in the past the auxiliary too."""
    finite, closing = _german_verbs(clause)
    return _joined([*([] if closing else [finite]), *german_middle(clause), *(closing or [clause.verb.prefix])])
