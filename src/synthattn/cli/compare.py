"""The verb ``synthattn compare``."""

import re
import shlex
import signal
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from synthattn.cli.command import command
from synthattn.cli.specs import split
from synthattn.compare.cluster import find_executor
from synthattn.compare.compare import compare
from synthattn.compare.comparison import Comparison, load_comparison
from synthattn.compare.forecast import seconds_of
from synthattn.compare.results import Results
from synthattn.compare.table import SPEEDS, tables, trouble
from synthattn.compare.verdict import LEAD
from synthattn.paper.published import published
from synthattn.render import terminal
from synthattn.render.table import Table
from synthattn.synthesizers import FAMILY
from synthattn.terminal import SafeConsole
from synthattn.training.gather import DEMO, DEMO_SEEDS, gather, new_folder
from synthattn.training.memory import keep_memory
from synthattn.training.progress import displays
from synthattn.training.run import Stopped


def run(
    config: Path | None,
    options: Mapping[str, Any],
    overrides: list[str],
    attention: str | None,
    seeds: int | None,
    control: bool,
    jobs: int | None,
    threads: int | None,
    budget: str | None,
    output: Path | None,
    resume: Path | None,
    quiet: bool,
    executor: str = "local",
    address: str | None = None,
    gpus: float | None = None,
) -> int:
    made_by = find_executor(executor, address, gpus)
    seconds = None if budget is None else seconds_of(budget)
    if resume is not None:
        others = (*options.values(), config, attention, seeds, threads, budget, output)
        given = any(value is not None for value in others)
        if given or overrides or control:
            raise ValueError(
                f"--resume takes all settings from {resume}; leave the other options out, but for --jobs and those of "
                "--executor"
            )
        comparison, folder = load_comparison(resume), resume
    else:
        said = {name for name, value in options.items() if value is not None}
        said |= {text.partition("=")[0].strip() for text in overrides}
        bare = config is None and not said & {"data.source", "model.preset"}
        settings = gather(config, options, overrides, DEMO if bare else None)
        ends = [f"--{end}" for end in ("steps", "tokens", "minutes") if options.get(f"training.{end}") is not None]
        if budget is not None and ends:
            raise ValueError(f"--budget chooses the number of steps; leave {' and '.join(ends)} out")
        specs = tuple(split(attention)) if attention is not None else FAMILY
        usual = DEMO_SEEDS if bare else 1
        comparison = Comparison(settings, specs, usual if seeds is None else seeds, control, threads)
        folder = output or new_folder("compare", settings.data.task)
    keep_memory()
    shown, close = displays(quiet)
    # Outside of training there is nothing to save, and a scheduler's signal is as good as Ctrl-C.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        data = comparison.settings.data
        beside = published(data.task, data.source)
        results = compare(comparison, folder, shown, command(), resume is not None, beside, jobs, seconds, made_by)
    except (Stopped, KeyboardInterrupt):
        close()
        words = ["synthattn", "compare", "--resume", str(folder)]
        words += [] if address is None else ["--executor", executor, "--address", address]
        words += [] if gpus is None else ["--gpus", f"{gpus:g}"]
        text = f"stopped; all that was done is in {folder}. Go on with: {shlex.join(words)}"
        SafeConsole(stderr=True).print(text, soft_wrap=True)
        return 130
    finally:
        signal.signal(signal.SIGTERM, before)
        close()
    if not quiet:
        show(results, folder)
    return 0 if any(variant.status == "done" for variant in results.variants) else 1


def show(results: Results, folder: Path, console: Console | None = None) -> None:
    """Print the answer, the table as far as the terminal has room for it, and what went wrong."""
    console = console or SafeConsole()
    for n, paragraph in enumerate(results.answer[:LEAD]):
        _say(console, paragraph, "", "" if n else "bold")
    console.print()
    terminal.show(console, layouts(results))
    for variant in results.variants:
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
    joined = re.sub(r"(\d) (%|MB)", "\\1\N{NO-BREAK SPACE}\\2", text)
    width, indent = max(20, min(console.width, 100)), " " * len(bullet)
    lines = textwrap.fill(
        joined, width, initial_indent=bullet, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    console.print(lines.replace("\N{NO-BREAK SPACE}", " "), soft_wrap=True, style=style)
