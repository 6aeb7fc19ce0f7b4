"""Write tables and pages from the records of runs."""

from collections.abc import Sequence
from pathlib import Path

from synthattn.compare.results import FILE
from synthattn.data.locks import locked_folder
from synthattn.paper import analysis, evidence, outcome, table1
from synthattn.paper.overview import overview
from synthattn.paper.page import PAGE, TABLE, page, table
from synthattn.paper.recipes import TABLES
from synthattn.saved_file import write_text

OVERVIEW = "README.md"
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
        write_text(results / OVERVIEW, overview(written, (results / "table1").is_dir()))
    return found


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
