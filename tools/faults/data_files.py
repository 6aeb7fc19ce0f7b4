"""Damage data files: each must give an error of one line that names the file, or be read exactly.

Every file is read by the loaders and by the command ``synthattn data``. The expected result is computed without them.
A damage names the rows it changed; all other rows must stay in place. The rows read must equal a simple reading of the
damaged bytes, which is written here, and the command must count as many records.
"""

import contextlib
import csv
import gzip
import io
import json
import os
import random
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any
from unittest import mock

from synthattn.cli.app import main
from synthattn.data.open import open_source
from tools.faults.outcome import Outcome, Verdict

WORDS = [
    "the",
    "Straße",
    "naïve",
    "don't",
    "5,000",
    'say "hi"',
    "x",
    "été",
    "[MAX",
    "N",
    "(a)",
    "a; b",
    "e=mc²",
    "日本",
]
LATIN = ["the", "straße", "naïve", "don't", "5,000", 'say "hi"', "x", "été"]
NAMES = ["label", "sentence1", "sentence2"]
FORMATS = [".txt", ".tsv", ".csv", ".jsonl", ".json", ".en"]


@dataclass
class Case:
    """A file as a list of rows' bytes, with the rows that should be read."""

    suffix: str
    chunks: list[bytes]
    rows: list[dict[str, Any]]
    header: bool
    rng: random.Random

    @property
    def raw(self) -> bytes:
        return b"".join(self.chunks)


@dataclass
class Damage:
    """Damaged bytes, and the permitted differences of the rows.

    ``touched`` is None if all rows must be as before or an error must follow; "error" if an error must follow; "cut" if
    the last row may be broken and later ones missing; or the number of the damaged chunk.
    """

    raw: bytes
    touched: int | str | None


def make_case(rng: random.Random, suffix: str, words: list[str]) -> Case:
    def text() -> str:
        return " ".join(rng.choice(words) for _ in range(rng.randint(1, 9)))

    count = rng.randint(3, 12)
    if suffix in (".txt", ".en"):
        lines = [text() for _ in range(count)]
        if suffix == ".txt":
            lines.insert(rng.randrange(count), "")
        key = "text" if suffix == ".txt" else "en"
        return Case(suffix, [f"{s}\n".encode() for s in lines], [{key: s} for s in lines if s], False, rng)
    rows: list[dict[str, Any]] = [
        {"label": str(rng.randrange(4)), "sentence1": text(), "sentence2": text()} for _ in range(count)
    ]
    if suffix == ".tsv":
        table = [NAMES, *(list(row.values()) for row in rows)]
        return Case(suffix, ["\t".join(row).encode() + b"\n" for row in table], rows, True, rng)
    if suffix == ".csv":
        header = rng.random() < 0.5
        for row in rows:
            row["sentence2"] += rng.choice(["", "\nsecond line", ', "quoted"'])
        chunks = []
        for row in [NAMES] * header + [list(row.values()) for row in rows]:
            out = io.StringIO()
            csv.writer(out, quoting=rng.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]), lineterminator="\n").writerow(row)
            chunks.append(out.getvalue().encode())
        if not header:
            rows = [{str(n): value for n, value in enumerate(row.values())} for row in rows]
        return Case(suffix, chunks, rows, header, rng)
    for row in rows:
        row |= {"list": [rng.randrange(9), text(), None], "inner": {"text": text(), "yes": True}}
    texts = [json.dumps(row, ensure_ascii=rng.random() < 0.5) for row in rows]
    if suffix == ".jsonl":
        return Case(suffix, [f"{s}\n".encode() for s in texts], rows, False, rng)
    ends = [",\n"] * (count - 1) + ["]\n"]
    starts = ["["] + [" "] * (count - 1)
    return Case(suffix, [f"{a}{s}{b}".encode() for a, s, b in zip(starts, texts, ends, strict=True)], rows, False, rng)


def changed(case: Case, change: Callable[[bytearray], None]) -> tuple[bytes, int]:
    number = case.rng.randrange(len(case.chunks))
    chunk = bytearray(case.chunks[number])
    change(chunk)
    return b"".join([*case.chunks[:number], bytes(chunk), *case.chunks[number + 1 :]]), number


def nothing(case: Case) -> Damage:
    return Damage(case.raw, None)


def truncate(case: Case) -> Damage:
    return Damage(case.raw[: case.rng.randrange(1, len(case.raw))], "cut")


