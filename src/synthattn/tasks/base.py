"""What a task is: how a record becomes text in and text out, how a prediction is read back, and what is measured."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from synthattn.data.source import Record
from synthattn.messages import listed
from synthattn.metrics.base import Metric
from synthattn.tasks.trivial import TrivialSystem, constant_answer

Kind = Literal["seq2seq", "causal-lm", "span-corruption", "classification"]


@dataclass(frozen=True, slots=True)
class Example:
    """One thing to learn or to be asked.

    Attributes:
        source: the text that the model reads; empty where it only continues.
        target: the text that it shall write; for a classifier the name of the class.
        reference: what a metric compares a prediction with.
        where: where it came from, for messages.
        trained: False where it is for evaluation only.
        evaluated: False where it is for training only, such as another right answer to a question that is asked once.
    """

    source: str
    target: str
    reference: Any
    where: str
    trained: bool = True
    evaluated: bool = True


class Task:
    """A task knows data and metrics, and no model."""

    name: ClassVar[str]
    kind: ClassVar[Kind] = "seq2seq"
    columns: ClassVar[dict[str, tuple[str, ...]]] = {}
    """The fields of a record that are needed, and other names under which they are usually found."""

    scored_on: ClassVar[tuple[str, ...]] = ("test", "validation")
    """The split that is scored unless another is asked for: the first of these that there is."""

    compares_vectors: ClassVar[bool] = False
    """Whether answers are also compared by vectors of their words, which a task cannot have itself."""

    chooses: ClassVar[bool] = False
    """Whether answers are chosen from few, or from what is given, so that one that is always the same may be right."""

    def reads(self) -> dict[str, tuple[str, ...]]:
        """The columns that make an example what it is, and other names for each: the first that is there is read.

        Not those that only number it. What is held out is chosen by these.
        """
        return self.columns

    def examples(self, record: Record) -> Iterable[Example]:
        """A record may hold several examples, such as the answers to several questions about a text."""
        raise NotImplementedError

    def prompt(self, text: str) -> str:
        """What the model reads for a text that a user writes, which must be all that the task reads, see ``form``."""
        if self.form():
            raise ValueError(f"{self.name} reads more than one text; write all of them: {self.form()}")
        return text

    def form(self) -> str:
        """How a user writes all that the model reads, where that is more than one text; empty where it is one."""
        return ""

    def parse(self, text: str, example: Example) -> Any:
        """What a generated text says, as metrics want it; None where it says nothing that can be understood."""
        return text

    def metrics(self) -> Sequence[Metric]:
        raise NotImplementedError

    def trivial_system(self, learned: Sequence[Example]) -> TrivialSystem | None:
        """Return a system without a model, made from training examples; a model must score more. None if unknown."""
        # The best one is chosen with hindsight: among equally frequent classes it would be chance.
        return constant_answer(learned, "best constant answer", 30, by_hindsight=True) if self.chooses else None

    def field(self, record: Record, name: str) -> Any:
        """A field under its own or a usual name."""
        for candidate in (name, *self.columns.get(name, ())):
            if candidate in record.fields:
                return record.fields[candidate]
        known = listed(str(column) for column in record.fields)
        raise ValueError(
            f"{record.where}: no column {name!r} for {self.name}, there are {known}; name it: {name}=COLUMN"
        )

    def text(self, record: Record, name: str) -> str:
        """A field that must be a text with something in it."""
        value = self.field(record, name)
        if not isinstance(value, str):
            raise ValueError(f"{record.where}: {name} must be a text, got {type(value).__name__}")
        if not value.strip():
            raise ValueError(f"{record.where}: {name} is empty; remove the example")
        return value
