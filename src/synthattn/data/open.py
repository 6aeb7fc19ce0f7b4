"""Open sources by name (``hub:``, ``builtin:``, one or several paths), and rename their columns."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from synthattn.data.folder import FolderSource
from synthattn.data.hub import CANONICAL, HubSource
from synthattn.data.joined_sources import JoinedSources
from synthattn.data.source import Record, Source, WrappedSource, fingerprint_of
from synthattn.messages import listed, printable, suggestion


def open_source(text: str, columns: Mapping[str, str] = MappingProxyType({}), skip_bad: bool = False) -> Source:
    """Open ``hub:NAME``, ``builtin:NAME``, the path of a folder or a file, or several of these: ``one + another``.

    Args:
        text: the name or the path.
        columns: for each new field of the records, one of their columns, or several that are joined by spaces, as in
            ``{"text": "title+body"}``. A column with a question mark, as in ``"title+body?"``, may be missing if
            another one is present. Columns with a bar between them, as in ``"first|second"``, become a list.
        skip_bad: leave broken lines of files out, and note their number.
    """
    source = _open(text, columns, skip_bad)
    return RenamedColumns(source, columns) if columns else source


def _open(text: str, columns: Mapping[str, str], skip_bad: bool) -> Source:
    parts = _parts(text)
    if len(parts) > 1:
        opened = [_open_part(part, f"part {n} of {len(parts)}", columns, skip_bad) for n, part in enumerate(parts, 1)]
        return JoinedSources(text, opened)
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
    return FolderSource(path, text, _named(columns), skip_bad)


def _parts(text: str) -> list[str]:
    """Split a text at pluses with spaces around them, except inside the name of an existing file."""
    words = text.split(" + ")
    parts: list[str] = []
    while words:
        names = [" + ".join(words[:count]) for count in range(len(words), 1, -1)]
        parts.append(next((name for name in names if os.path.exists(os.path.expanduser(name))), words[0]))
        del words[: parts[-1].count(" + ") + 1]
    return parts


def _open_part(text: str, which: str, columns: Mapping[str, str], skip_bad: bool) -> Source:
    try:
        return _open(text.strip(), columns, skip_bad)
    except ValueError as error:
        raise ValueError(f"{which}: {error}") from None


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
    # The order is part of the fingerprint of held-out splits.
    names = [name for field, expression in columns.items() for name in (field, expression, *_WORDS.split(expression))]
    names = [name.strip() for name in names]
    return {**dict.fromkeys([*names, *(name.removesuffix("?") for name in names)], ()), **reads}


_WORDS = re.compile(r"[+|]")


def _named(columns: Mapping[str, str]) -> list[str]:
    """Return the names of columns in a choice, without the numbers of columns that have no names."""
    words = [word.strip() for expression in columns.values() for word in (expression, *_WORDS.split(expression))]
    words += [word.removesuffix("?") for word in words]
    return [word for word in words if not word.isdecimal()]


class RenamedColumns(WrappedSource):
    """A source with renamed and joined columns, see ``open_source``. Other columns stay."""

    def __init__(self, source: Source, columns: Mapping[str, str]) -> None:
        super().__init__(source)
        self.columns = dict(columns)

    def records(self, split: str) -> Iterator[Record]:
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
        if "|" in expression:
            return [self._joined(record, field, one) for one in expression.split("|")]
        return self._joined(record, field, expression)

    def _joined(self, record: Record, field: str, expression: str) -> Any:
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
