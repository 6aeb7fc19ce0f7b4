"""The answer in words, from the figures alone."""

from synthattn.compare.results import Results, Score, Variant

CERTAIN = 0.05
"""The p-value below which a difference counts as real."""
MARGIN = 0.02
"""The share of the baseline's score that a variant may be worse by, at the worse end of the interval of its difference,
and still be called as good. That a difference is not significant would not do: little data, or many variants that
p-values are adjusted for, are enough for this."""


def answer(results: Results) -> list[str]:
    """Which variants do as well as the baseline, which of these is the cheapest, and what it saves."""
    metric = results.main_metric
    failed = [variant for variant in results.variants if variant.status == "failed"]
    done = [variant for variant in results.variants if metric in variant.scores and variant.status != "failed"]
    baseline = next((variant for variant in done if variant.attention == results.baseline), None)
    others = [variant for variant in done if variant is not baseline]
    failures = _failures([variant for variant in failed if variant.attention != results.baseline])
    if not done:
        return ["Nothing was trained to the end, so there is no answer."]
    if baseline is None:
        return _without_baseline(results, done) + failures
    if not others:
        only = f"Only {results.baseline} was trained to the end: {metric} {_number(baseline.scores[metric].value)}."
        return [only, *failures]
    better = [variant for variant in others if _side(results, variant) == 1]
    worse = [variant for variant in others if _side(results, variant) == -1]
    alike = [variant for variant in others if _side(results, variant) == 0]
    unpaired = [variant for variant in others if _side(results, variant) is None]
    paragraphs = _quality(results, baseline, better, alike, worse, unpaired) + failures
    if nothing := _nothing_learned(results, baseline, better):
        thin = _thin(results, baseline, [])
        return [*paragraphs, nothing, *([thin] if thin else [])]
    # A control is there to be compared with, not to be chosen.
    eligible = [v for v in (*better, *alike) if not v.attention.startswith(f"{results.baseline} (")]
    candidates = [variant for variant in eligible if _as_good(results, baseline, variant)]
    if eligible:
        paragraphs.append(_choice(results, baseline, candidates))
    elif worse and not better and not alike and not unpaired:
        which = "trained to the end" if failed else "tried"
        paragraphs.append(f"This task needs {results.baseline}: every other attention that was {which} is worse.")
    measured = [variant for variant in candidates if variant.training_speed is not None]
    if measured:
        paragraphs.append(_cost(results, baseline, measured))
    thin = _thin(results, baseline, alike)
    return paragraphs + ([thin] if thin else [])


def _failures(failed: list[Variant]) -> list[str]:
    """What diverges with some seeds cannot be judged by those with which it does not."""
    return [f"Failed, and not compared: {', '.join(map(_failure, failed))}."] if failed else []


def _failure(variant: Variant) -> str:
    share = _share_of_seeds(variant)
    return f"{variant.attention} ({share})" if share else variant.attention


def _share_of_seeds(variant: Variant) -> str:
    """In which it failed; nothing where it never did anything else."""
    survived = max((len(score.by_seed) for score in variant.scores.values()), default=0)
    count = max(1, variant.failed_seeds)
    return f"in {count} of the {count + survived} seeds that were tried" if survived else ""


def _without_baseline(results: Results, done: list[Variant]) -> list[str]:
    metric = results.main_metric
    sign = 1 if results.metrics[metric].higher_is_better else -1
    best = max(done, key=lambda variant: sign * variant.scores[metric].value)
    asked = next((variant for variant in results.variants if variant.attention == results.baseline), None)
    share = _share_of_seeds(asked) if asked is not None and asked.status == "failed" else ""
    why = "is not among what is compared" if asked is None else "was not trained to the end"
    why = f"failed {share}" if share else why
    return [
        f"{results.baseline} {why}, so nothing can be said against it. The best of the others is "
        f"{best.attention}: {metric} {_number(best.scores[metric].value)}."
    ]


def _side(results: Results, variant: Variant) -> int | None:
    """1 for better than the baseline, -1 for worse, 0 where that cannot be told, None where they were not compared."""
    difference = variant.scores[results.main_metric].difference
    if difference is None:
        return None
    if difference.p_value >= CERTAIN:
        return 0
    up = difference.value > 0
    return 1 if up == results.metrics[results.main_metric].higher_is_better else -1


def _as_good(results: Results, baseline: Variant, variant: Variant) -> bool:
    """Whether the interval of the difference, which knows of no other variants, has zero or better in it, and ends
    within the margin: a test of non-inferiority."""
    difference = variant.scores[results.main_metric].difference
    if difference is None:
        return False
    higher = results.metrics[results.main_metric].higher_is_better
    worst, best = (difference.low, difference.high) if higher else (-difference.high, -difference.low)
    return best >= 0 and worst >= -_margin(results, baseline)


def _margin(results: Results, baseline: Variant) -> float:
    return MARGIN * abs(baseline.scores[results.main_metric].value)


