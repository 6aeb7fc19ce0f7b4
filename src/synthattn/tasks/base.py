"""Base class of tasks: turn records into texts, read predictions back, and name the metrics."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from synthattn.data.source import Record
from synthattn.messages import listed
from synthattn.metrics.base import Metric
from synthattn.tasks.trivial import TrivialSystem, constant_answer

Kind = Literal["seq2seq", "causal-lm", "span-corruption", "classification"]


@dataclass(frozen=True, slots=True)
class Example:
    """One example to learn from or to evaluate.

    Attributes:
        source: the text that the model reads; empty for a model that only continues a text.
        target: the text that the model should write; for a classifier, the name of the class.
        reference: the value that metrics compare a prediction with.
        where: the place of the record, for messages.
        trained: False if the example is for evaluation only.
        evaluated: False if the example is for training only, such as another right answer to a question.
    """

    source: str
    target: str
    reference: Any
    where: str
    trained: bool = True
    evaluated: bool = True


class Task:
    """Base class of tasks. A task knows data and metrics, but no model."""

    name: str
    kind: ClassVar[Kind] = "seq2seq"
    columns: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """The fields that a task needs, each with other usual names."""

    scored_on: ClassVar[tuple[str, ...]] = ("test", "validation")
    """Splits to score by default; the first one that exists is scored."""

    compares_vectors: ClassVar[bool] = False
    """True if answers are also compared by word vectors, which are not part of the task."""

    chooses: ClassVar[bool] = False
    """True if answers are chosen from a few or from the input, so that a constant answer may be right."""

    def reads(self) -> Mapping[str, tuple[str, ...]]:
        """Return the columns that define an example, each with other names; the first existing one is read.

        Columns that only number the examples are left out. Held-out splits are cut by the returned columns.
        """
        return self.columns

    def reading(self, record: Record) -> str:
        """Return a sentence about columns that are read under another name than the task's own, and a direction."""
        names = {name: self._column(record, name) for name in self.columns}
        return ", ".join(f"{name} is the column {found}" for name, found in names.items() if found not in (name, None))

    def examples(self, record: Record) -> Iterable[Example]:
        """Yield the examples of a record, such as the answers to several questions about a text."""
        raise NotImplementedError

    def prompt(self, text: str) -> str:
        """Return the model's input for a text that a user writes; it must be the task's only text, see ``form``."""
        if self.form():
            raise ValueError(f"{self.name} reads more than one text; write all of them: {self.form()}")
        return text

    def form(self) -> str:
        """Return the written form of all texts that the model reads; empty if there is only one text."""
        return ""

    def parse(self, text: str, example: Example) -> Any:
        """Return the value of a generated text for metrics; None if the text cannot be understood."""
        return text

    def metrics(self) -> Sequence[Metric]:
        raise NotImplementedError

    def trivial_system(self, learned: Sequence[Example]) -> TrivialSystem | None:
        """Return a system without a model, made from training examples; a model must score more. None if unknown."""
        # The best one is chosen with hindsight: among equally frequent classes it would be chance.
        return constant_answer(learned, "best constant answer", 30, by_hindsight=True) if self.chooses else None

    def field(self, record: Record, name: str) -> Any:
        """Return a field under its own or another usual name."""
        column = self._column(record, name)
        if column is not None:
            return record.fields[column]
        known = listed(str(column) for column in record.fields)
        raise ValueError(
            f"{record.where}: no column {name!r} for {self.name}, there are {known}; name it: --columns {name}=COLUMN"
        )

    def _column(self, record: Record, name: str) -> str | None:
        return next((one for one in (name, *self.columns.get(name, ())) if one in record.fields), None)

    def text(self, record: Record, name: str) -> str:
        """Return a field that must be a text and not blank."""
        return self._checked(record, name, self.field(record, name))

    def texts(self, record: Record, name: str) -> list[str]:
        """Return a field that must be a text, or a list of texts such as several references."""
        value = self.field(record, name)
        if isinstance(value, list) and value:
            return [self._checked(record, name, one) for one in value]
        return [self._checked(record, name, value)]

    def _checked(self, record: Record, name: str, value: Any) -> str:
        if not isinstance(value, str):
            raise ValueError(f"{record.where}: {name} must be a text, got {type(value).__name__}")
        if not value.strip():
            raise ValueError(f"{record.where}: {name} is empty; remove the example")
        return value

    def answered(self, record: Record, source: str, name: str, lines: bool = False) -> Iterable[Example]:
        """Yield a training example for each reference in a field; the first one is evaluated against all references.

        Args:
            record: the record.
            source: the model's input.
            name: the field of the references.
            lines: keep the line breaks of the references for the metrics.
        """
        found = self.texts(record, name)
        plain = [" ".join(text.split()) for text in found]
        references = found if lines else plain
        reference = references[0] if len(references) == 1 else tuple(references)
        for n, target in enumerate(plain):
            yield Example(source, target, reference, record.where, evaluated=n == 0)
