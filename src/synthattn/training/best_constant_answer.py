"""Score the best constant answer, a floor for models that have learned something."""

import itertools
import time
from collections import Counter
from collections.abc import Mapping, Sequence

from synthattn.tasks.base import Example
from synthattn.tasks.encoding import examples
from synthattn.training.evaluation import Evaluation, merged, score
from synthattn.training.prepare import TaskData
from synthattn.training.settings import EvaluationSettings

CANDIDATES = 30
"""Maximum number of answers that are tried: the most frequent ones in training."""


def answers_are_chosen(parts: Sequence[TaskData]) -> bool:
    """Return True if a constant answer may score well, that is if all tasks choose from given answers."""
    return all(part.task.chooses for part in parts)


def best_constant_answer(
    parts: Sequence[TaskData], settings: EvaluationSettings, train_examples: int | None = None
) -> Evaluation:
    """Score, for each task, the answer that scores best when it is given to every question.

    The most frequent answer would not do: balanced classes make it a matter of chance, and F1 may prefer another one.

    Args:
        parts: tasks and their data.
        settings: settings of the evaluation.
        train_examples: number of training examples from which answers are taken; all by default.
    """
    started = time.monotonic()
    result = Evaluation({})
    groups = {}
    for part in parts:
        asked = {
            name: list(itertools.islice(examples(part.task, part.source, split), settings.limit))
            for name, split in part.evaluation_splits(settings.split).items()
        }
        answer = max(_candidates(part, train_examples), key=lambda one: _value(part, one, asked))
        for name, questions in asked.items():
            groups[name] = score(part.task.metrics(), _said(part, answer, questions), questions)
            result.examples += len(questions)
        result.splits |= part.evaluation_splits(settings.split)
    result.scored = merged(groups)
    result.seconds = time.monotonic() - started
    return result


def _candidates(part: TaskData, limit: int | None) -> list[str]:
    learned = itertools.islice(examples(part.task, part.source, "train", training=True), limit)
    found = [answer for answer, _ in Counter(example.target for example in learned).most_common(CANDIDATES)]
    if not found:
        raise ValueError(f"{part.source.name}: no example is left to learn from")
    return found


def _said(part: TaskData, answer: str, asked: Sequence[Example]) -> list[object]:
    return [part.task.parse(answer, example) for example in asked]


def _value(part: TaskData, answer: str, asked: Mapping[str, Sequence[Example]]) -> float:
    """Return the mean of all metrics of the task for one answer."""
    values = [
        metric(_said(part, answer, questions), [example.reference for example in questions]).value
        for questions in asked.values()
        for metric in part.task.metrics()
    ]
    return sum(values) / len(values)
