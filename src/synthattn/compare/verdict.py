"""The answer of a comparison in words, from its figures alone.

The first paragraph is the headline, the second its evidence, the third how far to trust it; details follow. These rules
keep the headline honest:

- The better of two systems must clear the floor of the task, or nothing is said of their difference.
- A gap in validation loss that changes its sign or halves in the last quarter of training is named as moving.
- A variant is as good as the baseline if the 95 % interval of its difference ends within 2 % of the baseline's score.
- With one seed, nothing stronger than "looks" is said.
"""

import math
from dataclasses import dataclass

from synthattn.compare.results import Results, Score, Variant
from synthattn.metrics.labels import label

CERTAIN = 0.05
"""The p-value below which a difference counts as real."""
MARGIN = 0.02
"""The share of the baseline's score that a variant may be worse by, at the worse end of the interval of its difference,
and still be called as good. A difference that is not significant would not do: little data is enough for that."""
LESS = 0.95
"""Memory, parameters and cache count as saved from this share of the baseline's on."""
LEAD = 3
"""The paragraphs that a reader sees first: the headline, its evidence, how far to trust it."""
MOST = 100
"""Larger factors of steps or examples are not suggested: something else is wrong then."""


def answer(results: Results) -> list[str]:
    """Return the headline, its evidence, how far to trust it, and further paragraphs."""
    done = [row for row in results.models if results.main_metric in row.scores and row.status != "failed"]
    baseline = next((row for row in done if row.attention == results.baseline), None)
    failed = [row for row in results.models if row.status == "failed" and row.attention != results.baseline]
    details = [f"Failed, and not compared: {', '.join(map(_failure, failed))}."] if failed else []
    if not done:
        return ["No answer yet: no model was trained to the end.", *details]
    if baseline is None:
        return [*_without_baseline(results, done), *details]
    if len(done) == 1:
        metric = label(results.main_metric)
        score = _number(baseline.scores[results.main_metric].value)
        headline = f"No answer yet: only {results.baseline} was trained to the end."
        return [headline, f"{results.baseline} reaches {metric} {score}.", *details]
    case = _AnswerWriter(results, baseline, [row for row in done if row is not baseline])
    return [case.headline(), case.evidence(), case.trust(), *case.groups(), *details]


