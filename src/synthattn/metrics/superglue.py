"""Metrics of MultiRC and ReCoRD, in which several answers may be right."""

import re
import string
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from synthattn.metrics.base import MeanMetric, Metric, Rows
from synthattn.metrics.classification import f1_of
from synthattn.metrics.texts import checked_texts


class MultiRcMetric(Metric):
    """Base class of the metrics of MultiRC, with one row of four counts per question.

    The counts are true positives, false positives and false negatives, and 1 if all answers are labelled right.
    Predictions and references are pairs ``(question_id, label)``, one per answer. The label is 1 for a right answer and
    0 for a wrong one; a prediction's label is None if it could not be understood.
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
    """F1 of right answers over all answers of all questions."""

    name = "f1a"
    definition = (
        "MultiRC F1a: F1 of class 1 over all answers of all questions, what cannot be understood is not 1, x 100"
    )

    def value(self, rows: Rows) -> float:
        return 100.0 * f1_of(*map(float, rows[:, :3].sum(0)))


class MultiRcExactMatch(MultiRcMetric):
    """Share of questions whose answers are all labelled right."""

    name = "em"
    definition = "MultiRC EM: share of questions all of whose answers are labelled right, x 100"

    def value(self, rows: Rows) -> float:
        return 100.0 * float(rows[:, 3].mean())


PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalized(text: str) -> list[str]:
    """Return the words that SQuAD compares: lower case, without punctuation and articles."""
    return re.sub(r"\b(a|an|the)\b", " ", text.lower().translate(PUNCTUATION)).split()


class ReCoRDMetric(MeanMetric):
    """Base class of the metrics of ReCoRD. A row is the score for the best matching answer; None scores 0."""

    def rows(self, predictions: Sequence[Any], references: Sequence[Any]) -> Rows:
        answered = [n for n, prediction in enumerate(predictions) if prediction is not None]
        pairs = checked_texts(self.name, ["" if p is None else p for p in predictions], references)
        rows = np.zeros((len(pairs), 1))
        for n in answered:
            prediction, answers = pairs[n]
            rows[n] = max(self.score(normalized(prediction), normalized(answer)) for answer in answers)
        return rows

    def score(self, prediction: list[str], answer: list[str]) -> float:
        raise NotImplementedError


class ReCoRDF1(ReCoRDMetric):
    """F1 of the words of an answer."""

    name = "f1"
    definition = (
        "ReCoRD F1: F1 of words normalised as in SQuAD 1.1, best of the right answers, mean over queries, x 100"
    )

    def score(self, prediction: list[str], answer: list[str]) -> float:
        common = (Counter(prediction) & Counter(answer)).total()
        return 2 * common / (len(prediction) + len(answer)) if common else 0.0


class ReCoRDExactMatch(ReCoRDMetric):
    """Share of predictions that equal a right answer."""

    name = "em"
    definition = "ReCoRD EM: equal to one of the right answers, normalised as in SQuAD 1.1, mean over queries, x 100"

    def score(self, prediction: list[str], answer: list[str]) -> float:
        return float(prediction == answer)
