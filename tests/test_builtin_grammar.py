"""The sentences of the grammar are read and checked by words and rules that are not those of the package."""

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable

import pytest

import english_checker
import german_checker as german
from synthattn.data.builtin import BUILTINS, open_builtin

NEGATIONS = re.compile(r"\b(?:not|never|no|cannot)\b", re.I), re.compile(r"\b(?:nicht|nie|kein\w*)\b", re.I)
# Who "sie" is when it is the subject of a verb.
SUBJECTS = {("sie", "sg"): {"she", "it"}, ("sie", "pl"): {"they"}, ("Sie", "pl"): {"you"}}


def problems(en: str, de: str) -> list[str]:
    verdict = german.check(de)
    found = verdict.problems + english_checker.disagreements(en)
    for text in (en, de):
        if not re.fullmatch(r"[A-ZÄÖÜ].*[^\s.,?][.?]", text) or re.search(r"\s\s|\s[.,?]|,,|[a-zäöüß][A-Z]", text):
            found.append("writing")
        for sentence in re.findall(r"(?<![Mrs][rs])\. (\w)", text):
            if not sentence.isupper():
                found.append("small letter after a full stop")
    if len(NEGATIONS[0].findall(en)) != len(NEGATIONS[1].findall(de)):
        found.append("negation")
    if re.search(r"\b[Aa] (?:[aeiou]|hour|honest)", en) or re.search(r"\b[Aa]n (?!hour|honest)[^aeiou]", en):
        found.append("a or an")
    english = re.findall(r"\w+", en.lower())
    for who, pronouns in SUBJECTS.items():
        if sum(clause == {who} for clause in verdict.subjects) > sum(word in pronouns for word in english):
            found.append(f"somebody else is the subject than {who}")
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


def test_sentences_are_correct(corpus):
    pairs = corpus["train"][:6000]
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
        "Er hat in die Stadt gegangen.",
        "Er kann das Buch liest.",
        "Er versucht, die Tür zu zumachen.",
        "Sie sieht den Nachbar.",
        "Sie hilft den Kinder.",
        "Das alter Haus ist groß.",
        "Er sitzt in dem Park.",
        "Ob er kommt, er weiß nicht.",
        "Der Mann lesen das Buch.",
        "Ich liest das Buch.",
        "Er liest Buch.",
        "Er liest nicht das Buch.",
        "Der Mann, der lächeln, arbeitet.",
        "Er öffnt das Fenster.",
    ],
)
def test_the_checker_finds_mistakes(de):
    assert german.check(de).problems


@pytest.mark.parametrize(
    "de",
    ["Der Mann liest das Buch der Frau nicht.", "Dem Kind gefallen die Bücher, die wir ihm gegeben haben."],
)
def test_the_checker_finds_no_mistakes_where_there_are_none(de):
    assert not german.check(de).problems


@pytest.mark.parametrize(
    "en",
    [
        "He has a apple.",
        "He has an book.",
        "he has it.",
        "He  has it.",
        "He has it",
        "He have it.",
        "They has it.",
        "Do he have it?",
        "The men who sings has it.",
        "She finds it and wash it.",
    ],
)
def test_the_checker_finds_mistakes_in_english(en):
    assert problems(en, "Er hat es.")


# Mistakes, made on purpose. Each takes a pair's German or English and gives it with one mistake, or None if it has no
# place for one.
def put(words: list[str], i: int, word: str) -> str:
    """The words with another one at i, which keeps its marks and its capital."""
    old = words[i]
    core = old.strip(".,?")
    word = word[0].upper() + word[1:] if core[0].isupper() else word
    return " ".join([*words[:i], old.replace(core, word), *words[i + 1 :]])


def places(text: str, fits: Callable[[str], bool]) -> tuple[list[str], list[int]]:
    words = text.split()
    lower = [words[0][0].lower() + words[0][1:], *words[1:]] if words else []
    return words, [i for i, word in enumerate(lower) if fits(word.strip(".,?"))]


def replaced(text: str, rng: random.Random, choices: Callable[[str], list[str]]) -> str | None:
    words, fitting = places(text, lambda word: bool(choices(word)))
    if not fitting:
        return None
    i = rng.choice(fitting)
    word = words[i].strip(".,?")
    return put(words, i, rng.choice(choices(word[0].lower() + word[1:] if i == 0 else word)))


def forms(word: str, wanted: Callable[[german.Person], bool], *, of: german.Person) -> list[str]:
    """Other finite forms of a verb that is in one person only."""
    found = german.FINITE.get(word, set())
    if {person for _, person in found} - {(1, of[1])} != {of}:
        return []
    (verb,) = {verb for verb, person in found if person == of}
    past = german.PAST.get(verb, "-")
    same_tense = [(f, p) for f, p in german.forms_of(verb) if f.startswith(past) == word.startswith(past)]
    return [form for form, person in same_tense if wanted(person) and form != word]


def plural_verb(de: str, rng: random.Random) -> str | None:
    return replaced(de, rng, lambda word: forms(word, lambda p: p == (3, "pl"), of=(3, "sg")))


def singular_verb(de: str, rng: random.Random) -> str | None:
    """Of auxiliaries only: other plurals look like infinitives."""
    several = {"sind": "ist", "waren": "war", "können": "kann", "müssen": "muss", "konnten": "konnte"}
    several |= {"wollen": "will", "dürfen": "darf", "sollten": "sollte", "mussten": "musste", "wollten": "wollte"}
    return replaced(de, rng, lambda word: [several[word]] if word in several else [])


def second_person(de: str, rng: random.Random) -> str | None:
    return replaced(de, rng, lambda word: forms(word, lambda p: p == (2, "sg"), of=(3, "sg")))


