"""``synthattn compare``."""

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from synthattn.cli.settings import command, gather, new_folder
from synthattn.comparison.compare import FAMILY, Comparison, compare, load_comparison
from synthattn.report import tables
from synthattn.report.results import Results
from synthattn.training.progress import Bar, Display, Lines, Quiet, new_progress
from synthattn.training.run import Stopped

DEMO = {
    "model.preset": "demo",
    "data.vocab_size": 4000,
    "training.steps": 400,
    "training.batch_tokens": 4096,
    "training.warmup": 100,
    "training.learning_rate": 2e-3,
}
"""Where nothing is said about data and model: what two cores compare in minutes, and attention still matters."""


def run(
    config: Path | None,
    options: Mapping[str, Any],
    overrides: list[str],
    attention: str | None,
    seeds: int | None,
    control: bool,
    output: Path | None,
    resume: Path | None,
    quiet: bool,
) -> int:
    if resume is not None:
        given = [name for name, value in options.items() if value is not None]
        if config is not None or given or overrides or attention or seeds or control or output is not None:
            raise ValueError(f"--resume takes all settings from {resume}; leave the other options out")
        comparison, folder = load_comparison(resume), resume
    else:
        bare = config is None and options.get("data.source") is None and options.get("model.preset") is None
        settings = gather(config, options, overrides, DEMO if bare else None)
        specs = tuple(split(attention)) if attention is not None else FAMILY
        comparison = Comparison(settings, specs, 1 if seeds is None else seeds, control)
        folder = output or new_folder("compare", settings.data.task)
    displays, close = _displays(quiet)
    try:
        results = compare(comparison, folder, displays, command(), resume is not None)
    except (Stopped, KeyboardInterrupt):
        close()
        text = f"stopped; all that was done is in {folder}. Go on with: synthattn compare --resume {folder}"
        Console(stderr=True).print(text, highlight=False)
        return 130
    finally:
        close()
    if not quiet:
        show(results, folder)
    return 0 if any(variant.status == "done" for variant in results.variants) else 1


def split(attention: str) -> list[str]:
    """Specs between commas; those inside brackets do not count."""
    return [spec.strip() for spec in re.split(r",(?![^(]*\))", attention) if spec.strip()]


def _displays(quiet: bool) -> tuple[Callable[[str], Display], Callable[[], None]]:
    """A row for each run."""
    if quiet:
        return lambda name: Quiet(), lambda: None
    if not sys.stderr.isatty():
        return lambda name: Lines(f"{name}: "), lambda: None
    progress = new_progress()
    progress.start()
    return lambda name: Bar(name, progress), progress.stop


def show(results: Results, folder: Path) -> None:
    console = Console()
    table = Table(title=f"{results.task} on {results.data}", title_justify="left")
    table.add_column("attention")
    shown = [c for c in tables.columns(results) if not c.paper and (c.main or c.head not in results.metrics)]
    for column in shown:
        table.add_column(f"{column.head}\n{column.unit}" if column.unit else column.head, justify="right")
    for n, variant in enumerate(results.variants):
        cells = [column.cells[n] for column in shown]
        table.add_row(variant.attention, *(f"{c.text} {c.detail} {c.mark}".strip() for c in cells))
    console.print(table)
    for paragraph in results.answer:
        console.print()
        console.print(paragraph, markup=False, highlight=False)
    console.print(f"\nLook at {folder / 'report.html'}; the models are in {folder / 'runs'}.", highlight=False)
