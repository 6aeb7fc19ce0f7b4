"""MultiRC: any number of the answers to a question may be right."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from synthattn.metrics.base import Metric, Rows
from synthattn.metrics.classification import f1_of


class MultiRcMetric(Metric):
    """A row is a question: true positives, false positives, false negatives, and whether all its answers are right.

    Predictions and references are ``(question_id, label)``, one for each answer; the label is 1 for a right answer, 0
    for a wrong one, and of a prediction None where it could not be understood.
    """

    def rows(self, predictions: Sequence[Any], references: Sequence[Any]) -> Rows:
        questions: dict[Hashable, list[int]] = {}
        for n, ((asked, said), (question, true)) in enumerate(zip(predictions, references, strict=True)):
            if asked != question:
                raise ValueError(f"{self.name}: prediction {n} is for question {asked!r}, reference for {question!r}")
            row = questions.setdefault(question, [0, 0, 0, 1])
            row[0] += said == 1 and true == 1
            row[1] += said == 1 and true != 1
            row[2] += said != 1 and true == 1
            row[3] &= said is not None and said == true
        return np.array(list(questions.values()), dtype=np.float64)


class MultiRcF1(MultiRcMetric):
    """F1 of right answers, over all answers of all questions."""

    name = "f1a"

    @property
    def definition(self) -> str:
        return "MultiRC F1a: F1 of class 1 over all answers of all questions, what cannot be understood is not 1, x 100"

    def value(self, rows: Rows) -> float:
        return 100.0 * f1_of(*map(float, rows[:, :3].sum(0)))


class MultiRcExactMatch(MultiRcMetric):
    """The share of questions with no answer wrong."""

    name = "em"

    @property
    def definition(self) -> str:
        return "MultiRC EM: share of questions all of whose answers are labelled right, x 100"

    def value(self, rows: Rows) -> float:
        return 100.0 * float(rows[:, 3].mean())
