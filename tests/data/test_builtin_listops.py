"""Generated ListOps: every label by another evaluator, and the bounds that a user sets."""

import re
from collections import Counter

import pytest

from synthattn.data.builtin import open_builtin
from synthattn.tasks import find_task

pytestmark = pytest.mark.unchecked


def sources(name: str) -> dict[str, list[tuple[str, str]]]:
    source = open_builtin(name)
    return {split: [(r.fields["Source"], r.fields["Target"]) for r in source.read(split)] for split in source.splits}


@pytest.fixture(scope="module")
def made():
    return sources("listops?size=2000")


def value(text: str) -> int:
    """Innermost lists are replaced by their values, until one value is left."""

    def reduced(match: re.Match[str]) -> str:
        numbers = sorted(map(int, match[2].split()))
        low, high = numbers[(len(numbers) - 1) // 2], numbers[len(numbers) // 2]
        results = {"MIN": numbers[0], "MAX": numbers[-1], "MED": (low + high) // 2, "SM": sum(numbers) % 10}
        return str(results[match[1]])

    while not text.isdigit():
        text, count = re.subn(r"\[(MIN|MAX|MED|SM)((?: \d)+) \]", reduced, text)
        assert count
    return int(text)


def levels(text: str) -> int:
    depth = deepest = 0
    for token in text.split():
        depth += token.startswith("[") - (token == "]")
        deepest = max(deepest, depth)
    return deepest + 1


def test_the_evaluator():
    assert value("[MAX [MED 0 1 ] 4 [SM 5 6 ] ]") == 4
    assert value("[MED 7 8 4 3 ]") == 5
    assert levels("[MAX [MED 0 1 ] 4 ]") == 3


@pytest.mark.parametrize("name", ["listops?size=2000", "listops?size=30&shortest=500&longest=2000"])
def test_every_label(name, made):
    found = [example for split in (made if name.endswith("2000") else sources(name)).values() for example in split]
    assert all(value(text) == int(label) for text, label in found)


def test_lengths_depths_and_arguments(made):
    found = [text for split in made.values() for text, _ in split]
    lengths = [len(text.split()) for text in found]
    assert (min(lengths), max(lengths)) == (10, 200)
    assert max(map(levels, found)) == 10
    flat = Counter(len(numbers.split()) for text in found for numbers in re.findall(r"\[\w+((?: \d)+) \]", text))
    assert sorted(flat) == list(range(2, 11))
    # Of the arguments, one in four is a list; a bound on the length makes it fewer.
    digits, lists = (sum(len(re.findall(kind, text)) for text in found) for kind in (r"\d", r" \["))
    assert 0.12 < lists / (lists + digits) < 0.25


@pytest.mark.parametrize(
    ("options", "low", "high"), [("shortest=4&longest=13", 4, 13), ("shortest=31&longest=37", 31, 37)]
)
def test_bounds_are_reached(options, low, high):
    lengths = {len(text.split()) for text, _ in sources(f"listops?size=100&{options}")["train"]}
    assert (min(lengths), max(lengths)) == (low, high)


def test_depth():
    assert {levels(text) for text, _ in sources("listops?size=200&shortest=4&depth=3")["train"]} == {2, 3}


def test_labels_are_as_the_operators_make_them(made):
    """Minima are mostly 0 and maxima 9; otherwise no class is far from a tenth."""
    counts = Counter(label for _, label in made["train"])
    shares = {label: count / 2000 for label, count in counts.items()}
    assert sorted(shares) == list("0123456789")
    assert all(0.1 < shares.pop(label) < 0.2 for label in "09")
    assert all(0.06 < share < 0.12 for share in shares.values())
    operators = Counter(text.split()[0] for text, _ in made["train"])
    assert all(400 < operators[name] < 600 for name in ("[MIN", "[MAX", "[MED", "[SM"))


def test_splits_and_seeds(made):
    assert {split: len(found) for split, found in made.items()} == {"train": 2000, "validation": 200, "test": 200}
    texts = [text for split in made.values() for text, _ in split]
    assert len(set(texts)) == len(texts)
    again = sources("listops?size=300")
    assert again["train"] == made["train"][:300]
    assert sources("listops?size=300&seed=1")["train"] != again["train"]
    names = ["", "?longest=199", "?shortest=11", "?depth=9", "?seed=1", "?size=7"]
    assert len({open_builtin(f"listops{options}").fingerprint() for options in names}) == len(names)


def test_the_task_reads_it(made):
    task = find_task("listops")
    (example,) = task.examples(next(iter(open_builtin("listops?size=1").read("train"))))
    assert (example.source, example.target) == made["train"][0]
    assert example.reference == int(example.target)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("size=0", "listops needs a size of at least 1, got 0; such as listops?size=1000"),
        ("depth=1", "depth of listops must be at least 2, a list of digits, got 1"),
        ("longest=3&shortest=1", "longest of listops must be at least 4, as [MAX 1 2 ] has, got 3"),
        ("shortest=201", "listops has no expressions of at least shortest=201 and at most longest=200"),
        (
            "shortest=120&longest=122&depth=3",
            "listops finds no expressions of 120 to 122 tokens with depth=3; allow for more lengths",
        ),
        ("length=7", "listops has no option 'length'; did you mean longest?"),
    ],
)
def test_impossible_options(options, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        next(open_builtin(f"listops?{options}").read("train"))
    assert str(caught.value) == message
