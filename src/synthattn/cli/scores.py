"""Print scores in the terminal."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from synthattn.messages import printable
from synthattn.terminal import SafeConsole


def show(title: str, scores: Mapping[str, Mapping[str, Any]], facts: Mapping[str, Any], *remarks: str) -> None:
    """Print a table of scores with their definitions, the scored examples and remarks.

    Args:
        title: title of the table.
        scores: scores by metric, as in a record.
        facts: counts of the evaluation, as in a record.
        remarks: remarks of one line each.
    """
    table = Table(title=printable(title), title_justify="left")
    table.add_column("metric")
    table.add_column("value", justify="right")
    table.add_column("95 %", justify="right")
    table.add_column("definition", overflow="fold")
    for name, one in scores.items():
        table.add_row(name, f"{one['value']:,.3f}", f"{one['low']:,.3f} to {one['high']:,.3f}", one["definition"])
    console = SafeConsole()
    console.print(table)
    console.print(f"{facts['examples']:,} examples of {', '.join(facts['splits'].values())}.")
    if facts["unparsable"]:
        console.print(f"{facts['unparsable']:,} answers could not be understood, and count as wrong.")
    for remark in remarks:
        console.print(remark, soft_wrap=True)
