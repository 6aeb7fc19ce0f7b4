"""Strict readers of text, TSV, CSV, JSON lines and Arrow tables that hold one record, or a few, at a time.

Ambiguous input is an error with file and line number: a row that is lost or merged silently would be noticed only
after training, if ever. Lines end only at a line feed. Python's text mode also ends them at a carriage return, which
would shift one side of parallel text against the other.
"""

import bz2
import csv
import gzip
import importlib
import itertools
import json
import lzma
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from synthattn.data.source import Record
from synthattn.messages import listed
from synthattn.regular_file import open_regular
from synthattn.saved_file import DEEPEST, nests_deeper, one_line

FORMATS = (".txt", ".tsv", ".csv", ".jsonl", ".json", ".parquet", ".arrow")
COMPRESSED = {
    ".gz": (lambda file: gzip.GzipFile(fileobj=file), "gzip"),
    ".bz2": (bz2.BZ2File, "bzip2"),
    ".xz": (lzma.LZMAFile, "xz"),
}
"""Endings of compressed files, each with its reader and the name of the program."""

# A limit on lines and on quoted fields of many lines, so that memory does not grow with the file.
LONGEST_RECORD = 1 << 26

Note = Callable[[str], None]


def refuse(error: ValueError) -> None:
    """Raise the error about a broken record."""
    raise error


@dataclass(frozen=True)
class Reading:
    """Choices and listeners of a reader.

    Attributes:
        name: name of the file for messages, from ``printable``.
        note: function that receives decisions made for the user.
        columns: columns that the user named; a first row of CSV that has one of them is a header.
        broken: function that receives the error about a broken record, which is left out unless the function raises.
    """

    name: str
    note: Note
    columns: Collection[str] = ()
    broken: Callable[[ValueError], None] = refuse


_HEAD = 4096
_NOT_TEXT = {
    b"\xff\xfe\x00\x00": "UTF-32, not UTF-8; convert it: iconv -f UTF-32 -t UTF-8",
    b"\x00\x00\xfe\xff": "UTF-32, not UTF-8; convert it: iconv -f UTF-32 -t UTF-8",
    b"\xff\xfe": "UTF-16, not UTF-8; convert it: iconv -f UTF-16 -t UTF-8",
    b"\xfe\xff": "UTF-16, not UTF-8; convert it: iconv -f UTF-16 -t UTF-8",
    b"\x1f\x8b": "compressed with gzip; give it a name that ends in .gz",
    b"PK\x03\x04": "a zip archive; unpack it",
    b"BZh": "compressed with bzip2; give it a name that ends in .bz2",
    b"\xfd7zXZ\x00": "compressed with xz; give it a name that ends in .xz",
    b"\x28\xb5\x2f\xfd": "compressed with zstd; unpack it",
    b"PAR1": "Parquet; give it a name that ends in .parquet",
    b"ARROW1": "Arrow; give it a name that ends in .arrow",
    b"version https://git-lfs.github.com/spec/": "a pointer of git LFS, not the data; fetch it: git lfs pull",
}
_CONTROL = bytes(set(range(32)) - set(b"\t\n\r\f\v\x1b")) + b"\x7f"
_FIELD = r'(?:"(?:[^"]|"")*+"|[^"%s\r\n]*+)'
_CSV_ROW = {mark: re.compile(rf"{_FIELD % mark}(?:{mark}{_FIELD % mark})*+") for mark in ",;"}
_IDENTIFIER = re.compile(r"[^\W\d][\w.-]{0,63}")
# More characters than for CSV are allowed, whose first row may be data: MRPC has "#1 String".
_COLUMN_NAME = re.compile(r"#?\w[\w .#()/-]{0,63}")
# A first row is compared with so many rows below it, and is doubtful if there are fewer than enough.
_COMPARED, _ENOUGH = 20, 5
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


def broken(name: str, line: int | None, what: str) -> ValueError:
    """Return an error with the file name, the line number, the problem and the way out."""
    place = name if line is None else f"{name}, line {line}"
    return ValueError(f"{place}: {' '.join(what.split())}")


def uncompressed(name: str) -> str:
    """Return a file name without the ending of a compression."""
    return name[: -len(suffix)] if (suffix := Path(name).suffix) and suffix.lower() in COMPRESSED else name


def format_of(name: str) -> str:
    """Return the file ending that decides the format, without that of a compression; empty if it is unknown."""
    suffix = Path(uncompressed(name).lower()).suffix
    return suffix if suffix in FORMATS else ""


def read_records(path: Path, reading: Reading) -> Iterator[Record]:
    """Yield the records of a file in the format of its ending; unknown endings are read as text."""
    for record in READERS.get(format_of(path.name), read_text)(path, reading):
        yield Record(languages_apart(record.fields), record.where) if "translation" in record.fields else record


