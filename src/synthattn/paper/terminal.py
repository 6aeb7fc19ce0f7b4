"""A reproduced table in a terminal."""

from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from synthattn.compare.results import Results as Part
from synthattn.paper.markdown import basis, contradicts_itself, counted, measures, trouble
from synthattn.paper.outcome import Judgement, Outcome, Verdict
from synthattn.paper.page import table_of, table_of_table1
from synthattn.paper.table1 import Synthesized
from synthattn.render import terminal
from synthattn.render.table import Table
from synthattn.terminal import SafeConsole

WORDS: dict[Judgement, str] = {"holds": "green", "does not hold": "red", "undecided": "yellow", "not run": "dim"}
WIDEST = 100
"""Longer lines are hard to read."""


def show(outcome: Outcome, console: Console | None = None) -> None:
    """Print each part, as much of it as the terminal has room for, and the verdicts."""
    console = console or SafeConsole()
    for part in outcome.parts:
        if not measures(part) and not any(map(trouble, part.rows)):
            # What was only looked at is drawn on the page.
            continue
        terminal.show(console, layouts(outcome, part))
        for row in part.rows:
            if row.reason:
                console.print(Text(f"{row.name}: {trouble(row)}"), width=min(console.width, WIDEST))
        console.print()
    if outcome.verdicts:
        console.print(Text(counted(outcome.verdicts)), width=min(console.width, WIDEST))
        console.print(_verdicts(outcome.verdicts), width=min(console.width, WIDEST))


def show_table1(rows: Sequence[Synthesized], console: Console | None = None) -> None:
    """Print what each synthesizing function looks at."""
    # The paper's formulas need more room than there is.
    terminal.show(console or SafeConsole(), [table_of_table1(rows).without("The paper's formula")])


def layouts(outcome: Outcome, part: Part) -> list[Table]:
    """Return the table of a part from the widest to the narrowest."""
    # The paper's sizes and speeds are on the page.
    found = [each if each.head in part.metrics else replace(each, paper=[]) for each in measures(part)]
    metrics = [each for each in found if each.head in part.metrics]
    published = next((n for n, each in enumerate(metrics) if each.paper), 0)
    main = [each for each in found if each not in metrics or metrics.index(each) in (0, published)]
    bare = [each for each in main if each in metrics]
    title = f"{outcome.title}: {part.title} (scale {part.scale})"
    every, few, fewest = (replace(table_of(part, each), title=title) for each in (found, main, bare))
    tests, intervals = ["difference", "paper"], ["here", "Training speed", *part.metrics]
    return [
        every.without(details=["paper", "Training speed"]),
        every.without(details=[*tests, "Training speed"]),
        every.without(details=[*tests, *intervals]),
        few.without(details=["paper", "Training speed"]),
        few.without(details=[*tests, "Training speed"]),
        few.without(details=[*tests, *intervals]),
        fewest.without(details=[*tests, *intervals]),
    ]


def _verdicts(verdicts: list[Verdict]) -> Grid:
    table = Grid.grid(padding=(0, 2, 0, 0))
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
