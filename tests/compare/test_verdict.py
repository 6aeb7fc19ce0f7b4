"""Every sentence of the answer, with the figures that it stands for."""

import math
from typing import Any

import pytest

from synthattn.compare.results import Difference, MetricInfo, Results, Score, Variant
from synthattn.compare.verdict import answer


def variant(
    name: str,
    value: float | None = None,
    p: float | None = None,
    low: float = -0.1,
    high: float = 0.1,
    base: float = 40.0,
    seeds: int = 3,
    **fields: Any,
) -> Variant:
    """Make a row with a score where ``value`` is given, and with a difference from ``base`` where ``p`` is."""
    found = Variant(name, "waiting" if value is None else "done", **fields)
    if value is not None:
        difference = None if p is None else Difference(value - base, value - base + low, value - base + high, p)
        found.scores["bleu"] = Score(value, value - 0.5, value + 0.5, [value] * seeds, difference)
    return found


def floor(value: float, name: str = "source copied") -> Variant:
    return Variant("", "done", name=name, scores={"bleu": Score(value, value, value, [value])})


def results(*rows: Variant, higher: bool = True, baseline: str = "vanilla") -> Results:
    scored = any(one.scores for one in rows)
    metrics = {"bleu": MetricInfo("as sacrebleu has it", higher)} if scored else {}
    return Results("translation", "my-data", baseline, "bleu" if scored else "", [], list(rows), metrics)


VANILLA = variant("vanilla", 40.0, training_speed=1.0, parameters=1000, training_memory=2000, cache_bytes_per_token=512)
ONE_SEED = variant("vanilla", 40.0, seeds=1)


def headline(*rows: Variant, higher: bool = True) -> str:
    return answer(results(*rows, higher=higher))[0]


# Headlines --------------------------------------------------------------------------------------------------------


def test_a_cheaper_one_that_is_as_good_is_enough():
    cheap = variant(
        "random", 40.0, 0.7, training_speed=1.12, spread={"training_speed": [1.1, 1.14]}, cache_bytes_per_token=256
    )
    assert headline(VANILLA, cheap) == (
        "random is enough: same BLEU within 2 %, trains 12 % faster, half the cache per token."
    )


def test_the_cheapest_of_several_is_named_with_what_it_saves():
    fast = variant("random", 40.0, 0.7, training_speed=1.3, parameters=900, training_memory=1500)
    less_fast = variant("dense", 40.1, 0.7, training_speed=1.1)
    worse = variant("fixed_random", 30.0, 0.001, training_speed=2.0)
    assert headline(VANILLA, less_fast, fast, worse) == (
        "random is enough: same BLEU within 2 %, trains 30 % faster, 25 % less memory in training, "
        "10 % fewer parameters."
    )


def test_it_is_said_what_each_of_several_is_cheapest_in():
    fast = variant("random", 40.0, 0.7, training_speed=1.3, parameters=900, training_memory=1500)
    small = variant("dense", 40.1, 0.7, training_speed=1.1, parameters=400, cache_bytes_per_token=256)
    worse = variant("fixed_random", 30.0, 0.001, training_speed=2.0)
    assert answer(results(VANILLA, small, fast, worse))[3] == (
        "Cheapest of those that are as good or better: random (trains 30 % faster, 25 % less memory in training); "
        "dense (60 % fewer parameters, half the cache per token)."
    )


def test_scores_of_zero_are_no_answer():
    rows = [variant(name, 0.0, p, 0.0, 0.0, base=0.0) for name, p in (("vanilla", None), ("random", 1.0))]
    for row in rows:
        row.scores["bleu"].low = row.scores["bleu"].high = 0.0
        row.scores["bleu"].by_seed = [0.0]
    rows[1].training_speed = 2.0
    assert headline(*rows) == "No answer yet: the models have not learned the task."


def test_a_speed_whose_interval_reaches_one_saves_nothing():
    doubtful = variant("random", 40.0, 0.7, training_speed=1.3, spread={"training_speed": [0.9, 1.6]})
    assert headline(VANILLA, doubtful) == "Keep dot-product attention: random is as good, but saves nothing."


def test_one_that_is_better():
    assert headline(VANILLA, variant("dense+vanilla", 43.0, 0.01, training_speed=0.89)) == (
        "dense+vanilla is better than vanilla: BLEU 43.00 against 40.00, trains 11 % slower."
    )