def _nothing_learned(results: Results, baseline: Variant, better: list[Variant]) -> str | None:
    """Models that have learned nothing are as good as each other, which is no reason to choose one of them."""
    metric = results.main_metric
    floor = results.one_answer.get(metric)
    if floor is None or not results.metrics[metric].higher_is_better or _sure(baseline.scores[metric]) > floor:
        return None
    above = [variant.attention for variant in better if _sure(variant.scores[metric]) > floor]
    others = f" {', '.join(above)} learned something in the same time." if above else ""
    return (
        f"No answer yet: {results.baseline} is not clearly above {metric} {_number(floor)}, which one answer scores at "
        "best when it is given to every question. Train for longer, with another learning rate, or test on more "
        f"examples.{others}"
    )


def _sure(score: Score) -> float:
    """What was reached at least. The interval of a few seeds is so wide that it says nothing of this."""
    return score.low if len(score.by_seed) == 1 else min(score.by_seed)


def _quality(
    results: Results,
    baseline: Variant,
    better: list[Variant],
    alike: list[Variant],
    worse: list[Variant],
    unpaired: list[Variant],
) -> list[str]:
    metric = results.main_metric
    direction = "higher" if results.metrics[metric].higher_is_better else "lower"
    groups = {
        "Better than it": better,
        "Not distinguishable from it": alike,
        "Worse": worse,
        "Not compared with it, not having the same seeds": unpaired,
    }
    said = [f"{words}: {_named(variants, metric)}." for words, variants in groups.items() if variants]
    return [f"{results.baseline} reaches {metric} {_shown(baseline.scores[metric])}; {direction} is better.", *said]


def _choice(results: Results, baseline: Variant, candidates: list[Variant]) -> str:
    """Which variants may be taken in place of the baseline, and what that takes."""
    margin = f"at most {100 * MARGIN:g} %, or {_number(_margin(results, baseline))}, worse with 95 % certainty"
    if not candidates:
        return f"None is shown to be as good ({margin}): stay with {results.baseline}, or test more."
    return f"As good or better ({margin}): {', '.join(variant.attention for variant in candidates)}."


def _cost(results: Results, baseline: Variant, candidates: list[Variant]) -> str:
    cheapest = max(candidates, key=lambda variant: variant.training_speed or 0.0)
    speed = cheapest.training_speed or 1.0
    if speed <= 1.02:
        text = f"None of these trains faster than {results.baseline}"
        sign = 1 if results.metrics[results.main_metric].higher_is_better else -1
        better = [variant for variant in candidates if _side(results, variant) == 1]
        if not better:
            return f"{text}: stay with it."
        best = max(better, key=lambda variant: sign * variant.scores[results.main_metric].value)
        return f"{text}; the best, {best.attention}, trains {best.training_speed:.2f} times as fast."
    saved = [f"trains {speed:.2f} times as fast"]
    for name, value in (("scores", cheapest.inference_speed), ("writes", cheapest.generation_speed)):
        if value is not None:
            saved.append(f"{name} {value:.2f} times as fast")
    if cheapest.parameters and baseline.parameters:
        saved.append(f"has {_change(cheapest.parameters, baseline.parameters)} parameters")
    if cheapest.training_memory and baseline.training_memory:
        change = _change(cheapest.training_memory, baseline.training_memory, "much", "less")
        saved.append(f"needs {change} memory in training")
    if cheapest.cache_bytes_per_token and baseline.cache_bytes_per_token:
        change = _change(cheapest.cache_bytes_per_token, baseline.cache_bytes_per_token)
        saved.append(f"keeps {change} bytes per decoded token")
    listed = f"{', '.join(saved[:-1])}, and {saved[-1]}" if len(saved) > 1 else saved[0]
    return f"The cheapest of these is {cheapest.attention}: against {results.baseline} it {listed}."


def _thin(results: Results, baseline: Variant, alike: list[Variant]) -> str | None:
    metric = results.main_metric
    reasons = []
    score = baseline.scores[metric]
    if score.value == 0 and results.metrics[metric].higher_is_better:
        reasons.append(f"{results.baseline} itself has learned nothing that {metric} can see; train for longer")
    wide = []
    for variant in alike:
        difference = variant.scores[metric].difference
        if difference is not None and not _as_good(results, baseline, variant):
            wide.append(f"{variant.attention} (the difference may be anything from {difference.low:+.3g} to "
                        f"{difference.high:+.3g})")  # fmt: skip
    if wide:
        reasons.append(f"too little was tested to say whether {' or '.join(wide)} is as good as {results.baseline}")
    if len(score.by_seed) == 1:
        reasons.append("with a single seed, nothing is known about how much another one would change (--seeds 3)")
    return f"How far to trust this: {'; '.join(reasons)}." if reasons else None


def _named(variants: list[Variant], metric: str) -> str:
    return ", ".join(f"{variant.attention} ({_number(variant.scores[metric].value)})" for variant in variants)


def _shown(score: Score) -> str:
    return f"{_number(score.value)} (95 %: {_number(score.low)} to {_number(score.high)})"


def _number(value: float) -> str:
    return f"{value:,.2f}" if abs(value) >= 10 else f"{value:.3f}"


def _change(ours: int | float, theirs: int | float, many: str = "many", fewer: str = "fewer") -> str:
    percent = round(100 * (ours / theirs - 1))
    if percent == 0:
        return f"as {many}" if ours == theirs else f"about as {many}"
    return f"{abs(percent)} % {fewer if percent < 0 else 'more'}"
