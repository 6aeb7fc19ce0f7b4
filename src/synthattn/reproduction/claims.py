"""What the paper claims, and how each claim is judged: by tests on our numbers, and on the paper's own."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from synthattn.report.results import Difference
from synthattn.report.tables import digits
from synthattn.reproduction.outcome import Judgement, Part, Row, Verdict

Finding = tuple[Judgement, str]
"""The judgement and why."""


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
    ours: Callable[[Part, Apart], Finding]
    theirs: Callable[[Part], tuple[bool, str] | None]


def better(text: str, where: str, part: str, row: str, than: str, metric: str = "") -> Claim:
    """One row beats another in a metric, the main one unless given: the difference's interval does not include zero."""

    def ours(found: Part, apart: Apart) -> Finding:
        name = metric or main_metric(found)
        gap = apart(row, than, name)
        if gap is None:
            return "not run", f"{row} and {than} have not both been run"
        low, high = _gain(found, name, gap.difference)
        said = _said(row, than, name, gap)
        if low > 0:
            return "holds", f"{said}; all of the interval is better"
        if high < 0:
            return "does not hold", f"{said}; all of the interval is worse"
        return "undecided", f"{said}; the interval includes zero"

    def theirs(found: Part) -> tuple[bool, str] | None:
        pair = _printed(found, row, than, metric or main_metric(found))
        if pair is None:
            return None
        return _loss(found, metric or main_metric(found), pair) < 0, f"{row} {pair[0]:g}, {than} {pair[1]:g}"

    return Claim(text, where, part, ours, theirs)


def within(text: str, where: str, part: str, row: str, of: str, share: float, metric: str = "") -> Claim:
    """One row is at most so much worse than another, as a share of the other's score: a test of non-inferiority."""

    def ours(found: Part, apart: Apart) -> Finding:
        name = metric or main_metric(found)
        gap = apart(row, of, name)
        if gap is None:
            return "not run", f"{row} and {of} have not both been run"
        margin = share * gap.than
        low, high = _gain(found, name, gap.difference)
        said = f"{_said(row, of, name, gap)}; up to {digits(margin, 2)} worse ({share:.0%}) is nearly as good"
        if low > -margin:
            return "holds", f"{said}; all of the interval is within"
        if high < -margin:
            return "does not hold", f"{said}; all of the interval is worse than that"
        return "undecided", f"{said}; the interval has both"

    def theirs(found: Part) -> tuple[bool, str] | None:
        name = metric or main_metric(found)
        pair = _printed(found, row, of, name)
        if pair is None:
            return None
        return _loss(found, name, pair) <= share * pair[1], f"{row} {pair[0]:g}, {of} {pair[1]:g}"

    return Claim(text, where, part, ours, theirs)


def faster(text: str, where: str, part: str, row: str, than: str, factor: float) -> Claim:
    """A training step of one row is so much faster than another's; both were timed in turn with the baseline."""

    def ours(found: Part, apart: Apart) -> Finding:
        one, other = row_of(found, row), row_of(found, than)
        if one is None or other is None or one.speed is None or other.speed is None:
            return "not run", f"{row} and {than} have not both been timed"
        ratio = one.speed.value / other.speed.value
        low, high = one.speed.low / other.speed.high, one.speed.high / other.speed.low
        said = (
            f"{row} trains {ratio:.2f} times as fast as {than} (quartiles {low:.2f} to {high:.2f}), claimed {factor:g}"
        )
        if low >= factor:
            return "holds", said
        return ("does not hold", said) if high < factor else ("undecided", said)

    def theirs(found: Part) -> tuple[bool, str] | None:
        pair = _printed(found, row, than, "speed")
        if pair is None:
            return None
        return pair[0] / pair[1] >= factor, f"{row} {pair[0]:g} steps per second, {than} {pair[1]:g}"

    return Claim(text, where, part, ours, theirs)


def verdicts(table: str, parts: Sequence[tuple[Part, Apart]]) -> list[Verdict]:
    """All claims about a table, judged on each of its parts that has been run."""
    return [verdict for claim in CLAIMS.get(table, ()) for verdict in _judged(claim, parts)]


