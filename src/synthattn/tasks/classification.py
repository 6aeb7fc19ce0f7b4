"""Labelled texts for an encoder with a classifier: AG News, movie reviews, ListOps, anything with a label."""

from collections.abc import Iterable, Sequence

from synthattn.data.source import Record
from synthattn.metrics.base import Metric
from synthattn.metrics.classification import Accuracy, MacroF1
from synthattn.tasks.base import Example, Task
from synthattn.tasks.labels import Labels

SHOWN = 12
"""Classes that a message names at most."""


class Classification(Task):
    """A text to one of some classes.

    Which classes there are is read from the training split, see ``with_labels``, or is what a model has learned, see
    ``with_names``.
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

    def with_names(self, names: Sequence[str], origin: str) -> "Classification":
        """The same task with these classes, in this order; ``origin`` is whose they are, for messages."""
        task = type(self)(Labels(*names))
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        task.origin = f"{origin}: {', '.join(names[:SHOWN])}{more}"
        return task

    def with_labels(self, records: Iterable[Record], split: str = "training") -> "Classification":
        """The same task with all classes that occur, in the order of their numbers or names."""
        found = {str(self.field(record, "label")).strip() for record in records}
        if len(found) < 2:
            raise ValueError(
                f"{self.name} needs at least 2 classes, the {split} split has {', '.join(found) or 'none'}"
            )
        return type(self)(
            Labels(*sorted(found, key=lambda name: (not name.isdigit(), int(name) if name.isdigit() else 0, name)))
        )

    def examples(self, record: Record) -> Iterable[Example]:
        text = " ".join(self.text(record, "text").split())
        value = str(self.field(record, "label")).strip()
        if self.labels is None:
            yield Example(text, value, value, record.where)
            return
        # By name alone: here a class that is called "1" need not be number 1.
        if value not in self.labels.names:
            raise ValueError(f"{record.where}: label {value!r} does not occur in {self.origin}")
        yield Example(text, value, self.labels.names.index(value), record.where)

    def parse(self, text: str, example: Example) -> int | str | None:
        return text.strip() if self.labels is None else self.labels.parse(text)

    def metrics(self) -> Sequence[Metric]:
        return Accuracy(), MacroF1()


class ListOps(Classification):
    """Nested lists of operations on digits: the answer is a digit, so there are always ten classes."""

    name = "listops"
    columns = {"text": ("Source", "source"), "label": ("Target", "target")}  # noqa: RUF012

    def __init__(self, labels: Labels | None = None) -> None:
        super().__init__(labels or Labels(*(str(digit) for digit in range(10))))

    def with_labels(self, records: Iterable[Record], split: str = "training") -> "ListOps":
        return self

    def metrics(self) -> Sequence[Metric]:
        return (Accuracy(),)
