"""One table for all places: columns with unit, direction, digits and notes, which prints as terminal, Markdown, HTML
and JSON."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from synthattn.render.numbers import NOTHING, Number


@dataclass(frozen=True)
class Span:
    """A piece of text that leads somewhere or looks different."""

    text: str
    kind: str = ""
    """``strong``, ``code``, ``soft``, ``ins``, ``del``, ``flag`` or nothing."""
    link: str = ""
    """An address; one that begins with ``#`` is for pages alone."""
    tip: str = ""


Text = str | Sequence[str | Span]


def plain(text: Text) -> str:
    """Return the words alone."""
    return text if isinstance(text, str) else "".join(part if isinstance(part, str) else part.text for part in text)


@dataclass(frozen=True)
class Cell:
    """The entry of a row in a column."""

    text: Text = ""
    detail: str = ""
    """How certain it is: less important than the text, and after it."""
    mark: str = ""
    """A word such as ``better`` or ``worse``, with a colour of its own."""
    key: Number | str | None = None
    """The value behind the text, for sorting and for JSON."""
    note: str = ""
    """A footnote."""
    trouble: str = ""
    """Why there is nothing, or less than was wanted: ``failed: no memory``."""
    link: str = ""
    share: Number | None = None
    """Between 0 and 1, drawn as the strength of the background."""

    @property
    def empty(self) -> bool:
        return not self.text and not self.trouble


def number_cell(value: Number | None, digits: Callable[[Number], str]) -> Cell:
    """Return a cell with a number, empty where there is none."""
    return Cell() if value is None or not math.isfinite(value) else Cell(digits(value), key=value)


@dataclass(frozen=True)
class Column:
    """The title of a column, and how its entries are printed."""

    head: str
    cells: Sequence[Cell]
    unit: str = ""
    direction: str = ""
    """``higher`` or ``lower``, where one of them is better."""
    group: str = ""
    """Neighbours of one group stand below one head."""
    note: str = ""
    """A footnote at the head."""
    words: bool = False
    """Whether it holds sentences."""
    kind: str = ""
    """``paper`` for numbers that are not ours; a class of the style sheet."""
    short: str = ""
    """The head where there is little room, in lines."""

    @property
    def about(self) -> str:
        """Unit and direction, in words."""
        direction = f"{self.direction} is better" if self.direction else ""
        return ", ".join(filter(None, (self.unit, direction)))

    @property
    def title(self) -> str:
        return f"{self.head} ({self.about})" if self.about else self.head


@dataclass(frozen=True)
class Row:
    """The head of a row."""

    name: Text
    below: str = ""
    """A spec, below the name."""
    remark: str = ""
    """``baseline``, for example; a row with a remark is set off."""
    place: int | None = None
    """Among all series of the charts: gives it a colour and a shape."""
    anchor: str = ""
    trouble: str = ""


@dataclass(frozen=True)
class Table:
    """Rows and columns under one title."""

    title: str
    first: str
    """The head of the names."""
    rows: Sequence[Row]
    columns: Sequence[Column]
    key: str = "table"
    """Where footnotes are found on a page."""

    @property
    def cards(self) -> bool:
        """Return whether rows become cards on a small screen: few columns, or sentences, and no groups."""
        shaded = any(cell.share is not None for column in self.columns for cell in column.cells)
        few = len(self.columns) < 7 and not shaded and not any(column.group for column in self.columns)
        return few or any(column.words for column in self.columns)

    @cached_property
    def notes(self) -> list[str]:
        """Footnotes in the order of their numbers, which begin at 1."""
        every = (note for column in self.columns for note in (column.note, *(cell.note for cell in column.cells)))
        return list(dict.fromkeys(filter(None, every)))

    def number(self, note: str) -> int:
        return self.notes.index(note) + 1

    @cached_property
    def groups(self) -> list[tuple[str, list[Column]]]:
        """Neighbours that stand below one head; columns without a group are alone."""
        found: list[tuple[str, list[Column]]] = []
        for column in self.columns:
            if column.group and found and found[-1][0] == column.group:
                found[-1][1].append(column)
            else:
                found.append((column.group, [column]))
        return found

    def filled(self) -> "Table":
        """Leave out columns that say nothing; one that is left alone in its group takes over the name."""
        kept = [column for column in self.columns if not all(cell.empty for cell in column.cells)]
        sizes = {group: sum(column.group == group for column in kept) for group in {column.group for column in kept}}
        alone = [
            replace(column, head=f"{column.group}, {column.head}", group="")
            if column.group and sizes[column.group] == 1
            else column
            for column in kept
        ]
        return replace(self, columns=alone)

    def joined(self) -> "Table":
        """Put the columns of a group into one, whose cells are divided by bars."""
        columns = []
        for group, members in self.groups:
            cells = [
                Cell(" / ".join(plain(each.text) or NOTHING for each in row))
                for row in zip(*(column.cells for column in members), strict=True)
            ]
            columns.append(members[0] if len(members) == 1 else Column(group, cells))
        return replace(self, columns=columns)

    def without(self, *heads: str, details: Sequence[str] = ()) -> "Table":
        """Leave out columns, and the details of some others, for places with little room."""
        kept = [column for column in self.columns if column.head not in heads]
        short = [
            replace(column, cells=[replace(cell, detail="") for cell in column.cells])
            if column.head in details
            else column
            for column in kept
        ]
        return replace(self, columns=short)

    def data(self) -> list[dict[str, Any]]:
        """Return a dictionary for each row, ready for JSON, with values rather than texts."""
        heads = [f"{column.group}, {column.head}" if column.group else column.head for column in self.columns]
        return [
            {self.first: plain(row.name)}
            | {
                head: plain(column.cells[n].text) or None if column.cells[n].key is None else column.cells[n].key
                for head, column in zip(heads, self.columns, strict=True)
            }
            for n, row in enumerate(self.rows)
        ]