@pytest.mark.parametrize(("values", "why"), [((37.0, 39.1), "nothing else came within 2 %"),
                                             ((37.0, 39.3), "every other attention is worse")])  # fmt: skip
def test_dot_products_are_needed(values, why):
    rows = [variant(name, value, 0.002) for name, value in zip(("random", "dense"), values, strict=True)]
    assert headline(VANILLA, *rows) == f"Keep dot-product attention: {why}."


@pytest.mark.parametrize("higher", [True, False])
@pytest.mark.parametrize(
    ("low", "high", "chosen"),
    [(-0.79, 0.3, True), (-0.81, 0.3, False), (-0.3, 9.0, True), (-0.3, 0.01, True), (-0.3, -0.01, False)],
)
def test_not_worse_is_shown_by_the_interval_and_not_by_a_large_p_value(low, high, chosen, higher):
    """Holm's p-values grow with the number of variants; that must not make one of them fit to be chosen."""
    ends = (low, high) if higher else (-high, -low)
    found = headline(VANILLA, variant("random", 40.0, 0.9, *ends, training_speed=2.0), higher=higher)
    assert found.startswith("random is enough") == chosen
    assert found.startswith("No answer yet: the test is too small") == (not chosen)


def test_lower_may_be_better():
    assert headline(VANILLA, variant("dense", 37.0, 0.01), higher=False).startswith("dense is better than vanilla")
    assert headline(VANILLA, variant("dense", 43.0, 0.01), higher=False).startswith("Keep dot-product attention")


def test_the_control_is_never_chosen():
    control = variant("vanilla (control)", 40.2, 0.7, training_speed=3.0)
    assert headline(VANILLA, control, variant("random", 40.0, 0.7, training_speed=1.5)).startswith("random is enough")
    assert "control" not in headline(VANILLA, control)


def test_the_best_is_one_that_is_surely_better():
    lucky = variant("random+vanilla", 44.0, 0.2, -5.0, 5.0)
    assert headline(VANILLA, variant("dense+vanilla", 43.0, 0.001), lucky).startswith("dense+vanilla is better")


# One seed is a hint -----------------------------------------------------------------------------------------------


SINGLE = {
    "dense looks better than vanilla: BLEU 43.00 against 40.00": variant("dense", 43.0, 0.01, seeds=1),
    "Dot-product attention looks needed: nothing else came within 2 %": variant("dense", 30.0, 0.01, seeds=1),
    "Dot-product attention looks worth keeping: dense is as good, but saves nothing": variant(
        "dense", 40.0, 0.7, seeds=1
    ),
    "dense looks enough: same BLEU within 2 %, trains 50 % faster": variant(
        "dense", 40.0, 0.7, seeds=1, training_speed=1.5
    ),
}


@pytest.mark.parametrize("text", SINGLE)
def test_one_seed_only_looks(text):
    found = answer(results(ONE_SEED, SINGLE[text]))
    assert found[0] == f"{text} (one seed)."
    assert found[2].startswith("How far to trust this: one seed; another one may change the order (--seeds 3)")


def test_several_seeds_are_counted():
    assert answer(results(VANILLA, variant("dense", 40.0, 0.7)))[2] == "How far to trust this: 3 seeds."


# Floors -----------------------------------------------------------------------------------------------------------


def test_models_below_the_floor_are_as_good_as_each_other():
    rows = VANILLA, variant("dense", 40.1, 0.5, training_speed=2.0), floor(41.0)
    found = answer(results(*rows))
    assert found[0] == "No answer yet: the models have not learned the task."
    assert "without a model (source copied) 41.00" in found[1]
    assert found[2] == "To get an answer: train for longer, or with another learning rate."
    assert found[3:] == ["Not judged, because these and vanilla have not learned the task: dense (40.10)."]
    # A floor below both changes nothing.
    assert answer(results(*rows[:2], floor(39.0)))[0] == answer(results(*rows[:2]))[0]


def test_the_best_floor_counts():
    nothing, rows = "the models have not learned the task", (VANILLA, variant("dense", 40.1, 0.5))
    assert nothing in headline(*rows, floor(3.0), floor(41.0, "first words"))
    uniform, unigram = floor(8000.0, "uniform model"), floor(39.0, "unigram model")
    assert nothing in headline(*rows, uniform, unigram, higher=False)
    assert nothing not in headline(*rows, uniform, floor(50.0), higher=False)


