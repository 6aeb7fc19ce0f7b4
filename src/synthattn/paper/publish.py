"""Tables and pages of what has been run, made from the records alone."""

from collections.abc import Sequence
from pathlib import Path

from synthattn.compare.results import FILE
from synthattn.data.locks import locked_folder
from synthattn.paper import analysis, evidence, markdown, outcome, table1
from synthattn.paper.markdown import PAGE, TABLE
from synthattn.paper.page import page, page_of_table1, table
from synthattn.paper.page import table1 as markdown_of_table1
from synthattn.paper.recipes import TABLES
from synthattn.saved_file import write_text

OVERVIEW = "README.md"
COMPUTED = ("table1", "analysis")
"""Tables that need no runs of their own."""


def publish(results: Path, names: Sequence[str]) -> list[outcome.Outcome]:
    """Write the results, the table and the page of each table that has records, and the overview of all.

    Where all tables are asked for and one has records, the others are there too, with what is published. Commands that
    run side by side do this one after the other.
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
        write_text(results / OVERVIEW, markdown.overview(written, (results / "table1").is_dir()))
    return found


def write(results: Path, found: outcome.Outcome) -> outcome.Outcome:
    """All files of a table but its records, from what is in its ``results.json``."""
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
    write_text(folder / TABLE, markdown_of_table1(rows))
    write_text(folder / PAGE, page_of_table1(rows))
