"""Readers of text, TSV, CSV and JSON lines, plain or ``.gz``, that hold one record at a time.

They are strict: what they cannot read as it was meant is an error with file and line number, because a row that is
lost or merged silently is found, if ever, after the training. Lines end at a line feed and nowhere else. Python's own
text mode also ends them at a carriage return, which shifts one side of parallel text against the other.
"""

import contextlib
import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from synthattn.data.source import Record
from synthattn.messages import listed
from synthattn.regular_file import open_regular
from synthattn.saved_file import DEEPEST, nests_deeper

FORMATS = (".txt", ".tsv", ".csv", ".jsonl", ".json")

# Memory stays flat only if no line, and no quoted field of many lines, may be as long as the file.
LONGEST_RECORD = 1 << 26

Note = Callable[[str], None]

_HEAD = 4096
_NOT_TEXT = {
    b"\xff\xfe\x00\x00": "UTF-32, not UTF-8; convert it: iconv -f UTF-32 -t UTF-8",
    b"\x00\x00\xfe\xff": "UTF-32, not UTF-8; convert it: iconv -f UTF-32 -t UTF-8",
    b"\xff\xfe": "UTF-16, not UTF-8; convert it: iconv -f UTF-16 -t UTF-8",
    b"\xfe\xff": "UTF-16, not UTF-8; convert it: iconv -f UTF-16 -t UTF-8",
    b"\x1f\x8b": "compressed with gzip; give it a name that ends in .gz",
    b"PK\x03\x04": "a zip archive; unpack it",
    b"BZh": "compressed with bzip2; unpack it",
    b"\xfd7zXZ\x00": "compressed with xz; unpack it",
    b"\x28\xb5\x2f\xfd": "compressed with zstd; unpack it",
    b"PAR1": "Parquet, which is not read here; convert it to JSON lines",
    b"version https://git-lfs.github.com/spec/": "a pointer of git LFS, not the data; fetch it: git lfs pull",
}
_CONTROL = bytes(set(range(32)) - set(b"\t\n\r\f\v\x1b")) + b"\x7f"
_FIELD = r'(?:"(?:[^"]|"")*+"|[^",\r\n]*+)'
_CSV_ROW = re.compile(rf"{_FIELD}(?:,{_FIELD})*+")
_IDENTIFIER = re.compile(r"[^\W\d][\w.-]{0,63}")
# Wider than for CSV, where a first row that is no header is data: MRPC has "#1 String".
_COLUMN_NAME = re.compile(r"#?\w[\w .#()/-]{0,63}")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


def broken(name: str, line: int | None, what: str) -> ValueError:
    """The error about a file: name, line number, what is wrong and what to do."""
    place = name if line is None else f"{name}, line {line}"
    return ValueError(f"{place}: {' '.join(what.split())}")


def format_of(name: str) -> str:
    """The ending that says how to read a file, without ``.gz``; empty where it says nothing."""
    suffix = Path(name.lower().removesuffix(".gz")).suffix
    return suffix if suffix in FORMATS else ""


def read_records(path: Path, name: str, note: Note) -> Iterator[Record]:
    """The records of a file, by its ending; other endings than the known ones are read as text.

    Args:
        path: the file.
        name: what messages call it, from ``printable``.
        note: is told what was decided for the user.
    """
    suffix = format_of(path.name)
    if suffix == ".tsv":
        return read_tsv(path, name)
    if suffix == ".csv":
        return read_csv(path, name, note)
    if suffix == ".jsonl":
        return read_jsonl(path, name)
    if suffix == ".json":
        return read_json(path, name)
    return read_text(path, name, note)


def read_text(path: Path, name: str, note: Note) -> Iterator[Record]:
    """One record with the field ``text`` for each line; blank lines are left out and counted."""
    blank = 0
    for number, line in read_lines(path, name):
        if line.strip():
            yield Record({"text": line}, f"{name}, line {number}")
        else:
            blank += 1
    if blank:
        note(f"{name}: {blank} blank lines left out")


def read_tsv(path: Path, name: str) -> Iterator[Record]:
    """Fields between tabs, without quoting, under the names in the first row."""
    columns: list[str] | None = None
    blank = 0
    for number, line in read_lines(path, name):
        cells = line.split("\t")
        if columns is None:
            columns = cells
            _check_header(columns, name)
            continue
        # The last lines of a file may be blank. In one column, blank is a value.
        if not line and len(columns) > 1:
            blank = blank or number
            continue
        if blank:
            raise broken(name, blank, f"blank, but {len(columns)} fields are expected; remove the line")
        if len(cells) != len(columns):
            raise _wrong_count(name, number, len(cells), len(columns), "tabs")
        yield Record(dict(zip(columns, cells, strict=True)), f"{name}, line {number}")