def test_one_that_clears_the_floor_alone_is_judged():
    found = answer(results(VANILLA, variant("random", 43.0, 0.01), variant("dense", 40.1, 0.5), floor(41.0)))
    assert found[0].startswith("random is better than vanilla")
    assert "vanilla itself is not clearly better than source copied" in found[2]
    assert "Not judged, because these and vanilla have not learned the task: dense (40.10)." in found


def test_clearing_depends_on_the_worst_seed_or_the_interval():
    row = variant("dense", 45.0, 0.01, seeds=1)
    several = variant("vanilla", 40.0)
    several.scores["bleu"] = Score(40.0, 10.0, 70.0, [38.0, 42.0])
    low = variant("dense", 37.0, 0.01)
    assert not headline(ONE_SEED, row, floor(39.4)).startswith("No answer")
    assert "not clearly better than source copied" in answer(results(ONE_SEED, row, floor(39.5)))[2]
    assert headline(several, low, floor(37.9)).startswith("Keep")
    assert headline(several, low, floor(38.0)).startswith("No answer yet")


@pytest.mark.parametrize(
    ("losses", "text"),
    [
        ([5.0, 4.0, 3.5, 3.0, 2.5], "the validation loss still falls at step 500; try --steps 2000"),
        ([5.0, 4.0, 3.0, 3.0, 3.0], "the validation loss no longer falls at step 500; try another learning rate"),
    ],
)
def test_the_curve_suggests_a_budget(losses, text):
    base = variant("vanilla", 0.1, validation_curve=[[100.0 * (n + 1), loss] for n, loss in enumerate(losses)])
    assert text in answer(results(base, variant("dense", 0.1, 1.0, base=0.1), floor(1.0)))[2]


@pytest.mark.parametrize(
    ("last", "text"),
    [(7.0, "still falls at step 800; try --steps 6400"), (7.95, "falls too slowly at step 800; try another learning")],
)
def test_the_budget_of_a_language_model_is_what_its_curve_needs_to_the_floor(last, text):
    # With every doubling of the steps the loss falls by 8 - last, and 2 * (8 - 7) are left to the floor.
    base = variant("vanilla", 3000.0, validation_curve=[[200.0, 9.0], [400.0, 8.0], [600.0, 7.999], [800.0, last]])
    rows = base, variant("dense", 3000.0, 1.0, base=3000.0), floor(math.exp(5.0))
    found = results(*rows, higher=False)
    for row in rows:
        row.scores = {"token-perplexity": row.scores["bleu"]}
    found.main_metric, found.metrics = "token-perplexity", {"token-perplexity": found.metrics["bleu"]}
    assert text in answer(found)[2]


def test_a_test_that_is_too_small_says_by_how_much():
    # The interval is four times as wide as the margin of 2 %.
    unsure = variant("dense", 40.0, 0.7, -3.2, 3.2)
    found = answer(results(VANILLA, unsure))
    assert found[0].startswith("No answer yet: the test is too small to tell")
    assert "To get an answer: a test with 16 times as many examples, or more seeds." in found[2]


# Trend and speed --------------------------------------------------------------------------------------------------


def curve(*losses: float) -> list[list[float]]:
    return [[25.0 * (n + 1), loss] for n, loss in enumerate(losses)]


def test_a_gap_that_cannot_be_seen_does_not_move():
    base = variant("vanilla", 40.0, validation_curve=curve(5.0, 0.1, 2e-4, 1e-4))
    other = variant("dense", 40.0, 0.7, validation_curve=curve(5.0, 0.2, 8e-4, 1e-4))
    assert "moving" not in answer(results(base, other))[2]


@pytest.mark.parametrize(
    ("ours", "moving"),
    [
        ((5.0, 4.0, 3.2, 2.9), True),  # behind by 0.2 at 75 %, then ahead by 0.1
        ((5.0, 4.0, 3.2, 3.1), True),  # the gap has halved
        ((5.0, 4.0, 3.2, 3.15), False),
        ((5.0, 4.0, 3.001, 3.0), False),  # next to nothing
    ],
)
def test_a_gap_that_still_moves_is_said(ours, moving):
    base = variant("vanilla", 40.0, validation_curve=curve(5.0, 4.0, 3.0, 3.0))
    found = answer(results(base, variant("dense", 40.0, 0.7, validation_curve=curve(*ours))))[2]
    assert ("the gap to vanilla is still moving for dense; train for longer" in found) == moving