@dataclass
class _AnswerWriter:
    """A comparison with a baseline that was trained to the end, and others."""

    results: Results
    baseline: Variant
    others: list[Variant]

    def __post_init__(self) -> None:
        results = self.results
        self.metric, self.label = results.main_metric, label(results.main_metric)
        self.higher = results.metrics[self.metric].higher_is_better
        self.floor = results.floor(self.metric)
        sound = self._clears(self.baseline)
        self.judged = [row for row in self.others if sound or self._clears(row)]
        # A control is there to be compared with, not to be chosen.
        eligible = [row for row in self.judged if not row.attention.startswith(f"{results.baseline} (")]
        self.better = [row for row in eligible if self._side(row) == 1]
        self.as_good = [row for row in eligible if row in self.better or self._is_as_good(row)]
        self.one_seed = len(self.baseline.scores[self.metric].by_seed) == 1
        self.cheaper = [row for row in self.as_good if self._savings(row)]
        if self.cheaper:
            self.chosen = max(self.cheaper, key=self._worth)
        else:
            self.chosen = max(self.as_good, key=lambda row: self._sign(self._value(row)), default=None)

    # The three first paragraphs ------------------------------------------------------------------------------

    def headline(self) -> str:
        base, chosen = self.results.baseline, self.chosen
        if not self.judged:
            return "No answer yet: the models have not learned the task."
        kept = "dot-product attention" if base == "vanilla" else base
        if chosen is None:
            if any(self._side(row) != -1 for row in self.judged):
                return f"No answer yet: the test is too small to tell whether another attention is as good as {base}."
            nearest = max(self.judged, key=lambda row: self._sign(self._value(row)))
            far = abs(self._value(nearest) - self._value(self.baseline)) > self._margin()
            why = f"nothing else came within {100 * MARGIN:g} %" if far else "every other attention is worse"
            return self._hedged(f"Keep {kept}: {why}.", f"{kept[0].upper()}{kept[1:]} looks needed: {why}")
        savings = [text for _, text in self._savings(chosen).values()]
        if chosen in self.better:
            costs = "".join(f", {text}" for text in (savings or self._losses(chosen))[:3])
            values = f"{self.label} {_number(self._value(chosen))} against {_number(self._value(self.baseline))}"
            text = f"better than {base}: {values}{costs}"
            return self._hedged(f"{chosen.attention} is {text}.", f"{chosen.attention} looks {text}")
        if savings:
            text = f"same {self.label} within {100 * MARGIN:g} %, {', '.join(savings[:3])}"
            return self._hedged(f"{chosen.attention} is enough: {text}.", f"{chosen.attention} looks enough: {text}")
        why = f"{chosen.attention} is as good, but saves nothing"
        return self._hedged(f"Keep {kept}: {why}.", f"{kept[0].upper()}{kept[1:]} looks worth keeping: {why}")

    def evidence(self) -> str:
        base = self.baseline.scores[self.metric]
        shown = f"{self.label}: {self.results.baseline} {_number(base.value)} (95 %: {_range(base.low, base.high)})"
        best = max(self.others, key=lambda row: self._sign(self._value(row)))
        row = self.chosen or best
        difference = row.scores[self.metric].difference
        shown += f"; {row.attention} {_number(self._value(row))}"
        if difference is not None:
            ends = f"{difference.low:+.3g} to {difference.high:+.3g}"
            apart = f"a difference of {difference.value:+.3g}" if difference.value else "no difference"
            shown += f", {apart} (95 %: {ends})"
        if self.floor is not None:
            shown += f"; {self.floor[0]} {_number(self.floor[1])}"
        return f"{shown}. {'Higher' if self.higher else 'Lower'} is better."

    def trust(self) -> str:
        seeds = len(self.baseline.scores[self.metric].by_seed)
        said = ["one seed; another one may change the order (--seeds 3)" if self.one_seed else f"{seeds} seeds"]
        if not self.judged:
            said.append(self._budget())
        elif self.chosen is None and any(self._side(row) == 0 for row in self.judged):
            said.append(self._examples())
        elif not self._clears(self.baseline):
            said.append(f"{self.results.baseline} itself does not clear the floor, so it may need more training")
        judged = {row.attention for row in self.judged}
        moving = [name for name in moving_gaps(self.results) if name in judged]
        if moving:
            said.append(f"the gap to {self.results.baseline} is still moving for {_listed(moving)}; train for longer")
        speed = self.chosen.speed if self.chosen is not None else None
        if speed is not None and speed.uncertain:
            rounds = f" in {speed.rounds} rounds" if speed.rounds else ""
            span = f"{speed.low:.2f} to {speed.high:.2f} times the baseline's{rounds}"
            said.append(f"the training speed is uncertain ({span})")
        return f"How far to trust this: {'; '.join(said)}."

    # Details -------------------------------------------------------------------------------------------------

    def groups(self) -> list[str]:
        """Return every other variant in the group that it belongs to."""
        left = [row for row in self.judged if row not in self.as_good]
        unpaired = [row for row in left if self._side(row) is None]
        groups = {
            "Better": self.better,
            f"As good, at most {100 * MARGIN:g} % worse with 95 % certainty": [
                row for row in self.as_good if row not in self.better
            ],
            "Not shown to be as good, nor to be worse": [row for row in left if self._side(row) in (0, 1)],
            "Worse": [row for row in left if self._side(row) == -1],
            "Not compared, because their seeds differ": unpaired,
            "Not judged, because neither side clears the floor": [row for row in self.others if row not in self.judged],
        }
        return [
            *self._cheapest(),
            *(f"{words}: {_named(rows, self.metric)}." for words, rows in groups.items() if rows),
        ]

    def _cheapest(self) -> list[str]:
        """Say which of several cheaper variants is the cheapest, and in what."""
        if len(self.cheaper) < 2:
            return []
        first: dict[str, list[str]] = {}
        for kind in dict.fromkeys(kind for row in self.cheaper for kind in self._savings(row)):
            row = min(self.cheaper, key=lambda row: self._savings(row).get(kind, (1.0, ""))[0])
            first.setdefault(row.attention, []).append(self._savings(row)[kind][1])
        said = "; ".join(f"{name} {_listed(texts)}" for name, texts in first.items())
        return [f"Cheapest of those that are as good or better: {said}."]

    # Judgements ----------------------------------------------------------------------------------------------

    def _hedged(self, certain: str, looks: str) -> str:
        return f"{looks} (one seed)." if self.one_seed else certain

    def _sign(self, value: float) -> float:
        return value if self.higher else -value

    def _value(self, row: Variant) -> float:
        return row.scores[self.metric].value

    def _margin(self) -> float:
        return MARGIN * abs(self._value(self.baseline))

    def _clears(self, row: Variant) -> bool:
        return clears(row.scores[self.metric], self.floor and self.floor[1], self.higher)

    def _side(self, row: Variant) -> int | None:
        """Return 1 for better than the baseline, -1 for worse, 0 if unknown, None if they were not compared."""
        difference = row.scores[self.metric].difference
        if difference is None:
            return None
        if difference.p_value >= CERTAIN:
            return 0
        return 1 if self._sign(difference.value) > 0 else -1

    def _is_as_good(self, row: Variant) -> bool:
        """Return True if the interval of the difference holds zero or better, and ends within the margin."""
        difference = row.scores[self.metric].difference
        if difference is None:
            return False
        worst, best = (difference.low, difference.high) if self.higher else (-difference.high, -difference.low)
        return best >= 0 and worst >= -self._margin()

    # Costs ---------------------------------------------------------------------------------------------------

    def _savings(self, row: Variant) -> dict[str, tuple[float, str]]:
        """Return what a variant saves against the baseline as far as it is certain: the share left, and words."""
        base, found = self.baseline, {}
        if row.speed is not None and row.speed.value > 1.02 and row.speed.low > 1:
            found["time"] = 1 / row.speed.value, f"trains {_percent(row.speed.value)} faster"
        if (row.generation_speed or 0) > 1.05:
            found["writing"] = 1 / (row.generation_speed or 1), f"writes {_percent(row.generation_speed or 0)} faster"
        pairs = (
            (row.training_memory, base.training_memory, "memory in training"),
            (row.parameters, base.parameters, "parameters"),
            (row.cache_bytes_per_token, base.cache_bytes_per_token, "cache per token"),
        )
        shares = ((ours / theirs, what) for ours, theirs, what in pairs if ours and theirs)
        return found | {what: (share, _less(share, what)) for share, what in shares if share <= LESS}

    def _losses(self, row: Variant) -> list[str]:
        slower = row.training_speed is not None and row.training_speed < 0.98
        return [f"trains {_percent(2 - (row.training_speed or 1))} slower"] if slower else []

    def _worth(self, row: Variant) -> tuple[float, int]:
        speed = row.speed.value if row.speed is not None and row.speed.low > 1 else 1.0
        return speed, len(self._savings(row))

    def _budget(self) -> str:
        """Return what to change so that the models learn the task, from the baseline's curve of validation loss."""
        curve = self.baseline.validation_curve
        if len(curve) < 3:
            return "train for longer, or with another learning rate"
        last, now, before = curve[-1][0], curve[-1][1], _at(curve, 0.75)
        if before - now <= 0.005 * abs(before):
            return (
                f"the validation loss no longer falls at step {last:,.0f}; try another learning rate or a larger model"
            )
        # Losses fall about as much with every doubling of the steps.
        target, doubling = self.results.floor_loss, _at(curve, 0.5) - now
        factor = 2 ** (1 + max(0.0, now - target) / doubling) if target is not None and doubling > 0 else 4.0
        if factor > MOST:
            return f"the validation loss falls too slowly at step {last:,.0f}; try another learning rate"
        return f"the validation loss still falls at step {last:,.0f}; try --steps {_rounded(factor * last)}"

    def _examples(self) -> str:
        """Return how many more examples would tell whether the nearest variant is as good."""
        found = [row.scores[self.metric].difference for row in self.judged if self._side(row) == 0]
        # An interval is narrower by the root of the number of examples.
        factors = []
        for one in found:
            room = self._margin() + self._sign(one.value) if one is not None else 0.0
            if one is not None and room > 0:
                factors.append(((one.high - one.low) / 2 / room) ** 2)
        if not factors or min(factors) > MOST:
            return "more seeds or more test examples would tell more"
        return f"about {_rounded(max(2.0, min(factors)))} times as many test examples would tell, or more seeds"


