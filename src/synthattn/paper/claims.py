"""What the paper claims, and how each claim is judged: by tests on our numbers, and on the paper's own."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from synthattn.compare.plan import ONE_ANSWER
from synthattn.compare.results import Difference, Results, Variant
from synthattn.paper.outcome import ClaimSource, ClaimVerdict, Judgement
from synthattn.render.numbers import digits
from synthattn.saved_file import read_yaml, restore


class Finding(NamedTuple):
    """The judgement and why."""

    judgement: Judgement
    because: str
    runs: int = 0
    """Of each row, where it is about scores."""


@dataclass(frozen=True)
class Gap:
    """Two rows in a metric, on the same examples and the same seeds."""

    row: float
    than: float
    difference: Difference
    seeds: int
    examples: int

    @property
    def test(self) -> str:
        """How the interval was made."""
        if self.seeds > 1:
            return f"95 %: Student's t, {self.seeds} seeds and {self.examples:,} examples"
        return f"95 %: paired bootstrap over {self.examples:,} examples, one seed"


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

    def ours(self, found: Results, apart: Apart) -> Finding:
        """Judge our numbers."""
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
        if (nothing := _nothing_learned(found, apart, name, gap, self.row, self.than)) is not None:
            return nothing
        low, high = _gain(found, name, gap.difference)
        said = _said(self.row, self.than, name, gap)
        ends = ("all of the interval is better", "all of the interval is worse", "the interval includes zero")
        margin = 0.0
        if self.rule == "within":
            margin = self.amount * gap.than
            said += f"; up to {digits(margin, 2)} worse ({self.amount:.0%}, our margin) counts as near"
            ends = ("all of the interval is within", "all of the interval is worse than that", "the interval has both")
        if low > -margin:
            return Finding("holds", f"{said}; {ends[0]}", gap.seeds)
        if high < -margin:
            return Finding("does not hold", f"{said}; {ends[1]}", gap.seeds)
        return Finding("undecided", f"{said}; {ends[2]}", gap.seeds)

    def _speed(self, found: Results) -> Finding:
        one, other = row_of(found, self.row), row_of(found, self.than)
        if one is None or other is None or one.speed is None or other.speed is None:
            return Finding("not run", f"{self.row} and {self.than} have not both been timed")
        ratio = one.speed.value / other.speed.value
        low, high = one.speed.low / other.speed.high, one.speed.high / other.speed.low
        said = (
            f"{self.row} trains {ratio:.2f} times as fast as {self.than} (quartiles {low:.2f} to {high:.2f}), claimed "
            f"{self.amount:g}"
        )
        if low >= self.amount:
            return Finding("holds", said)
        return Finding("does not hold" if high < self.amount else "undecided", said)


def _claims(file: Path) -> dict[str, list[Claim]]:
    return {table: [restore(Claim, one) for one in found] for table, found in read_yaml(file).items()}


CLAIMS = _claims(Path(__file__).with_suffix(".yaml"))
"""By table."""


def verdicts(table: str, parts: Sequence[tuple[Results, Apart, Printed]]) -> list[ClaimVerdict]:
    """Judge all claims about a table on each of its parts that has been run."""
    return [
        _verdict(claim, found, claim.ours(found, apart), claim.theirs(found, printed))
        for claim in CLAIMS.get(table, ())
        for found, apart, printed in parts
        if found.name == claim.part
    ]


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
    )


SAME = {"bleu": "tokenized-bleu"}
"""Metrics that the paper has in another form than our main one."""


def main_metric(part: Results) -> str:
    return next(iter(part.metrics), "")


def row_of(part: Results, name: str) -> Variant | None:
    return next((row for row in part.rows if row.name == name), None)


def _nothing_learned(part: Results, apart: Apart, metric: str, gap: Gap, row: str, than: str) -> Finding | None:
    """Return a finding if neither row, or not the baseline, is clearly above the best constant answer."""
    floors = {name: apart(name, ONE_ANSWER.name, metric) for name in (row, than)}
    floor = next((one.than for one in floors.values() if one is not None), None)
    behind = [name for name, one in floors.items() if one is not None and _gain(part, metric, one.difference)[0] <= 0]
    if floor is None or (len(behind) < 2 and part.baseline not in behind):
        return None
    who = f"{behind[0]} is not" if len(behind) == 1 else "neither is"
    said = f"{_said(row, than, metric, gap)}; {who} clearly above {floor:.2f}, which one answer for all scores"
    return Finding("undecided", said, gap.seeds)


def _gain(part: Results, metric: str, difference: Difference) -> tuple[float, float]:
    """The interval, with more being better."""
    if part.metrics[metric].higher_is_better:
        return difference.low, difference.high
    return -difference.high, -difference.low


def _said(row: str, than: str, metric: str, gap: Gap) -> str:
    apart = gap.difference
    shown = f"{apart.value:+.2f} [{apart.low:+.2f}, {apart.high:+.2f}]".replace("-", "\N{MINUS SIGN}")
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
