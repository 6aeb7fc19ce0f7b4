"""The German of the grammar is read and checked by tables of its own: it shares the lexicon's word lists only."""

import json
import os
import re
import subprocess
import sys

import pytest

from synthattn.data.builtin import BUILTINS, open_builtin
from synthattn.data.builtin.lexicon_de import ADJECTIVES, NAMES, NOUNS

SLOTS = ("m", "f", "n", "pl")
Reading = tuple[str, str]


def words_of(text: str) -> set[str]:
    return set(text.split())


def table(**rows: str) -> dict[Reading, str]:
    """Forms by case and slot; a dash is an empty ending."""
    cells = {(case, s): form for case, row in rows.items() for s, form in zip(SLOTS, row.split(), strict=True)}
    return {reading: form.replace("-", "") for reading, form in cells.items()}


DER = table(nom="der die das die", acc="den die das die", dat="dem der dem den", gen="des der des der")
DIESER = table(nom="er e es e", acc="en e es e", dat="em er em en", gen="es er es er")
EIN = table(nom="- e - e", acc="en e - e", dat="em er em en", gen="es er es er")
WEAK = table(nom="e e e en", acc="en e e en", dat="en en en en", gen="en en en en")
MIXED = table(nom="er e es en", acc="en e es en", dat="en en en en", gen="en en en en")
STRONG = table(nom="er e es e", acc="en e es e", dat="em er em en", gen="en er en er")
CONTRACTED = {
    "im": {("dat", "m"), ("dat", "n")},
    "am": {("dat", "m"), ("dat", "n")},
    "zum": {("dat", "m"), ("dat", "n")},
    "vom": {("dat", "m"), ("dat", "n")},
    "zur": {("dat", "f")},
    "ins": {("acc", "n")},
    "ans": {("acc", "n")},
}
CASES = {
    "dat": "mit von zu nach in an auf unter neben hinter vor",
    "acc": "ohne über in an auf unter neben hinter vor",
    "gen": "wegen trotz",
}
PREPOSITIONS = {
    word: {case for case, others in CASES.items() if word in others.split()}
    for row in CASES.values()
    for word in row.split()
}
NUMERALS = {"zwei", "drei"}


def determiners() -> dict[str, tuple[set[Reading], dict[Reading, str]]]:
    """Each determiner with its readings and the endings of adjectives after it."""
    found: dict[str, tuple[set[Reading], dict[Reading, str]]] = {}

    def add(word: str, reading: Reading, endings: dict[Reading, str]) -> None:
        found.setdefault(word, (set(), endings))[0].add(reading)

    for reading in DER:
        add(DER[reading], reading, WEAK)
        for stem in ("dies", "jed", "all"):
            if (stem == "jed" and reading[1] == "pl") or (stem == "all" and reading[1] != "pl"):
                continue
            add(stem + DIESER[reading], reading, WEAK)
        for stem in ("ein", "kein", "mein", "dein", "sein", "ihr", "unser"):
            if not (stem == "ein" and reading[1] == "pl"):
                add(stem + EIN[reading], reading, MIXED)
        for stem in ("viel", "einig"):
            if reading[1] == "pl":
                add(stem + DIESER[reading], reading, STRONG)
    for word, readings in CONTRACTED.items():
        found[word] = readings, WEAK
    return found


DETERMINERS = determiners()
STEMS = {adjective.stem for adjective in ADJECTIVES}
ALONE = {adjective.de for adjective in ADJECTIVES}
FIRST_NAMES = {name for name, _ in NAMES}

