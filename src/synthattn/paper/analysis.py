"""The paper's figures of attention weights, from what was seen in the runs of other tables."""

import math
from collections.abc import Sequence
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
SHOWN = ("Transformer", "Random", "Dense", "Random + Vanilla", "Syn (R)", "Syn (D)", "Syn (R+V)")
"""The rows of the figures; records have the weights of all rows."""


def collect(results: Path) -> outcome.Outcome:
    """Return the histograms of all parts whose runs were looked at."""
    parts = []
    for table in TABLES:
        known = load_all(results, table)
        for chosen in (recipe(table, scale, Path("DATA")) for scale in SCALES):
            for part in chosen.parts:
                found = _part(chosen, part, known, results)
                if found is not None:
                    found.note = _described(found)
                    parts.append(found)
    if any(part.scale != "tiny" for part in parts):
        parts = [part for part in parts if part.scale != "tiny"]
    notes = [
        "Weights of all pairs of tokens that a mask allows, of eight texts that were learned from, of the first seed. "
        "Bins are quarters of powers of ten; weights below a millionth count in the first.",
        "What the paper says of its figures is known from others' words; which deviation it means is not. Weights of a "
        "query add up to one, so where many are next to nothing, the others deviate more. These histograms of one run "
        "are descriptions; no claim is judged by them.",
    ]
    return outcome.Outcome(NAME, TITLE, parts, notes)


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
    rows = [_row(row, found[row.name], results) for row in part.rows if row.name in found and row.name in SHOWN]
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


def _described(part: Results) -> str:
    """Return deviation and sparsity of each row, without a judgement."""
    texts = [
        f"{row.name} {spread(row.look.after):.3f} and {next_to_nothing(row.look.after):.0%}"
        for row in part.rows
        if row.look is not None
    ]
    return f"Standard deviation of the weights after training, and share below a thousandth: {'; '.join(texts)}."
