"""The tables of a comparison: what each variant is worth, and what it costs."""

import csv
import io
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from synthattn.compare.results import Difference, Published, Results, Score, Variant
from synthattn.compare.verdict import clears
from synthattn.metrics.labels import label
from synthattn.render.numbers import (
    TIMES,
    Number,
    chance,
    fixed,
    megabytes,
    quantity,
    signed,
    times,
    typed_alike,
    whole,
)
from synthattn.render.table import Cell, Column, Row, Span, Table, number_cell

SIGNIFICANT = 0.05
"""Differences with a smaller p-value are called better or worse."""
SPEEDS = {
    "Training speed": ("training_speed", "train\nspeed"),
    "Generation speed": ("generation_speed", "write\nspeed"),
    "Inference speed": ("inference_speed", "score\nspeed"),
}
"""For each head the attribute of a variant, and a short head."""
SIZES = {
    "Training memory": ("training_memory", "MB", megabytes, "memory\nMB"),
    "Parameters": ("parameters", "", quantity, "para-\nmeters"),
    "Cache": ("cache_bytes_per_token", "bytes per token", whole, "cache\nB/token"),
}
"""For each head the attribute of a variant, its unit, its digits and a short head."""


def tables(results: Results) -> tuple[Table, Table]:
    """Return the table that readers see first, of at most seven columns, and one with all other figures.

    Trivial systems, which are no models, are the last rows.
    """
    variants = [*results.models, *results.floors]
    first, rest = [], []
    for name in metric_names(results):
        main = name == results.main_metric
        scores = [variant.scores.get(name) for variant in variants]
        places = decimals(scores)
        cells = [score_cell(score, places) for score in scores[: len(results.models)]]
        # Scores of trivial systems are exact.
        cells += [replace(score_cell(score, places), detail="") for score in scores[len(results.models) :]]
        if main:
            cells = [replace(cell, trouble=trouble(variant)) for cell, variant in zip(cells, variants, strict=True)]
            gaps = [difference_cell(score, higher_is_better(results, name), places) for score in scores]
            # Of two models that have not learned the task, none is called better.
            gaps = [
                gap if _either_clears(results, score) else replace(gap, mark="")
                for gap, score in zip(gaps, scores, strict=True)
            ]
            # Before the first variant is scored it is not known what the main metric is.
            first.append(Column(label(name) or "Score", cells, direction=direction(results, name), kind="main"))
            first.append(Column("Difference", gaps, f"from {results.baseline}", short=f"from\n{results.baseline}"))
        else:
            rest.append(Column(label(name), cells, direction=direction(results, name)))
        for printed in published(results, name):
            typed = typed_alike(printed.values.values())
            cells = [number_cell(printed.values.get(variant.attention), typed) for variant in variants]
            rest.append(Column(f"{label(name)} in the paper", cells, printed.table, kind="paper"))
    speeds = [
        Column(head, [_speed_cell(variant, name) for variant in variants], f"{TIMES} baseline", short=short)
        for head, (name, short) in SPEEDS.items()
    ]
    sizes = [
        Column(head, [number_cell(getattr(variant, name), digits) for variant in variants], unit, short=short)
        for head, (name, unit, digits, short) in SIZES.items()
    ]
    known = [column for column in [*speeds, *sizes] if not all(cell.empty for cell in column.cells)]
    # Of generation and scoring one is enough: where a model writes, how fast it does so.
    second = [column for column in known if column in speeds][2:]
    behind = [column for column in known if column in second or column.head == "Cache"]
    first = [column for column in first if column.kind == "main" or not all(cell.empty for cell in column.cells)]
    first += [column for column in known if column not in behind]
    rest = [column for column in [*rest, *behind] if not all(cell.empty for cell in column.cells)]
    rows = [
        Row((Span(each.attention, "code"),), remark="baseline" if each.attention == results.baseline else "", place=n)
        for n, each in enumerate(results.models)
    ]
    rows += [Row((Span(each.name),), remark="floor") for each in results.floors]
    title = f"{results.task} on {results.data}"
    return Table(title, "Attention", rows, first), Table(f"{title}: more", "Attention", rows, rest, "more")


def trouble(variant: Variant) -> str:
    """Return what a row says of a variant that is not done, and nothing otherwise."""
    if variant.status == "done":
        return ""
    return f"{variant.status}: {variant.reason}" if variant.reason else variant.status


def metric_names(results: Results) -> list[str]:
    """Return the main metric first, then those that are defined, then those that only a variant has."""
    scored = (name for variant in results.models for name in variant.scores)
    return list(dict.fromkeys([results.main_metric, *results.metrics, *scored]))


def higher_is_better(results: Results, name: str) -> bool:
    return name not in results.metrics or results.metrics[name].higher_is_better


def direction(results: Results, name: str) -> str:
    """Return ``higher`` or ``lower``, and nothing where it is not known."""
    if name not in results.metrics:
        return ""
    return "higher" if higher_is_better(results, name) else "lower"


def published(results: Results, name: str) -> list[Published]:
    """Return the paper's tables that have a number for one of the variants."""
    ours = {variant.attention for variant in results.models}
    return [table for table in results.published if table.metric == name and ours & table.values.keys()]


