"""Open sources by name (``hub:``, ``builtin:``, one or several paths), and rename their columns."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from synthattn.data.folder import FolderSource
from synthattn.data.hub import CANONICAL, HubSource
from synthattn.data.joined_sources import JoinedSources
from synthattn.data.source import Record, Source, WrappedSource, fingerprint_of
from synthattn.messages import listed, printable, suggestion


def open_source(text: str) -> Source:
    """Open ``hub:NAME``, ``builtin:NAME``, the path of a folder or a file, or several of these: ``one + another``."""
    parts = _parts(text)
    if len(parts) > 1:
        return JoinedSources(text, [_open_part(part, n, len(parts)) for n, part in enumerate(parts, 1)])
    if text.startswith("hub:"):
        return HubSource(text)
    if text.startswith("builtin:"):
        # Imported late: only users of built-in data need this code.
        from synthattn.data.builtin import open_builtin

        return open_builtin(text)
    if not text or "\0" in text:
        raise ValueError(f"{printable(text)!r} is no source; write a path, hub:NAME or builtin:NAME")
    path = Path(os.path.expanduser(text))
    if not os.path.exists(path):
        raise ValueError(f"there is no {printable(text)}{_near(path, text)}")
    return FolderSource(path, text)


def _parts(text: str) -> list[str]:
    """Split a text at pluses with spaces around them, except inside the name of an existing file."""
    words = text.split(" + ")
    parts: list[str] = []
    while words:
        names = [" + ".join(words[:count]) for count in range(len(words), 1, -1)]
        parts.append(next((name for name in names if os.path.exists(os.path.expanduser(name))), words[0]))
        del words[: parts[-1].count(" + ") + 1]
    return parts


def _open_part(text: str, number: int, count: int) -> Source:
    try:
        return open_source(text.strip())
    except ValueError as error:
        raise ValueError(f"part {number} of {count}: {error}") from None


def with_columns(source: Source, columns: Mapping[str, str]) -> Source:
    """Return a source whose records also have the fields of ``columns``, made from their own.

    Args:
        source: where the records come from.
        columns: one column for each new field, or several that are joined by spaces: ``{"text": "title+body"}``. A
            column with a question mark, as in ``"title+body?"``, may be missing if another one is present.
    """
    return RenamedColumns(source, columns) if columns else source


def parse_columns(text: str) -> dict[str, str]:
    """Parse a choice of columns such as ``label=0,text=1+2``, or ``text=1+2?`` if column 2 may be missing."""
    columns: dict[str, str] = {}
    for item in text.split(",") if text.strip() else ():
        field, equals, column = (word.strip() for word in item.partition("="))
        if not equals or not field or not all(word.strip() for word in column.split("+")):
            raise ValueError(f"{item.strip()!r} is no choice of a column; write FIELD=COLUMN or FIELD=COLUMN+COLUMN")
        if field in columns:
            raise ValueError(f"{field} is given twice: {columns[field]} and {column}; join columns with +")
        columns[field] = column
    return columns


def used_columns(reads: Mapping[str, tuple[str, ...]], columns: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the columns that a task reads, with all names in a choice of columns.

    The chosen columns are in the records beside the fields that are made from them, and count as used, too.
    """
    names = [name for field, expression in columns.items() for name in (field, expression, *expression.split("+"))]
    names = [name.strip() for name in names]
    return {**dict.fromkeys([*names, *(name.removesuffix("?") for name in names)], ()), **reads}


class RenamedColumns(WrappedSource):
    """A source with renamed and joined columns, see ``with_columns``. Other columns stay."""

    def __init__(self, source: Source, columns: Mapping[str, str]) -> None:
        super().__init__(source)
        self.columns = dict(columns)

    def read(self, split: str) -> Iterator[Record]:
        return (
            Record({**record.fields, **{field: self._value(record, field) for field in self.columns}}, record.where)
            for record in self.source.read(split)
        )

    def fingerprint(self) -> str:
        return fingerprint_of(self.source.fingerprint(), self.columns)

    def _value(self, record: Record, field: str) -> Any:
        expression = self.columns[field]
        # A column's own name may contain a plus.
        if expression in record.fields:
            return record.fields[expression]
        values: list[Any] = []
        missing: list[str] = []
        for word in expression.split("+"):
            column = word.strip()
            # The name may also end in a question mark.
            name = column if column in record.fields else column.removesuffix("?")
            if name in record.fields:
                values.append(record.fields[name])
            elif name == column:
                raise self._no_column(record, field, name)
            else:
                missing.append(name)
        if not values:
            raise self._no_column(record, field, missing[0])
        if len(values) == 1:
            return values[0]
        for value in values:
            if not isinstance(value, str | int | float):
                raise ValueError(
                    f"{record.where}: {field}={expression} joins texts, got {type(value).__name__}; name one column"
                )
        return " ".join(map(str, values))

    def _no_column(self, record: Record, field: str, column: str) -> ValueError:
        asks = f"{field}={self.columns[field]}"
        known = listed(printable(name) for name in record.fields)
        return ValueError(f"{record.where}: no column {column!r}, which {asks} asks for; there are {known}")


def _near(path: Path, text: str) -> str:
    """Return the end of the message about a path that does not exist."""
    if text in CANONICAL:
        return f"; for the data set of the hub, write hub:{text}"
    write = "write a path, hub:NAME or builtin:NAME"
    try:
        siblings = [printable(entry.name) for entry in path.parent.iterdir() if not entry.name.startswith(".")]
    except OSError:
        return f", nor a folder {printable(str(path.parent))}; {write}"
    near = suggestion(path.name, siblings)
    return near if near.startswith("; did") else f"; {write}"
