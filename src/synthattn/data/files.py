"""Strict readers of text, TSV, CSV and JSON lines, plain or ``.gz``, that hold one record at a time.

Ambiguous input is an error with file and line number: a row that is lost or merged silently would be noticed only
after training, if ever. Lines end only at a line feed. Python's text mode also ends them at a carriage return, which
would shift one side of parallel text against the other.
"""

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

# A limit on lines and on quoted fields of many lines, so that memory does not grow with the file.
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
# More characters than for CSV are allowed, whose first row may be data: MRPC has "#1 String".
_COLUMN_NAME = re.compile(r"#?\w[\w .#()/-]{0,63}")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


def broken(name: str, line: int | None, what: str) -> ValueError:
    """Return an error with the file name, the line number, the problem and the way out."""
    place = name if line is None else f"{name}, line {line}"
    return ValueError(f"{place}: {' '.join(what.split())}")


def format_of(name: str) -> str:
    """Return the file ending that decides the format, without ``.gz``; empty if it is unknown."""
    suffix = Path(name.lower().removesuffix(".gz")).suffix
    return suffix if suffix in FORMATS else ""


def read_records(path: Path, name: str, note: Note) -> Iterator[Record]:
    """Yield the records of a file in the format of its ending; unknown endings are read as text.

    Args:
        path: the file.
        name: the name for messages, from ``printable``.
        note: function that receives decisions made for the user.
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
    """Yield one record with the field ``text`` for each line; blank lines are left out and counted."""
    blank = 0
    for number, line in read_lines(path, name):
        if line.strip():
            yield Record({"text": line}, f"{name}, line {number}")
        else:
            blank += 1
    if blank:
        note(f"{name}: {blank} blank lines left out")


def read_tsv(path: Path, name: str) -> Iterator[Record]:
    """Yield the rows of a TSV file without quoting; the first row names the columns."""
    columns: list[str] | None = None
    blank = 0
    for number, line in read_lines(path, name):
        cells = line.split("\t")
        if columns is None:
            columns = cells
            _check_header(columns, name)
            continue
        # The last lines of a file may be blank. In a single column, a blank line is a value.
        if not line and len(columns) > 1:
            blank = blank or number
            continue
        if blank:
            raise broken(name, blank, f"blank, but {len(columns)} fields are expected; remove the line")
        if len(cells) != len(columns):
            raise _wrong_count(name, number, len(cells), len(columns), "tabs")
        yield Record(dict(zip(columns, cells, strict=True)), f"{name}, line {number}")


def read_csv(path: Path, name: str, note: Note) -> Iterator[Record]:
    """Yield the rows of a CSV file with standard quoting; without a header, columns are ``0``, ``1``, ...

    The first row is a header if its cells are distinct identifiers. It is data if a cell is a number or a longer text.
    Any other first row, such as ``Class Index,Title``, is an error: the wrong choice would lose or add a row.
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
    """Yield one JSON object per line; lines of white space are skipped."""
    for number, line in read_lines(path, name):
        if line.strip():
            value = _parsed(line, name, number)
            if not isinstance(value, dict):
                raise broken(name, number, f"{_kind(value)}, not an object; write one object in braces on each line")
            yield Record(value, f"{name}, line {number}")


def read_json(path: Path, name: str) -> Iterator[Record]:
    """Yield the objects of a JSON array that fits into memory, or of JSON lines under another ending."""
    lines: list[str] = []
    size = 0
    for number, line in read_lines(path, name):
        if not lines and not line.strip():
            continue
        if not lines and not line.lstrip().startswith("["):
            break
        if not lines and number > 1:
            lines.extend([""] * (number - 1))  # keeps the line numbers of errors right
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
    """Yield line numbers from 1 with decoded lines, without line ends."""
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


def raw_lines(path: Path, name: str) -> Iterator[tuple[int, bytes]]:
    """Yield line numbers from 1 with the bytes of lines, without line ends and byte order mark."""
    try:
        with open_regular(path) as plain:
            number = 0
            file = gzip.GzipFile(fileobj=plain) if path.name.lower().endswith(".gz") else plain
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


def _check_start(line: bytes, file: io.BufferedReader | gzip.GzipFile, name: str) -> bytes:
    """Return the first line without its byte order mark, or raise an error if the file is not UTF-8 text."""
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
    """Yield each row's cells with the number of its first line."""
    # The csv module's default limit refuses a long article. The limit is global, so it is only ever raised.
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
            # Inside a quoted field, or after a lost quote.
            if size > LONGEST_RECORD:
                break
            continue
        row = "\n".join(parts)
        parts = []
        # The csv module accepts a quote inside an unquoted field, and would read past a lost one.
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
    """Raise an error if the first row is not a header: its data would be lost."""
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
        # Half of a surrogate pair cannot be written, hashed or tokenized.
        if _SURROGATE_ESCAPE.search(text) and _SURROGATE.search(json.dumps(value, ensure_ascii=False)):
            raise ValueError("a \\ud... escape is half of a pair")
    except json.JSONDecodeError as error:
        what = f"not JSON at column {error.colno} ({error.msg[:80]}); repair or remove it"
        raise broken(name, line + error.lineno - 1, what) from None
    except RecursionError:
        raise broken(name, line, "JSON is nested too deeply; flatten it") from None
    except ValueError as error:
        raise broken(name, line, f"not JSON: {str(error)[:120]}; repair or remove it") from None
    if nests_deeper(value, DEEPEST):  # later steps need more of Python's stack than reading
        raise broken(name, line, "JSON is nested too deeply; flatten it")
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError(f"two values for {_repeated(key for key, _ in pairs)[:40]!r}")
    return fields


def _repeated(names: Iterable[str]) -> str:
    """Return the first name that occurs again."""
    seen: set[str] = set()
    return next(name for name in names if name in seen or seen.add(name))


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON number")


def _kind(value: Any) -> str:
    if isinstance(value, list):
        return "an array"
    return {str: "a string", bool: "true or false", type(None): "null"}.get(type(value), "a number")
