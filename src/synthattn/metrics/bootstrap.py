"""How certain a score is, and whether two scores differ: rows are drawn again and again."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from synthattn.metrics.base import Metric, Rows


@dataclass(frozen=True)
class Comparison:
    """Of two systems on the same units: how much the first is above the second."""

    difference: float
    low: float
    high: float
    """From ``low`` to ``high`` is the interval of 95 % of the samples."""
    p_value: float
    """Two-sided: how likely such a difference would be by chance."""


def interval(
    metric: Metric, rows: Rows, level: float = 0.95, samples: int = 1000, seed: int = 0
) -> tuple[float, float]:
    """The percentile bootstrap interval of a score."""
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must be between 0 and 1, got {level}")
    return _percentiles(np.array([metric.value(rows[drawn]) for drawn in _draws(len(rows), samples, seed)]), level)


def paired(metric: Metric, rows_a: Rows, rows_b: Rows, samples: int = 1000, seed: int = 0) -> Comparison:
    """The paired bootstrap: each sample has the same units of both systems.

    The p-value is twice the share of samples in which the difference has not the sign of the whole, where the whole
    counts as one such sample more, since a finite number of samples cannot say that chance is impossible.
    """
    if len(rows_a) != len(rows_b):
        raise ValueError(f"paired samples need the same units, got {len(rows_a)} and {len(rows_b)} rows")
    difference = metric.value(rows_a) - metric.value(rows_b)
    drawn = [metric.value(rows_a[d]) - metric.value(rows_b[d]) for d in _draws(len(rows_a), samples, seed)]
    differences = np.array(drawn)
    # Not "of the other sign": no difference, or one that is not a number, is no evidence either.
    flipped = int((~(differences * difference > 0)).sum())
    low, high = _percentiles(differences, 0.95)
    return Comparison(difference, low, high, min(1.0, 2 * (flipped + 1) / (samples + 1)))


def _draws(n: int, samples: int, seed: int) -> Iterator[NDArray[np.int64]]:
    if samples < 1:
        raise ValueError(f"samples must be at least 1, got {samples}")
    if n < 1:
        raise ValueError("a bootstrap needs at least 1 row, got 0")
    generator = np.random.default_rng(seed)
    # One by one: all at once would need samples x n numbers, and values of samples are computed one by one anyway.
    for _ in range(samples):
        yield generator.integers(n, size=n)


def _percentiles(values: NDArray[np.float64], level: float) -> tuple[float, float]:
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
