"""Classification of labelled texts: AG News, movie reviews, ListOps, or any texts with labels."""

from collections import Counter
from collections.abc import Iterable, Sequence

from synthattn.data.source import Record
from synthattn.messages import listed, shortened
from synthattn.metrics.base import Metric
from synthattn.metrics.classification import Accuracy, MacroF1
from synthattn.tasks.base import Example, Task
from synthattn.tasks.labels import Labels, whole_number

SHOWN = 12
"""Maximum number of classes that a message names."""
MANY = 20
"""Smallest number of classes that may be too many."""
WARNED, REFUSED = 0.5, 0.9
"""Shares of examples with a unique label at which to warn, and at which to refuse training."""


class Classification(Task):
    """Assign a text to one of several classes.

    The classes come from the training split, see ``with_labels``, or from a trained model, see ``with_names``.
    """

    chooses = True
    name = "classification"
    kind = "classification"
    columns = {  # noqa: RUF012
        "text": ("sentence", "review", "Source", "content"),
        "label": ("class", "target", "Target", "module", "category"),
    }

    def __init__(self, labels: Labels | None = None) -> None:
        self.labels = labels
        self.origin = "the training split"
        self.alone = 0.0
        """Share of training examples whose label is unique."""
        self.doubt = ""
        """Warning about labels that are hardly classes, such as the numbers of an id column; else empty."""

    def with_names(self, names: Sequence[str], origin: str) -> "Classification":
        """Return this task with these classes in this order; ``origin`` names their owner in messages."""
        task = type(self)(Labels(*names))
        task.origin = f"{origin}: {listed((shortened(name, 40) for name in names), SHOWN)}"
        return task

    def with_labels(self, records: Iterable[Record], split: str = "training") -> "Classification":
        """Return this task with all classes that occur, sorted by number or name."""
        counts: Counter[str] = Counter()
        columns: list[str] = []
        for record in records:
            counts[str(self.field(record, "label")).strip()] += 1
            columns = columns or [str(column) for column in record.fields]
        if len(counts) < 2:
            found = ", ".join(shortened(name, 40) for name in counts) or "none"
            raise ValueError(f"{self.name} needs at least 2 classes, the {split} split has {found}")
        task = type(self)(Labels(*sorted(counts, key=_order)))
        task.alone = sum(count == 1 for count in counts.values()) / counts.total()
        if len(counts) >= MANY and task.alone >= WARNED:
            read = next(name for name in ("label", *self.columns["label"]) if name in columns)
            task.doubt = (
                f"the {split} split has {len(counts):,} classes for {counts.total():,} examples, {task.alone:.0%} of "
                f"which have a label of their own; is {read!r} the right column? Choose one with --columns "
                f"label=COLUMN, there are {listed((shortened(column, 40) for column in columns), SHOWN)}"
            )
        return task

    def check_trainable(self) -> None:
        """Raise an error if nearly every class occurs once, such as the numbers of an id column."""
        if self.doubt and self.alone >= REFUSED:
            raise ValueError(f"{self.name}: {self.doubt}")

    def examples(self, record: Record) -> Iterable[Example]:
        text = " ".join(self.text(record, "text").split())
        value = str(self.field(record, "label")).strip()
        if self.labels is None:
            yield Example(text, value, value, record.where)
            return
        # Labels are found by name only: a class called "1" need not be number 1.
        number = self.labels.find(value)
        if number is None:
            raise ValueError(f"{record.where}: label {shortened(repr(value))} does not occur in {self.origin}")
        yield Example(text, value, number, record.where)

    def parse(self, text: str, example: Example) -> int | str | None:
        return text.strip() if self.labels is None else self.labels.parse(text)

    def metrics(self) -> Sequence[Metric]:
        return Accuracy(), MacroF1()


def _order(name: str) -> tuple[bool, int, str]:
    """Return a sort key that puts numbers first, by size."""
    number = whole_number(name)
    return number is None, number or 0, name


class ListOps(Classification):
    """Nested lists of operations on digits (ListOps). The answer is a digit, so there are always ten classes."""

    name = "listops"
    columns = {"text": ("Source", "source"), "label": ("Target", "target")}  # noqa: RUF012

    def __init__(self, labels: Labels | None = None) -> None:
        super().__init__(labels or Labels(*(str(digit) for digit in range(10))))

    def with_labels(self, records: Iterable[Record], split: str = "training") -> "ListOps":
        return self

    def metrics(self) -> Sequence[Metric]:
        return (Accuracy(),)
