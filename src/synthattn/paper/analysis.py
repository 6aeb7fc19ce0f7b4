"""The paper's figures of attention weights, from what was seen in the runs of other tables."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from synthattn.compare.collect import relative
from synthattn.compare.plan import Study, StudyPart, StudyRow
from synthattn.compare.records import StudyRecord
from synthattn.compare.results import Histogram, Results, Run, Variant
from synthattn.paper import outcome
from synthattn.paper.evidence import load_all
from synthattn.paper.recipes import SCALES, TABLES, recipe

NAME, TITLE = "analysis", "Attention weights before and after training"
SMALL = -3.0
"""Weights below a thousandth, as a power of ten, count as next to nothing."""


def collect(results: Path) -> outcome.Outcome:
    """Histograms of all parts whose runs were looked at, and what the paper says of them."""
    parts, verdicts = [], []
    for table in TABLES:
        known = load_all(results, table)
        for chosen in (recipe(table, scale, Path("DATA")) for scale in SCALES):
            for part in chosen.parts:
                found = _part(chosen, part, known, results)
                if found is not None:
                    parts.append(found)
                    verdicts += _verdicts(found)
    if any(part.scale != "tiny" for part in parts):
        parts = [part for part in parts if part.scale != "tiny"]
        verdicts = [verdict for verdict in verdicts if verdict.scale != "tiny"]
    notes = [
        "Weights of all pairs of tokens that a mask allows, of eight texts that were learned from, of the first seed. "
        "Bins are quarters of powers of ten; weights below a millionth count in the first.",
        "What the paper says of its figures is known from others' words; which deviation it means is not. Weights of a "
        "query add up to one, so where many are next to nothing, the others deviate more. Differences that nobody "
        "would see in a figure, 5 % of the deviation or one weight in a hundred, decide nothing.",
    ]
    return outcome.Outcome(NAME, TITLE, parts, notes, verdicts=verdicts)


def _part(chosen: Study, part: StudyPart, known: Sequence[StudyRecord], results: Path) -> Results | None:
    if not part.looks:
        return None
    found = {
        entry.row: entry
        for entry in known
        if (entry.scale, entry.part, entry.seed) == (chosen.scale, part.name, 0) and entry.after and not entry.candidate
    }
    if not found:
        return None
    # A record of a row that there is not is named in its own table.
    rows = [_row(row, found[row.name], results) for row in part.rows if row.name in found]
    name = f"{chosen.name} {part.name}"
    title = f"{chosen.name}: {part.title}"
    task = part.settings.data.task
    return Results(task, part.title, part.baseline.name, "", [], rows, {}, name=name, title=title, scale=chosen.scale)


def _row(row: StudyRow, entry: StudyRecord, results: Path) -> Variant:
    return Variant(
        row.attention,
        "done",
        name=row.name,
        key=row.key,
        histograms=entry.after,
        histograms_before=entry.before,
        runs=[Run(0, relative(entry, results), entry.command, 0.0)],
    )


def spread(histograms: Sequence[Histogram]) -> float:
    """The standard deviation of the weights, the mean over layers; a weight counts as the middle of its bin."""
    deviations = []
    for one in histograms:
        weights = [(10**power, share) for power, share in _middles(one)]
        mean = sum(weight * share for weight, share in weights)
        deviations.append(math.sqrt(sum((weight - mean) ** 2 * share for weight, share in weights)))
    return sum(deviations) / len(deviations)


def next_to_nothing(histograms: Sequence[Histogram]) -> float:
    """The share of weights below a thousandth, the mean over layers."""
    shares = [sum(share for x, share in _middles(one) if x < SMALL) for one in histograms]
    return sum(shares) / len(shares)


def _middles(one: Histogram) -> list[tuple[float, float]]:
    ends = zip(one.edges, one.edges[1:], one.counts, strict=False)
    return [((low + high) / 2, share) for low, high, share in ends]


def _judged(difference: float, nothing: float) -> outcome.Judgement:
    """By a single run: no test, but differences that nobody would see in a figure decide nothing."""
    if abs(difference) < nothing:
        return "undecided"
    return "holds" if difference > 0 else "does not hold"


ROWS = {"Random": ("Random", "Syn (R)"), "Dense": ("Dense", "Syn (D)")}
"""By what a claim calls it, the names of its row in the tables."""


def _verdicts(part: Results) -> Iterator[outcome.ClaimVerdict]:
    """The paper describes its figures: Synthesizers' weights vary more, and the Transformer's are sparser."""
    looks = {row.name: row.look for row in part.rows if row.look is not None}
    base = looks.get(part.baseline)
    for name, rows in ROWS.items():
        look = next((looks[row] for row in rows if row in looks), None)
        if base is None or look is None:
            continue
        both = spread(look.after), spread(base.after)
        few = next_to_nothing(look.after), next_to_nothing(base.after)
        judged: tuple[tuple[str, outcome.Judgement, str], ...] = (
            (
                f"After training, the weights of {name} vary more than the Transformer's ({part.title}).",
                _judged(both[0] / both[1] - 1, 0.05),
                f"standard deviation of the weights: {name} {both[0]:.3f}, Transformer {both[1]:.3f}",
            ),
            (
                f"The Transformer has more weights that are next to nothing than {name} ({part.title}).",
                _judged(few[1] - few[0], 0.01),
                f"weights below a thousandth: Transformer {few[1]:.0%}, {name} {few[0]:.0%}",
            ),
        )
        for claim, judgement, numbers in judged:
            because = f"{numbers}; means over layers, no test"
            yield outcome.ClaimVerdict(claim, "analysis (2021)", part.name, part.scale, judgement, because, runs=1)
