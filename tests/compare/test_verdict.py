"""Every sentence of the answer, with the numbers of the results that it stands for."""

from typing import Any

import pytest

from synthattn.compare.results import Difference, Metric, Results, Score, Variant
from synthattn.compare.verdict import answer


def variant(
    name: str,
    value: float | None = None,
    p: float | None = None,
    low: float = -0.1,
    high: float = 0.1,
    base: float = 40.0,
    seeds: int = 3,
    **costs: float | int,
) -> Variant:
    """With a score where ``value`` is given, and with a difference from ``base`` where ``p`` is."""
    found = Variant(name, "waiting" if value is None else "done")
    if value is not None:
        difference = None if p is None else Difference(value - base, value - base + low, value - base + high, p)
        found.scores["bleu"] = Score(value, value - 0.5, value + 0.5, [value] * seeds, difference)
    for cost, amount in costs.items():
        setattr(found, cost, amount)
    return found


def results(*variants: Variant, higher: bool = True) -> Results:
    scored = any(one.scores for one in variants)
    metrics = {"bleu": Metric("as sacrebleu has it", higher)} if scored else {}
    return Results("translation", "my-data", "vanilla", "bleu" if scored else "", [], list(variants), metrics)


TAKES = "(at most 2 %, or 0.800, worse with 95 % certainty)"
"""Of a baseline that reaches 40."""

VANILLA = variant(
    "vanilla",
    40.0,
    training_speed=1.0,
    inference_speed=1.0,
    generation_speed=1.0,
    parameters=1000,
    training_memory=2000,
    cache_bytes_per_token=512,
)


def test_what_the_baseline_reaches():
    assert answer(results(VANILLA, variant("dense", 40.1, 0.5)))[0] == (
        "vanilla reaches bleu 40.00 (95 %: 39.50 to 40.50); higher is better."
    )
    assert answer(results(VANILLA, variant("dense", 40.1, 0.5), higher=False))[0].endswith("; lower is better.")


def test_not_distinguishable():
    found = answer(results(VANILLA, variant("dense", 40.1, 0.05), variant("random", 39.95, 0.6)))
    assert found == [
        "vanilla reaches bleu 40.00 (95 %: 39.50 to 40.50); higher is better.",
        "Not distinguishable from it: dense (40.10), random (39.95).",
        f"As good or better {TAKES}: dense, random.",
    ]


@pytest.mark.parametrize(("value", "higher"), [(43.0, True), (37.0, False)])
def test_better(value, higher):
    found = answer(results(VANILLA, variant("dense", value, 0.049), higher=higher))
    assert found[1:] == [f"Better than it: dense ({value:.2f}).", f"As good or better {TAKES}: dense."]


@pytest.mark.parametrize(("value", "higher"), [(37.0, True), (43.0, False)])
def test_worse(value, higher):
    found = answer(results(VANILLA, variant("dense", value, 0.002), variant("random", value, 0.01), higher=higher))
    assert found[1:] == [
        f"Worse: dense ({value:.2f}), random ({value:.2f}).",
        "This task needs vanilla: every other attention that was tried is worse.",
    ]


def test_better_alike_and_worse_together():
    better, alike, worse = variant("a", 43.0, 0.01), variant("b", 40.1, 0.7), variant("c", 30.0, 0.01)
    found = answer(results(VANILLA, worse, alike, better))
    assert found[1:] == [
        "Better than it: a (43.00).",
        "Not distinguishable from it: b (40.10).",
        "Worse: c (30.00).",
        f"As good or better {TAKES}: a, b.",
    ]


@pytest.mark.parametrize("higher", [True, False])
@pytest.mark.parametrize(
    ("low", "high", "chosen"),
    [(-0.79, 0.3, True), (-0.81, 0.3, False), (-0.3, 9.0, True), (-0.3, 0.01, True), (-0.3, -0.01, False)],
)
def test_not_worse_is_shown_by_the_interval_and_not_by_a_large_p_value(low, high, chosen, higher):
    """Holm's p-values grow with the number of variants; that must not make one of them fit to be chosen."""
    ends = (low, high) if higher else (-high, -low)
    found = answer(results(VANILLA, variant("random", 40.0, 0.9, *ends, training_speed=2.0), higher=higher))
    assert "Not distinguishable from it: random (40.00)." in found
    assert any(text.startswith("The cheapest of these is random") for text in found) == chosen
    assert (f"As good or better {TAKES}: random." in found) == chosen
    assert (f"None is shown to be as good {TAKES}: stay with vanilla, or test more." in found) == (not chosen)
    assert any("too little was tested to say whether random" in text for text in found) == (not chosen)


def test_the_cheapest_and_what_it_saves():
    cheap = variant(
        "random",
        40.1,
        0.7,
        training_speed=1.256,
        inference_speed=1.3,
        generation_speed=0.991,
        parameters=900,
        training_memory=1500,
        cache_bytes_per_token=256,
    )
    dear = variant("dense", 40.2, 0.7, training_speed=1.1)
    fast_but_worse = variant("fixed_random", 30.0, 0.001, training_speed=2.0)
    assert answer(results(VANILLA, dear, cheap, fast_but_worse))[-1] == (
        "The cheapest of these is random: against vanilla it trains 1.26 times as fast, scores 1.30 times as fast, "
        "writes 0.99 times as fast, has 10 % fewer parameters, needs 25 % less memory in training, and "
        "keeps 50 % fewer bytes per decoded token."
    )