def read_csv(path: Path, name: str, note: Note) -> Iterator[Record]:
    """Fields between commas, quoted in the standard way; without a header, columns are ``0``, ``1``, ...

    The first row is a header if its cells are distinct words that could be names in a program. It is none if a cell
    is a number or a longer text. What could be either, such as ``Class Index,Title``, is an error: the wrong choice
    would lose a row, or add one.
    """
    columns: list[str] | None = None
    for number, row in _csv_rows(path, name):
        if columns is None:
            if _is_header(row, name, number):
                columns = row
                continue
            columns = [str(n) for n in range(len(row))]
            note(f"{name}: the first row is no header, columns are {listed(columns)}")
        if len(row) != len(columns):
            raise _wrong_count(name, number, len(row), len(columns), "commas and quotes")
        yield Record(dict(zip(columns, row, strict=True)), f"{name}, line {number}")


def read_jsonl(path: Path, name: str) -> Iterator[Record]:
    """One JSON object for each line; lines of white space are skipped."""
    for number, line in read_lines(path, name):
        if line.strip():
            yield Record(_object(_parsed(line, name, number), name, number), f"{name}, line {number}")


def read_json(path: Path, name: str) -> Iterator[Record]:
    """JSON lines under another name, or one array of objects that fits into memory."""
    lines: list[str] = []
    size = 0
    for number, line in read_lines(path, name):
        if not lines and not line.strip():
            continue
        if not lines and not line.lstrip().startswith("["):
            break
        if not lines and number > 1:
            lines.extend([""] * (number - 1))  # for the line number of an error
        lines.append(line)
        size += len(line)
        if size > LONGEST_RECORD:
            what = f"an array of more than {LONGEST_RECORD >> 20} MB; write one object a line, as .jsonl"
            raise broken(name, number, what)
    if not lines:
        yield from read_jsonl(path, name)
        return
    items = _parsed("\n".join(lines), name, 1)
    for number, item in enumerate(items, 1):
        if not isinstance(item, dict):
            raise broken(name, None, f"item {number} is {_kind(item)}, not an object; write an array of objects")
        yield Record(item, f"{name}, item {number}")


def read_lines(path: Path, name: str) -> Iterator[tuple[int, str]]:
    """Line numbers from 1 and lines, without their ends."""
    for number, raw in raw_lines(path, name):
        if b"\0" in raw:
            raise broken(name, number, f"a NUL byte at position {raw.index(0) + 1}; is this text? remove it")
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise broken(
                name,
                number,
                f"byte 0x{raw[error.start]:02x} at position {error.start + 1} is not UTF-8; "
                "convert the file: iconv -f LATIN1 -t UTF-8, if that is what it is",
            ) from None
        yield number, line


def count_lines(path: Path, name: str) -> int:
    return sum(1 for _ in raw_lines(path, name))


def raw_lines(path: Path, name: str) -> Iterator[tuple[int, bytes]]:
    """Line numbers from 1 and the bytes of lines, without their ends and without a byte order mark."""
    try:
        with _opened(path) as file:
            number = 0
            while line := file.readline(LONGEST_RECORD + 2):
                number += 1
                if number == 1:
                    line = _check_start(line, file, name)
                if len(line) > LONGEST_RECORD + 1:
                    raise broken(
                        name, number, f"longer than {LONGEST_RECORD >> 20} MB; is this one example a line? split it"
                    )
                if line.endswith(b"\n"):
                    line = line[:-1]
                elif number == 1 and b"\r" in line[:-1]:
                    raise broken(name, 1, "carriage returns in place of line feeds; convert it: tr '\\r' '\\n'")
                yield number, line.removesuffix(b"\r")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise broken(name, None, f"the gzip file is broken ({error}); fetch or compress it again") from None
    except OSError as error:
        raise broken(name, None, f"cannot be read: {error.strerror or error}") from None
    if number == 0:
        raise broken(name, None, "the file is empty; remove it or fetch it again")


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[io.BufferedReader | gzip.GzipFile]:
    """Open a file as bytes, unpacked where its name ends in ``.gz``."""
    with open_regular(path) as file:
        yield gzip.GzipFile(fileobj=file, mode="rb") if path.name.lower().endswith(".gz") else file


