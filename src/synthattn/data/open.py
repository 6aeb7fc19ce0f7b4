"""From what a user writes to a source: ``hub:``, ``builtin:`` or a path, and which column is which field."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from synthattn.data.files import shown
from synthattn.data.folder import FolderSource
from synthattn.data.hub import CANONICAL, HubSource
from synthattn.data.source import Record, Source
from synthattn.messages import suggestion


def open_source(text: str) -> Source:
    """Open ``hub:NAME``, ``builtin:NAME``, or the path of a folder or a file."""
    if text.startswith("hub:"):
        return HubSource(text)
    if text.startswith("builtin:"):
        # Built-in data are made by code that only their users need.
        from synthattn.data.builtin import open_builtin

        return open_builtin(text)
    if not text or "\0" in text:
        raise ValueError(f"{shown(text)!r} is no source; write a path, hub:NAME or builtin:NAME")
    path = Path(text).expanduser()
    if not os.path.exists(path):
        raise ValueError(f"there is no {shown(text)}{_near(path, text)}")
    return FolderSource(path, text)


def with_columns(source: Source, columns: Mapping[str, str]) -> Source:
    """A source whose records also have the fields of ``columns``, made from their own.

    Args:
        source: where the records come from.
        columns: a column for each new field, or several to be joined by spaces: ``{"text": "title+body"}``.
    """
    return Columns(source, columns) if columns else source


def parse_columns(text: str) -> dict[str, str]:
    """Read ``label=0,text=1+2``."""
    columns: dict[str, str] = {}
    for item in text.split(",") if text.strip() else ():
        field, equals, column = (word.strip() for word in item.partition("="))
        if not equals or not field or not all(word.strip() for word in column.split("+")):
            raise ValueError(f"{item.strip()!r} is no choice of a column; write FIELD=COLUMN or FIELD=COLUMN+COLUMN")
        if field in columns:
            raise ValueError(f"{field} is given twice: {columns[field]} and {column}; join columns with +")
        columns[field] = column
    return columns


class Columns:
    """A source with columns renamed and joined, see ``with_columns``. Columns that are not named stay."""

    def __init__(self, source: Source, columns: Mapping[str, str]) -> None:
        self.source, self.columns = source, dict(columns)

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def splits(self) -> tuple[str, ...]:
        return self.source.splits

    @property
    def notes(self) -> tuple[str, ...]:
        return self.source.notes

    def read(self, split: str) -> Iterator[Record]:
        return (
            Record({**record.fields, **{field: self._value(record, field) for field in self.columns}}, record.where)
            for record in self.source.read(split)
        )

    def fingerprint(self) -> str:
        state = json.dumps([self.source.fingerprint(), self.columns], sort_keys=True)
        return hashlib.sha256(state.encode()).hexdigest()

    def _value(self, record: Record, field: str) -> Any:
        expression = self.columns[field]
        # A column's own name may have a plus in it.
        if expression in record.fields:
            return record.fields[expression]
        values = []
        for column in (word.strip() for word in expression.split("+")):
            if column not in record.fields:
                known = ", ".join(shown(name) for name in record.fields)
                raise ValueError(
                    f"{record.where}: no column {column!r}, which {field}={expression} asks for; there are {known}"
                )
            values.append(record.fields[column])
        if len(values) == 1:
            return values[0]
        for value in values:
            if not isinstance(value, str | int | float):
                raise ValueError(
                    f"{record.where}: {field}={expression} joins texts, got {type(value).__name__}; name one column"
                )
        return " ".join(map(str, values))


def _near(path: Path, text: str) -> str:
    """The end of the message about a path that does not exist."""
    if text in CANONICAL:
        return f"; for the data set of the hub, write hub:{text}"
    write = "write a path, hub:NAME or builtin:NAME"
    try:
        siblings = [shown(entry.name) for entry in path.parent.iterdir() if not entry.name.startswith(".")]
    except OSError:
        return f", nor a folder {shown(str(path.parent))}; {write}"
    near = suggestion(path.name, siblings)
    return near if near.startswith("; did") else f"; {write}"
