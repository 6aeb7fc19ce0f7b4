"""Write tables and pages from the records of runs."""

import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from synthattn.compare.results import FILE
from synthattn.data.locks import locked_folder
from synthattn.paper import analysis, evidence, outcome, table1
from synthattn.paper.overview import CHANGES, PICTURE, changes, overview, picture
from synthattn.paper.page import PAGE, TABLE, page, table
from synthattn.paper.recipes import TABLES
from synthattn.paper.study import RECORD, STUDIES, find_study
from synthattn.saved_file import write_text

OVERVIEW = "README.md"
EARLIER = "earlier.json"
"""Verdicts of an earlier edition, from which the page of changes is made."""
COMPUTED = ("table1", "analysis")
"""Tables that need no runs of their own."""


def publish(results: Path, names: Sequence[str]) -> list[outcome.Outcome]:
    """Write results, table and page of each table that has records, and the overview of all tables.

    If all tables are asked for and one has records, the others are written too, with the published numbers. Commands
    that run side by side publish one after the other.
    """
    with locked_folder(results, wait=True):
        return _publish(results, names)


def _publish(results: Path, names: Sequence[str]) -> list[outcome.Outcome]:
    found: list[outcome.Outcome] = []
    everything = set(TABLES) <= set(names) and (results / evidence.RECORDS).is_dir()
    for name in names:
        if name == "table1":
            _write_table1(results)
        elif name == analysis.NAME:
            seen = analysis.collect(results)
            if seen.parts:
                found.append(seen)
        elif everything or (results / evidence.RECORDS / name).is_dir():
            found.append(evidence.collect(results, name))
    found = [write(results, one) for one in found]
    known = [name for name in (*TABLES, analysis.NAME) if (results / name / FILE).is_file()]
    if known:
        written = [outcome.load(results / name) for name in known]
        more = []
        if (results / EARLIER).is_file():
            earlier = json.loads((results / EARLIER).read_text(encoding="utf-8"))
            write_text(results / CHANGES, changes(written, earlier))
            more.append(("Verdicts that changed under stricter rules, and why", CHANGES))
        for study in map(find_study, STUDIES):
            if (results / study.name / RECORD).is_file():
                study.write(results)
                more.append((study.title, f"{study.name}/{OVERVIEW}"))
        if (results / evidence.RECORDS).is_dir():
            more.append(("Records of all runs, from which every number is made", evidence.RECORDS))
        if drawn := picture(written):
            write_text(results / PICTURE, drawn)
        write_text(results / OVERVIEW, overview(written, (results / "table1").is_dir(), more))
    return found


def check(results: Path) -> list[str]:
    """Make all files of the results again from the records, and return what is different, a line for each file."""
    inputs = (evidence.RECORDS, EARLIER, *(f"{name}/{RECORD}" for name in STUDIES))
    if not (results / evidence.RECORDS).is_dir():
        raise ValueError(f"there are no records in {results}; name the folder of the results with --output")
    with tempfile.TemporaryDirectory() as folder:
        again = Path(folder)
        for name in inputs:
            if (results / name).exists():
                (again / name).parent.mkdir(parents=True, exist_ok=True)
                (again / name).symlink_to((results / name).resolve())
        tables = [name for name in (*TABLES, analysis.NAME) if (results / name / FILE).is_file()]
        _publish(again, [*tables, *(["table1"] if (results / "table1").is_dir() else [])])
        return list(_differences(results, again, inputs))


def _differences(kept: Path, again: Path, inputs: Sequence[str]) -> Iterator[str]:
    def files(folder: Path) -> set[str]:
        found = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
        return {name for name in found if not name.startswith((*inputs, "."))}

    for name in sorted(files(kept) | files(again)):
        if not (again / name).is_file():
            yield f"{name}: no record says this"
        elif not (kept / name).is_file():
            yield f"{name}: is missing"
        else:
            one, other = ((folder / name).read_text(encoding="utf-8") for folder in (kept, again))
            if one != other:
                yield f"{name}: {_first_difference(one, other)}"


def _first_difference(kept: str, again: str) -> str:
    """Return the line of the first difference, and what it is around there."""
    lines = kept.splitlines(), again.splitlines()
    number = next((n for n, pair in enumerate(zip(*lines, strict=False)) if pair[0] != pair[1]), None)
    if number is None:
        return f"{len(lines[0])} lines are kept, {len(lines[1])} are made"
    one, other = lines[0][number], lines[1][number]
    place = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    around = slice(max(0, place - 30), place + 30)
    return f"line {number + 1} has {one[around]!r}, the records say {other[around]!r}"


def write(results: Path, found: outcome.Outcome) -> outcome.Outcome:
    """Write all files of a table except its records; page and Markdown are made from its ``results.json``."""
    folder = results / found.table
    folder.mkdir(parents=True, exist_ok=True)
    found.save(folder / FILE, digits=6)
    kept = outcome.load(folder)
    write_text(folder / TABLE, table(kept))
    write_text(folder / PAGE, page(kept))
    return kept


def _write_table1(results: Path) -> None:
    folder = results / "table1"
    folder.mkdir(parents=True, exist_ok=True)
    rows = table1.synthesized()
    write_text(folder / TABLE, table1.markdown(rows))
    write_text(folder / PAGE, table1.page(rows))
