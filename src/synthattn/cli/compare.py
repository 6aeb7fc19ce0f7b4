"""``synthattn compare``."""

import re
import shlex
import signal
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from synthattn.cli.memory import keep_memory
from synthattn.cli.settings import command, gather, new_folder
from synthattn.cli.specs import split
from synthattn.compare.compare import Comparison, compare, load_comparison
from synthattn.compare.results import Results, Variant
from synthattn.paper.published import published
from synthattn.render import tables
from synthattn.synthesizers import FAMILY
from synthattn.terminal import SafeConsole
from synthattn.training.progress import Display, LogLines, ProgressBar, new_progress
from synthattn.training.run import Stopped

DEMO = {
    "model.preset": "demo",
    "data.vocab_size": 2000,
    "training.steps": 360,
    "training.batch_tokens": 2048,
    "training.warmup": 100,
    "training.learning_rate": 3e-3,
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
        said = {name for name, value in options.items() if value is not None}
        said |= {text.partition("=")[0].strip() for text in overrides}
        bare = config is None and not said & {"data.source", "model.preset"}
        settings = gather(config, options, overrides, DEMO if bare else None)
        specs = tuple(split(attention)) if attention is not None else FAMILY
        comparison = Comparison(settings, specs, 1 if seeds is None else seeds, control)
        folder = output or new_folder("compare", settings.data.task)
    keep_memory()
    shown, close = displays(quiet)
    # Outside of training there is nothing to save, and a scheduler's signal is as good as Ctrl-C.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        data = comparison.settings.data
        beside = published(data.task, data.source)
        results = compare(comparison, folder, shown, command(), resume is not None, beside)
    except (Stopped, KeyboardInterrupt):
        close()
        again = f"synthattn compare --resume {shlex.quote(str(folder))}"
        text = f"stopped; all that was done is in {folder}. Go on with: {again}"
        SafeConsole(stderr=True).print(text, soft_wrap=True)
        return 130
    finally:
        signal.signal(signal.SIGTERM, before)
        close()
    if not quiet:
        show(results, folder)
    return 0 if any(variant.status == "done" for variant in results.variants) else 1


def displays(quiet: bool) -> tuple[Callable[[str], Display], Callable[[], None]]:
    """A row for each run."""
    if quiet:
        return lambda name: Display(), lambda: None
    if not sys.stderr.isatty():
        return lambda name: LogLines(f"{name}: "), lambda: None
    progress = new_progress()
    progress.start()
    return lambda name: ProgressBar(name, progress), progress.stop


def show(results: Results, folder: Path, console: Console | None = None) -> None:
    """The table, as much of it as the terminal has room for, what went wrong, and the answer."""
    console = console or SafeConsole()
    layouts = [_table(results, layout) for layout in LAYOUTS]
    endless = console.options.update(max_width=10_000)
    fitting = (table for table in layouts if Measurement.get(console, endless, table).maximum <= console.width)
    console.print(next(fitting, layouts[-1]))
    for variant in results.variants:
        if said := tables.trouble(variant):
            _say(console, f"{variant.attention}: {said}")
    for paragraph in results.answer:
        _say(console, paragraph)
    # Not broken into lines: a path is there to be copied.
    console.print(f"\nReport: {folder / 'report.html'}", soft_wrap=True)
    console.print(f"Models: {folder / 'runs'}", soft_wrap=True)


@dataclass(frozen=True)
class _Layout:
    """How much a table says."""

    intervals: bool = False
    tests: bool = False
    """The interval and the p-value of the difference."""
    left_out: tuple[str, ...] = ()
    broken: bool = False
    """Whether long names are broken, after the pluses of mixtures."""


LAYOUTS = (
    _Layout(intervals=True, tests=True),
    _Layout(intervals=True),
    _Layout(intervals=True, left_out=("Cache",)),
    _Layout(left_out=("Cache",)),
    _Layout(left_out=("Cache", "Inference speed")),
    _Layout(left_out=("Cache", "Inference speed"), broken=True),
    _Layout(left_out=("Cache", "Inference speed", "Training memory", "Parameters"), broken=True),
)
"""From the widest to the narrowest."""

HEADS = {
    "Parameters": "para-\nmeters",
    "Training speed": "train\nspeed",
    "Inference speed": "score\nspeed",
    "Generation speed": "write\nspeed",
    "Training memory": "memory\nMB",
    "Cache": "cache\nB/token",
}
LONG = 17
"""Letters of the longest name of the paper's family."""
STYLES = {"better": "green", "worse": "red"}


def _table(results: Results, layout: _Layout) -> Table:
    title = Text(f"{results.task} on {results.data}")
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    table.add_column("attention", no_wrap=not layout.broken, overflow="fold")
    found = [c for c in tables.columns(results) if not c.paper and (c.main or c.head not in results.metrics)]
    writes = any(column.head == "Generation speed" for column in found)
    # What a model that does not write is used for is scoring.
    left_out = [head for head in layout.left_out if writes or head != "Inference speed"]
    shown = [column for column in found if column.head not in left_out]
    for column in shown:
        table.add_column(_head(results, column), justify="right", no_wrap=True)
    for n, variant in enumerate(results.variants):
        long = layout.broken and len(variant.attention) > LONG
        name = variant.attention.replace("+", "+\n") if long else variant.attention
        table.add_row(Text(name), *(_text(column, column.cells[n], variant, layout) for column in shown))
    return table


def _head(results: Results, column: tables.Column) -> str:
    if column.head == "Difference":
        return f"from\n{results.baseline}"
    if not column.main:
        return HEADS.get(column.head, column.head)
    arrows = {"higher": "\N{UPWARDS ARROW}", "lower": "\N{DOWNWARDS ARROW}"}
    arrow = next((f" {arrow}" for word, arrow in arrows.items() if column.unit.startswith(word)), "")
    return column.head.replace("-", "-\n") + arrow


def _text(column: tables.Column, cell: tables.Cell, variant: Variant, layout: _Layout) -> Text:
    if column.main and not cell.text:
        return Text(variant.status, "red" if variant.status == "failed" else "dim")
    if column.main and layout.intervals:
        return Text(f"{cell.text} {cell.detail}")
    if column.head != "Difference" or not cell.text:
        return Text(cell.text)
    detail = f" {cell.detail}" if layout.tests else ""
    return Text(f"{cell.mark or '='} {cell.text}{detail}", STYLES.get(cell.mark, ""))


def _say(console: Console, text: str) -> None:
    """A paragraph, in lines that are not too long to read, and no number apart from its unit."""
    joined = re.sub(r"(\d) (%|MB)", "\\1\N{NO-BREAK SPACE}\\2", text)
    width = max(20, min(console.width, 100))
    lines = textwrap.fill(
        joined, width, initial_indent="- ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    console.print(lines.replace("\N{NO-BREAK SPACE}", " "), soft_wrap=True)
