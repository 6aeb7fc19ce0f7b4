"""The answer in words, from the figures alone."""

from synthattn.report.results import Results, Score, Variant

CERTAIN = 0.05
"""The p-value below which a difference counts as real."""
THIN = 0.05
"""Where the interval of a difference reaches further than this share of the baseline's score, little was shown."""


def answer(results: Results) -> list[str]:
    """Which variants do as well as the baseline, which of these is the cheapest, and what it saves."""
    done = [variant for variant in results.variants if results.main_metric in variant.scores]
    baseline = next((variant for variant in done if variant.attention == results.baseline), None)
    others = [variant for variant in done if variant is not baseline]
    metric = results.main_metric
    if baseline is None:
        return _without_baseline(results, done)
    if not others:
        return [f"Only {results.baseline} was trained to the end: {metric} {_number(baseline.scores[metric].value)}."]
    better = [variant for variant in others if _side(results, variant) == 1]
    worse = [variant for variant in others if _side(results, variant) == -1]
    alike = [variant for variant in others if _side(results, variant) == 0]
    unpaired = [variant for variant in others if _side(results, variant) is None]
    paragraphs = _quality(results, baseline, better, alike, worse, unpaired)
    candidates = [
        variant
        for variant in (*better, *alike)
        # A control is there to be compared with, not to be chosen.
        if variant.training_speed is not None and not variant.attention.startswith(f"{results.baseline} (")
    ]
    if candidates:
        paragraphs.append(_cost(results, baseline, max(candidates, key=lambda v: v.training_speed or 0.0)))
    elif worse and not better and not alike and not unpaired:
        paragraphs.append(f"This task needs {results.baseline}: every other attention that was tried is worse.")
    thin = _thin(results, baseline, alike)
    return paragraphs + ([thin] if thin else [])


def _without_baseline(results: Results, done: list[Variant]) -> list[str]:
    if not done:
        return ["Nothing was trained to the end, so there is no answer."]
    metric = results.main_metric
    sign = 1 if results.metrics[metric].higher_is_better else -1
    best = max(done, key=lambda variant: sign * variant.scores[metric].value)
    asked = any(variant.attention == results.baseline for variant in results.variants)
    why = "was not trained to the end" if asked else "is not among what is compared"
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
        f"Not compared with it, having seeds that {results.baseline} lacks": unpaired,
    }
    said = [f"{words}: {_named(variants, metric)}." for words, variants in groups.items() if variants]
    return [f"{results.baseline} reaches {metric} {_shown(baseline.scores[metric])}; {direction} is better.", *said]


def _best(results: Results) -> Variant:
    metric = results.main_metric
    sign = 1 if results.metrics[metric].higher_is_better else -1
    scored = [v for v in results.variants if metric in v.scores and v.training_speed is not None]
    return max(scored, key=lambda variant: sign * variant.scores[metric].value)


def _cost(results: Results, baseline: Variant, cheapest: Variant) -> str:
    speed = cheapest.training_speed or 1.0
    if speed <= 1.02:
        text = f"None of those that are not worse trains faster than {results.baseline}"
        best = _best(results)
        if _side(results, best) != 1:
            return f"{text}: stay with it."
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
    return f"The cheapest of those that are not worse is {cheapest.attention}: against {results.baseline} it {listed}."


def _thin(results: Results, baseline: Variant, alike: list[Variant]) -> str | None:
    metric = results.main_metric
    reasons = []
    score = baseline.scores[metric]
    if score.value == 0 and results.metrics[metric].higher_is_better:
        reasons.append(f"{results.baseline} itself has learned nothing that {metric} can see; train for longer")
    wide = []
    for variant in alike:
        difference = variant.scores[metric].difference
        reach = max(abs(difference.low), abs(difference.high)) if difference is not None else 0.0
        if difference is not None and reach > THIN * abs(score.value):
            wide.append(f"{variant.attention} (the difference may be anything from {difference.low:+.3g} to "
                        f"{difference.high:+.3g})")  # fmt: skip
    if wide:
        reasons.append(f"too little was tested to tell {', '.join(wide)} from {results.baseline}")
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
