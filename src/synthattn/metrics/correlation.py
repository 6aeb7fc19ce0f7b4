"""Pearson and Spearman correlation of numbers."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synthattn.metrics.base import Metric, Rows

UNREADABLE = -1.0
"""T5's value for a text that is not a number; it is below any similarity."""
_DEFINITION = (
    f"correlation, a prediction that cannot be understood is {UNREADABLE}, 0 where all predictions or all references "
    "are the same, x 100"
)


class Pearson(Metric):
    """Pearson correlation. A row is a prediction and its reference; None, not understood, is -1.0 as in T5."""

    name = "pearson"
    definition = f"Pearson {_DEFINITION}"

    def rows(self, predictions: Sequence[Any], references: Sequence[Any]) -> Rows:
        said = [UNREADABLE if p is None else self._number("prediction", n, p) for n, p in enumerate(predictions)]
        true = [self._number("reference", n, r) for n, r in enumerate(references)]
        return np.array(list(zip(said, true, strict=True)), dtype=np.float64)

    def value(self, rows: Rows) -> float:
        return 100.0 * _correlation(rows[:, 0], rows[:, 1])

    def _number(self, which: str, n: int, value: Any) -> float:
        number = float(value)
        if not math.isfinite(number):
            raise ValueError(f"{self.name}: {which} {n} is {number}; give None for what is no number")
        return number


class Spearman(Pearson):
    """Spearman correlation, the Pearson correlation of ranks; equal numbers share their mean rank."""

    name = "spearman"
    definition = f"Spearman {_DEFINITION}"

    def value(self, rows: Rows) -> float:
        from scipy.stats import rankdata

        return super().value(rankdata(rows, axis=0))


def _correlation(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    # Compare directly: the mean of equal numbers need not be exactly that number.
    if (a == a[0]).all() or (b == b[0]).all():
        return 0.0
    a, b = a - a.mean(), b - b.mean()
    # Divide by each norm in turn: the product of two small norms may be zero. Clip rounding errors beyond 1.
    correlation = float(a / np.linalg.norm(a) @ (b / np.linalg.norm(b)))
    return min(1.0, max(-1.0, correlation))
