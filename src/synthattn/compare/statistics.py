"""Scores over seeds and examples: how certain they are, and whether they differ from the baseline's."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from synthattn.compare.results import Difference, Score
from synthattn.metrics.base import Metric, Rows

Numbers = NDArray[np.float64]

SAMPLES = 1000

Draw = Callable[[Metric, Rows, int], Numbers]
"""The metric of so many draws of the examples."""


class SeedVariance(NamedTuple):
    """The variance between seeds of the difference of two rows, pooled over the rows of a table."""

    value: float
    freedom: int


@dataclass(frozen=True)
class Estimate:
    """A number with its standard error, judged by Student's t.

    Args:
        value: the number.
        error: its standard error.
        freedom: degrees of freedom of the error.
    """

    value: float
    error: float
    freedom: float

    @property
    def interval(self) -> tuple[float, float]:
        """Return the ends of the 95 % interval."""
        if not self.error > 0:  # all alike, or no number
            return self.value, self.value
        from scipy import stats  # imported here, since it takes half a second and one seed does not need it

        reach = float(stats.t.ppf(0.975, self.freedom)) * self.error
        return self.value - reach, self.value + reach

    def p_value(self, at: float = 0.0) -> float:
        """Return the two-sided p-value of the number being ``at``."""
        if not self.error > 0:
            return 1.0 if not abs(self.value - at) > 0 else 0.0
        from scipy import stats

        # Digits beyond these are rounding, which is another on each processor.
        return round(float(2 * stats.t.sf(abs(self.value - at) / self.error, self.freedom)), 12)


def remembered() -> Draw:
    """A bootstrap that draws once, for rows that are compared with many others."""
    known: dict[tuple[str, int, int], tuple[Rows, Numbers]] = {}

    def draw(metric: Metric, rows: Rows, samples: int) -> Numbers:
        key = metric.name, id(rows), samples
        if key not in known:  # with the rows, so that no others can get their id
            known[key] = rows, metric.bootstrap(rows, samples)
        return known[key][1]

    return draw


def score(
    metric: Metric,
    rows: Sequence[Rows],
    baseline: Sequence[Rows] | None,
    samples: int = SAMPLES,
    draw: Draw = Metric.bootstrap,
) -> Score:
    """The mean over seeds with its interval of 95 %, and the difference from a baseline with the same seeds.

    With one seed a bootstrap: examples are drawn, the same ones for both systems; it knows nothing of other seeds. With
    several, the variance of the mean over seeds is added to that of the bootstrap, and intervals and p-values are those
    of Student's t, with the degrees of freedom of Welch and Satterthwaite: of few seeds a bootstrap cannot tell luck
    from difference, since luck of one sign in all of them, half of the time with two, would never flip in a draw.

    Args:
        metric: what is computed from rows.
        rows: for each seed the rows of all examples.
        baseline: the same of the baseline, for the same seeds; None for the baseline itself.
        samples: how often is drawn.
        draw: ``Metric.bootstrap``, or ``remembered()``.
    """
    by_seed = _values(metric, rows)
    drawn = np.mean([draw(metric, one, samples) for one in rows], axis=0)
    low, high, _ = _certainty(by_seed, drawn)
    difference = None
    if baseline is not None:
        differences = by_seed - _values(metric, baseline)
        apart = drawn - np.mean([draw(metric, one, samples) for one in baseline], axis=0)
        difference = Difference(float(differences.mean()), *_certainty(differences, apart))
    return Score(float(by_seed.mean()), low, high, by_seed.tolist(), difference)


def _values(metric: Metric, rows: Sequence[Rows]) -> Numbers:
    return np.array([metric.value(one) for one in rows])


def _certainty(by_seed: Numbers, drawn: Numbers) -> tuple[float, float, float]:
    """The ends of the interval, and the p-value of being zero."""
    value, seeds = float(by_seed.mean()), len(by_seed)
    if seeds == 1:
        low, high = np.quantile(drawn, [0.025, 0.975])
        # Not "of the other sign": no difference, or one that is not a number, is no evidence either.
        flipped = int((~(drawn * value > 0)).sum())
        return float(low), float(high), min(1.0, 2 * (flipped + 1) / (len(drawn) + 1))
    found = _joined(value, float(by_seed.var(ddof=1)) / seeds, seeds - 1, drawn)
    return *found.interval, found.p_value()


def _joined(value: float, of_seeds: float, freedom: int, drawn: Numbers) -> Estimate:
    """Join the variance of a mean over seeds with that of the examples (Welch and Satterthwaite)."""
    of_examples = float(drawn.var(ddof=1))
    both = of_seeds + of_examples
    if not both > 0:
        return Estimate(value, 0.0, float(freedom))
    return Estimate(value, math.sqrt(both), both**2 / (of_seeds**2 / freedom + of_examples**2 / max(1, len(drawn) - 1)))


def seed_variance(table: Sequence[Sequence[float]]) -> SeedVariance | None:
    """Return the variance of the difference of two rows between seeds, pooled over all rows of a table.

    A seed decides the order of the data for all rows, so what it does to all of them alike is no difference. What
    is left after the means of rows and of seeds is pooled, and a difference has twice that variance.

    Args:
        table: for each row its score with each of the same seeds, at least two rows and two seeds; None if there are
            fewer.
    """
    scores = np.array([list(row) for row in table], dtype=np.float64)
    if scores.ndim != 2 or min(scores.shape) < 2:
        return None
    left = scores - scores.mean(0) - scores.mean(1, keepdims=True) + scores.mean()
    freedom = (scores.shape[0] - 1) * (scores.shape[1] - 1)
    return SeedVariance(2 * float((left**2).sum()) / freedom, freedom)


def estimate(
    metric: Metric,
    rows: Sequence[Rows],
    baseline: Sequence[Rows],
    pooled: SeedVariance,
    samples: int = SAMPLES,
    draw: Draw = Metric.bootstrap,
) -> Estimate:
    """Return the mean difference over seeds; its error joins the pooled variance of seeds and that of examples."""
    apart = _values(metric, rows) - _values(metric, baseline)
    drawn = np.mean([draw(metric, one, samples) for one in rows], axis=0)
    drawn = drawn - np.mean([draw(metric, one, samples) for one in baseline], axis=0)
    return _joined(float(apart.mean()), pooled.value / len(apart), pooled.freedom, drawn)


def adjust(differences: Sequence[Difference]) -> None:
    """Make the p-values of several comparisons ones that hold for all of them together (Holm)."""
    for one, p_value in zip(differences, holm([one.p_value for one in differences]), strict=True):
        one.p_value = p_value


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values that hold for all of several tests together (Holm), in their order."""
    found, highest = list(p_values), 0.0
    for rank, n in enumerate(sorted(range(len(found)), key=lambda n: p_values[n])):
        highest = max(highest, min(1.0, p_values[n] * (len(found) - rank)))
        found[n] = highest
    return found