def read_text(path: Path, reading: Reading) -> Iterator[Record]:
    """Yield one record with the field ``text`` for each line; blank lines are left out and counted."""
    blank = 0
    for number, line in read_lines(path, reading.name, reading.broken):
        if line.strip():
            yield Record({"text": line}, f"{reading.name}, line {number}")
        else:
            blank += 1
    if blank:
        reading.note(f"{reading.name}: {blank} blank lines left out")


def read_whole(path: Path, name: str) -> str:
    """Return the text of a file that is one example, without white space at its ends."""
    lines, size = [], 0
    for _, line in read_lines(path, name):
        lines.append(line)
        size += len(line)
        if size > LONGEST_RECORD:
            raise broken(name, None, f"longer than {LONGEST_RECORD >> 20} MB; is this one example? split it")
    return "\n".join(lines).strip()


def read_tsv(path: Path, reading: Reading) -> Iterator[Record]:
    """Yield the rows of a TSV file without quoting; the first row names the columns."""
    name, columns, blank = reading.name, None, 0
    for number, line in read_lines(path, name, reading.broken):
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
            reading.broken(broken(name, blank, f"blank, but {len(columns)} fields are expected; remove the line"))
            blank = 0
        if len(cells) != len(columns):
            reading.broken(_wrong_count(name, number, len(cells), len(columns), "tabs"))
            continue
        yield Record(dict(zip(columns, cells, strict=True)), f"{name}, line {number}")


def read_csv(path: Path, reading: Reading) -> Iterator[Record]:
    """Yield the rows of a CSV file with standard quoting; without a header, columns are ``0``, ``1``, ...

    The first row is a header if it has a column that the user named, or if its cells are distinct identifiers. It is
    data if a cell is a number or a longer text. Any other first row, such as ``Class Index,Title``, is a header if it
    is unlike the rows below it, and an error otherwise: the wrong choice would lose or add a row.
    """
    name, columns = reading.name, None
    rows = _csv_rows(path, reading)
    start = list(itertools.islice(rows, 1 + _COMPARED))
    for number, row in itertools.chain(start, rows):
        if columns is None:
            if _is_header(row, [below for _, below in start[1:]], reading, number):
                columns = row
                continue
            columns = [str(n) for n in range(len(row))]
            reading.note(f"{name}: the first row is no header, columns are {listed(columns)}")
        if len(row) != len(columns):
            reading.broken(_wrong_count(name, number, len(row), len(columns), "separators and quotes"))
            continue
        yield Record(dict(zip(columns, row, strict=True)), f"{name}, line {number}")


def read_jsonl(path: Path, reading: Reading) -> Iterator[Record]:
    """Yield one JSON object per line; lines of white space are skipped."""
    name = reading.name
    for number, line in read_lines(path, name, reading.broken):
        if line.strip():
            try:
                value = _parsed(line, name, number)
                if not isinstance(value, dict):
                    what = f"{_kind(value)}, not an object; write one object in braces on each line"
                    raise broken(name, number, what)
            except ValueError as error:
                reading.broken(error)
                continue
            yield Record(value, f"{name}, line {number}")


def read_json(path: Path, reading: Reading) -> Iterator[Record]:
    """Yield the objects of a JSON array that fits into memory, or of JSON lines under another ending."""
    name = reading.name
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
        yield from read_jsonl(path, reading)
        return
    items = _parsed("\n".join(lines), name, 1)
    for number, item in enumerate(items, 1):
        if isinstance(item, dict):
            yield Record(item, f"{name}, item {number}")
        else:
            what = f"item {number} is {_kind(item)}, not an object; write an array of objects"
            reading.broken(broken(name, None, what))


def read_table(path: Path, reading: Reading) -> Iterator[Record]:
    """Yield the rows of a Parquet or Arrow file, of which a few thousand are in memory."""
    try:
        pyarrow = importlib.import_module("pyarrow")
        importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise ValueError(f"{reading.name} needs the package pyarrow: pip install 'synthattn[parquet]'") from None
    number = 0
    try:
        for batch in _batches(path, pyarrow):
            for row in batch.to_pylist():
                number += 1
                yield Record(row, f"{reading.name}, row {number}")
    except (OSError, pyarrow.ArrowException) as error:
        what = f"cannot be read as {format_of(path.name)[1:]}: {one_line(error)}; fetch or write it again"
        raise broken(reading.name, None, what) from None


def _batches(path: Path, pyarrow: Any) -> Iterator[Any]:
    """Yield the batches of a table; an Arrow file is a stream, as ``datasets`` writes it, or a file of its own."""
    with open_regular(path) as file:
        if format_of(path.name) == ".parquet":
            yield from pyarrow.parquet.ParquetFile(file).iter_batches(4096)
        elif file.peek(6).startswith(b"ARROW1"):
            table = pyarrow.ipc.open_file(file)
            yield from (table.get_batch(n) for n in range(table.num_record_batches))
        else:
            yield from pyarrow.ipc.open_stream(file)


