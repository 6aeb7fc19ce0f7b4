"""Metrics of predicted classes; a prediction is None if it could not be understood."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from synthattn.metrics.base import MeanMetric, Metric, Rows


def f1_of(true_positives: float, false_positives: float, false_negatives: float) -> float:
    """Return F1 from 0 to 1; it is 0 if nothing is positive and nothing is predicted positive."""
    total = 2 * true_positives + false_positives + false_negatives
    return 2 * true_positives / total if total else 0.0


class Accuracy(MeanMetric):
    """The share of right predictions."""

    name = "accuracy"
    definition = "accuracy, a prediction that cannot be understood is wrong, x 100"

    def rows(self, predictions: Sequence[Any], references: Sequence[Any]) -> Rows:
        right = [p is not None and p == r for p, r in zip(predictions, references, strict=True)]
        return np.array(right, dtype=np.float64)[:, None]


class F1(Metric):
    """F1 of one of two classes."""

    name = "f1"

    def __init__(self, positive: Any = 1) -> None:
        self.positive = positive
        self.definition = f"F1 of class {positive!r}, a prediction that cannot be understood is not of the class, x 100"

    def rows(self, predictions: Sequence[Any], references: Sequence[Any]) -> Rows:
        said = np.array([p is not None and p == self.positive for p in predictions])
        true = np.array([r == self.positive for r in references])
        return np.stack([said & true, said & ~true, ~said & true], axis=1).astype(np.float64)

    def value(self, rows: Rows) -> float:
        return 100.0 * f1_of(*map(float, rows.sum(0)))

    def parts(self, rows: Rows) -> dict[str, float]:
        true, false, missed = (float(n) for n in rows.sum(0))
        return {
            "precision": 100.0 * true / (true + false) if true else 0.0,
            "recall": 100.0 * true / (true + missed) if true else 0.0,
        }


NOT_UNDERSTOOD = -1


class ClassesMetric(Metric):
    """Base class of metrics over any number of classes. A row holds the predicted and the right class number."""

    def rows(self, predictions: Sequence[Any], references: Sequence[Any]) -> Rows:
        numbers: dict[Hashable, int] = {None: NOT_UNDERSTOOD}

        def number(label: Hashable) -> int:
            return numbers.setdefault(label, len(numbers) - 1)

        pairs = [(number(p), number(r)) for p, r in zip(predictions, references, strict=True)]
        if any(reference == NOT_UNDERSTOOD for _, reference in pairs):
            raise ValueError(f"{self.name}: a reference is None; remove examples without a class")
        return np.array(pairs, dtype=np.float64)


class MacroF1(ClassesMetric):
    """Mean of the F1 of all classes that occur."""

    name = "macro-f1"
    definition = (
        "macro F1: mean of the F1 of each class that is predicted or right at least once, a prediction that cannot "
        "be understood is of no class, x 100"
    )

    def value(self, rows: Rows) -> float:
        predicted, right = rows.astype(np.int64).T
        size = int(rows.max()) + 1
        # Index -1, the last place, counts predictions that were not understood.
        said = np.bincount(predicted % (size + 1), minlength=size + 1)[:size]
        true = np.bincount(right, minlength=size)
        both = np.bincount(right[predicted == right], minlength=size)
        occurs = said + true > 0
        return 100.0 * float((2 * both[occurs] / (said + true)[occurs]).mean())


class Matthews(ClassesMetric):
    """Matthews correlation of two or more classes."""

    name = "matthews"
    definition = (
        "Matthews correlation, predictions that cannot be understood are a class of their own, 0 where all "
        "predictions or all references are of one class, x 100"
    )

    def value(self, rows: Rows) -> float:
        _, classes = np.unique(rows, return_inverse=True)
        predicted, right = classes.reshape(rows.shape).T
        said, true = (np.bincount(side, minlength=classes.max() + 1).astype(float) for side in (predicted, right))
        n = float(len(rows))
        # Covariances of the one-hot vectors times n squared: whole numbers, so that zero is exact.
        both = n * float((predicted == right).sum()) - float(said @ true)
        spread = (n * n - float(said @ said)) * (n * n - float(true @ true))
        return 100.0 * both / spread**0.5 if spread > 0 else 0.0
