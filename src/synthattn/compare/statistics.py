"""Scores over seeds and examples: how certain they are, and whether they differ from the baseline's."""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from synthattn.compare.results import Difference, Score
from synthattn.metrics.base import Metric, Rows

Numbers = NDArray[np.float64]

SAMPLES = 1000

Draw = Callable[[Metric, Rows, int], Numbers]
"""The metric of so many draws of the examples."""


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
    of_seeds, of_examples = float(by_seed.var(ddof=1)) / seeds, float(drawn.var(ddof=1))
    error = math.sqrt(of_seeds + of_examples)
    if not error > 0:  # all alike, or no number
        return value, value, 1.0 if not abs(value) > 0 else 0.0
    freedom = (of_seeds + of_examples) ** 2 / (of_seeds**2 / (seeds - 1) + of_examples**2 / (len(drawn) - 1))
    from scipy import stats  # imported here, since it takes half a second and one seed does not need it

    reach = float(stats.t.ppf(0.975, freedom)) * error
    # Digits beyond these are rounding, which is another on each processor.
    return value - reach, value + reach, round(float(2 * stats.t.sf(abs(value) / error, freedom)), 12)


def adjust(differences: Sequence[Difference]) -> None:
    """Make the p-values of several comparisons ones that hold for all of them together (Holm)."""
    order = sorted(range(len(differences)), key=lambda n: differences[n].p_value)
    highest = 0.0
    for rank, n in enumerate(order):
        highest = max(highest, min(1.0, differences[n].p_value * (len(order) - rank)))
        differences[n].p_value = highest
