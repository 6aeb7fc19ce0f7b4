"""What the paper claims, and how each claim is judged: by tests on our numbers, and on the paper's own.

These rules decide, in this order:

- Speed is not comparable: the paper timed another implementation on another machine.
- The better of the two rows must clear the floor of the task.
- One run of each row decides nothing, and is not counted.
- P-values are adjusted for all counted claims of a table (Holm).
- A gap in validation loss that changes its sign or halves in the last quarter of training is moving.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from synthattn.compare.results import Difference, Results, Variant
from synthattn.compare.statistics import Estimate, holm
from synthattn.compare.verdict import CERTAIN, clears, is_moving
from synthattn.paper.outcome import ClaimSource, ClaimVerdict, Judgement
from synthattn.render.numbers import chance, digits, interval, signed
from synthattn.saved_file import read_yaml, restore


class Finding(NamedTuple):
    """What one claim came to, before the other claims of its table are known."""

    judgement: Judgement
    """``undecided`` if a test decides."""
    because: str
    runs: int = 0
    """Number of runs of each row, where the claim is about scores."""
    p_value: float | None = None
    """The p-value of the claim's boundary; None for what is not counted."""
    supports: bool = False
    """Whether the estimate lies on the side of the claim."""
    moving: bool = False
    effect: tuple[float, ...] = ()
    """How far the estimate and its interval are beyond the boundary, in percent of the other row's score."""


@dataclass(frozen=True)
class Gap:
    """Two rows in a metric, on the same examples and the same seeds."""

    row: float
    than: float
    difference: Difference
    seeds: int
    examples: int
    estimate: Estimate | None = None
    """With the pooled variance of seeds; None where no two rows of the table have several seeds."""
    trend: tuple[float, ...] | None = None
    """The gap in validation loss at 50, 75 and 100 % of training."""
    loss: float = 0.0
    """The validation loss of the other row at the end."""

    @property
    def test(self) -> str:
        """How the interval was made."""
        if self.seeds > 1:
            return f"95 %: Student's t, {self.seeds} seeds and {self.examples:,} examples"
        return f"95 %: paired bootstrap over {self.examples:,} examples, one seed"

    @property
    def moving(self) -> bool:
        return self.trend is not None and is_moving(self.trend, self.loss)


Apart = Callable[[str, str, str], Gap | None]
"""Of a row from another in a metric; None where it is not known."""


@dataclass(frozen=True)
class Number:
    """A number as it is printed."""

    value: float
    metric: str
    """As the paper calls it."""
    source: str = ""
    """Where it is from, if not from the paper itself."""
    logarithm: bool = False
    """Whether it is the natural logarithm of our metric."""


Printed = Callable[[str, str], Number | None]
"""What is published of a row in one of our metrics, or in ``speed``."""


LONG_RANGE_ARENA = "Long Range Arena"
"""Another paper of the same authors."""


@dataclass(frozen=True)
class Claim:
    """Something that the paper says of two rows of a part."""

    text: str
    """The claim, in words a newcomer follows."""
    where: str
    """Where the paper says so."""
    part: str
    """The part of the table that it is about."""
    row: str
    than: str
    rule: Literal["better", "within", "faster"]
    """``better``: one row beats the other, the interval of their difference does not include zero. ``within``: it is
    worse by at most a share of the other's score, a test of non-inferiority. ``faster``: a training step is so many
    times as fast; both were timed in turn with the baseline."""
    amount: float = 0.0
    """The share, or how many times as fast."""
    metric: str = ""
    """The main metric of the part unless given."""

    @property
    def kind(self) -> ClaimSource:
        """Whether the paper says so, or whether that is how its table is read."""
        if self.where.startswith("Table"):
            return "table"
        return "elsewhere" if self.where == LONG_RANGE_ARENA else "text"

    @property
    def label(self) -> str:
        """Return the claim in a few words."""
        said = {"better": "beats", "within": "is near", "faster": "is faster than"}[self.rule]
        return f"{self.row} {said} {self.than}{f' ({self.metric})' if self.metric else ''}"

    def ours(self, found: Results, apart: Apart) -> Finding:
        """Test the claim on our numbers."""
        return self._speed(found) if self.rule == "faster" else self._score(found, apart)

    def theirs(self, found: Results, printed: Printed) -> tuple[bool, str] | None:
        """Judge the published numbers; None where there are none."""
        name = "speed" if self.rule == "faster" else self.metric or main_metric(found)
        pair = _pair(found, printed, self.row, self.than, name)
        if pair is None:
            return None
        one, other = map(_plain, pair)
        if self.rule == "faster":
            holds = one / other >= self.amount
        else:
            loss = other - one if found.metrics[name].higher_is_better else one - other
            holds = loss < 0 if self.rule == "better" else loss <= self.amount * other
        return holds, _numbers(self.row, self.than, pair)

    def _score(self, found: Results, apart: Apart) -> Finding:
        name = self.metric or main_metric(found)
        gap = apart(self.row, self.than, name)
        if gap is None:
            return Finding("not run", f"{self.row} and {self.than} have not both been run")
        higher = found.metrics[name].higher_is_better
        sign, margin = 1 if higher else -1, 0.0
        said = _said(self.row, self.than, name, gap)
        if self.rule == "within":
            margin = self.amount * abs(gap.than)
            said += f"; up to {digits(margin, 2)} worse ({self.amount:.0%}, our margin) counts as near"
        if gap.trend is not None:
            shown = ", ".join(signed(value, 3) for value in gap.trend)
            said += f"; gap in validation loss at 50, 75 and 100 % of training {shown}"
        value, low, high = _gain(gap.difference, sign)
        supports = value > -margin
        effect = tuple(round(100 * (one + margin) / abs(gap.than), 4) for one in (value, low, high) if gap.than)
        floor = found.floor(name)
        rows = [row_of(found, one) for one in (self.row, self.than)]
        scores = [row.scores[name] for row in rows if row is not None and name in row.scores]
        if floor is not None and not any(clears(one, floor[1], higher) for one in scores):
            said += f"; neither clears the floor, {floor[0]}: {digits(floor[1], 4)}"
            return Finding("below the floor", said, gap.seeds, effect=effect)
        if gap.seeds < 2 or gap.estimate is None:
            return Finding("one run", said, gap.seeds, effect=effect)
        p_value = gap.estimate.p_value(-sign * margin)
        return Finding("undecided", said, gap.seeds, p_value, supports, gap.moving, effect)

    def _speed(self, found: Results) -> Finding:
        one, other = row_of(found, self.row), row_of(found, self.than)
        if one is None or other is None or one.speed is None or other.speed is None:
            return Finding("not run", f"{self.row} and {self.than} have not both been timed")
        ratio = one.speed.value / other.speed.value
        low, high = one.speed.low / other.speed.high, one.speed.high / other.speed.low
        said = (
            f"here {self.row} trains {ratio:.2f} times as fast as {self.than} (quartiles {low:.2f} to {high:.2f}), "
            f"claimed {self.amount:g}; the paper timed another implementation on another machine"
        )
        return Finding("not comparable", said)