READERS: Mapping[str, Callable[[Path, Reading], Iterator[Record]]] = {
    ".tsv": read_tsv,
    ".csv": read_csv,
    ".jsonl": read_jsonl,
    ".json": read_json,
    ".parquet": read_table,
    ".arrow": read_table,
}
"""Readers by format; any other file is text."""


def languages_apart(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the languages in the field ``translation`` of a record of the hub; other records stay as they are.

    The columns beside that field, such as ``id`` or ``score``, are not texts in a language, and are left out.
    """
    languages = row.get("translation")
    return dict(languages if isinstance(languages, Mapping) else row)


def read_lines(path: Path, name: str, refused: Callable[[ValueError], None] = refuse) -> Iterator[tuple[int, str]]:
    """Yield line numbers from 1 with decoded lines, without line ends."""
    for number, raw in raw_lines(path, name):
        if b"\0" in raw:
            what = f"a NUL byte at position {raw.index(0) + 1}; is this text? remove it"
            refused(broken(name, number, what))
            continue
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            what = (
                f"byte 0x{raw[error.start]:02x} at position {error.start + 1} is not UTF-8; "
                "convert the file: iconv -f LATIN1 -t UTF-8, if that is what it is"
            )
            refused(broken(name, number, what))
            continue
        yield number, line


def raw_lines(path: Path, name: str) -> Iterator[tuple[int, bytes]]:
    """Yield line numbers from 1 with the bytes of lines, without line ends and byte order mark."""
    opened, program = COMPRESSED.get(path.suffix.lower(), (None, ""))
    try:
        with open_regular(path) as plain:
            number = 0
            file: Any = plain if opened is None else opened(plain)
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
    except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        if not isinstance(error, OSError) or (program and error.errno is None):
            what = f"the {program} file is broken ({error}); fetch or compress it again"
            raise broken(name, None, what) from None
        raise broken(name, None, f"cannot be read: {error.strerror or error}") from None
    if number == 0:
        raise broken(name, None, "the file is empty; remove it or fetch it again")


def _check_start(line: bytes, file: Any, name: str) -> bytes:
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


def _csv_rows(path: Path, reading: Reading) -> Iterator[tuple[int, list[str]]]:
    """Yield each row's cells with the number of its first line.

    Cells are separated by semicolons if the first line has some and no comma.
    """
    name, separator = reading.name, ""
    # The csv module's default limit refuses a long article. The limit is global, so it is only ever raised.
    csv.field_size_limit(max(LONGEST_RECORD, csv.field_size_limit()))
    parts: list[str] = []
    first, quotes, size, blank = 0, 0, 0, 0
    for number, line in read_lines(path, name, reading.broken):
        if not parts:
            if not line:
                blank = blank or number
                continue
            if blank:
                reading.broken(broken(name, blank, "blank between rows; remove the line"))
                blank = 0
            first, quotes, size = number, 0, 0
        if not separator:
            separator = ";" if ";" in line and "," not in line else ","
            if separator == ";":
                reading.note(f"{name}: read with semicolons between its columns")
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
        if not _CSV_ROW[separator].fullmatch(row):
            what = 'a stray quote or carriage return; put the field in quotes and write " as ""'
            reading.broken(broken(name, first, what))
            continue
        quoted = csv.reader([row], strict=True, delimiter=separator)
        yield first, next(quoted) if '"' in row else row.split(separator)
    if parts:
        raise broken(name, first, "a quote is opened and not closed; close it")


def _is_header(row: list[str], below: list[list[str]], reading: Reading, line: int) -> bool:
    distinct = len(set(row)) == len(row)
    if distinct and (set(row) & set(reading.columns) or all(_IDENTIFIER.fullmatch(cell) for cell in row)):
        return True
    if any(_is_value(cell) for cell in row):
        return False
    if distinct and all(_COLUMN_NAME.fullmatch(cell) for cell in row) and _unlike(row, below):
        reading.note(f"{reading.name}: the first row names the columns {listed(row)}")
        return True
    unlike = next((cell for cell in row if not _IDENTIFIER.fullmatch(cell)), row[0])
    what = (
        f"with {unlike!r} this could be a header or a row; name its columns with --columns, or write a first row of "
        "distinct names such as label,text"
    )
    raise broken(reading.name, line, what)


def _is_value(cell: str) -> bool:
    """Return True for a number and for a longer text, neither of which names a column."""
    return _number(cell) or len(cell) > 32 or len(cell.split()) > 3


def _unlike(row: list[str], below: list[list[str]]) -> bool:
    """Return True if some column has numbers or longer texts in all of the rows below, of which there are enough."""
    alike = [cells for cells in below if len(cells) == len(row)]
    return len(alike) >= _ENOUGH and any(all(map(_is_value, column)) for column in zip(*alike, strict=True))


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
