"""Scores over seeds and examples: how certain they are, and whether they differ from the baseline's."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from synthattn.metrics.base import Metric, Rows
from synthattn.report.results import Difference, Score

SAMPLES = 1000


def score(metric: Metric, rows: Sequence[Rows], baseline: Sequence[Rows] | None, samples: int = SAMPLES) -> Score:
    """The mean over seeds with its interval of 95 %, and the difference from a baseline with the same seeds.

    A bootstrap in two stages: each sample draws seeds, and examples, the same ones for every seed and for the baseline.
    With a single seed the interval knows nothing of other seeds.

    Args:
        metric: what is computed from rows.
        rows: for each seed the rows of all examples.
        baseline: the same of the baseline, for the same seeds; None for the baseline itself.
        samples: how often is drawn.
    """
    by_seed = [metric.value(one) for one in rows]
    own = np.empty(samples)
    other = np.empty(samples)
    generator = np.random.default_rng(0)
    for n in range(samples):
        examples = generator.integers(len(rows[0]), size=len(rows[0]))
        seeds = generator.integers(len(rows), size=len(rows))
        own[n] = _mean(metric, rows, seeds, examples)
        if baseline is not None:
            other[n] = _mean(metric, baseline, seeds, examples)
    value = float(np.mean(by_seed))
    low, high = np.quantile(own, [0.025, 0.975])
    difference = None
    if baseline is not None:
        difference = _difference(value - float(np.mean([metric.value(one) for one in baseline])), own - other)
    return Score(value, float(low), float(high), by_seed, difference)


def _mean(metric: Metric, rows: Sequence[Rows], seeds: NDArray[np.int64], examples: NDArray[np.int64]) -> float:
    values = {int(seed): metric.value(rows[seed][examples]) for seed in set(seeds.tolist())}
    return float(np.mean([values[int(seed)] for seed in seeds]))


def _difference(value: float, drawn: NDArray[np.float64]) -> Difference:
    low, high = np.quantile(drawn, [0.025, 0.975])
    # Not "of the other sign": no difference, or one that is not a number, is no evidence either.
    flipped = int((~(drawn * value > 0)).sum())
    return Difference(value, float(low), float(high), min(1.0, 2 * (flipped + 1) / (len(drawn) + 1)))


def adjust(differences: Sequence[Difference]) -> None:
    """Make the p-values of several comparisons ones that hold for all of them together (Holm)."""
    order = sorted(range(len(differences)), key=lambda n: differences[n].p_value)
    highest = 0.0
    for rank, n in enumerate(order):
        highest = max(highest, min(1.0, differences[n].p_value * (len(order) - rank)))
        differences[n].p_value = highest
