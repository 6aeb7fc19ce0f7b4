"""Trivial systems: answers that need no model. What they score is the floor of a task."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from synthattn.tasks.base import Example

Answerer = Callable[["Example"], str]


@dataclass(frozen=True)
class TrivialSystem:
    """A system without a model, in several versions of which the best one counts.

    Attributes:
        name: the system, as tables show it.
        versions: each answers an example.
        by_hindsight: True if the best version is chosen on the scored examples, False if on training examples.
    """

    name: str
    versions: Sequence[Answerer]
    by_hindsight: bool = False


def constant_answer(learned: "Sequence[Example]", name: str, most: int, by_hindsight: bool = False) -> TrivialSystem:
    """Return a system that gives one of the most frequent training answers to every question."""
    frequent = [answer for answer, _ in Counter(example.target for example in learned).most_common(most)]
    return TrivialSystem(name, [lambda example, answer=answer: answer for answer in frequent], by_hindsight)


def first_words(learned: "Sequence[Example]", prefix: str, longest: int = 120) -> TrivialSystem:
    """Return a system that answers with the first words of the source. Their number is tuned on training data."""
    lengths = sorted({len(example.target.split()) for example in learned if len(example.target.split()) <= longest})
    step = max(1, len(lengths) // 20)

    def answer(example: "Example", count: int) -> str:
        return " ".join(example.source.removeprefix(prefix).split()[:count])

    return TrivialSystem(
        "first words of the source", [lambda example, n=n: answer(example, n) for n in lengths[::step]]
    )


def copied_source() -> TrivialSystem:
    """Return a system that repeats what it reads."""
    return TrivialSystem("source copied", [lambda example: example.source])
