"""The table of one part: our scores and costs, differences from the baseline, and the paper's numbers beside them."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from synthattn.compare.results import PublishedNumber, Results, Variant
from synthattn.compare.table import decimals, difference_cell, score_cell, trouble
from synthattn.paper.words import direction, footnote, full_stop, seeds
from synthattn.render.numbers import TIMES, digits, fixed, quantity, signed, times, typed_alike
from synthattn.render.table import Cell, Column, Row, Table, number_cell
from synthattn.render.terminal import ARROWS

SHORT = {"Parameters": "para-\nmeters", "Training speed": "train\nspeed"}
"""Heads where there is little room."""


def anchor(part: Results, row: Variant | None = None) -> str:
    """Return a name for links within a page."""
    names = [f"{part.name}-{part.scale}", *([] if row is None else [row.key])]
    return "-".join(re.sub("[^a-z0-9+.]+", "-", name.lower()).strip("-") for name in names)


def part_table(part: Results, metrics: Sequence[str] | None = None, costs: bool = True, paper: bool = True) -> Table:
    """Return the table of a part, with an empty list of columns if nothing is known.

    Args:
        part: a part of a table of the paper.
        metrics: the metrics to show, all unless given.
        costs: whether to show parameters, operations and speed.
        paper: whether to show the paper's numbers beside these costs.
    """
    columns: list[Column] = []
    shown = [name for name in part.metrics if metrics is None or name in metrics]
    if costs:
        cells = [number_cell(row.parameters, quantity) for row in part.rows]
        columns += _group(part, "Parameters", cells, _published(part, "parameters") if paper else [])
    for name in shown:
        columns += _score_columns(part, name, main=name == next(iter(part.metrics)))
    if costs:
        flops = [number_cell(row.gigaflop, digits) for row in part.rows]
        columns += _group(part, "GFLOP", flops, _published(part, "gigaflop") if paper else [], "forward, one example")
        speeds = [_speed(row) for row in part.rows]
        columns += _group(
            part, "Training speed", speeds, _published(part, "speed") if paper else [], f"{TIMES} baseline"
        )
    said = [trouble(row) for row in part.rows]
    if columns or any(said):
        cells = [Cell(seeds(row), link=_link(part, row)) for row in part.rows]
        columns.append(Column("Seeds", cells))
    # A row without a score of the main metric says why in its place; without that column, beside its name.
    rows = [
        Row(row.name, ", ".join(filter(None, (row.attention, row.differs))),
            "baseline" if row.name == part.baseline else "",
            trouble="" if any(column.cells[n].trouble for column in columns) else said[n])
        for n, row in enumerate(part.rows)
    ]  # fmt: skip
    return Table(f"Table of results: {part.title}", "Model", rows, columns, anchor(part))


def _score_columns(part: Results, name: str, main: bool) -> list[Column]:
    higher = part.metrics[name].higher_is_better
    scores = [row.scores.get(name) for row in part.rows]
    places = decimals(scores)
    cells = [score_cell(score, places) for score in scores]
    if main:
        cells = [
            cell if cell.text else replace(cell, trouble=trouble(row))
            for cell, row in zip(cells, part.rows, strict=True)
        ]
    gaps = [difference_cell(score, higher, places) for score in scores]
    # One run decides nothing: its interval does not include how much another seed would change.
    gaps = [
        cell if row.attention and len(row.runs) > 1 else replace(cell, mark="")
        for cell, row in zip(gaps, part.rows, strict=True)
    ]
    return _group(part, name, cells, _published(part, name), gaps=gaps, main=main)


def _group(
    part: Results, head: str, ours: list[Cell], theirs: list[Column], unit: str = "",
    gaps: Sequence[Cell] = (), main: bool = False,
) -> list[Column]:  # fmt: skip
    """Return columns below one head: our numbers, differences from the baseline, and the paper's numbers."""
    if not main and not theirs and not any(cell.text for cell in ours):
        return []
    gaps = gaps if any(cell.text for cell in gaps) else ()
    group = head if gaps or theirs else ""
    better = direction(part, head) if head in part.metrics else ""
    cells = [replace(cell, link=_link(part, row)) for cell, row in zip(ours, part.rows, strict=True)]
    short = SHORT.get(head, head.replace("-", "-\n")) + ARROWS[better]
    found = [Column("here" if group else head, cells, unit, better, group, short=short)]
    if gaps:
        found.append(Column("difference", gaps, group=group, short="differ-\nence"))
    return found + [replace(column, group=group) for column in theirs]


def _published(part: Results, name: str) -> list[Column]:
    """Return the column of the paper's numbers; no column if it has none."""
    theirs = [row.published.get(name) for row in part.rows]
    known = [each for each in theirs if each is not None]
    if not known:
        return []
    typed = _typed(name, known, published_base(part, name))
    plain = Counter(each.source for each in known if not each.doubt)
    # The head has the most frequent source, so that footnotes at numbers are few.
    source = plain.most_common(1)[0][0] if plain else ""
    cells = [Cell() if each is None else replace(typed(each.value), note=footnote(each, source)) for each in theirs]
    unit = part.published_metrics.get(name, "")
    return [Column("paper", cells, unit, note=full_stop(source), kind="paper", short="in the\npaper")]


def published_base(part: Results, name: str) -> float | None:
    """Return the paper's number for the baseline."""
    found = next((row.published.get(name) for row in part.rows if row.name == part.baseline), None)
    return None if found is None else found.value


def _typed(name: str, known: Sequence[PublishedNumber], base: float | None) -> Callable[[float], Cell]:
    """Return how a published number is shown: as it is printed, and beside its baseline."""
    alike = typed_alike(each.value for each in known)
    if name == "parameters":
        return lambda value: Cell(f"{alike(value)} M", key=value)
    if name == "gigaflop":  # the paper does not say for how many examples
        return lambda value: Cell(f"{alike(value)} TFLOPs", key=value)
    if name == "speed":
        if not base:
            return lambda value: Cell(f"{alike(value)} steps/s", key=value)
        return lambda value: Cell(times(value / base), f"{alike(value)} steps/s", key=value)
    places = len(alike(known[0].value).partition(".")[2])
    return lambda value: Cell(alike(value), "" if base in (None, value) else signed(value - base, places), key=value)


def _speed(row: Variant) -> Cell:
    if row.speed is None:
        return Cell()
    return Cell(times(row.speed.value), f"[{fixed(row.speed.low, 2)}, {fixed(row.speed.high, 2)}]", "", row.speed.value)


def _link(part: Results, row: Variant) -> str:
    return f"#{anchor(part, row)}" if row.runs else ""