THIRD = words_of(
    """antwortet arbeitet backt baut behauptet benutzt beobachtet besucht bietet braucht bringt dankt denkt empfiehlt
    erklärt erzählt findet fliegt folgt fotografiert fragt fährt fängt füttert geht gehört gibt glaubt gratuliert
    hat hilft hofft holt hängt hört isst ist kauft kennt kocht kommt lacht legt leiht liebt liegt liest lächelt
    lädt läuft macht nimmt packt plant putzt reist repariert ruft räumt sagt schaltet schickt schließt schläft
    schneidet schreibt schwimmt sieht singt sitzt spielt spricht steht stellt stiehlt sucht tanzt trifft trinkt
    trägt träumt vergisst verkauft verliert verspricht versteht versucht vertraut wartet weckt weint weiß wirft
    wohnt wäscht zeichnet zeigt zieht öffnet gefällt regnet schneit scheint gab"""
)
INFINITIVES = words_of(
    """antworten arbeiten backen bauen behaupten benutzen beobachten besuchen bieten brauchen bringen danken denken
    empfehlen erklären erzählen essen fahren fangen finden fliegen folgen fotografieren fragen füttern geben gehen
    gehören glauben gratulieren haben helfen hoffen holen hängen hören kaufen kennen kochen kommen lachen laden
    laufen legen leihen lesen lieben liegen lächeln machen nehmen packen planen putzen reisen reparieren rufen
    räumen sagen schalten schicken schlafen schließen schneiden schreiben schwimmen sehen singen sitzen spielen
    sprechen stehen stehlen stellen suchen tanzen tragen treffen trinken träumen vergessen verkaufen verlieren
    versprechen verstehen versuchen vertrauen warten waschen wecken weinen werfen wissen wohnen zeichnen zeigen
    ziehen öffnen gefallen"""
)
AUXILIARIES = words_of(
    """bin bist ist sind war warst waren habe hast hat haben hatte hattest hatten werde wirst wird werden kann kannst
    können konnte konntest konnten will willst wollen wollte wolltest wollten muss musst müssen musste musstest
    mussten darf darfst dürfen durfte durftest durften sollte solltest sollten"""
)
PERFECT = words_of("bin bist ist sind habe hast hat haben")
# Second persons whose vowel or ending cannot be had from the third by adding an s.
SECOND = {form if form[:-1].endswith(("s", "ß", "z")) else form[:-1] + "st" for form in THIRD} | {"weißt"}
FIRST = {form.removesuffix("n") for form in INFINITIVES} | {"lächle", "füttere", "weiß"}
FINITE = THIRD | SECOND | FIRST | INFINITIVES | AUXILIARIES
SEPARABLE = {
    "ab": {"fahren", "holen", "schließen"},
    "an": {"bieten", "kommen", "rufen", "ziehen"},
    "auf": {"essen", "hängen", "räumen", "stehen", "wecken"},
    "aus": {"gehen", "schalten", "ziehen"},
    "ein": {"kaufen", "laden", "packen", "schalten", "schlafen"},
    "fern": {"sehen"},
    "mit": {"bringen"},
    "weg": {"laufen", "werfen"},
    "zu": {"hören", "machen"},
    "zurück": {"geben", "kommen"},
}
SPLIT_INFINITIVE = re.compile(rf"({'|'.join(SEPARABLE)})zu\w+n")
VOWELS = {"fährt": "fahren", "isst": "essen", "lädt": "laden", "schläft": "schlafen", "sieht": "sehen"}
VOWELS |= {"läuft": "laufen", "wirft": "werfen", "gibt": "geben", "esst": "essen"}
VOWELS |= {"fährst": "fahren", "lädst": "laden", "schläfst": "schlafen", "siehst": "sehen", "läufst": "laufen"}
VOWELS |= {"wirfst": "werfen", "gibst": "geben"}
PARTICIPLES = words_of(
    """abgefahren abgeholt abgeschlossen angeboten angekommen angerufen angezogen aufgegessen aufgehängt aufgeräumt
    aufgestanden aufgeweckt ausgegangen ausgeschaltet ausgezogen behauptet benutzt beobachtet besucht eingekauft
    eingeladen eingepackt eingeschaltet eingeschlafen empfohlen erklärt erzählt ferngesehen fotografiert
    geantwortet gearbeitet gebacken gebaut gebracht gebraucht gedacht gedankt gefahren gefangen geflogen gefolgt
    gefragt gefunden gefüttert gegangen gegeben gegessen geglaubt gehabt gehofft geholfen geholt gehört gekannt
    gekauft gekocht gelacht gelaufen gelegen gelegt gelesen geliebt geliehen gelächelt genommen geplant geputzt
    gereist gerufen gesagt geschickt geschlafen geschnitten geschrieben geschwommen gesehen gesessen gespielt
    gesprochen gestellt gestanden gestohlen gesucht gesungen getanzt getragen getroffen getrunken geträumt
    gewartet gewaschen geweint gewohnt gewusst gezeichnet gezeigt geöffnet gratuliert mitgebracht repariert
    vergessen verkauft verloren versprochen verstanden versucht vertraut weggelaufen weggeworfen zugehört
    zugemacht zurückgegeben zurückgekommen gefallen"""
)
MOVED = words_of(
    """abgefahren angekommen aufgestanden ausgegangen eingeschlafen gefahren geflogen gefolgt gegangen gelaufen
    gereist geschwommen weggelaufen zurückgekommen"""
)
SUBORDINATORS = {"dass", "weil", "wenn", "obwohl", "ob", "bevor", "während", "als", "wann", "warum"}
RELATIVES = {"der", "die", "das", "den", "dem", "denen"}
PRONOUNS = words_of("ich du er sie es wir mir dir ihm ihr uns ihnen")
ADVERBS = words_of("gestern heute morgen bald oft manchmal meistens")
ADVERBS |= words_of("montags dienstags mittwochs donnerstags freitags samstags sonntags")
DATIVE_VERBS = {"helfen", "danken", "folgen", "antworten", "vertrauen", "gratulieren"}
DATIVE_FORMS = {"hilft", "helfe", "hilfst"} | {
    form
    for verb in DATIVE_VERBS
    for form in (verb, verb[:-1], verb[:-2] + "t", verb[:-2] + "st", verb[:-1] + "t", verb[:-1] + "st")
}


