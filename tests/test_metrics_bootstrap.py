"""The bootstrap: on data whose truth is known."""

import re

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
    interval,
    paired,
)


def answers(generator: np.random.Generator, n: int, right: float) -> Rows:
    return (generator.random((n, 1)) < right).astype(np.float64)


def test_interval_covers_the_truth():
    generator = np.random.default_rng(0)
    inside = 0
    for trial in range(300):
        low, high = interval(Accuracy(), answers(generator, 150, 0.7), samples=200, seed=trial)
        inside += low <= 70.0 <= high
    assert 0.90 <= inside / 300 <= 0.98


def test_interval_has_the_width_of_the_normal_approximation():
    rows = np.repeat([[1.0], [0.0]], [700, 300], axis=0)
    low, high = interval(Accuracy(), rows)
    assert (high - low) / (2 * 1.96 * 100 * (0.7 * 0.3 / 1000) ** 0.5) == pytest.approx(1.0, abs=0.1)
    narrow = interval(Accuracy(), rows, level=0.5)
    assert low < narrow[0] < 70.0 < narrow[1] < high


def test_paired_finds_a_clear_difference_and_its_sign():
    generator = np.random.default_rng(1)
    worse = answers(generator, 400, 0.6)
    better = np.maximum(worse, answers(generator, 400, 0.2))
    found = paired(Accuracy(), better, worse)
    assert found.difference == pytest.approx(100 * float((better - worse).mean()))
    assert 0 < found.low < found.difference < found.high
    assert found.p_value == 2 / 1001
    other = paired(Accuracy(), worse, better)
    assert (other.difference, other.low, other.p_value) == pytest.approx((-found.difference, -found.high, 2 / 1001))


def test_paired_does_not_find_what_is_not_there():
    generator = np.random.default_rng(2)
    p_values = [
        paired(Accuracy(), answers(generator, 100, 0.6), answers(generator, 100, 0.6), samples=100).p_value
        for _ in range(200)
    ]
    assert sum(p < 0.05 for p in p_values) / 200 < 0.12
    assert max(p_values) <= 1.0
    rows = answers(generator, 100, 0.6)
    same = paired(Accuracy(), rows, rows)
    assert (same.difference, same.low, same.high, same.p_value) == (0.0, 0.0, 0.0, 1.0)


def test_paired_is_sharper_than_two_intervals():
    """Units that are hard are hard for both: only the same units for both tell the systems apart."""
    generator = np.random.default_rng(3)
    worse = answers(generator, 300, 0.5)
    better = np.maximum(worse, answers(generator, 300, 0.06))
    assert interval(Accuracy(), better)[0] < interval(Accuracy(), worse)[1]
    assert paired(Accuracy(), better, worse).p_value < 0.05


def test_seed_decides():
    # Numbers of which no two samples have the same mean.
    rows, other = np.random.default_rng(4).random((2, 50, 1))
    assert interval(Accuracy(), rows, seed=3) == interval(Accuracy(), rows, seed=3)
    assert interval(Accuracy(), rows, samples=50, seed=3) != interval(Accuracy(), rows, samples=50, seed=4)
    assert paired(Accuracy(), rows, other, seed=3) == paired(Accuracy(), rows, other, seed=3)


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


def test_errors_say_what_to_do():
    rows = np.ones((5, 1))
    for call, message in (
        (lambda: interval(Accuracy(), rows, level=95.0), "level must be between 0 and 1, got 95.0"),
        (lambda: interval(Accuracy(), rows, samples=0), "samples must be at least 1, got 0"),
        (lambda: interval(Accuracy(), rows[:0]), "a bootstrap needs at least 1 row, got 0"),
        (lambda: paired(Accuracy(), rows, rows[:3]), "paired samples need the same units, got 5 and 3 rows"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            call()