@pytest.mark.parametrize(
    ("ours", "words", "memory"),
    [(1000, "as many", "as much"), (1001, "about as many", "about as much"), (1230, "23 % more", "23 % more")],
)
def test_how_changes_are_said(ours, words, memory):
    costs = {"training_speed": 1.5, "parameters": ours, "training_memory": 2 * ours}
    assert answer(results(VANILLA, variant("random", 40.1, 0.7, **costs)))[-1] == (
        "The cheapest of these is random: against vanilla it trains 1.50 times as fast, "
        f"has {words} parameters, and needs {memory} memory in training."
    )


def test_one_that_is_better_can_be_the_cheapest():
    found = answer(results(VANILLA, variant("random+vanilla", 43.0, 0.01, training_speed=1.1)))
    assert found[-1].startswith("The cheapest of these is random+vanilla: ")


def test_none_is_faster():
    assert answer(results(VANILLA, variant("dense", 40.1, 0.7, training_speed=1.02)))[-1] == (
        "None of these trains faster than vanilla: stay with it."
    )


def test_a_better_one_that_is_slower_is_said():
    slower = variant("dense+vanilla", 43.0, 0.001, training_speed=0.8)
    found = answer(results(VANILLA, slower, variant("dense", 40.1, 0.7, training_speed=0.9)))[-1]
    assert found == ("None of these trains faster than vanilla; the best, dense+vanilla, trains 0.80 times as fast.")


@pytest.mark.parametrize(("value", "more", "higher"), [(43.0, 44.0, True), (37.0, 36.0, False)])
def test_the_best_is_one_that_is_surely_better(value, more, higher):
    """Another one has a higher score, of which nobody knows whether it is chance."""
    better = variant("dense+vanilla", value, 0.001, training_speed=0.8)
    lucky = variant("random+vanilla", more, 0.2, -5.0, 5.0, training_speed=0.7)
    lucky.scores["bleu"].difference = Difference(4.0, -0.5, 8.5, 0.2) if higher else Difference(-4.0, -8.5, 0.5, 0.2)
    assert (
        "the best, dense+vanilla, trains 0.80 times as fast."
        in answer(results(VANILLA, better, lucky, higher=higher))[-1]
    )


def test_the_control_is_never_chosen():
    control = variant("vanilla (control)", 40.2, 0.7, training_speed=3.0)
    found = answer(results(VANILLA, variant("random", 40.1, 0.7, training_speed=1.5), control))
    assert "Not distinguishable from it: random (40.10), vanilla (control) (40.20)." in found
    assert f"As good or better {TAKES}: random." in found
    assert found[-1].startswith("The cheapest of these is random: ")
    assert not any("cheapest" in text or "As good" in text for text in answer(results(VANILLA, control)))


def test_the_baseline_failed():
    failed = Variant("vanilla", "failed", "the loss is nan")
    done = [variant("dense", 40.1), variant("random", 40.3)]
    assert answer(results(failed, *done)) == [
        "vanilla was not trained to the end, so nothing can be said against it. The best of the others is random: "
        "bleu 40.30."
    ]
    assert "others is dense: bleu 40.10." in answer(results(failed, *done, higher=False))[0]


def test_the_baseline_was_not_asked_for():
    assert answer(results(variant("dense", 40.1))) == [
        "vanilla is not among what is compared, so nothing can be said against it. The best of the others is dense: "
        "bleu 40.10."
    ]


def test_the_baseline_has_fewer_seeds():
    """Without a paired test nothing is said about which is better."""
    found = answer(results(VANILLA, variant("dense", 20.0), variant("random", 40.1, 0.7)))
    assert "Not distinguishable from it: random (40.10)." in found
    assert "Not compared with it, not having the same seeds: dense (20.00)." in found


def failed(name: str, value: float | None = None, p: float | None = None, **options: Any) -> Variant:
    """With the score of the seeds that survived, where there are some."""
    found = variant(name, value, p, **options)
    found.status, found.reason, found.failed_seeds = "failed", "the loss is nan", 1
    return found


@pytest.mark.parametrize("value", [43.0, 40.0, 30.0])
def test_what_failed_with_some_seeds_is_in_no_other_group(value):
    """Not even where old results have a difference for it."""
    half = failed("dense", value, 0.001, seeds=2, training_speed=9.0)
    found = answer(results(VANILLA, half, variant("random", 40.1, 0.7, training_speed=1.5)))
    assert "Failed, and not compared: dense (in 1 of the 3 seeds that were tried)." in found
    assert sum("dense" in text for text in found) == 1
    assert found[-1].startswith("The cheapest of these is random: ")