def readings_of_nouns() -> dict[str, set[Reading]]:
    found: dict[str, set[Reading]] = {}

    def add(word: str, cases: str, slot: str) -> None:
        found.setdefault(word, set()).update((case, slot) for case in cases.split())

    for noun in NOUNS:
        if noun.weak:
            add(noun.de, "nom", "m")
            add(noun.de + noun.weak, "acc dat gen", "m")
        elif noun.gender == "f":
            add(noun.de, "nom acc dat gen", "f")
        else:
            add(noun.de, "nom acc dat", noun.gender)
            add(noun.genitive, "gen", noun.gender)
        if noun.de_plural is not None:
            add(noun.de_plural, "nom acc gen", "pl")
            add(noun.de_plural if noun.de_plural[-1] in "ns" else noun.de_plural + "n", "dat", "pl")
    return found


NOUN_READINGS = readings_of_nouns()


def adjective_ending(word: str) -> str | None:
    """The ending of an inflected adjective; None for any other word."""
    for ending in ("e", "em", "en", "er", "es"):
        if word.endswith(ending) and word.removesuffix(ending) in STEMS:
            return ending
    return None


def phrase(words: list[str], i: int) -> tuple[set[Reading], int]:
    """The cases and numbers that fit all words of the phrase that ends with the noun at i, and where it starts."""
    j = i
    endings = []
    # "Junge" is an adjective in the first place at most.
    while j and (ending := adjective_ending(words[j - 1].lower() if j == 1 else words[j - 1])) is not None:
        endings.append(ending)
        j -= 1
    before = words[j - 1] if j else ""
    readings = set(NOUN_READINGS[words[i]])
    after = STRONG
    if before.lower() in DETERMINERS:
        fits, after = DETERMINERS[before.lower()]
        readings &= fits
        j -= 1
    elif before.lower() in NUMERALS or before.removesuffix("s") in FIRST_NAMES:
        j -= 1
    readings = {r for r in readings if all(after[r] == ending for ending in endings)}
    preposition = words[j - 1].lower() if j else ""
    if preposition in PREPOSITIONS:
        readings = {r for r in readings if r[0] in PREPOSITIONS[preposition]}
    return readings, j


