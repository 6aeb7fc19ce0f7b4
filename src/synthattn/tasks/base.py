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
        for candidate in (name, *self.columns.get(name, ())):
            if candidate in record.fields:
                return record.fields[candidate]
        known = listed(str(column) for column in record.fields)
        raise ValueError(
            f"{record.where}: no column {name!r} for {self.name}, there are {known}; name it: {name}=COLUMN"
        )

    def text(self, record: Record, name: str) -> str:
        """Return a field that must be a text and not blank."""
        value = self.field(record, name)
        if not isinstance(value, str):
            raise ValueError(f"{record.where}: {name} must be a text, got {type(value).__name__}")
        if not value.strip():
            raise ValueError(f"{record.where}: {name} is empty; remove the example")
        return value