def test_what_failed_altogether():
    worse = variant("random", 37.0, 0.002)
    found = answer(results(VANILLA, failed("dense"), failed("linformer(k=7)"), worse))
    assert found[1:] == [
        "Worse: random (37.00).",
        "Failed, and not compared: dense, linformer(k=7).",
        "This task needs vanilla: every other attention that was trained to the end is worse.",
    ]
    assert answer(results(VANILLA, failed("dense"))) == [
        "Only vanilla was trained to the end: bleu 40.00.",
        "Failed, and not compared: dense.",
    ]


def test_the_baseline_failed_with_some_seeds():
    found = answer(results(failed("vanilla", 40.0, seeds=1), variant("random", 40.3), failed("dense", 50.0, seeds=1)))
    assert found == [
        "vanilla failed in 1 of the 2 seeds that were tried, so nothing can be said against it. The best of the others "
        "is random: bleu 40.30.",
        "Failed, and not compared: dense (in 1 of the 2 seeds that were tried).",
    ]


def test_nothing_is_done():
    assert answer(results(variant("vanilla"), variant("dense"))) == [
        "Nothing was trained to the end, so there is no answer."
    ]


def test_only_the_baseline_is_done():
    assert answer(results(VANILLA, variant("dense"))) == ["Only vanilla was trained to the end: bleu 40.00."]


def test_thin_evidence_by_a_wide_interval():
    # 2 % of 40 are 0.8: one reaches 0.7, the other 2.1.
    narrow = variant("dense", 40.0, 0.9, low=-0.7, high=1.9)
    wide = variant("random", 40.0, 0.9, low=-2.1, high=1.5)
    assert answer(results(VANILLA, narrow, wide))[-1] == (
        "How far to trust this: too little was tested to say whether random (the difference may be anything from -2.1 "
        "to +1.5) is as good as vanilla."
    )
    assert not any("How far" in text for text in answer(results(VANILLA, narrow)))


def test_a_wide_interval_of_one_that_is_worse_does_not_matter():
    found = answer(results(VANILLA, variant("random", 20.0, 0.001, low=-9.0, high=9.0)))
    assert not any("How far" in text for text in found)


def test_thin_evidence_by_a_single_seed():
    base = variant("vanilla", 40.0, seeds=1)
    assert answer(results(base, variant("dense", 40.1, 0.7, seeds=1)))[-1] == (
        "How far to trust this: with a single seed, nothing is known about how much another one would change "
        "(--seeds 3)."
    )


def test_thin_evidence_where_nothing_was_learned():
    found = answer(results(variant("vanilla", 0.0), variant("dense", 0.0, 1.0, 0.0, 0.0, base=0.0)))
    assert found[-1] == (
        "How far to trust this: vanilla itself has learned nothing that bleu can see; train for longer."
    )


def test_several_reasons_are_one_sentence():
    base = variant("vanilla", 40.0, seeds=1)
    wide = variant("random", 40.0, 0.9, low=-2.1, high=1.5, seeds=1)
    assert answer(results(base, wide))[-1].count("; ") == 1


@pytest.mark.parametrize(("value", "text"), [(3.14159, "3.142"), (31.4159, "31.42"), (12345.6, "12,345.60")])
def test_digits(value, text):
    assert f"bleu {text} (95 %" in answer(results(variant("vanilla", value), variant("dense", 1.0, 1.0, base=1.0)))[0]


def with_one_answer(value: float, *variants: Variant) -> list[str]:
    found = results(*variants)
    found.one_answer = {"bleu": value}
    return answer(found)


def test_a_baseline_that_has_learned_nothing_is_no_measure():
    usual = answer(results(VANILLA, variant("dense", 40.1, 0.5), variant("random", 43.0, 0.01)))
    assert with_one_answer(39.9, VANILLA, variant("dense", 40.1, 0.5), variant("random", 43.0, 0.01)) == usual
    found = with_one_answer(40.0, VANILLA, variant("dense", 40.1, 0.5), variant("random", 43.0, 0.01))
    assert found == [
        *usual[:3],
        "No answer yet: vanilla is not clearly above bleu 40.00, which one answer scores at best when it is given to "
        "every question. Train for longer, with another learning rate, or test on more examples. random learned "
        "something in the same time.",
    ]
    # Better than vanilla, and still not above one answer.
    found = with_one_answer(43.0, VANILLA, variant("random", 43.0, 0.01))
    assert found[-1].endswith("more examples.")


def test_what_is_known_of_the_baseline_depends_on_its_seeds():
    """With one, its interval begins at 39.5; with several, which make intervals wide, the worst of them counts."""
    others = variant("dense", 40.1, 0.5, seeds=1)
    one = variant("vanilla", 40.0, seeds=1)
    assert not any(text.startswith("No answer yet") for text in with_one_answer(39.4, one, others))
    found = with_one_answer(39.5, one, others)
    assert found[-2].startswith("No answer yet")
    assert "a single seed" in found[-1]
    several = variant("vanilla", 40.0)
    several.scores["bleu"] = Score(40.0, 10.0, 70.0, [38.0, 42.0])
    assert not any(text.startswith("No answer yet") for text in with_one_answer(37.9, several, others))
    assert with_one_answer(38.0, several, others)[-1].startswith("No answer yet")
