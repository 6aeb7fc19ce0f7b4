"""The bootstrap: on data whose truth is known."""

import numpy as np
import pytest

from synthattn.metrics import (
    F1,
    Accuracy,
    Bleu,
    ChrF,
    MacroF1,
    Matthews,
    Metric,
    MultiRcF1,
    Pearson,
    Perplexity,
    Rows,
    Spearman,
)


def interval(metric: Metric, rows: Rows, samples: int = 1000) -> tuple[float, float]:
    low, high = np.quantile(metric.bootstrap(rows, samples), [0.025, 0.975])
    return float(low), float(high)


def test_interval_covers_the_truth():
    generator = np.random.default_rng(0)
    inside = 0
    for _ in range(300):
        low, high = interval(Accuracy(), (generator.random((150, 1)) < 0.7).astype(np.float64), samples=200)
        inside += low <= 70.0 <= high
    assert 0.90 <= inside / 300 <= 0.98


def test_interval_has_the_width_of_the_normal_approximation():
    low, high = interval(Accuracy(), np.repeat([[1.0], [0.0]], [700, 300], axis=0))
    assert (high - low) / (2 * 1.96 * 100 * (0.7 * 0.3 / 1000) ** 0.5) == pytest.approx(1.0, abs=0.1)


def test_draws_are_paired():
    """Two systems that differ by 10 points in every row differ by that in every draw."""
    rows = np.random.default_rng(4).random((50, 1))
    drawn = Accuracy().bootstrap(rows, 100)
    assert len(set(drawn.tolist())) == 100
    assert Accuracy().bootstrap(rows + 0.1, 100) - drawn == pytest.approx(np.full(100, 10.0))


LABELS = [0, 1, 1, 0, 1, 0, 0, 1] * 3
NOISY = [0, 1, 0, 0, 1, 1, None, 1] * 3
TEXTS = ["the cat runs over a dog", "happy dogs run", "is it so ?", "yes it is"] * 3
WORSE = ["the cat runs over it", "dogs run happy", "it is so !", "no it is not"] * 3


@pytest.mark.parametrize(
    ("metric", "predictions", "references"),
    [
        (F1(), NOISY, LABELS),
        (MacroF1(), NOISY, LABELS),
        (Matthews(), NOISY, LABELS),
        (Pearson(), NOISY, LABELS),
        (Spearman(), NOISY, LABELS),
        (Bleu(), WORSE, TEXTS),
        (ChrF(), WORSE, TEXTS),
        (MultiRcF1(), [(n // 2, p) for n, p in enumerate(NOISY)], [(n // 2, p) for n, p in enumerate(LABELS)]),
        (Perplexity("word"), [(5.0 + n, 3, 2, 9) for n in range(24)], [None] * 24),
    ],
    ids=lambda value: value.name if isinstance(value, Metric) else "",
)
def test_every_metric_can_be_drawn(metric, predictions, references):
    rows = metric.rows(predictions, references)
    low, high = interval(metric, rows, samples=200)
    assert low < metric.value(rows) < high
    # A sample of rows is worth what the metric says of the examples themselves.
    units = [0, 0, 3, 5, 7, 2]
    examples = units if len(rows) == len(predictions) else [n for unit in units for n in (2 * unit, 2 * unit + 1)]
    given = [predictions[n] for n in examples], [references[n] for n in examples]
    if isinstance(metric, MultiRcF1):
        given = tuple([(n // 2, label) for n, (_, label) in enumerate(side)] for side in given)
    assert metric.value(rows[units]) == pytest.approx(metric(*given).value)
