"""The tasks of GLUE in T5's form: the task's name, then all fields with their names; the answer is a word."""

from collections.abc import Iterable, Sequence

from synthattn.data.source import Record
from synthattn.metrics.base import Metric
from synthattn.metrics.classification import F1, Accuracy, Matthews
from synthattn.metrics.correlation import Pearson, Spearman
from synthattn.tasks.base import Example, Task
from synthattn.tasks.labels import Labels


class BenchmarkTask(Task):
    """Base class of the tasks of GLUE and SuperGLUE, whose test labels are not public."""

    chooses = True
    scored_on = ("validation",)


class LabelledTask(BenchmarkTask):
    """A task that assigns a label to named fields.

    Args:
        name: name of the task.
        fields: names of the fields in T5's order.
        labels: the labels.
        columns: fields with other usual names.
        metrics: classes of its metrics.
        prefix: the first word of the text; the task's name by default.
    """

    def __init__(
        self,
        name: str,
        fields: tuple[str, ...],
        labels: Labels,
        columns: dict[str, tuple[str, ...]] | None = None,
        metrics: Sequence[type[Metric]] = (Accuracy,),
        prefix: str = "",
    ) -> None:
        self.name, self.fields, self.labels, self.columns = name, fields, labels, columns or {}
        self.kinds, self.prefix = metrics, prefix or name

    def reads(self) -> dict[str, tuple[str, ...]]:
        return {name: self.columns.get(name, ()) for name in (*self.fields, "label")}

    def examples(self, record: Record) -> Iterable[Example]:
        number = self.labels.number(self.field(record, "label"), record.where)
        yield Example(self.written(record), self.labels.names[number], number, record.where)

    def written(self, record: Record) -> str:
        return self._joined([self.text(record, name) for name in self.fields])

    def prompt(self, text: str) -> str:
        return self._joined([text]) if len(self.fields) == 1 else super().prompt(text)

    def form(self) -> str:
        return self._joined(["..."] * len(self.fields)) if len(self.fields) > 1 else ""

    def _joined(self, texts: Sequence[str]) -> str:
        parts = [f"{name}: {' '.join(text.split())}" for name, text in zip(self.fields, texts, strict=True)]
        return " ".join([self.prefix, *parts])

    def parse(self, text: str, example: Example) -> int | None:
        return self.labels.parse(text)

    def metrics(self) -> Sequence[Metric]:
        return [kind() for kind in self.kinds]


class Stsb(BenchmarkTask):
    """Similarity of two sentences from 0 to 5 (STS-B), rounded to fifths and written as a number, as in T5."""

    name = "stsb"
    columns = {"score": ("label", "similarity_score", "similarity")}  # noqa: RUF012

    def reads(self) -> dict[str, tuple[str, ...]]:
        return {"sentence1": (), "sentence2": (), **self.columns}

    def examples(self, record: Record) -> Iterable[Example]:
        value = self.field(record, "score")
        try:
            score = float(value)
        except (TypeError, ValueError):
            score = float("nan")
        if not 0.0 <= score <= 5.0:
            raise ValueError(f"{record.where}: score must be a number from 0 to 5, got {value!r}")
        first, second = (" ".join(self.text(record, name).split()) for name in ("sentence1", "sentence2"))
        # Rounding to fifths leaves 21 words, as in T5.
        yield Example(
            f"stsb sentence1: {first} sentence2: {second}", f"{round(score * 5) / 5:.1f}", score, record.where
        )

    def form(self) -> str:
        return "stsb sentence1: ... sentence2: ..."

    def parse(self, text: str, example: Example) -> float | None:
        try:
            value = float(text.strip())
        except ValueError:
            return None
        return value if 0.0 <= value <= 5.0 else None

    def metrics(self) -> Sequence[Metric]:
        return Pearson(), Spearman()


LABEL = {"label": ("gold_label", "class", "is_duplicate", "quality", "Quality")}
SENTENCES = ("sentence1", "sentence2")
ENTAILMENT = Labels("entailment", "not_entailment")
COLA = LabelledTask("cola", ("sentence",), Labels("unacceptable", "acceptable"), LABEL, (Matthews,))
SST2 = LabelledTask("sst2", ("sentence",), Labels("negative", "positive"), LABEL | {"sentence": ("text",)})
MRPC = LabelledTask("mrpc", SENTENCES, Labels("not_equivalent", "equivalent"), LABEL, (F1, Accuracy))
QQP = LabelledTask("qqp", ("question1", "question2"), Labels("not_duplicate", "duplicate"), LABEL, (F1, Accuracy))
MNLI = LabelledTask(
    "mnli",
    ("hypothesis", "premise"),
    Labels("entailment", "neutral", "contradiction"),
    LABEL | {"hypothesis": ("sentence2",), "premise": ("sentence1",)},
)
QNLI = LabelledTask("qnli", ("question", "sentence"), ENTAILMENT, LABEL)
RTE = LabelledTask("rte", SENTENCES, ENTAILMENT, LABEL | {"sentence1": ("premise",), "sentence2": ("hypothesis",)})
WNLI = LabelledTask("wnli", SENTENCES, Labels("not_entailment", "entailment"), LABEL)

GLUE = (COLA, SST2, MRPC, Stsb(), QQP, MNLI, QNLI, RTE, WNLI)
