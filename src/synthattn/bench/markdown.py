"""A benchmark as Markdown."""

from itertools import groupby

from synthattn.bench.bars import Bar, bars, outcomes
from synthattn.bench.record import Record
from synthattn.bench.tables import HOW_TO_READ, Column, Table, about, certainty, sections
from synthattn.messages import printable
from synthattn.render.tables import safe


def markdown(record: Record) -> str:
    """The whole file."""
    lines = [
        "# Speed and memory, side by side",
        "",
        f"Written by `synthattn bench`, not by hand: {safe(about(record))}.",
        "",
        HOW_TO_READ,
    ]
    lines += [safe(line) for line in certainty(record)]
    lines += ["", "```", printable(record.command, lines=True), "```"] if record.command else []
    lines += ["", "Left out:", "", *(f"- {safe(line)}" for line in record.skipped)] if record.skipped else []
    for section in sections(record):
        lines += ["", f"## {section.title}", "", section.note]
        for table in section.tables:
            lines += ["", f"### {safe(table.title)}"] if table.title else []
            lines += ["", *_table(table)]
    return "\n".join([*lines, *_bars(bars(record))]) + "\n"


def _table(table: Table) -> list[str]:
    """Columns of a group stand in one cell, which a line above the table explains."""
    groups = [list(group) for _, group in groupby(enumerate(table.columns), lambda pair: pair[1].group or pair[0])]
    columns = [[column for _, column in group] for group in groups]
    explained: dict[str, list[str]] = {}
    for group in columns:
        if len(group) > 1:
            explained.setdefault(" / ".join(column.head for column in group), []).append(group[0].group)
    lines = [f"{safe(', '.join(names))}: {safe(heads)}." for heads, names in explained.items()]
    rows = [
        [f"`{name}`", *(" / ".join(column.cells[n] for column in group) for group in columns)]
        for n, name in enumerate(table.rows)
    ]
    body = _rows([table.first, *map(_head, columns)], rows)
    return ["  \n".join(lines), "", *body] if lines else body


def _head(group: list[Column]) -> str:
    return group[0].group if len(group) > 1 else group[0].head


def _rows(heads: list[str], rows: list[list[str]], left: int = 1) -> list[str]:
    """The first columns hold words."""
    rule = ["---"] * left + ["---:"] * (len(heads) - left)
    return [f"| {' | '.join(safe(cell) for cell in row)} |" for row in (heads, rule, *rows)]


def _bars(found: list[Bar]) -> list[str]:
    if not found:
        return []
    held = sum(bar.holds for bar in found)
    lines = [
        "",
        "## Bars",
        "",
        f"{held} of {len(found)} bars hold. Of each requirement, the bar with the least margin:",
        "",
    ]
    heads = ["", "Requirement", "Wanted", "Narrowest", "Which", "Bars that hold", ""]
    rows = [
        [
            str(outcome.worst.number),
            outcome.worst.rule,
            f"{outcome.worst.better} {outcome.worst.texts[1]}",
            outcome.worst.texts[0],
            outcome.worst.who,
            f"{outcome.held} of {len(outcome.bars)}",
            _word(outcome.holds),
        ]
        for outcome in outcomes(found)
    ]
    lines += _rows(heads, rows, 2)
    short = [f"- requirement {bar.number}: {safe(str(bar))}" for bar in found if not bar.holds]
    lines += ["", "These fall short:", "", *short] if short else []
    every = [
        [str(bar.number), bar.claim, f"{bar.better} {bar.texts[1]}", bar.texts[0], _word(bar.holds)] for bar in found
    ]
    table = _rows(["", "Bar", "Wanted", "Found", ""], every, 2)
    return [*lines, "", "<details><summary>Every bar</summary>", "", *table, "", "</details>"]


def _word(holds: bool) -> str:
    return "holds" if holds else "**falls short**"
