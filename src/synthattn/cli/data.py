"""The verb ``synthattn data``."""

import dataclasses
from collections.abc import Sequence
from typing import get_args

from rich.table import Table

from synthattn.messages import listed, printable, printable_json, shortened
from synthattn.tasks import SUITES, find_task
from synthattn.tasks.encoding import Limits, OverLong
from synthattn.tasks.report import Lengths, Report, examine
from synthattn.terminal import SafeConsole
from synthattn.training.gather import with_direction
from synthattn.training.prepare import held_out, places
from synthattn.training.settings import DataSettings


def run(settings: DataSettings, direction: str | None, max_length: int, batch_tokens: int, as_json: bool) -> int:
    over_long = settings.over_long
    if over_long not in get_args(OverLong):
        raise ValueError(f"--over-long must be one of {', '.join(get_args(OverLong))}, got {over_long!r}")
    if max_length < 2:
        raise ValueError(f"--max-length must be at least 2, got {max_length}")
    if batch_tokens < 1:
        raise ValueError(f"--batch-tokens must be at least 1, got {batch_tokens}")
    settings = dataclasses.replace(settings, columns=with_direction(settings.columns, direction, settings.task))
    limits = Limits(max_length, max_length, over_long)
    reports: list[Report] = []
    failures: dict[str, str] = {}
    for name, place in places(settings):
        task = find_task(name)
        try:
            source = held_out(settings, task, place)
            reports.append(examine(source, task, settings.tokenizer, settings.vocab_size, limits, batch_tokens))
        except ValueError as error:
            if settings.task not in SUITES:
                raise
            failures[name] = str(error)
    if as_json:
        found = {report.task: dataclasses.asdict(report) | {"complaints": report.complaints} for report in reports}
        print(printable_json(found | failures if settings.task in SUITES else found[settings.task], 2))
    else:
        show(settings, reports, failures)
    return 1 if failures else 0


def show(settings: DataSettings, reports: Sequence[Report], failures: dict[str, str]) -> None:
    """Print a table of all splits, a few examples of a task by itself, and all remarks."""
    console = SafeConsole()
    several = settings.task in SUITES
    if not several and reports[0].without_train:
        console.print(printable(reports[0].without_train))
    table = Table(title=printable(f"{settings.source} for {settings.task}"), title_justify="left")
    for column in ("task", "split") if several else ("split",):
        table.add_column(column)
    for column in ("records", "examples", "source tokens", "target tokens", "unknown", "padding"):
        table.add_column(column, justify="right")
    for report in reports:
        for split in report.splits:
            table.add_row(
                *([report.task] if several else []),
                printable(split.name),
                f"{split.records:,}",
                f"{split.examples:,}",
                _lengths(split.source),
                _lengths(split.target),
                f"{split.unknown_share:.2%}",
                f"{split.padding_share:.1%}",
            )
    console.print(table)
    sizes = sorted({f"{report.vocabulary:,}" for report in reports})
    console.print(f"Token columns: mean (longest). Vocabulary: {listed(sizes)}, {settings.tokenizer}.")
    if not several:
        _show_examples(console, reports[0])
    lines = [f"{name}: {reason}" for name, reason in failures.items()]
    for report in reports:
        lines += [f"{report.task}: {line}" if several else line for line in report.complaints]
    if lines:
        console.print("\nNotes:")
    for line in lines:
        console.print(printable(f"- {line}"))


def _show_examples(console: SafeConsole, report: Report) -> None:
    if report.labels:
        total = sum(report.labels.values())
        parts = (f"{shortened(label, 40)} {count / total:.1%}" for label, count in report.labels.items())
        console.print(printable(f"Classes in train: {listed(parts, 12)}"))
    for source, target, source_tokens, target_tokens in report.shown:
        console.print()
        for name, text, tokens in (("source", source, source_tokens), ("target", target, target_tokens)):
            if text:
                console.print(printable(f"{name}: {shortened(text, 300)}"))
            if text and (name == "source" or not report.labels):  # a class has no tokens
                console.print(printable(f"        {shortened(' '.join(tokens), 300)}"), style="dim")


def _lengths(lengths: Lengths | None) -> str:
    return "" if lengths is None else f"{lengths.mean:,.1f} ({lengths.longest:,})"
