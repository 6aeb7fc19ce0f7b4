"""Metrics of ReCoRD, in which several spellings of a name are right."""

import re
import string
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from synthattn.metrics.base import MeanMetric, Rows
from synthattn.metrics.texts import checked_texts

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
    stated_definition = (
        "ReCoRD F1: F1 of words normalised as in SQuAD 1.1, best of the right answers, mean over queries, x 100"
    )

    def score(self, prediction: list[str], answer: list[str]) -> float:
        common = (Counter(prediction) & Counter(answer)).total()
        return 2 * common / (len(prediction) + len(answer)) if common else 0.0


class ReCoRDExactMatch(ReCoRDMetric):
    """Share of predictions that equal a right answer."""

    name = "em"
    stated_definition = (
        "ReCoRD EM: equal to one of the right answers, normalised as in SQuAD 1.1, mean over queries, x 100"
    )

    def score(self, prediction: list[str], answer: list[str]) -> float:
        return float(prediction == answer)