def _judged(claim: Claim, parts: Sequence[tuple[Part, Apart]]) -> Iterator[Verdict]:
    for found, apart in parts:
        if found.name == claim.part:
            judgement, because = claim.ours(found, apart)
            theirs = claim.theirs(found)
            holds, numbers = (None, "") if theirs is None else theirs
            yield Verdict(claim.text, claim.where, found.name, found.scale, judgement, because, numbers, holds)


SAME = {"bleu": "tokenized-bleu"}
"""Metrics that the paper has in another form than our main one."""


def main_metric(part: Part) -> str:
    return next(iter(part.metrics), "")


def row_of(part: Part, name: str) -> Row | None:
    return next((row for row in part.rows if row.name == name), None)


def _gain(part: Part, metric: str, difference: Difference) -> tuple[float, float]:
    """The interval, with more being better."""
    if part.metrics[metric].higher_is_better:
        return difference.low, difference.high
    return -difference.high, -difference.low


def _said(row: str, than: str, metric: str, gap: Gap) -> str:
    apart = gap.difference
    shown = f"{apart.value:+.2f} [{apart.low:+.2f}, {apart.high:+.2f}]".replace("-", "\N{MINUS SIGN}")
    return f"{metric}: {row} {gap.row:.2f}, {than} {gap.than:.2f}, difference {shown} ({gap.test})"


def _printed(part: Part, row: str, than: str, metric: str) -> tuple[float, float] | None:
    """The published numbers of two rows; where the paper has another metric than ours, in the one that is meant."""
    if metric != "speed" and metric not in part.published_metrics:
        metric = SAME.get(metric, metric)
    found = [found.published.get(metric) for name in (row, than) if (found := row_of(part, name))]
    if len(found) != 2 or found[0] is None or found[1] is None:
        return None
    return found[0].value, found[1].value


def _loss(part: Part, metric: str, pair: tuple[float, float]) -> float:
    higher = part.metrics[metric].higher_is_better
    return pair[1] - pair[0] if higher else pair[0] - pair[1]


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
            "A product of two thin matrices (Factorized Random) is as good as a whole random matrix.",
            "Table 2", "en-de", "Factorized Random", "Random", 0.02,
        ),
        within(
            "Factorized Dense is as good as Dense.", "Table 2", "en-de", "Factorized Dense", "Dense", 0.02
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
            "Without any dot product, Dense has a perplexity at most a tenth higher than the Transformer's.",
            "Table 2", "news", "Dense", "Transformer", 0.1,
        ),
        within(
            "Without any dot product, Random has a perplexity at most a tenth higher than the Transformer's.",
            "Table 2", "news", "Random", "Transformer", 0.1,
        ),
        better(
            "Random weights must be learned: kept as they were drawn, they are worse.",
            "Table 2", "news", "Random", "Fixed Random",
        ),
    ),
    "generation": (
        better(
            "In summarisation, the Transformer beats weights that do not look at the input (Random).",
            "Table 3", "summaries", "Transformer", "Syn (R)",
        ),
        better(
            "In summarisation, the Transformer beats weights that each token makes for itself (Dense).",
            "Table 3", "summaries", "Transformer", "Syn (D)",
        ),
        better(
            "Dense + Vanilla beats the Transformer in summarisation.",
            "Table 3", "summaries", "Syn (D+V)", "Transformer",
        ),
        better(
            "Mixtures with the dot product always beat the Transformer, so Dense + Vanilla does in ROUGE-2.",
            "abstract", "summaries", "Syn (D+V)", "Transformer", "rouge2",
        ),
        better(
            "In dialogue, Dense alone beats the Transformer.",
            "Table 3", "dialogue", "Syn (D)", "Transformer",
        ),
        better(
            "In dialogue, Random alone beats the Transformer.", "Table 3", "dialogue", "Syn (R)", "Transformer"
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
            "Long Range Arena", "listops", "Synthesizer", "Transformer",
        ),
        better(
            "On ListOps, the Synthesizer beats Linformer.",
            "Long Range Arena", "listops", "Synthesizer", "Linformer",
        ),
        better(
            "On bytes of film reviews, the Transformer beats the Synthesizer.",
            "Long Range Arena", "text", "Transformer", "Synthesizer",
        ),
    ),
}  # fmt: skip
