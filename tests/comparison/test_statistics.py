"""Intervals, paired tests and their adjustment, against loops and against cases whose result is known."""

import random

import numpy as np
import pytest

from synthattn.comparison.statistics import adjust, score
from synthattn.metrics.base import Metric, Rows
from synthattn.report.results import Difference


class Mean(Metric):
    """Of the first number of every row."""

    name = "mean"

    def value(self, rows: Rows) -> float:
        return float(rows[:, 0].mean())


class Ratio(Metric):
    """Of two sums, as BLEU and perplexity are: no mean of examples."""

    name = "ratio"

    def value(self, rows: Rows) -> float:
        return float(rows[:, 0].sum() / rows[:, 1].sum())


def examples(count: int, mean: float, seed: int, width: float = 1.0) -> Rows:
    drawn = np.random.default_rng(seed).normal(mean, width, (count, 2))
    return np.abs(drawn) + 0.1


def plain(metric: Metric, rows: list[Rows], baseline: list[Rows], samples: int) -> dict[str, float]:
    """The bootstrap in two stages as a textbook has it: loops, lists, and chance of another kind."""
    rng = random.Random(1)
    count = len(rows[0])
    own, differences = [], []
    for _ in range(samples):
        drawn = [rng.randrange(count) for _ in range(count)]
        seeds = [rng.randrange(len(rows)) for _ in rows]
        ours = sum(metric.value(np.stack([rows[s][n] for n in drawn])) for s in seeds) / len(seeds)
        theirs = sum(metric.value(np.stack([baseline[s][n] for n in drawn])) for s in seeds) / len(seeds)
        own.append(ours)
        differences.append(ours - theirs)
    value = sum(metric.value(one) for one in rows) / len(rows)
    difference = value - sum(metric.value(one) for one in baseline) / len(baseline)
    own.sort()
    differences.sort()
    against = sum(one * difference <= 0 for one in differences)
    return {
        "value": value,
        "low": own[round(0.025 * samples)],
        "high": own[round(0.975 * samples)],
        "difference": difference,
        "difference low": differences[round(0.025 * samples)],
        "difference high": differences[round(0.975 * samples)],
        "p": 2 * against / samples,
    }


@pytest.mark.parametrize("metric", [Mean(), Ratio()], ids=lambda metric: metric.name)
@pytest.mark.parametrize("seeds", [1, 3])
def test_equals_a_plain_implementation(metric, seeds):
    rows = [examples(43, 5.0, seed) for seed in range(seeds)]
    base = [examples(43, 4.7, 10 + seed) for seed in range(seeds)]
    found = score(metric, rows, base, 2000)
    wanted = plain(metric, rows, base, 2000)
    assert found.difference is not None
    assert found.value == pytest.approx(wanted["value"], rel=1e-12)
    assert found.difference.value == pytest.approx(wanted["difference"], rel=1e-12)
    # Both are drawn, so that their ends differ by chance: by far less than the intervals are wide.
    near = 0.1 * (wanted["difference high"] - wanted["difference low"])
    assert found.low == pytest.approx(wanted["low"], abs=near)
    assert found.high == pytest.approx(wanted["high"], abs=near)
    assert found.difference.low == pytest.approx(wanted["difference low"], abs=near)
    assert found.difference.high == pytest.approx(wanted["difference high"], abs=near)
    assert found.difference.p_value == pytest.approx(wanted["p"], abs=0.05)


def test_the_interval_is_that_of_a_normal_mean():
    """1.96 standard errors to either side, a closed form."""
    rows = examples(997, 50.0, 0, width=3.0)
    found = score(Mean(), [rows], None)
    error = rows[:, 0].std() / 997**0.5
    assert found.value == pytest.approx(rows[:, 0].mean())
    assert found.low == pytest.approx(found.value - 1.96 * error, abs=0.2 * error)
    assert found.high == pytest.approx(found.value + 1.96 * error, abs=0.2 * error)


