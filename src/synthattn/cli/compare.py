"""The verb ``synthattn compare``."""

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from synthattn import api
from synthattn.cli.command import command, resumable, split
from synthattn.compare.results import Results
from synthattn.compare.table import SPEEDS, tables, trouble
from synthattn.compare.verdict import LEAD
from synthattn.render import terminal
from synthattn.render.numbers import unbroken
from synthattn.render.table import Table
from synthattn.terminal import SafeConsole


def run(settings: Mapping[str, Any], attention: str | None, quiet: bool, **options: Any) -> int:
    """Compare, and print what came out; ``options`` are those of ``synthattn.compare``."""
    again = [] if options["address"] is None else ["--executor", options["executor"], "--address", options["address"]]
    again += [] if options["gpus"] is None else ["--gpus", f"{options['gpus']:g}"]
    specs = None if attention is None else split(attention)
    with resumable(*again):
        made = api.compare(attention=specs, progress=not quiet, command=command(), **options, **settings)
    if not quiet:
        show(made.results, made.folder)
    return 0 if any(variant.status == "done" for variant in made.results.models) else 1


def show(results: Results, folder: Path, console: Console | None = None) -> None:
    """Print the answer, the table as far as the terminal has room for it, and what went wrong."""
    console = console or SafeConsole()
    for n, paragraph in enumerate(results.answer[:LEAD]):
        _say(console, paragraph, "", "" if n else "bold")
    console.print()
    terminal.show(console, layouts(results))
    for variant in results.models:
        if said := trouble(variant):
            _say(console, f"{variant.attention}: {said}")
    for paragraph in results.answer[LEAD:]:
        _say(console, paragraph)
    # Not broken into lines: a path is there to be copied.
    console.print(f"\nReport: {folder / 'report.html'}", soft_wrap=True)
    console.print(f"Models: {folder / 'runs'}", soft_wrap=True)


def layouts(results: Results) -> list[Table]:
    """Return the table from the widest to the narrowest."""
    speeds = [*SPEEDS]
    full = tables(results)[0]
    full = full.without(details=speeds)
    heads = [column.head for column in full.columns]
    second = [head for head in heads if head in speeds[1:]]
    return [
        full,
        full.without(details=["Difference"]),
        full.without(details=heads),
        full.without(*second, details=heads),
        full.without(*second, "Training memory", "Parameters", details=heads),
    ]


def _say(console: Console, text: str, bullet: str = "- ", style: str = "") -> None:
    """Print a paragraph in lines that are not too long to read, and no number apart from its unit."""
    width, indent = max(20, min(console.width, 100)), " " * len(bullet)
    whole: Any = {"break_long_words": False, "break_on_hyphens": False}
    lines = textwrap.fill(unbroken(text), width, initial_indent=bullet, subsequent_indent=indent, **whole)
    console.print(lines.replace("\N{NO-BREAK SPACE}", " "), soft_wrap=True, style=style)