def test_an_uncertain_speed_is_said():
    wide = variant("random", 40.0, 0.7, training_speed=2.0, spread={"training_speed": [1.5, 2.4]})
    assert "the training speed is uncertain (1.50 to 2.40 times vanilla's)" in answer(results(VANILLA, wide))[2]
    wide.rounds = {"training_speed": 21}
    assert "1.50 to 2.40 times vanilla's in 21 rounds" in answer(results(VANILLA, wide))[2]


# Evidence and groups ----------------------------------------------------------------------------------------------


def test_evidence_names_the_baseline_the_chosen_one_and_the_floor():
    found = answer(results(VANILLA, variant("random", 39.95, 0.7, -0.5, 0.6, training_speed=1.5), floor(2.0)))
    assert found[1].replace("\N{MINUS SIGN}", "-") == (
        "BLEU: vanilla 40.00 (95 %: 39.50 to 40.50); random 39.95, a difference of -0.05 (95 %: -0.55 to +0.55); "
        "without a model (source copied) 2.000. Higher is better."
    )


def test_every_variant_is_in_one_group():
    better, alike, unsure = variant("a", 43.0, 0.01), variant("b", 40.1, 0.7), variant("c", 40.0, 0.7, -3, 3)
    worse, unpaired = variant("d", 30.0, 0.01), variant("e", 20.0)
    assert answer(results(VANILLA, worse, alike, better, unsure, unpaired))[3:] == [
        "Better: a (43.00).",
        "As good, within 2 %: b (40.10).",
        "Undecided, because the test is too small: c (40.00).",
        "Worse: d (30.00).",
        "Not compared, because their seeds differ: e (20.00).",
    ]


# What is missing --------------------------------------------------------------------------------------------------


def failed(name: str, value: float | None = None, p: float | None = None, **options: Any) -> Variant:
    """Make a row that failed, with the score of the seeds that survived, where there are some."""
    found = variant(name, value, p, **options)
    found.status, found.reason, found.failed_seeds = "failed", "the loss is nan", 1
    return found


@pytest.mark.parametrize("value", [43.0, 40.0, 30.0])
def test_what_failed_with_some_seeds_is_in_no_other_group(value):
    half = failed("dense", value, 0.001, seeds=2, training_speed=9.0)
    found = answer(results(VANILLA, half, variant("random", 40.1, 0.7, training_speed=1.5)))
    assert found[-1] == "Failed, and not compared: dense (in 1 of the 3 seeds that were tried)."
    assert sum("dense" in text for text in found) == 1


def test_the_baseline_failed():
    rows = failed("vanilla", 40.0, seeds=1), variant("random", 40.3), failed("dense", 50.0, seeds=1)
    assert answer(results(*rows)) == [
        "No answer yet: vanilla failed in 1 of the 2 seeds that were tried, so there is nothing to compare with.",
        "The best of the others is random: BLEU 40.30.",
        "Failed, and not compared: dense (in 1 of the 2 seeds that were tried).",
    ]
    rows = Variant("vanilla", "failed"), variant("random", 40.3), variant("dense", 39.0)
    assert answer(results(*rows, higher=False)) == [
        "No answer yet: vanilla was not trained to the end, so there is nothing to compare with.",
        "The best of the others is dense: BLEU 39.00.",
    ]


def test_the_baseline_was_not_asked_for():
    assert headline(variant("dense", 40.1)) == (
        "No answer yet: vanilla is not among what is compared, so there is nothing to compare with."
    )


def test_nothing_is_done():
    assert answer(results(variant("vanilla"), variant("dense"))) == ["No answer yet: no model was trained to the end."]


def test_only_the_baseline_is_done():
    assert answer(results(VANILLA, variant("dense"), failed("random"))) == [
        "No answer yet: only vanilla was trained to the end.",
        "vanilla reaches BLEU 40.00.",
        "Failed, and not compared: random.",
    ]


@pytest.mark.parametrize(("value", "text"), [(3.14159, "3.142"), (31.4159, "31.42"), (12345.6, "12,345.60")])
def test_digits(value, text):
    assert (
        f"vanilla {text} (95 %" in answer(results(variant("vanilla", value), variant("dense", 1.0, 1.0, base=1.0)))[1]
    )