def test_the_baseline_has_no_difference():
    assert score(Mean(), [examples(7, 1.0, 0)], None, 10).difference is None


def test_identical_systems_do_not_differ():
    rows = [examples(31, 5.0, seed) for seed in range(2)]
    found = score(Mean(), rows, rows).difference
    assert found == Difference(0.0, 0.0, 0.0, 1.0)


def test_systems_that_clearly_differ():
    better = score(Mean(), [examples(61, 9.0, 0)], [examples(61, 5.0, 1)]).difference
    worse = score(Mean(), [examples(61, 5.0, 1)], [examples(61, 9.0, 0)]).difference
    assert better is not None
    assert worse is not None
    assert 3 < better.low < better.value < better.high < 5
    assert worse.value == pytest.approx(-better.value)
    # A finite number of draws cannot say that chance is impossible.
    assert better.p_value == worse.p_value == pytest.approx(2 / 1001)


def test_pairing_makes_the_interval_of_the_difference_narrow():
    """Hard examples are hard for both: only what is left after that counts."""
    base = examples(53, 20.0, 0, width=8.0)
    ours = base + 0.3 + examples(53, 0.0, 1, width=0.1) - 0.1
    paired = score(Mean(), [ours], [base]).difference
    shuffled = score(Mean(), [ours], [base[np.random.default_rng(2).permutation(53)]]).difference
    assert paired is not None
    assert shuffled is not None
    assert paired.value == pytest.approx(shuffled.value)
    assert paired.high - paired.low < 0.05 * (shuffled.high - shuffled.low)
    assert paired.p_value < 0.01 < 0.3 < shuffled.p_value


def test_seeds_that_differ_make_the_interval_wide():
    rows = [examples(101, mean, 0, width=0.1) for mean in (4.0, 5.0, 6.0)]
    one = score(Mean(), rows[1:2], None)
    several = score(Mean(), rows, None)
    assert one.value == pytest.approx(several.value)
    assert several.by_seed == pytest.approx([one.value - 1, one.value, one.value + 1])
    assert several.high - several.low > 10 * (one.high - one.low)


def test_seeds_are_paired_too():
    """A seed that is lucky for both says nothing about the difference."""
    base = [examples(29, mean, 0, width=0.1) for mean in (4.0, 5.0, 6.0)]
    found = score(Mean(), [rows + 0.2 for rows in base], base).difference
    assert found is not None
    assert (found.low, found.value, found.high) == pytest.approx((0.2, 0.2, 0.2))


def test_the_same_every_time():
    rows, base = [examples(19, 5.0, 0)], [examples(19, 4.0, 1)]
    assert score(Mean(), rows, base, 50) == score(Mean(), rows, base, 50)


def test_a_score_that_is_no_number_is_no_evidence():
    rows, base = examples(5, 5.0, 0), examples(5, 4.0, 1)
    rows[0] = np.nan
    found = score(Mean(), [rows], [base], 50).difference
    assert found is not None
    assert found.p_value == 1.0


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        # 0.01 x 4, 0.02 x 3, then 0.03 x 2 = 0.06, and 0.04 x 1, which must not be less than the one before.
        ([0.01, 0.02, 0.03, 0.04], [0.04, 0.06, 0.06, 0.06]),
        ([0.04, 0.01, 0.03, 0.02], [0.06, 0.04, 0.06, 0.06]),
        ([0.005, 0.2, 0.6], [0.015, 0.4, 0.6]),
        ([0.6, 0.7], [1.0, 1.0]),
        ([0.03], [0.03]),
        ([], []),
    ],
)
def test_holm_by_hand(given, wanted):
    differences = [Difference(1.0, 0.0, 2.0, p) for p in given]
    adjust(differences)
    assert [one.p_value for one in differences] == pytest.approx(wanted)
    assert all((one.value, one.low, one.high) == (1.0, 0.0, 2.0) for one in differences)