def verb_moved(de: str, rng: random.Random) -> str | None:
    """The first finite verb changes places with a word beside it."""
    words, fitting = places(de.rstrip(".?"), lambda word: word in german.FINITE)
    i = fitting[0] if fitting else 0
    if i == 0 or i + 1 >= len(words) or "," in "".join(words[i - 1 : i + 2]):
        return None
    words[i], words[i + 1] = words[i + 1], words[i]
    return " ".join(words) + de[-1]


def verb_early(de: str, rng: random.Random) -> str | None:
    """The last word of a subordinate clause stands after its subject."""
    found = re.search(r"\b([Ww]eil|obwohl|dass|wenn|bevor|ob) (\w+) ([\w ]+) (\w+)([.,])", de)
    return found and de[: found.start()] + "{0} {1} {3} {2}{4}".format(*found.groups()) + de[found.end() :]


def another_article(de: str, rng: random.Random) -> str | None:
    """Another form of the same word, before a noun or an adjective."""
    articles = [{"der", "die", "das", "den", "dem", "des"}]
    articles += [{stem + e for e in ("", "e", "en", "em", "er", "es")} for stem in ("ein", "kein", "mein", "dein")]
    articles += [{stem + e for e in ("e", "en", "em", "er", "es")} for stem in ("dies", "jed")]

    def others(word: str) -> list[str]:
        return sorted(other for group in articles if word in group for other in group - {word})

    words, fitting = places(de, lambda word: bool(others(word)))
    fitting = [i for i in fitting if words[i][-1] != "," and words[i + 1 : i + 2] and words[i + 1][0].isupper()]
    if not fitting:
        return None
    i = rng.choice(fitting)
    return put(words, i, rng.choice(others(words[i].lower())))


def another_ending(de: str, rng: random.Random) -> str | None:
    def others(word: str) -> list[str]:
        ending = german.adjective_ending(word)
        return [word.removesuffix(ending) + e for e in ("e", "en", "em", "er", "es") if e != ending] if ending else []

    return replaced(de, rng, others)


def prefix_moved(de: str, rng: random.Random) -> str | None:
    """A prefix at the end goes to its verb, or another one takes its place."""
    found = re.fullmatch(r"(\w+(?: \w+)?) (\w+) ([\w ]+) (ab|an|auf|aus|ein|weg|zu|zurück)[.]", de)
    if found is None:
        return None
    if rng.random() < 0.5:
        other = rng.choice([prefix for prefix in ("fern", "mit", "weg") if prefix != found[4]])
        return f"{found[1]} {found[2]} {found[3]} {other}."
    return f"{found[1]} {found[2]} {found[4]} {found[3]}."


def auxiliary(de: str, rng: random.Random) -> str | None:
    other = german.pairs_of("bin:habe bist:hast ist:hat sind:haben habe:bin hast:bist hat:ist haben:sind")
    if not any(word in german.PARTICIPLES for word in re.findall(r"\w+", de)):
        return None
    return replaced(de, rng, lambda word: [other[word]] if word in other else [])


def negation_lost(de: str, rng: random.Random) -> str | None:
    return replaced(de, rng, lambda word: ["immer"] if word == "nicht" else [word[1:]] if word[:4] == "kein" else [])


def noun_number(de: str, rng: random.Random) -> str | None:
    """The other number of a noun that is not the same in both."""
    entries = ",".join((german.MASCULINE, german.FEMININE, german.NEUTER)).replace("*", "").split(",")
    numbers = [(one, several) for one, several in map(str.split, entries) if several not in ("-", one)]
    other = dict(numbers) | {several: one for one, several in numbers}
    words, fitting = places(de, lambda word: word in other)
    fitting = [i for i in fitting if i]
    if not fitting:
        return None
    i = rng.choice(fitting)
    return put(words, i, other[words[i].strip(".,?")])


def english_verb(en: str, rng: random.Random) -> str | None:
    """The other number of a finite verb."""
    other = german.pairs_of("is:are are:is was:were were:was does:do do:does has:have")
    # "He read" is a sentence.
    other |= {form: base for form, base in english_checker.THIRD.items() if base not in english_checker.PAST}
    return replaced(en, rng, lambda word: [other[word]] if word in other else [])


# How many of them must be found. Most of the rest is good German and only not what the English says, as "die Bänke" for
# "die Bank"; the checker does not see pronouns in another clause ("die Tassen, weil sie billig ist").
MISTAKES: dict[Callable[[str, random.Random], str | None], float] = {
    plural_verb: 0.99,
    singular_verb: 0.99,
    second_person: 0.99,
    verb_moved: 0.99,
    verb_early: 0.99,
    another_article: 0.95,
    another_ending: 0.99,
    prefix_moved: 0.99,
    auxiliary: 0.99,
    negation_lost: 0.99,
    noun_number: 0.85,
    english_verb: 0.99,
}


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_mistakes_are_found(corpus, mistake):
    rng = random.Random(7)
    missed, made = [], 0
    for en, de in corpus["train"][:6000]:
        wrong = mistake(en if mistake is english_verb else de, rng)
        if wrong is None or wrong in (en, de):
            continue
        made += 1
        if not (problems(wrong, de) if mistake is english_verb else problems(en, wrong)):
            missed.append((en, de, wrong))
        if made == 300:
            break
    assert made > 100
    assert len(missed) <= (1 - MISTAKES[mistake]) * made, f"{len(missed)} of {made}, such as {missed[:5]}"


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


PHENOMENA = "dass weil wenn obwohl ob keinen nicht an muss denen zu wem größer gefällt Annas des ihn wurde"


@pytest.mark.parametrize("word", sorted(german.words_of(PHENOMENA)))
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
