"""What the paper claims, and how each claim is judged: by tests on our numbers, and on the paper's own."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from synthattn.compare.plan import ONE_ANSWER
from synthattn.compare.results import Difference, Results, Variant
from synthattn.paper.outcome import Judgement, Kind, Verdict
from synthattn.render.tables import digits


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
    """As it is printed."""

    value: float
    metric: str
    """As the paper calls it."""
    source: str = ""
    """Where it is from, if not from the paper itself."""
    logarithm: bool = False
    """Whether it is the natural logarithm of our metric."""


Printed = Callable[[str, str], Number | None]
"""What is published of a row in one of our metrics, or in ``speed``."""


@dataclass(frozen=True)
class Claim:
    """Something that the paper says of the rows of a part.

    Args:
        text: the claim, in words a newcomer follows.
        where: where the paper says so.
        part: the part of the table that it is about.
        ours: judges our numbers.
        theirs: judges the published ones; None where there are none.
    """

    text: str
    where: str
    part: str
    ours: Callable[[Results, Apart], Finding]
    theirs: Callable[[Results, Printed], tuple[bool, str] | None]

    @property
    def kind(self) -> Kind:
        """Whether the paper says so, or whether that is how its table is read."""
        if self.where.startswith("Table"):
            return "table"
        return "elsewhere" if self.where == LONG_RANGE_ARENA else "text"


LONG_RANGE_ARENA = "Long Range Arena"
"""Another paper of the same authors."""


def better(text: str, where: str, part: str, row: str, than: str, metric: str = "") -> Claim:
    """One row beats another in a metric, the main one unless given: the difference's interval does not include zero."""

    def ours(found: Results, apart: Apart) -> Finding:
        name = metric or main_metric(found)
        gap = apart(row, than, name)
        if gap is None:
            return Finding("not run", f"{row} and {than} have not both been run")
        if (nothing := _nothing_learned(found, apart, name, gap, row, than)) is not None:
            return nothing
        low, high = _gain(found, name, gap.difference)
        said = _said(row, than, name, gap)
        if low > 0:
            return Finding("holds", f"{said}; all of the interval is better", gap.seeds)
        if high < 0:
            return Finding("does not hold", f"{said}; all of the interval is worse", gap.seeds)
        return Finding("undecided", f"{said}; the interval includes zero", gap.seeds)

    def theirs(found: Results, printed: Printed) -> tuple[bool, str] | None:
        name = metric or main_metric(found)
        pair = _pair(found, printed, row, than, name)
        return pair and (_loss(found, name, pair) < 0, _numbers(row, than, pair))

    return Claim(text, where, part, ours, theirs)


def within(text: str, where: str, part: str, row: str, of: str, share: float, metric: str = "") -> Claim:
    """One row is at most so much worse than another, as a share of the other's score: a test of non-inferiority."""

    def ours(found: Results, apart: Apart) -> Finding:
        name = metric or main_metric(found)
        gap = apart(row, of, name)
        if gap is None:
            return Finding("not run", f"{row} and {of} have not both been run")
        if (nothing := _nothing_learned(found, apart, name, gap, row, of)) is not None:
            return nothing
        margin = share * gap.than
        low, high = _gain(found, name, gap.difference)
        said = f"{_said(row, of, name, gap)}; up to {digits(margin, 2)} worse ({share:.0%}, our margin) counts as near"
        if low > -margin:
            return Finding("holds", f"{said}; all of the interval is within", gap.seeds)
        if high < -margin:
            return Finding("does not hold", f"{said}; all of the interval is worse than that", gap.seeds)
        return Finding("undecided", f"{said}; the interval has both", gap.seeds)

    def theirs(found: Results, printed: Printed) -> tuple[bool, str] | None:
        name = metric or main_metric(found)
        pair = _pair(found, printed, row, of, name)
        return pair and (_loss(found, name, pair) <= share * _plain(pair[1]), _numbers(row, of, pair))

    return Claim(text, where, part, ours, theirs)


def faster(text: str, where: str, part: str, row: str, than: str, factor: float) -> Claim:
    """A training step of one row is so much faster than another's; both were timed in turn with the baseline."""

    def ours(found: Results, apart: Apart) -> Finding:
        one, other = row_of(found, row), row_of(found, than)
        if one is None or other is None or one.speed is None or other.speed is None:
            return Finding("not run", f"{row} and {than} have not both been timed")
        ratio = one.speed.value / other.speed.value
        low, high = one.speed.low / other.speed.high, one.speed.high / other.speed.low
        said = (
            f"{row} trains {ratio:.2f} times as fast as {than} (quartiles {low:.2f} to {high:.2f}), claimed {factor:g}"
        )
        if low >= factor:
            return Finding("holds", said)
        return Finding("does not hold" if high < factor else "undecided", said)

    def theirs(found: Results, printed: Printed) -> tuple[bool, str] | None:
        pair = _pair(found, printed, row, than, "speed")
        return pair and (pair[0].value / pair[1].value >= factor, _numbers(row, than, pair))

    return Claim(text, where, part, ours, theirs)