def _rounded(value: float) -> str:
    """Return a number with two digits, rounded up."""
    unit = 10 ** max(0, math.floor(math.log10(value)) - 1)
    return str(math.ceil(value / unit) * unit)


def moving_gaps(results: Results) -> list[str]:
    """Return the variants whose gap to the baseline has not settled by the end of training."""
    base = next((row for row in results.models if row.attention == results.baseline), None)
    return [row.attention for row in results.models if base is not None and _is_moving(base, row)]


def _is_moving(baseline: Variant, row: Variant) -> bool:
    gaps = curve_gaps(row.validation_curve, baseline.validation_curve)
    return gaps is not None and is_moving(gaps, baseline.validation_curve[-1][1])


def clears(score: Score, floor: float | None, higher: bool) -> bool:
    """Return True if a score is surely better than the floor of the task, or above zero if there is no floor.

    With several seeds the worst of them counts, since the interval of a few seeds is too wide to tell.
    """
    sign = 1 if higher else -1
    if len(score.by_seed) > 1:
        surely = min(score.by_seed, key=lambda value: sign * value)
    else:
        surely = score.low if higher else score.high
    if floor is None:
        return not higher or surely > 0
    return sign * surely > sign * floor


SHARES = (0.5, 0.75, 1.0)
"""Shares of training at which the gap of two systems is looked at."""
NOTHING = 0.002
"""Gaps below this share of the validation loss are noise."""


