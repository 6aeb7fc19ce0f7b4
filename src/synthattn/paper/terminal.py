"""A reproduced table in a terminal."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from synthattn.compare.results import Results as Part
from synthattn.paper.markdown import (
    TABLE1_HEADS,
    TABLE1_TITLE,
    WORDS_OF_TABLE1,
    Measure,
    basis,
    contradicts_itself,
    counted,
    measures,
    seeds,
    table1_rows,
    trouble,
)
from synthattn.paper.outcome import Judgement, Outcome, Verdict
from synthattn.paper.table1 import Synthesized
from synthattn.terminal import SafeConsole

STYLES = {"better": "green", "worse": "red"}
WORDS: dict[Judgement, str] = {"holds": "green", "does not hold": "red", "undecided": "yellow", "not run": "dim"}
WIDEST = 100
"""Longer lines are hard to read."""


@dataclass(frozen=True)
class _Layout:
    """How much a table says."""

    every: bool = False
    """All metrics; else the main one and, where the paper has another, that one."""
    tests: bool = False
    """The interval and the p-value of differences."""
    intervals: bool = False
    costs: bool = True


LAYOUTS = (
    _Layout(every=True, tests=True, intervals=True),
    _Layout(every=True, intervals=True),
    _Layout(every=True),
    _Layout(tests=True, intervals=True),
    _Layout(intervals=True),
    _Layout(),
    _Layout(costs=False),
)
"""From the widest to the narrowest."""


def show(outcome: Outcome, console: Console | None = None) -> None:
    """Each part, as much of it as the terminal has room for, and the verdicts."""
    console = console or SafeConsole()
    for part in outcome.parts:
        if not measures(part) and not any(map(trouble, part.rows)):
            # What was only looked at is drawn on the page.
            continue
        layouts = [_table(outcome, part, layout) for layout in LAYOUTS]
        endless = console.options.update(max_width=10_000)
        fitting = (table for table in layouts if Measurement.get(console, endless, table).maximum <= console.width)
        console.print(next(fitting, layouts[-1]))
        for row in part.rows:
            if row.reason:
                console.print(Text(f"{row.name}: {trouble(row)}"), width=min(console.width, WIDEST))
        console.print()
    if outcome.verdicts:
        console.print(Text(counted(outcome.verdicts)), width=min(console.width, WIDEST))
        console.print(_verdicts(outcome.verdicts), width=min(console.width, WIDEST))


def show_table1(rows: Sequence[Synthesized], console: Console | None = None) -> None:
    """What each synthesizing function looks at."""
    console = console or SafeConsole()
    title = Text(TABLE1_TITLE)
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    # The paper's formulas need more room than there is.
    shown = [n for n, head in enumerate(TABLE1_HEADS) if head != "The paper's formula"]
    for n in shown:
        head = TABLE1_HEADS[n].replace(" ", "\n", 1)
        table.add_column(head, justify="left" if n < WORDS_OF_TABLE1 else "right", no_wrap=n not in (1, 2))
    for row, (_, *texts) in zip(rows, table1_rows(rows), strict=True):
        cells = [row.attention, *texts]
        table.add_row(*(Text(cells[n]) for n in shown))
    console.print(table)


def _table(outcome: Outcome, part: Part, layout: _Layout) -> Table:
    title = Text(f"{outcome.title}: {part.title} (scale {part.scale})")
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    table.add_column("model", overflow="fold")
    found = measures(part)
    metrics = [each for each in found if each.head in part.metrics]
    shown = metrics if layout.every else _most_important(metrics)
    columns = [each for each in found if each in shown or (layout.costs and each not in metrics)]
    for each in columns:
        for head in _heads(each, each in shown):
            table.add_column(Text(head), justify="right", no_wrap=True)
    table.add_column("seeds", justify="right", no_wrap=True)
    for n, row in enumerate(part.rows):
        cells = [Text(row.name)]
        for each in columns:
            cells += _cells(each, n, layout, row.status, each in shown)
        table.add_row(*cells, Text(seeds(row)))
    return table


def _most_important(metrics: list[Measure]) -> list[Measure]:
    """The main metric, and where the paper has another, that one."""
    published = next((n for n, each in enumerate(metrics) if each.paper), 0)
    return [each for n, each in enumerate(metrics) if n in (0, published)]


def _heads(measure: Measure, metric: bool) -> list[str]:
    if not metric:
        # The paper's sizes and speeds are on the page.
        return [{"Parameters": "para-\nmeters", "Training speed": "train\nspeed"}.get(measure.head, measure.head)]
    arrow = "\N{UPWARDS ARROW}" if measure.unit.startswith("higher") else "\N{DOWNWARDS ARROW}"
    heads = [f"{measure.head.replace('-', chr(10), 1)} {arrow}"]
    heads += ["differ-\nence"] if measure.differences else []
    return heads + (["in the\npaper"] if measure.paper else [])


def _cells(measure: Measure, n: int, layout: _Layout, status: str, metric: bool) -> list[Text]:
    ours = measure.ours[n]
    if not metric:
        return [Text(ours.text)]
    if measure.main and not ours.text:
        cells = [Text(status, "red" if status == "failed" else "dim")]
    else:
        cells = [Text(f"{ours.text} {ours.detail}".strip() if layout.intervals else ours.text)]
    if measure.differences:
        found = measure.differences[n]
        detail = f" {found.detail}" if layout.tests and found.detail else ""
        mark = (found.mark or "=") if found.text else ""
        cells.append(Text(f"{mark} {found.text}{detail}".strip(), STYLES.get(found.mark, "")))
    return cells + ([Text(measure.paper[n].text, "dim")] if measure.paper else [])


def _verdicts(verdicts: list[Verdict]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    for verdict in verdicts:
        says = Text.assemble(
            (f"{verdict.claim} ({verdict.where})", "bold"),
            f"\n{verdict.because}",
            (f" ({verdict.part}, {verdict.scale})", "dim"),
        )
        if contradicts_itself(verdict):
            says.append(f"\nThe paper's text and its numbers disagree: {verdict.in_paper}", "yellow")
        word = "\n".join(filter(None, (verdict.judgement, basis(verdict))))
        table.add_row(Text(word, WORDS[verdict.judgement]), says)
    return table