def verdicts(table: str, parts: Sequence[tuple[Results, Apart, Printed]]) -> list[Verdict]:
    """All claims about a table, judged on each of its parts that has been run."""
    return [verdict for claim in CLAIMS.get(table, ()) for verdict in _judged(claim, parts)]


def _judged(claim: Claim, parts: Sequence[tuple[Results, Apart, Printed]]) -> Iterator[Verdict]:
    for found, apart, printed in parts:
        if found.name == claim.part:
            ours = claim.ours(found, apart)
            theirs = claim.theirs(found, printed)
            holds, numbers = (None, "") if theirs is None else theirs
            yield Verdict(
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
    """Of models that cannot be told from one answer for all, nothing can be said; nor against such a baseline."""
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
    """Of the metrics that something is published in, the one that is meant by one of ours."""
    return metric if metric in published else SAME.get(metric, metric)


def _pair(part: Results, printed: Printed, row: str, than: str, metric: str) -> tuple[Number, Number] | None:
    """The published numbers of two rows."""
    if metric != "speed":
        metric = read_beside(metric, list(part.published_metrics))
    one, other = printed(row, metric), printed(than, metric)
    return None if one is None or other is None else (one, other)


def _plain(number: Number) -> float:
    return math.exp(number.value) if number.logarithm else number.value


def _loss(part: Results, metric: str, pair: tuple[Number, Number]) -> float:
    one, other = map(_plain, pair)
    return other - one if part.metrics[metric].higher_is_better else one - other


def _numbers(row: str, than: str, pair: tuple[Number, Number]) -> str:
    shown = (
        f"{name} {number.value:g}{f' ({number.source})' if number.source else ''}"
        for name, number in zip((row, than), pair, strict=True)
    )
    return f"{pair[0].metric}: {', '.join(shown)}"


def _translation(part: str, language: str) -> tuple[Claim, ...]:
    return (
        within(
            f"Learned weights that never look at the input (Random) are nearly as good as a Transformer ({language}).",
            "abstract, Table 2", part, "Random", "Transformer", 0.02,
        ),
        within(
            f"Weights that each token makes for itself (Dense) are nearly as good as the Transformer ({language}).",
            "Table 2", part, "Dense", "Transformer", 0.02,
        ),
        better(
            f"Random weights added to the dot product beat the Transformer ({language}).",
            "abstract, Table 2", part, "Random + Vanilla", "Transformer",
        ),
        better(
            f"Mixtures with the dot product always beat the Transformer, so Dense + Vanilla does ({language}).",
            "abstract", part, "Dense + Vanilla", "Transformer",
        ),
    )  # fmt: skip


CLAIMS: dict[str, tuple[Claim, ...]] = {
    "translation": (
        *_translation("en-de", "English to German"),
        better(
            "Random weights must be learned: kept as they were drawn (Fixed Random), they are worse.",
            "Table 2", "en-de", "Random", "Fixed Random",
        ),
        better(
            "Random + Vanilla beats a Transformer with as many parameters.",
            "Table 2", "en-de", "Random + Vanilla", "Transformer (Control)",
        ),
        within(
            "A product of two thin matrices (Factorized Random) is nearly as good as a whole random matrix.",
            "Table 2", "en-de", "Factorized Random", "Random", 0.02,
        ),
        within(
            "Factorized Dense is nearly as good as Dense.", "Table 2", "en-de", "Factorized Dense", "Dense", 0.02
        ),
        *_translation("en-fr", "English to French"),
    ),
    "lm1b": (
        better(
            "Dense weights added to the dot product beat the Transformer.",
            "Table 2", "news", "Dense + Vanilla", "Transformer",
        ),
        better(
            "Mixtures with the dot product always beat the Transformer, so Random + Vanilla does (language modelling).",
            "abstract", "news", "Random + Vanilla", "Transformer",
        ),
        within(
            "Without any dot product, Dense is not far from the Transformer.",
            "Table 2", "news", "Dense", "Transformer", 0.1,
        ),
        within(
            "Without any dot product, Random is not far from the Transformer.",
            "Table 2", "news", "Random", "Transformer", 0.1,
        ),
        within(
            "A product of two thin matrices (Factorized Random) is not far from a whole random matrix.",
            "Table 2", "news", "Factorized Random", "Random", 0.1,
        ),
        better(
            "Random weights must be learned: kept as they were drawn, they are worse.",
            "Table 2", "news", "Random", "Fixed Random",
        ),
    ),
    "generation": (
        better(
            "In summarisation, the Transformer beats weights that do not look at the input (Random; ROUGE-1).",
            "Table 3", "summaries", "Transformer", "Syn (R)",
        ),
        better(
            "In summarisation, the Transformer beats weights that each token makes for itself (Dense; ROUGE-1).",
            "Table 3", "summaries", "Transformer", "Syn (D)",
        ),
        better(
            "Dense + Vanilla beats the Transformer in summarisation (ROUGE-1).",
            "Table 3", "summaries", "Syn (D+V)", "Transformer",
        ),
        better(
            "Mixtures with the dot product always beat the Transformer, so Dense + Vanilla does in ROUGE-2.",
            "abstract", "summaries", "Syn (D+V)", "Transformer", "rouge2",
        ),
        better(
            "Mixtures with the dot product always beat the Transformer, so Random + Vanilla does in ROUGE-2.",
            "abstract", "summaries", "Syn (R+V)", "Transformer", "rouge2",
        ),
        better(
            "In dialogue, Dense alone beats the Transformer (BLEU-1).",
            "Table 3", "dialogue", "Syn (D)", "Transformer",
        ),
        better(
            "In dialogue, Random alone beats the Transformer (BLEU-1).",
            "Table 3", "dialogue", "Syn (R)", "Transformer",
        ),
        better(
            "In dialogue, the Transformer beats Random where four words in a row must be right (BLEU-4).",
            "Table 3", "dialogue", "Transformer", "Syn (R)", "bleu-4",
        ),
    ),
    "c4": (
        better(
            "Random weights added to the dot product beat the Transformer.",
            "Table 4 (2021)", "spans", "Syn (R+V)", "Transformer",
        ),
        better(
            "Dense weights added to the dot product beat the Transformer.",
            "Table 4 (2021)", "spans", "Syn (D+V)", "Transformer",
        ),
        better(
            "Random is better than dynamic convolutions.",
            "abstract", "spans", "Syn (R)", "Dynamic Conv",
        ),
        faster(
            "Random trains 60 % faster than dynamic convolutions.",
            "abstract", "spans", "Syn (R)", "Dynamic Conv", 1.6,
        ),
        faster("Random trains faster than the Transformer.", "Table 4 (2021)", "spans", "Syn (R)", "Transformer", 1.0),
        better(
            "Random + Vanilla beats the Universal Transformer.",
            "introduction", "spans", "Syn (R+V)", "Universal Transformer",
        ),
    ),
    "glue": (
        better("On GLUE, Random loses to T5.", "Table 4 (2020)", "tuning", "T5 (Base)", "Syn (R)"),
        better("On GLUE, Dense loses to T5.", "Table 4 (2020)", "tuning", "T5 (Base)", "Syn (D)"),
        better(
            "Mixtures with the dot product always beat the Transformer, so Dense + Vanilla does on GLUE.",
            "abstract", "tuning", "Syn (D+V)", "T5 (Base)",
        ),
        better("On GLUE, Random + Vanilla beats T5.", "Table 4 (2020)", "tuning", "Syn (R+V)", "T5 (Base)"),
    ),
    "superglue": (
        better("On SuperGLUE, Random loses to T5.", "Table 5 (2020)", "tuning", "T5 (Base)", "Syn (R)"),
        better("On SuperGLUE, Dense loses to T5.", "Table 5 (2020)", "tuning", "T5 (Base)", "Syn (D)"),
        better(
            "Mixtures with the dot product always beat the Transformer, so Dense + Vanilla does on SuperGLUE.",
            "abstract", "tuning", "Syn (D+V)", "T5 (Base)",
        ),
        better("On SuperGLUE, Random + Vanilla beats T5.", "Table 5 (2020)", "tuning", "Syn (R+V)", "T5 (Base)"),
    ),
    "encoding": tuple(
        claim
        for part, what in (("ag_news", "news"), ("imdb", "film reviews"))
        for claim in (
            better(
                f"To classify {what}, Factorized Random beats Linformer.",
                "encoders (2021)", part, "Syn (FR)", "Linformer",
            ),
            better(
                f"To classify {what}, Factorized Random with the dot product beats Linformer.",
                "encoders (2021)", part, "Syn (FR+V)", "Linformer",
            ),
        )
    ),
    "heads": (
        better(
            "Random needs many heads: 32 beat 1.",
            "ablation", "heads", "Random, 32 heads", "Random, 1 head",
        ),
    ),
    "lra": (
        better(
            "On ListOps, the Synthesizer beats the Transformer.",
            LONG_RANGE_ARENA, "listops", "Synthesizer", "Transformer",
        ),
        better(
            "On ListOps, the Synthesizer beats Linformer.",
            LONG_RANGE_ARENA, "listops", "Synthesizer", "Linformer",
        ),
        better(
            "On bytes of film reviews, the Transformer beats the Synthesizer.",
            LONG_RANGE_ARENA, "text", "Transformer", "Synthesizer",
        ),
    ),
}  # fmt: skip