def wrong_phrases(de: str) -> list[str]:
    """The noun phrases for which no case and number fits all their words."""
    wrong = []
    for sentence in re.split(r"[.?,]\s*", de):
        words = sentence.split()
        for i, word in enumerate(words):
            # A surname is no noun here, nor is a title.
            if word in NOUN_READINGS and words[0] != "Herr" and (i == 0 or words[i - 1] != "Frau"):
                readings, start = phrase(words, i)
                if start == 0 and words[0] in RELATIVES:
                    # It may be a pronoun, and no article at all.
                    readings |= phrase(words[1:], i - 1)[0]
                if not readings:
                    wrong.append(" ".join(words[max(start - 1, 0) : i + 1]))
    return wrong


def is_finite(word: str) -> bool:
    return word in FINITE


def is_final_verb(word: str) -> bool:
    return is_finite(word) or any(word.startswith(p) and is_finite(word.removeprefix(p)) for p in SEPARABLE)


def infinitive_of(word: str) -> str:
    if word in VOWELS:
        return VOWELS[word]
    for end in ("est", "et", "st", "t", "e", ""):
        for infinitive in (word.removesuffix(end) + "en", word.removesuffix(end) + "n", word):
            if word.endswith(end) and infinitive in INFINITIVES:
                return infinitive
    return word


def kind(word: str, first: bool) -> str:
    """A letter for what a word can be at the start of a clause."""
    lower = word.lower() if first else word
    if word.removesuffix("s") in FIRST_NAMES or word in FIRST_NAMES:
        return "E"
    if lower in CONTRACTED or lower in PREPOSITIONS or lower == "während":
        return "P"
    if first and word in NOUN_READINGS and adjective_ending(lower) is None:
        return "N"
    if lower in PRONOUNS and lower not in DETERMINERS:
        return "R"
    if lower in DETERMINERS:
        return "D"
    if lower in NUMERALS:
        return "U"
    if lower in ADVERBS:
        return "B"
    if adjective_ending(lower) is not None or re.fullmatch(r"(letzt|nächst|schlecht)(e|en)", lower):
        return "A"
    return "N" if word[0].isupper() else "?"


# One constituent: a pronoun (some look like articles), a name, "Jungen", an adverb, or a phrase with perhaps a
# preposition before and an owner after.
CONSTITUENT = re.compile(r"R|E|A|BN?|D|P?(E|[DU])?A*N(DA*N)?|PE")


def main_clauses(sentence: str) -> tuple[list[list[str]], list[tuple[str, list[str]]]]:
    """The main clauses, with X for a clause in the first place, and the other clauses with their kinds."""
    mains: list[list[str]] = [[]]
    others: list[tuple[str, list[str]]] = []
    described = False
    for i, part in enumerate(re.split(r", ", sentence.rstrip(".?"))):
        words = part.split()
        first = words[0].lower() if i == 0 else words[0]
        if first in SUBORDINATORS and words[1:3] != ["der", "Pause"]:
            others.append((first, words))
            if i == 0:
                mains[0].append("X")
        elif i and first in RELATIVES and is_final_verb(words[-1]) and "zu" not in words[-2:] and not described:
            # There is one at most; what looks like a second one is the rest of the main clause.
            described = True
            others.append(("relative", words))
        elif i and (words[-2:-1] == ["zu"] or SPLIT_INFINITIVE.fullmatch(words[-1])) and not described:
            others.append(("zu", words))
        elif first == "aber":
            mains.append(words[1:])
        else:
            mains[-1] += words
    return mains, others


def problems(en: str, de: str) -> list[str]:
    found = [f"disagreement in {phrase!r}" for phrase in wrong_phrases(de)]
    for text in (en, de):
        if not re.fullmatch(r"[A-ZÄÖÜ].*[^\s.,?][.?]", text) or re.search(r"\s\s|\s[.,?]|,,|[a-zäöüß][A-Z]", text):
            found.append("writing")
        for sentence in re.findall(r"(?<![Mrs][rs])\. (\w)", text):
            if not sentence.isupper():
                found.append("small letter after a full stop")
    if re.search(r"\bnicht k?ein(?:(?:e|en|em|er|es)\b| )", de):
        found.append("nicht ein")
    if re.search(r"\b(?:do|does|did|will|has|have) not \w+ an? ", en) and not re.search(r"\bkein", de):
        found.append("not a without kein")
    if re.search(r"\b[Aa] (?:[aeiou]|hour|honest)", en) or re.search(r"\b[Aa]n (?!hour|honest)[^aeiou]", en):
        found.append("a or an")
    if re.search(r"\b(in|an|zu|von) dem\b|\b(in|an) das\b|\bzu der\b", de):
        found.append("not contracted")
    if de.endswith("?"):
        found += question_problems(de)
    else:
        for sentence in re.split(r"(?<=\.) ", de):
            found += statement_problems(sentence)
    return found


