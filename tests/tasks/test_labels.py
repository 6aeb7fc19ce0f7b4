"""Many labels: found at once, and doubted where nearly every example has its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from synthattn.data.encoded import Encoded, write
from synthattn.data.source import Record
from synthattn.tasks.classification import Classification
from synthattn.tasks.labels import Labels
from synthattn.training.prepare import open_parts
from synthattn.training.settings import DataSettings


class Counting(str):
    """A text that counts how often it is compared."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Counting.compared += 1
        return str.__eq__(self, other)


def test_a_class_is_found_without_looking_at_all_others():
    labels = Labels(*(Counting(f"x{n}") for n in range(1000)))
    task = Classification(labels)
    Counting.compared = 0
    assert labels.number("x999", "here") == 999
    assert labels.number("X998", "here") == 998
    assert labels.parse(" x997 ") == 997
    (example,) = task.examples(Record({"text": "a", "label": "x996"}, "here"))
    assert example.reference == 996
    assert Counting.compared < 20


def test_ways_to_write_a_class():
    labels = Labels("no", "Yes", "no", "yes")
    found = [labels.number(value, "here") for value in ("no", "NO", "yes", "YES", "Yes", 1, "1.0", "3", "٢")]
    assert found == [0, 0, 3, 1, 1, 1, 1, 3, 2]
    assert Labels("a", "b").number(True, "here") == 1
    for wrong in ("²", "9" * 10_000, "4", "-1"):
        with pytest.raises(ValueError, match=r"^here: unknown label ") as caught:
            labels.number(wrong, "here")
        assert len(str(caught.value)) < 200


def records(labels: list[str], column: str = "label") -> Iterator[Record]:
    return (Record({"id": str(n), column: label, "text": "a"}, f"line {n}") for n, label in enumerate(labels))


def test_odd_digits_are_names():
    task = Classification().with_labels(records(["10", "²", "9", "x", "9" * 5000]))
    assert task.labels is not None
    assert task.labels.names == ("9", "10", "9" * 5000, "x", "²")


def test_classes_that_are_the_numbers_of_examples_are_doubted():
    task = Classification().with_labels(records([f"x{n}" for n in range(5000)], "category"))
    assert task.doubt == (
        "the training split has 5,000 classes for 5,000 examples, 100% of which have a label of their own; is "
        "'category' the right column? Choose one with --columns label=COLUMN, there are id, category, text"
    )
    with pytest.raises(ValueError, match=r"^classification: the training split has 5,000 classes"):
        task.check_trainable()


@pytest.mark.parametrize(
    ("labels", "doubted"),
    [
        ([str(n) for n in range(5)], False),  # too few to tell
        ([str(n % 500) for n in range(1000)], False),  # two of each
        ([str(min(n, 600)) for n in range(1000)], True),  # 600 of their own: a warning
    ],
)
def test_other_classes_are_trained(labels: list[str], doubted: bool):
    task = Classification().with_labels(records(labels))
    assert bool(task.doubt) == doubted
    task.check_trainable()


def test_training_refuses_an_id_column(tmp_path: Path):
    rows = [f"{n}\t{'yes' if n % 3 else 'no'}\ta text {n}" for n in range(200)]
    (tmp_path / "train.tsv").write_text("\n".join(["label\tanswer\ttext", *rows]) + "\n")
    settings = DataSettings(task="classification", source=str(tmp_path))
    with pytest.raises(ValueError, match=r"--columns label=COLUMN, there are label, answer, text$"):
        open_parts(settings)
    (part,) = open_parts(DataSettings(task="classification", source=str(tmp_path), columns="label=answer"))
    assert part.task.labels.names == ("no", "yes")  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("kind", ["ids", "ends", "dtype"])
def test_encoded_texts_that_are_cut_short_are_not_read(kind: str, tmp_path: Path):
    write(tmp_path, "source", [[1, 2, 3], [4, 5]], 100)
    assert [list(text) for text in Encoded(tmp_path, "source")] == [[1, 2, 3], [4, 5]]
    file = tmp_path / f"source.{kind}"
    for size in (0, 2, 8):
        if size < file.stat().st_size:
            whole = file.read_bytes()
            file.write_bytes(whole[:size])
            with pytest.raises(ValueError, match=r"is damaged \(.*\); remove it, and it is made again$"):
                Encoded(tmp_path, "source")
            file.write_bytes(whole)