def definitions(results: Results) -> dict[str, str]:
    """Return what every metric is, and which direction is better."""
    return {
        label(name): f"{results.metrics[name].definition.removeprefix(f'{label(name)}: ')} "
        f"({direction(results, name)} is better)"
        for name in metric_names(results)
        if name in results.metrics
    }


def legend(results: Results) -> list[str]:
    """Return how intervals were made, and how the paper's numbers differ."""
    scores = [score for variant in results.models for score in variant.scores.values()]
    shown = [table for table in results.published if table in published(results, table.metric)]
    theirs = [
        f"{label(each.metric)} in the paper: {each.table}." + (f" {each.note}" if each.note else "") for each in shown
    ]
    return certainty(scores, results.baseline) + theirs


def certainty(scores: list[Score], baseline: str) -> list[str]:
    """Return how certain scores are, in sentences."""
    if not scores:
        return []
    counts = {len(score.by_seed) for score in scores}
    most = max(counts)
    if len(counts) > 1:
        lines = [
            f"Scores are means over {min(counts)} to {most} seeds. In brackets: intervals of 95 %, with one seed by "
            "bootstrap over the examples, with several of examples and of seeds."
        ]
    elif most > 1:
        lines = [f"Scores are means over {most} seeds. In brackets: intervals of 95 %, of examples and of seeds."]
    else:
        lines = [
            "In brackets: intervals of 95 %, by bootstrap over the examples. One seed: another may differ by more."
        ]
    if any(score.difference for score in scores):
        same = "examples and seeds" if len(counts) > 1 else "examples"
        lines.append(
            f"Differences are from {baseline} on the same {same}; better and worse stand where p < {SIGNIFICANT}."
        )
    return lines


def score_cell(score: Score | None, places: int) -> Cell:
    if score is None or not math.isfinite(score.value):
        return Cell("not a number" if score else "")
    interval = f"[{fixed(score.low, places)}, {fixed(score.high, places)}]"
    return Cell(fixed(score.value, places), interval, key=score.value)


def difference_cell(score: Score | None, higher_better: bool, places: int) -> Cell:
    found = score.difference if score else None
    if found is None or not math.isfinite(found.value):
        return Cell()
    interval = f"[{signed(found.low, places)}, {signed(found.high, places)}], {chance(found.p_value)}"
    return Cell(signed(found.value, places), interval, _mark(found, higher_better), found.value)


def _either_clears(results: Results, score: Score | None) -> bool:
    """Return True if a score or the baseline's clears the floor of the main metric, as the answer asks."""
    name, floor = results.main_metric, results.floor(results.main_metric)
    baseline = results.base.scores.get(name) if results.base is not None else None
    higher = higher_is_better(results, name)
    return any(one and clears(one, floor and floor[1], higher) for one in (score, baseline))


def _speed_cell(variant: Variant, name: str) -> Cell:
    found = variant.speed_of(name)
    if found is None or not math.isfinite(found.value):
        return Cell()
    rounds = f", {found.rounds} rounds" if found.rounds else ""
    spread = f"[{fixed(found.low, 2)}, {fixed(found.high, 2)}]{rounds}" if found.high > found.low else ""
    return Cell(times(found.value), spread, key=found.value)


def _mark(found: Difference, higher_better: bool) -> str:
    if not found.p_value < SIGNIFICANT or found.value == 0:
        return ""
    return "better" if (found.value > 0) == higher_better else "worse"


def decimals(scores: Iterable[Score | None]) -> int:
    """Return so many that the intervals of a column have two digits; four digits where there are none."""
    known = [score for score in scores if score and math.isfinite(score.value)]
    widths = sorted(score.high - score.low for score in known if 0 < score.high - score.low < math.inf)
    if widths:
        return min(6, max(0, 1 - math.floor(math.log10(widths[len(widths) // 2] / 2))))
    largest = max((abs(score.value) for score in known), default=0.0)
    return min(6, max(0, 3 - math.floor(math.log10(largest)))) if largest else 0


def csv_table(results: Results) -> str:
    """Return all numbers as they are, one row for each variant; columns that no variant has are left out."""
    rows = [dict(_record(results, variant)) for variant in (*results.models, *results.floors)]
    heads = list(dict.fromkeys(head for row in rows for head in row)) or ["attention", "status"]
    kept = [h for h in heads if h in ("attention", "status") or any(row.get(h) not in (None, "") for row in rows)]
    text = io.StringIO()
    writer = csv.DictWriter(text, kept, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _record(results: Results, variant: Variant) -> Iterator[tuple[str, Number | str | None]]:
    yield "attention", variant.attention or variant.name
    for name in ("status", "reason", "parameters"):
        yield name, getattr(variant, name)
    for name in metric_names(results):
        score = variant.scores.get(name)
        difference = score.difference if score else None
        for part in ("value", "low", "high"):
            yield name if part == "value" else f"{name} {part}", getattr(score, part, None)
        for part in ("value", "low", "high", "p_value"):
            head = f"{name} difference {part}".removesuffix(" value").replace("p_value", "p")
            yield head, getattr(difference, part, None)
        for printed in published(results, name):
            yield f"{name} in the paper ({printed.table})", printed.values.get(variant.attention)
    for name in ("training_speed", "inference_speed", "generation_speed", "training_memory", "cache_bytes_per_token"):
        yield name, getattr(variant, name)
    yield "training_seconds", variant.training_seconds