def _claims(file: Path) -> dict[str, list[Claim]]:
    return {table: [restore(Claim, one) for one in found] for table, found in read_yaml(file).items()}


CLAIMS = _claims(Path(__file__).with_suffix(".yaml"))
"""By table."""


def verdicts(table: str, parts: Sequence[tuple[Results, Apart, Printed]]) -> list[ClaimVerdict]:
    """Judge all claims about a table on each of its parts; the counted claims of a scale are adjusted together."""
    cases = [
        (claim, found, claim.ours(found, apart), claim.theirs(found, printed))
        for claim in CLAIMS.get(table, ())
        for found, apart, printed in parts
        if found.name == claim.part
    ]
    scales = dict.fromkeys(found.scale for _, found, _, _ in cases)
    judged: dict[int, Finding] = {}
    for scale in scales:
        places = [n for n, (_, found, _, _) in enumerate(cases) if found.scale == scale]
        judged |= dict(zip(places, decide([cases[n][2] for n in places]), strict=True))
    return [_verdict(claim, found, judged[n], theirs) for n, (claim, found, _, theirs) in enumerate(cases)]


def decide(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings of a table with their judgements, tests adjusted for all that are counted (Holm)."""
    counted = [n for n, one in enumerate(findings) if one.p_value is not None]
    adjusted = dict(zip(counted, holm([findings[n].p_value or 0.0 for n in counted]), strict=True))
    return [_decided(one, adjusted[n], len(counted)) if n in adjusted else one for n, one in enumerate(findings)]


def _decided(found: Finding, p_value: float, claims: int) -> Finding:
    adjusted = f", adjusted for {claims} claims" if claims > 1 else ""
    said = f"{found.because}; {chance(p_value)}{adjusted}"
    if p_value >= CERTAIN:
        return found._replace(because=said, p_value=p_value)
    if found.moving:
        return found._replace(because=f"{said}; the gap was still moving", p_value=p_value, judgement="moving")
    judgement: Judgement = "holds" if found.supports else "does not hold"
    return found._replace(because=said, p_value=p_value, judgement=judgement)


def _verdict(claim: Claim, found: Results, ours: Finding, theirs: tuple[bool, str] | None) -> ClaimVerdict:
    holds, numbers = (None, "") if theirs is None else theirs
    return ClaimVerdict(
        claim.text,
        claim.where,
        found.name,
        found.scale,
        ours.judgement,
        ours.because,
        numbers,
        holds,
        ours.runs,
        claim.kind,
        claim.label,
        list(ours.effect),
    )


SAME = {"bleu": "tokenized-bleu"}
"""Metrics that the paper has in another form than our main one."""


def main_metric(part: Results) -> str:
    return next(iter(part.metrics), "")


def row_of(part: Results, name: str) -> Variant | None:
    return next((row for row in part.rows if row.name == name), None)


def _gain(difference: Difference, sign: int) -> tuple[float, float, float]:
    """Return the difference and the ends of its interval, with more being better."""
    ends = sorted((sign * difference.low, sign * difference.high))
    return sign * difference.value, ends[0], ends[1]


def _said(row: str, than: str, metric: str, gap: Gap) -> str:
    shown = interval(gap.difference.value, gap.difference.low, gap.difference.high)
    return f"{metric}: {row} {gap.row:.2f}, {than} {gap.than:.2f}, difference {shown} ({gap.test})"


def read_beside(metric: str, published: Sequence[str]) -> str:
    """Return the published metric that is meant by one of ours."""
    return metric if metric in published else SAME.get(metric, metric)


def _pair(part: Results, printed: Printed, row: str, than: str, metric: str) -> tuple[Number, Number] | None:
    """The published numbers of two rows."""
    if metric != "speed":
        metric = read_beside(metric, list(part.published_metrics))
    one, other = printed(row, metric), printed(than, metric)
    return None if one is None or other is None else (one, other)


def _plain(number: Number) -> float:
    return math.exp(number.value) if number.logarithm else number.value


def _numbers(row: str, than: str, pair: tuple[Number, Number]) -> str:
    shown = (
        f"{name} {number.value:g}{f' ({number.source})' if number.source else ''}"
        for name, number in zip((row, than), pair, strict=True)
    )
    return f"{pair[0].metric}: {', '.join(shown)}"
