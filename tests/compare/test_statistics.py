"""Intervals, paired tests and their adjustment, against loops and against cases whose result is known."""

import random
import statistics

import numpy as np
import pytest
import scipy.stats

from synthattn.compare.results import Difference
from synthattn.compare.statistics import adjust, remembered, score
from synthattn.metrics.base import Metric, Rows


class Mean(Metric):
    """The mean of the first number of every row."""

    name = "mean"

    def value(self, rows: Rows) -> float:
        return float(rows[:, 0].mean())


class Ratio(Metric):
    """The ratio of two sums, as BLEU and perplexity are; it is no mean of examples."""

    name = "ratio"

    def value(self, rows: Rows) -> float:
        return float(rows[:, 0].sum() / rows[:, 1].sum())


def examples(count: int, mean: float, seed: int, width: float = 1.0) -> Rows:
    drawn = np.random.default_rng(seed).normal(mean, width, (count, 2))
    return np.abs(drawn) + 0.1


def plain(metric: Metric, rows: list[Rows], baseline: list[Rows], samples: int) -> dict[str, float]:
    """Bootstrap as a textbook does: loops, lists, another random generator, and scipy."""
    rng = random.Random(1)
    count, seeds = len(rows[0]), len(rows)
    own, differences = [], []
    for _ in range(samples):
        drawn = [rng.randrange(count) for _ in range(count)]
        ours = sum(metric.value(np.stack([one[n] for n in drawn])) for one in rows) / seeds
        theirs = sum(metric.value(np.stack([one[n] for n in drawn])) for one in baseline) / seeds
        own.append(ours)
        differences.append(ours - theirs)
    values = [metric.value(one) for one in rows]
    apart = [metric.value(one) - metric.value(other) for one, other in zip(rows, baseline, strict=True)]
    found = {"value": statistics.mean(values), "difference": statistics.mean(apart)}
    for name, by_seed, draws in (("", values, own), ("difference ", apart, differences)):
        mean = statistics.mean(by_seed)
        if seeds == 1:
            draws.sort()
            found[name + "low"], found[name + "high"] = draws[round(0.025 * samples)], draws[round(0.975 * samples)]
            found[name + "p"] = 2 * sum(one * mean <= 0 for one in draws) / samples
            continue
        of_seeds, of_examples = statistics.variance(by_seed) / seeds, statistics.variance(draws)
        error = (of_seeds + of_examples) ** 0.5
        freedom = error**4 / (of_seeds**2 / (seeds - 1) + of_examples**2 / (samples - 1))
        low, high = scipy.stats.t.interval(0.95, freedom, mean, error)
        found[name + "low"], found[name + "high"] = float(low), float(high)
        found[name + "p"] = float(2 * scipy.stats.t.sf(abs(mean) / error, freedom))
    return found


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
    assert found.difference.p_value == pytest.approx(wanted["difference p"], abs=0.05)


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_luck_of_seeds_is_rarely_taken_for_a_difference(seeds):
    """Systems that do not differ, whose seeds move scores far more than examples do."""
    rng = np.random.default_rng(7)
    called = 0
    for _ in range(200):
        rows, base = ([examples(30, 5.0, 1, 0.1) + rng.normal() for _ in range(seeds)] for _ in range(2))
        difference = score(Mean(), rows, base, 40).difference
        assert difference is not None
        called += difference.p_value < 0.05
    assert called <= 20  # 10 are expected; the bootstrap of seeds that this is not calls 50 to 100


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


def test_what_was_drawn_is_drawn_once():
    class Counting(Ratio):
        asked = 0

        def value(self, rows: Rows) -> float:
            self.asked += 1
            return super().value(rows)

    base, one, other = ([examples(40, mean, n) for n in (3, 4)] for mean in (1.0, 1.2, 1.4))
    metric, draw = Counting(), remembered()
    for ours in (one, other):
        assert score(metric, ours, base, 50, draw) == score(Ratio(), ours, base, 50)
    # Three systems of two seeds, each drawn 50 times, besides the values themselves, which are asked for each time.
    assert metric.asked == 3 * 2 * 50 + 2 * 2 * 2
    assert score(metric, one, base, 60, draw) == score(Ratio(), one, base, 60)