def question_problems(de: str) -> list[str]:
    words = de.rstrip("?").split()
    # Somebody is addressed, or a preposition belongs to the question word.
    while words[0].endswith(",") or words[0] in ("Herr", "Frau"):
        words = words[1:]
    first = words[0].lower()
    if first in PREPOSITIONS:
        first, words = "w", words[1:]
    verb = words[1] if first.startswith("w") and not is_finite(first) else first
    found = [] if is_finite(verb) else [f"{verb!r} is no verb"]
    return found + closing_problems(words[words.index(verb) :] if verb in words else [verb, *words[1:]])


def closing_problems(words: list[str]) -> list[str]:
    """What is wrong at the end of a main clause that starts with its finite verb."""
    found = []
    finite, last = words[0], words[-1]
    if finite in PERFECT:
        inner = [i for i, word in enumerate(words[1:], 1) if word in PARTICIPLES]
        if inner and inner[0] != len(words) - 1:
            found.append("participle not at the end")
        if last in PARTICIPLES and (finite in ("bin", "bist", "ist", "sind")) != (last in MOVED):
            found.append("auxiliary")
    elif finite in AUXILIARIES - PERFECT and finite not in ("war", "warst", "waren", "hatte", "hattest", "hatten"):
        whole = last in INFINITIVES or any(
            last.startswith(prefix) and last.removeprefix(prefix) in verbs for prefix, verbs in SEPARABLE.items()
        )
        if not whole:
            found.append(f"{last!r} is no infinitive at the end")
    elif last in SEPARABLE and infinitive_of(finite) not in SEPARABLE[last]:
        found.append(f"{last!r} does not split from {finite!r}")
    for word in words[1:]:
        if word in SEPARABLE and word not in PREPOSITIONS and word != "ein" and word != last:
            found.append(f"prefix {word!r} not at the end")
    return found


def case_problems(words: list[str], place: int) -> list[str]:
    """A phrase in the first place is the subject, unless the verb is gefallen; some verbs need a dative after them."""
    found = []
    pleases = {"gefällt", "gefallen"} & set(words)
    nouns = [i for i, word in enumerate(words) if word in NOUN_READINGS]
    if nouns and nouns[0] < place and "und" not in words[:place]:
        readings, start = phrase(words, nouns[0])
        wanted = "dat" if pleases else "nom"
        if start == 0 and words[0].lower() not in CONTRACTED and wanted not in {case for case, _ in readings}:
            found.append(f"first phrase is no {wanted}")
    if words[0] in ("Er", "Ich", "Du", "Wir") and words[1] in DATIVE_FORMS and nouns and words[2] in DETERMINERS:
        readings, start = phrase(words, nouns[0])
        if start == 2 and "dat" not in {case for case, _ in readings}:
            found.append(f"{words[1]} without a dative")
    return found


def statement_problems(sentence: str) -> list[str]:
    found = []
    mains, others = main_clauses(sentence)
    for words in mains:
        place = next((i for i, word in enumerate(words) if i and is_finite(word)), 0)
        start = "".join(kind(word, i == 0) for i, word in enumerate(words[:place]))
        if not place or (words[0] != "X" and not CONSTITUENT.fullmatch(start)) or (words[0] == "X" and place != 1):
            found.append(f"verb not second: {' '.join(words)}")
            continue
        rest = words[place:]
        und = rest.index("und") if "und" in rest else len(rest)
        found += closing_problems(rest[:und])
        shared = rest[und + 1 :]
        if shared and rest[0] in PERFECT and shared[-1] not in PARTICIPLES:
            found.append("participle missing after und")
        if shared and rest[0] not in PERFECT:
            found += [] if is_finite(shared[0]) else ["verb missing after und"]
            found += closing_problems(shared)
        found += case_problems(words, place)
    for label, words in others:
        if label == "zu":
            last = words[-1]
            split = any(last.startswith(p + "zu") and last.removeprefix(p + "zu") in v for p, v in SEPARABLE.items())
            if not (split or (words[-2:-1] == ["zu"] and last in INFINITIVES)):
                found.append(f"infinitive: {' '.join(words)}")
        elif not is_final_verb(words[-1]):
            found.append(f"verb not last: {' '.join(words)}")
    return found


