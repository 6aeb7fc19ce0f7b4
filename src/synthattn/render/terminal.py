"""Tables in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from synthattn.render.table import Cell, Column, Row, Table, plain

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

STYLES = {"better": "green", "worse": "red", "failed": "red"}
ARROWS = {"higher": " \N{UPWARDS ARROW}", "lower": " \N{DOWNWARDS ARROW}", "": ""}
LONG = 17
"""Letters of the longest name of the paper's family."""


def show(console: Console, layouts: Sequence[Table]) -> None:
    """Print the first of several layouts that fits; before the last one, long names are broken."""
    from rich.measure import Measurement

    made = [*(_table(each, False) for each in layouts[:-1]), *(_table(each, True) for each in layouts[-2:])]
    endless = console.options.update(max_width=10_000)
    fitting = (table for table in made if Measurement.get(console, endless, table).maximum <= console.width)
    console.print(next(fitting, made[-1]))


def _table(found: Table, broken: bool) -> RichTable:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    title = Text(found.title)
    table = RichTable(title=title, title_justify="left", box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    table.add_column(Text(found.first.lower()), no_wrap=not broken, overflow="fold")
    for column in found.columns:
        head = Text(_head(column))
        table.add_column(head, justify="left" if column.words else "right", no_wrap=not column.words)
    for n, row in enumerate(found.rows):
        table.add_row(Text(_name(row, broken)), *(_text(column.cells[n]) for column in found.columns))
    return table


def _name(row: Row, broken: bool) -> str:
    name = plain(row.name)
    return name.replace("+", "+\n") if broken and len(name) > LONG else name


def _head(column: Column) -> str:
    return column.short or column.head.replace("-", "-\n") + ARROWS[column.direction]


def _text(cell: Cell) -> Text:
    from rich.text import Text

    if not cell.text:
        word = cell.trouble.partition(":")[0]
        return Text(word, STYLES.get(word, "dim"))
    text = " ".join(filter(None, (plain(cell.text), cell.detail)))
    return Text(f"{cell.mark} {text}" if cell.mark else text, STYLES.get(cell.mark, ""))