def curve_gaps(curve: list[list[float]], other: list[list[float]]) -> tuple[float, ...] | None:
    """Return the gap of two curves of validation loss at 50, 75 and 100 % of training; None if a curve is too short."""
    if len(curve) < 3 or len(other) < 3:
        return None
    return tuple(_at(curve, share) - _at(other, share) for share in SHARES)


def is_moving(gaps: tuple[float, ...], loss: float) -> bool:
    """Return True if a gap changes its sign or halves between 75 and 100 % of training."""
    _, before, now = gaps
    if max(abs(before), abs(now)) < NOTHING * abs(loss):
        return False
    return before * now < 0 or abs(before) >= 2 * abs(now)


def _at(curve: list[list[float]], share: float) -> float:
    """Return the value of a curve at a share of its last step."""
    step = share * curve[-1][0]
    return min(curve, key=lambda point: abs(point[0] - step))[1]


def _without_baseline(results: Results, done: list[Variant]) -> list[str]:
    metric = results.main_metric
    sign = 1 if results.metrics[metric].higher_is_better else -1
    best = max(done, key=lambda row: sign * row.scores[metric].value)
    asked = next((row for row in results.models if row.attention == results.baseline), None)
    share = _share_of_seeds(asked) if asked is not None and asked.status == "failed" else ""
    why = "is not among what is compared" if asked is None else "was not trained to the end"
    why = f"failed {share}" if share else why
    return [
        f"No answer yet: {results.baseline} {why}, so there is nothing to compare with.",
        f"The best of the others is {best.attention}: {label(metric)} {_number(best.scores[metric].value)}.",
    ]


def _failure(row: Variant) -> str:
    share = _share_of_seeds(row)
    return f"{row.attention} ({share})" if share else row.attention


def _share_of_seeds(row: Variant) -> str:
    """Return in how many seeds a variant failed; nothing where it never did anything else."""
    survived = max((len(score.by_seed) for score in row.scores.values()), default=0)
    count = max(1, row.failed_seeds)
    return f"in {count} of the {count + survived} seeds that were tried" if survived else ""


def _named(rows: list[Variant], metric: str) -> str:
    return ", ".join(f"{row.attention} ({_number(row.scores[metric].value)})" for row in rows)


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _range(low: float, high: float) -> str:
    return f"{_number(low)} to {_number(high)}"


def _number(value: float) -> str:
    return f"{value:,.2f}" if abs(value) >= 10 else f"{value:.3f}"


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):.0f} %"


def _less(share: float, what: str) -> str:
    if 0.49 <= share <= 0.51:
        return f"half the {what}"
    return f"{100 * (1 - share):.0f} % {'fewer' if what == 'parameters' else 'less'} {what}"
