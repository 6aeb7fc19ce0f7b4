"""A reproduced table in a terminal."""

from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from synthattn.compare.results import Results
from synthattn.compare.table import trouble
from synthattn.paper.outcome import JUDGEMENTS, ClaimVerdict, Judgement, Outcome
from synthattn.paper.part_table import part_table
from synthattn.paper.table1 import SynthesizedRow, table_of
from synthattn.paper.words import contradicts_itself, counted
from synthattn.render import terminal
from synthattn.render.table import Table
from synthattn.terminal import SafeConsole

COLOURS: dict[Judgement, str] = dict.fromkeys(JUDGEMENTS, "dim")
COLOURS |= {
    "holds": "green", "does not hold": "red", "moving": "yellow", "undecided": "yellow"
}  # fmt: skip
WIDEST = 100
"""Maximum width of a paragraph; longer lines are hard to read."""


def show(outcome: Outcome, console: Console | None = None) -> None:
    """Print each part, as much of it as the terminal has room for, and the verdicts."""
    console = console or SafeConsole()
    for part in outcome.parts:
        if not part_table(part).columns:  # charts of attention weights are on the page
            continue
        terminal.show(console, layouts(outcome, part))
        for row in part.rows:
            if row.reason:
                console.print(Text(f"{row.name}: {trouble(row)}"), width=min(console.width, WIDEST))
        console.print()
    if outcome.verdicts:
        console.print(Text(counted(outcome.verdicts)), width=min(console.width, WIDEST))
        console.print(_verdicts(outcome.verdicts), width=min(console.width, WIDEST))


def show_table1(rows: Sequence[SynthesizedRow], console: Console | None = None) -> None:
    """Print what each synthesizing function looks at, without the paper's formulas, which need much room."""
    terminal.show(console or SafeConsole(), [table_of(rows).without("The paper's formula")])


def layouts(outcome: Outcome, part: Results) -> list[Table]:
    """Return the table of a part from the widest to the narrowest; the paper's sizes and speeds are on the page."""
    metrics = list(part.metrics)
    published = [name for name in metrics if any(name in row.published for row in part.rows)]
    main = [*metrics[:1], *published[:1]]
    title = f"{outcome.title}: {part.title} (scale {part.scale})"
    every, few, fewest = (
        replace(part_table(part, names, costs, paper=False), title=title)
        for names, costs in ((metrics, True), (main, True), (main, False))
    )
    tests, intervals = ["difference", "paper"], ["here", "Training speed", *metrics]
    return [
        every.without(details=["paper", "Training speed"]),
        every.without(details=[*tests, "Training speed"]),
        every.without(details=[*tests, *intervals]),
        few.without(details=["paper", "Training speed"]),
        few.without(details=[*tests, "Training speed"]),
        few.without(details=[*tests, *intervals]),
        fewest.without(details=[*tests, *intervals]),
    ]


def _verdicts(verdicts: Sequence[ClaimVerdict]) -> Grid:
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
        table.add_row(Text(verdict.judgement, COLOURS[verdict.judgement]), says)
    return table