def generated(*names: str) -> list[dict[str, list[tuple[str, str]]]]:
    """The pairs of sources, made by a process without the tests' type checker: it would take minutes."""
    code = (
        "import json, sys; from synthattn.data.builtin import open_builtin\n"
        "for name in sys.argv[1:]:\n"
        "    s = open_builtin(name)\n"
        "    print(json.dumps({p: [(r.fields['en'], r.fields['de']) for r in s.read(p)] for p in s.splits}))"
    )
    run = subprocess.run([sys.executable, "-c", code, *names], capture_output=True, text=True, check=True)
    return [json.loads(line) for line in run.stdout.splitlines()]


@pytest.fixture(scope="module")
def corpora() -> list[dict[str, list[tuple[str, str]]]]:
    names = "grammar-de?size=50000&seed=3", "grammar-de?size=20000&seed=4", "grammar-de?size=100&seed=3", "grammar-de"
    return generated(*names)


@pytest.fixture(scope="module")
def corpus(corpora) -> dict[str, list[tuple[str, str]]]:
    return corpora[0]


def test_german_is_correct(corpus):
    pairs = corpus["train"][:20_000]
    wrong = [(found, en, de) for en, de in pairs if (found := problems(en, de))]
    assert not wrong, f"{len(wrong)} sentences, such as {wrong[:3]}"


@pytest.mark.parametrize(
    "de",
    [
        "Der Frau liest das Buch.",
        "Er hat ein alter Auto gekauft.",
        "Er wohnt mit die Katze.",
        "Er hilft der Mann.",
        "Gestern der Mann hat das Buch gelesen.",
        "Der Mann schläft, weil er ist müde.",
        "Er hat gekauft das Auto.",
        "Er macht auf die Tür zurück.",
        "Er hat nicht ein Auto.",
        "Er hat nach Hause gegangen.",
        "Er kann das Buch liest.",
        "Er versucht, die Tür zu zumachen.",
        "Sie sieht den Nachbar.",
        "Sie hilft den Kinder.",
        "Das alter Haus ist groß.",
        "Er sitzt in dem Park.",
        "Ob er kommt, er weiß nicht.",
    ],
)
def test_the_checker_finds_mistakes(de):
    assert problems("It is right.", de)


@pytest.mark.parametrize("en", ["He has a apple.", "He has an book.", "he has it.", "He  has it.", "He has it"])
def test_the_checker_finds_mistakes_in_english(en):
    assert problems(en, "Er hat es.")


# Read by eye; a change of them is a change of VERSION.
GOLDEN = {
    "We hope that no book will lie on the bench.": "Wir hoffen, dass kein Buch auf der Bank liegen wird.",
    "Paul does not know whether Peter always travels to a big beach.": (
        "Paul weiß nicht, ob Peter immer an einen großen Strand reist."
    ),
    "The queen always puts on the cap that the salesman looked for.": (
        "Die Königin zieht die Mütze immer an, die der Verkäufer gesucht hat."
    ),
    "On Wednesday, we were allowed to congratulate Anna's famous chef.": (
        "Am Mittwoch durften wir Annas berühmtem Koch gratulieren."
    ),
    "Anna's sick grandfather liked the fairy tale.": "Annas krankem Großvater hat das Märchen gefallen.",
    "Although she is happy, their daughter does not give your policeman cheese.": (
        "Obwohl sie glücklich ist, gibt ihre Tochter deinem Polizisten keinen Käse."
    ),
    "Who did the women speak with?": "Mit wem haben die Frauen gesprochen?",
    "I find his hat and throw it away.": "Ich finde seinen Hut und werfe ihn weg.",
    "My sick brother tried to turn off the radio quickly.": (
        "Mein kranker Bruder hat versucht, das Radio schnell auszuschalten."
    ),
    "The library was bigger than the boys' room.": "Die Bibliothek war größer als das Zimmer der Jungen.",
    "Her son had to wear this cap because it was red.": "Ihr Sohn musste diese Mütze tragen, weil sie rot war.",
    "The careful children who smile do not drive to a park.": (
        "Die vorsichtigen Kinder, die lächeln, fahren nicht in einen Park."
    ),
}