def _check_start(line: bytes, file: io.BufferedReader | gzip.GzipFile, name: str) -> bytes:
    """The first line without the byte order mark, if the file begins as text does."""
    for magic, what in _NOT_TEXT.items():
        if line.startswith(magic):
            raise broken(name, 1, f"this is {what}")
    head = line[:_HEAD]
    if len(head) < _HEAD:
        head += file.peek(_HEAD - len(head))[: _HEAD - len(head)]
    even, odd = head[::2].count(0), head[1::2].count(0)
    for zeros, others, encoding in ((odd, even, "UTF-16LE"), (even, odd, "UTF-16BE")):
        if zeros * 4 > len(head) and others * 8 <= len(head):
            raise broken(name, 1, f"this is {encoding}, not UTF-8; convert it: iconv -f {encoding} -t UTF-8")
    if len(head) - len(head.translate(None, _CONTROL)) > max(3, len(head) // 10):
        raise broken(name, 1, "this is binary, not text; give a text file in UTF-8")
    return line.removeprefix(b"\xef\xbb\xbf")


def _csv_rows(path: Path, name: str) -> Iterator[tuple[int, list[str]]]:
    """The number of the first line of a row, and its cells."""
    # The csv module's default refuses a long article. The limit is one for the process, so it is only ever raised.
    csv.field_size_limit(max(LONGEST_RECORD, csv.field_size_limit()))
    parts: list[str] = []
    first, quotes, size, blank = 0, 0, 0, 0
    for number, line in read_lines(path, name):
        if not parts:
            if not line:
                blank = blank or number
                continue
            if blank:
                raise broken(name, blank, "blank between rows; remove the line")
            first, quotes, size = number, 0, 0
        parts.append(line)
        quotes += line.count('"')
        size += len(line)
        if quotes % 2:
            # Inside of a quoted field, or after a quote that was lost.
            if size > LONGEST_RECORD:
                break
            continue
        row = "\n".join(parts)
        parts = []
        # The module would take a quote inside of an unquoted field as it is, and so read past one that was lost.
        if not _CSV_ROW.fullmatch(row):
            raise broken(name, first, 'a stray quote or carriage return; put the field in quotes and write " as ""')
        yield first, next(csv.reader([row], strict=True)) if '"' in row else row.split(",")
    if parts:
        raise broken(name, first, "a quote is opened and not closed; close it")


def _is_header(row: list[str], name: str, line: int) -> bool:
    if len(set(row)) == len(row) and all(_IDENTIFIER.fullmatch(cell) for cell in row):
        return True
    if any(_number(cell) or len(cell) > 32 or len(cell.split()) > 3 for cell in row):
        return False
    unlike = next((cell for cell in row if not _IDENTIFIER.fullmatch(cell)), row[0])
    what = f"with {unlike!r} this could be a header or a row; write a first row of distinct names such as label,text"
    raise broken(name, line, what)


def _check_header(columns: list[str], name: str) -> None:
    """A table without a header would lose its first row."""
    for cell in columns:
        if not _COLUMN_NAME.fullmatch(cell) or _number(cell):
            raise broken(name, 1, f"{cell[:40]!r} is no name of a column; write a first row with the columns' names")
    if len(set(columns)) < len(columns):
        raise broken(name, 1, f"two columns are named {_repeated(columns)[:40]!r}; give every column its own name")


def _number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return cell.lower() not in ("nan", "inf", "infinity")


def _wrong_count(name: str, line: int, found: int, expected: int, look_at: str) -> ValueError:
    fields = "1 field" if found == 1 else f"{found} fields"
    return broken(name, line, f"{fields}, but the first row has {expected}; look for missing or extra {look_at}")


def _parsed(text: str, name: str, line: int) -> Any:
    try:
        value = json.loads(text, object_pairs_hook=_distinct, parse_constant=_no_constant)
        if _SURROGATE_ESCAPE.search(text) and _has_surrogate(value):
            raise ValueError("a \\ud... escape is half of a pair")
    except json.JSONDecodeError as error:
        what = f"not JSON at column {error.colno} ({error.msg[:80]}); repair or remove it"
        raise broken(name, line + error.lineno - 1, what) from None
    except RecursionError:
        raise broken(name, line, "JSON is nested too deeply; flatten it") from None
    except ValueError as error:
        raise broken(name, line, f"not JSON: {str(error)[:120]}; repair or remove it") from None
    if nests_deeper(value, DEEPEST):  # what is done with it later needs more of Python's stack than reading it
        raise broken(name, line, "JSON is nested too deeply; flatten it")
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError(f"two values for {_repeated(key for key, _ in pairs)[:40]!r}")
    return fields


def _repeated(names: Iterable[str]) -> str:
    """Return the first of several names that occurs again."""
    seen: set[str] = set()
    return next(name for name in names if name in seen or seen.add(name))


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON number")


def _has_surrogate(value: Any) -> bool:
    """Half of a pair is no text: it cannot be written, hashed or tokenized."""
    return _SURROGATE.search(json.dumps(value, ensure_ascii=False)) is not None


def _object(value: Any, name: str, line: int) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise broken(name, line, f"{_kind(value)}, not an object; write one object in braces on each line")
    return value


def _kind(value: Any) -> str:
    if isinstance(value, list):
        return "an array"
    return {str: "a string", bool: "true or false", type(None): "null"}.get(type(value), "a number")
