"""German forms: articles, endings of adjectives and nouns, finite verbs, contractions."""

from typing import Literal

from synthattn.data.builtin.lexicon_de import Gender, Noun, Verb

Case = Literal["nom", "acc", "dat", "gen"]
Slot = Literal["m", "f", "n", "pl"]
Declension = Literal["weak", "mixed", "strong"]

ARTICLE: dict[Case, dict[Slot, str]] = {
    "nom": {"m": "der", "f": "die", "n": "das", "pl": "die"},
    "acc": {"m": "den", "f": "die", "n": "das", "pl": "die"},
    "dat": {"m": "dem", "f": "der", "n": "dem", "pl": "den"},
    "gen": {"m": "des", "f": "der", "n": "des", "pl": "der"},
}
_STRONG: dict[Case, dict[Slot, str]] = {
    "nom": {"m": "er", "f": "e", "n": "es", "pl": "e"},
    "acc": {"m": "en", "f": "e", "n": "es", "pl": "e"},
    "dat": {"m": "em", "f": "er", "n": "em", "pl": "en"},
    "gen": {"m": "es", "f": "er", "n": "es", "pl": "er"},
}
# Where ein, kein and the possessives have no ending, and the adjective must show the gender.
_BARE = {("nom", "m"), ("nom", "n"), ("acc", "n")}
_CONTRACTIONS = {
    ("in", "dem"): "im",
    ("in", "das"): "ins",
    ("an", "dem"): "am",
    ("an", "das"): "ans",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
    ("von", "dem"): "vom",
}


def slot(gender: Gender, plural: bool) -> Slot:
    return "pl" if plural else gender


def der_word(stem: str, case: Case, where: Slot) -> str:
    """``dieser``, ``jeder``, ``alle``, ``viele`` from their stems."""
    return stem + _STRONG[case][where]


def ein_word(stem: str, case: Case, where: Slot) -> str:
    """``ein``, ``kein``, ``mein``, ... from their stems."""
    return stem if (case, where) in _BARE else stem + _STRONG[case][where]


def adjective_ending(declension: Declension, case: Case, where: Slot) -> str:
    """The ending after a word that shows the case (weak), that may show it (mixed), or after none (strong)."""
    if declension == "strong" or (declension == "mixed" and (case, where) in _BARE):
        # The noun shows the genitive itself.
        return "en" if case == "gen" and where in ("m", "n") else _STRONG[case][where]
    if where == "pl" or case in ("dat", "gen") or (case, where) == ("acc", "m"):
        return "en"
    return "e"


def noun_form(noun: Noun, plural: bool, case: Case) -> str:
    if plural and noun.de_plural is not None:
        needs_n = case == "dat" and not noun.de_plural.endswith(("n", "s"))
        return noun.de_plural + "n" * needs_n
    if noun.weak:
        return noun.de if case == "nom" else noun.de + noun.weak
    return noun.genitive or noun.de if case == "gen" else noun.de


def relative_pronoun(case: Case, where: Slot) -> str:
    return "denen" if (case, where) == ("dat", "pl") else ARTICLE[case][where]


def contracted(preposition: str, phrase: str, article: bool) -> str:
    """A preposition before a phrase, as one word with its definite article if there is a word for both."""
    first, _, rest = phrase.partition(" ")
    both = _CONTRACTIONS.get((preposition, first)) if article else None
    return f"{preposition} {phrase}" if both is None else f"{both} {rest}"


def present(verb: Verb, person: int, plural: bool) -> str:
    """The finite form, without the separable prefix."""
    if plural:
        return "sind" if verb.infinitive == "sein" else verb.infinitive
    if person == 3:
        return verb.third
    if person == 2:
        stem = verb.third[:-1]
        return verb.second or (verb.third if stem.endswith(("s", "ß", "z")) else stem + "st")
    return verb.first or verb.infinitive.removesuffix("n").removesuffix("e") + "e"


def past(form: str, person: int, plural: bool) -> str:
    """From the first person of a simple past: ``war``, ``hatte``, ``konnte``."""
    if plural:
        return form + ("n" if form.endswith("e") else "en")
    return form + "st" if person == 2 else form