def test_golden_pairs(corpora):
    found = dict(corpora[3]["train"])
    assert {en: found.get(en) for en in GOLDEN} == GOLDEN


def test_distinct_and_disjoint(corpus):
    assert {split: len(pairs) for split, pairs in corpus.items()} == {"train": 50_000, "validation": 1000, "test": 1000}
    english = [en for pairs in corpus.values() for en, _ in pairs]
    assert len(set(english)) == len(english)


def test_another_seed_agrees_on_splits_and_translations(corpora):
    home = {en: (split, de) for split, pairs in corpora[0].items() for en, de in pairs}
    other = [(split, en, de) for split, pairs in corpora[1].items() for en, de in pairs if en in home]
    assert len(other) > 100
    assert all(home[en] == (split, de) for split, en, de in other)


def test_small_corpora_start_large_ones(corpora):
    large, _, small, _ = corpora
    assert {split: len(pairs) for split, pairs in small.items()} == {"train": 100, "validation": 20, "test": 20}
    assert all(large[split][: len(pairs)] == pairs for split, pairs in small.items())


@pytest.mark.parametrize(
    "word",
    sorted(words_of("dass weil wenn obwohl ob keinen nicht an muss denen zu wem größer gefällt Annas des ihn wurde")),
)
def test_phenomena_occur(corpus, word):
    # "wurde" is none of them: it shows that the test can fail.
    assert any(re.search(rf"\b{word}\b", de) for _, de in corpus["train"]) == (word != "wurde")


def test_bytes_do_not_depend_on_the_process():
    code = (
        "import hashlib; from synthattn.data.builtin import open_builtin\n"
        "for name in ('grammar-de?size=300', 'summaries?size=300', 'dialogue?size=300'):\n"
        "    s = open_builtin(name)\n"
        "    content = repr([r for p in s.splits for r in s.read(p)]).encode()\n"
        "    print(hashlib.sha256(content).hexdigest(), s.fingerprint())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_fingerprints_tell_seeds_and_sizes_apart():
    names = ["grammar-de", "grammar-de?seed=1", "grammar-de?size=7", "summaries", "dialogue"]
    assert len({open_builtin(name).fingerprint() for name in names}) == len(names)
    assert open_builtin("grammar-de?seed=0&size=20000").fingerprint() == open_builtin("grammar-de").fingerprint()


def test_records_say_where_they_stand():
    source = open_builtin("grammar-de?size=20")
    records = list(source.read("train"))
    assert len(records) == 20
    assert records[16].where == "builtin:grammar-de, example 17"
    assert source.name == "grammar-de?size=20"
    assert "seed 0, 20 for training" in source.notes[0]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gramar-de", "there is no built-in data 'gramar-de'; did you mean grammar-de?"),
        ("zzz", f"there is no built-in data 'zzz'; choose from {', '.join(sorted(BUILTINS))}"),
        ("grammar-de?sise=3", "grammar-de has no option 'sise'; did you mean size?"),
        ("docs?seed=3", "docs has no option 'seed'; it has none"),
        ("grammar-de?size=many", "size of grammar-de must be a whole number, got 'many'"),
        ("grammar-de?size=0", "grammar-de needs a size of at least 1, got 0; such as grammar-de?size=1000"),
    ],
)
def test_errors(name, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        open_builtin(name)
    assert str(error.value) == message


def test_unknown_split():
    with pytest.raises(ValueError, match="has no split 'dev'; choose from train, validation, test"):
        next(open_builtin("grammar-de").read("dev"))