def flip(case: Case) -> Damage:
    def change(chunk: bytearray) -> None:
        for _ in range(case.rng.randint(1, 3)):
            chunk[case.rng.randrange(len(chunk))] = case.rng.choice([case.rng.randrange(256), *b'\n\t\r",{}[]: \\'])

    return Damage(*changed(case, change))


def bit(case: Case) -> Damage:
    def change(chunk: bytearray) -> None:
        chunk[case.rng.randrange(len(chunk))] ^= 1 << case.rng.randrange(8)

    return Damage(*changed(case, change))


def nul(case: Case) -> Damage:
    return Damage(changed(case, lambda chunk: chunk.insert(case.rng.randrange(len(chunk) + 1), 0))[0], "error")


def recoded(case: Case) -> Damage:
    """Encode the file in another way, which leaves pure ASCII unchanged."""
    encoding = case.rng.choice(["latin-1", "cp1252", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
    other = make_case(case.rng, case.suffix, LATIN)
    case.chunks, case.rows, case.header = other.chunks, other.rows, other.header
    raw = case.raw.decode().encode(encoding)
    return Damage(raw, None if raw == case.raw else "error")


def columns(case: Case) -> Damage:
    """Reorder the fields of a row, which only their content can tell."""
    number = case.rng.randrange(len(case.chunks))
    if case.suffix != ".tsv":
        return flip(case)
    cells = case.chunks[number].decode().rstrip("\n").split("\t")
    case.rng.shuffle(cells)
    chunks = [*case.chunks]
    chunks[number] = "\t".join(cells).encode() + b"\n"
    return Damage(b"".join(chunks), number)


def dropped(case: Case) -> Damage:
    """Remove or add a field."""
    if case.suffix not in (".tsv", ".csv"):
        return bit(case)
    number = case.rng.randrange(len(case.chunks))
    comma = b"\t" if case.suffix == ".tsv" else b","
    chunk = case.chunks[number]
    short = chunk[chunk.index(comma) + 1 :] if case.rng.random() < 0.5 else b"7" + comma + chunk
    # Even the first row counts: a CSV file without its first field looks like one of fewer columns.
    return Damage(b"".join([*case.chunks[:number], short, *case.chunks[number + 1 :]]), "error")


def quotes(case: Case) -> Damage:
    """Remove or add a quote."""
    places = [n for n, byte in enumerate(case.raw) if byte == ord('"')]
    raw = bytearray(case.raw)
    if places and case.rng.random() < 0.5:
        place = case.rng.choice(places)
        del raw[place]
    else:
        place = case.rng.randrange(len(raw))
        raw.insert(place, ord('"'))
    number, end = 0, len(case.chunks[0])
    while place >= end:
        number += 1
        end += len(case.chunks[number])
    # Every quote of a CSV file has a partner.
    return Damage(bytes(raw), "error" if case.suffix == ".csv" else number)


def garbage(case: Case) -> Damage:
    return Damage(case.rng.randbytes(case.rng.randint(40, 9000)), "error")


def spliced(case: Case) -> Damage:
    place = case.rng.randrange(len(case.raw))
    return Damage(case.raw[:place] + b"\xff\x00" + case.rng.randbytes(99) + case.raw[place:], "error")


def escape(case: Case) -> Damage:
    """Insert a sequence that clears a terminal, or reverses the following text."""
    sequence = case.rng.choice(["\x1b[2J", "\u202e", "\x9b31m", "[/b]"]).encode()

    def change(chunk: bytearray) -> None:
        place = case.rng.randrange(len(chunk) + 1)
        chunk[place:place] = sequence

    return Damage(*changed(case, change))


def empty(case: Case) -> Damage:
    return Damage(b"", "error")


def without_last(case: Case) -> Damage:
    """Remove the last line, which only parallel text or the end of an array can show."""
    return Damage(b"".join(case.chunks[:-1]), "error" if case.suffix in (".en", ".json") else "cut")


DAMAGES = [
    nothing,
    truncate,
    flip,
    bit,
    nul,
    recoded,
    columns,
    dropped,
    quotes,
    garbage,
    spliced,
    empty,
    escape,
    without_last,
]


def damaged_gzip(case: Case) -> Damage:
    """Damage compressed bytes; the checksum must detect changes of the content."""
    packed = bytearray(gzip.compress(case.raw, mtime=0))
    kind = case.rng.randrange(5)
    if kind == 0:
        return Damage(bytes(packed[: case.rng.randrange(len(packed))]), "error")
    if kind == 1:
        return Damage(bytes(packed[: case.rng.randint(1, 4)]), "error")
    if kind == 2:
        return Damage(case.raw, "error")
    if kind == 3:
        return Damage(bytes(packed) + b"more", "error")
    packed[case.rng.randrange(len(packed))] ^= 1 << case.rng.randrange(8)
    return Damage(bytes(packed), None)


def simple(suffix: str, raw: bytes) -> list[dict[str, Any]] | None:
    """Read the rows of a file by short code; return None if that fails."""
    try:
        text = raw.decode("utf-8-sig")
        lines = [line.removesuffix("\r") for line in text.split("\n")]
        if not lines[-1]:
            del lines[-1]
        if suffix in (".txt", ".en"):
            return [{"text" if suffix == ".txt" else "en": line} for line in lines if line.strip() or suffix == ".en"]
        if suffix == ".jsonl":
            return [json.loads(line) for line in lines if line.strip()]
        if suffix == ".json":
            return json.loads(text)
        table = [line.split("\t") for line in lines if line] if suffix == ".tsv" else simple_csv(text)
        if suffix == ".csv" and not table[0][0].isalpha():
            table.insert(0, [str(n) for n in range(len(table[0]))])
        return [dict(zip(table[0], row, strict=True)) for row in table[1:]]
    except (ValueError, IndexError):
        return None


def simple_csv(text: str) -> list[list[str]]:
    """Parse CSV character by character."""
    table, row, cell, inside, n = [], [], "", False, 0
    text = text.replace("\r\n", "\n")
    text = text if text.endswith("\n") else text + "\n"
    while n < len(text):
        c = text[n]
        if inside and c == '"' and text[n + 1 : n + 2] == '"':
            cell += c
            n += 1
        elif c == '"':
            inside = not inside
        elif not inside and c in ",\n":
            row.append(cell)
            cell = ""
            if c == "\n":
                table.append(row)
                row = []
        else:
            cell += c
        n += 1
    return [row for row in table if row != [""]]


@dataclass
class Prepared:
    """A folder with a damaged training file and an intact validation file."""

    folder: Path
    name: str
    """Name of the damaged file."""
    case: Case
    damage: Damage
    inside: bool
    """True if the content was damaged, False if its compressed bytes were."""
    others: list[str]
    """Lines of the other file of parallel text."""

    @property
    def changed(self) -> bool:
        return self.damage.raw != self.case.raw or not self.inside


def prepare(folder: Path, seed: int) -> Prepared:
    """Write a file with a damage that the seed decides."""
    rng = random.Random(seed)
    suffix = FORMATS[seed % len(FORMATS)]
    case = make_case(rng, suffix, WORDS)
    compressed = rng.random() < 0.4
    inside = not compressed or rng.random() < 0.4
    damage = rng.choice(DAMAGES)(case) if inside else damaged_gzip(case)
    name = f"train{suffix}" + ".gz" * compressed
    (folder / name).write_bytes(gzip.compress(damage.raw, mtime=0) if compressed and inside else damage.raw)
    others = [f"other {n}" for n in range(len(case.rows))]
    if suffix == ".en":
        (folder / "train.de").write_text("\n".join(others))
        (folder / "valid.de").write_text("\n".join(others))
    (folder / f"valid{suffix}").write_bytes(case.raw)
    return Prepared(folder, name, case, damage, inside, others)


def expected_error(prepared: Prepared, read: list[dict[str, Any]]) -> str:
    """Describe what is wrong with rows that were read; return an empty text if they are right."""
    case, damage, suffix = prepared.case, prepared.damage, prepared.case.suffix
    if suffix == ".en" and [row.pop("de") for row in read] != prepared.others:
        return "the other side has changed"
    if damage.touched == "error":
        return "it was read, but it is damaged"
    if prepared.inside and read != simple(suffix, damage.raw):
        return "it was read otherwise than it stands"
    if damage.touched is None:
        return "" if read == case.rows else "rows have changed"
    if damage.touched == "cut":
        whole = len(read) <= len(case.rows) and read[:-1] == case.rows[: max(0, len(read) - 1)]
        return "" if whole else "other rows than the last one have changed"
    if suffix == ".txt":
        return ""  # in plain text, a damaged line feed cannot be detected
    touched = int(damage.touched) - case.header
    if len(read) != len(case.rows):
        return "rows were lost or added"
    if touched < 0:
        same = [list(row.values()) for row in read] == [list(row.values()) for row in case.rows]
    else:
        same = [*read[:touched], *read[touched + 1 :]] == [*case.rows[:touched], *case.rows[touched + 1 :]]
    return "" if same else "rows have changed that were not damaged"


def load(prepared: Prepared) -> tuple[Verdict, str, int]:
    """Read the damaged file through the loaders; return the verdict, why, and how many rows there are."""
    try:
        source = open_source(str(prepared.folder))
        whole = [dict(record.fields) for record in source.read("validation")]
        others = [{"de": line} for line in prepared.others] if prepared.case.suffix == ".en" else repeat({})
        if whole != [row | other for row, other in zip(prepared.case.rows, others, strict=False)]:
            return "wrong", f"another split was read as {whole}", 0
        read = [dict(record.fields) for record in source.read("train")]
    except Exception as error:
        if type(error) is not ValueError:
            return "traceback", traceback.format_exc(), 0
        text = str(error)
        if len(text.splitlines()) != 1 or prepared.name not in text:
            return "wrong", f"the message is not one line that names {prepared.name}: {text!r}", 0
        return ("clear", text, 0) if prepared.changed else ("wrong", f"it is whole, but refused: {text}", 0)
    rows = len(read)
    why = expected_error(prepared, read)
    return "wrong" if why else "right", why, rows


def command(prepared: Prepared, loaded: Verdict, rows: int) -> tuple[Verdict, str]:
    """Give the folder to ``synthattn data``: it must refuse what the loaders refuse, and count what they read."""
    try:
        code, out, err = called("data", str(prepared.folder), *arguments(prepared.case), "--json")
    except Exception:
        return "traceback", traceback.format_exc()
    if control_characters(out) or control_characters(err):
        return "wrong", f"control characters are printed: {out!r} {err!r}"
    if code != 0:
        if len(err.splitlines()) != 1:
            return "traceback" if "Traceback" in err else "wrong", f"exit code {code}, and not one line: {err!r}"
        return "clear", err
    if loaded != "right":
        return "wrong", f"the loaders refuse it, the command prints {out[:200]}"
    found = {split["name"]: split["records"] for split in json.loads(out)["splits"]}
    wanted = {"train": rows, "validation": len(prepared.case.rows)}
    wrong = {name: found.get(name) for name in wanted if found.get(name) != wanted[name]}
    return ("wrong", f"records are {wanted}, the command counts {wrong}") if wrong else ("right", "")


def arguments(case: Case) -> list[str]:
    """Return the options for a format."""
    tokenizer = ["--tokenizer", "words", "--vocab-size", "200"]
    if case.suffix == ".txt":
        return ["--task", "sentence-modeling", *tokenizer]
    if case.suffix == ".en":
        return ["--task", "translation", "--columns", "source=en,target=de", *tokenizer]
    columns = "text=sentence1" if case.header or case.suffix != ".csv" else "label=0,text=1"
    return ["--task", "classification", "--columns", columns, *tokenizer]


def called(*words: str) -> tuple[int, str, str]:
    """Run the command in this process; return its exit code and what it printed."""
    out, err = io.StringIO(), io.StringIO()
    with mock.patch.object(sys, "argv", ["synthattn", *words]), redirected(out, err):
        try:
            main()
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else 0, out.getvalue(), err.getvalue()
    raise RuntimeError("the command did not exit")


@contextlib.contextmanager
def redirected(out: io.StringIO, err: io.StringIO) -> Iterator[None]:
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        yield


def control_characters(text: str) -> bool:
    """Return True if a text contains control characters other than line feeds."""
    return any((not c.isprintable() and c not in "\n\xa0\u3000") for c in text)


def try_one(seed: int) -> tuple[Verdict, str]:
    """Write one damaged file and judge how it is read."""
    folder = Path(tempfile.mkdtemp(prefix="damaged-"))
    try:
        with mock.patch.dict(os.environ, {"SYNTHATTN_CACHE": str(folder / "cache")}):
            (folder / "data").mkdir()
            prepared = prepare(folder / "data", seed)
            loaded, why, rows = load(prepared)
            if loaded not in ("right", "clear"):
                return loaded, why
            return command(prepared, loaded, rows)
    finally:
        shutil.rmtree(folder)


def run(count: int, seed: int) -> Outcome:
    """Try ``count`` damaged files."""
    outcome = Outcome("data_files")
    for number in range(seed * count, (seed + 1) * count):
        verdict, why = try_one(number)
        outcome.add(verdict, f"data_files.try_one({number}): {why}")
    return outcome
