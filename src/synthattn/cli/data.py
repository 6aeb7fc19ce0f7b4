"""The verb ``synthattn data``."""

import dataclasses
from typing import Any, get_args

from rich.table import Table

from synthattn.data.holdout import HeldOut
from synthattn.data.open import open_source, parse_columns, used_columns, with_columns
from synthattn.messages import listed, printable, printable_json, shortened
from synthattn.tasks import find_task
from synthattn.tasks.encoding import Limits, OverLong
from synthattn.tasks.report import Lengths, Report, examine
from synthattn.terminal import SafeConsole


def run(
    name: str,
    task: str,
    columns: str | None,
    tokenizer: Any,
    vocab_size: int,
    max_length: int,
    over_long: Any,
    batch_tokens: int,
    as_json: bool,
) -> None:
    if over_long not in get_args(OverLong):
        raise ValueError(f"--over-long must be one of {', '.join(get_args(OverLong))}, got {over_long!r}")
    if max_length < 2:
        raise ValueError(f"--max-length must be at least 2, got {max_length}")
    chosen = find_task(task)
    named = parse_columns(columns or "")
    source = HeldOut(with_columns(open_source(name), named), columns=used_columns(chosen.reads(), named))
    report = examine(source, chosen, tokenizer, vocab_size, Limits(max_length, max_length, over_long), batch_tokens)
    if as_json:
        print(printable_json(dataclasses.asdict(report) | {"complaints": report.complaints}, 2))
    else:
        show(report)


def show(report: Report) -> None:
    console = SafeConsole()
    table = Table(title=printable(f"{report.source} for {report.task}"), title_justify="left")
    table.add_column("split")
    for column in ("records", "examples", "source tokens", "target tokens", "unknown", "padding"):
        table.add_column(column, justify="right")
    for split in report.splits:
        table.add_row(
            printable(split.name),
            f"{split.records:,}",
            f"{split.examples:,}",
            _lengths(split.source),
            _lengths(split.target),
            f"{split.unknown_share:.2%}",
            f"{split.padding_share:.1%}",
        )
    console.print(table)
    console.print(f"Token columns: mean (longest). Vocabulary: {report.vocabulary:,}, {report.tokenizer}.")
    if report.labels:
        total = sum(report.labels.values())
        parts = (f"{shortened(label, 40)} {count / total:.1%}" for label, count in report.labels.items())
        console.print(printable(f"Classes in train: {listed(parts, 12)}"))
    for source, target, source_tokens, target_tokens in report.shown:
        console.print()
        for name, text, tokens in (("source", source, source_tokens), ("target", target, target_tokens)):
            if text:
                console.print(printable(f"{name}: {shortened(text, 300)}"))
                console.print(printable(f"        {shortened(' '.join(tokens), 300)}"), style="dim")
    if report.complaints:
        console.print("\nNotes:")
        for line in report.complaints:
            console.print(printable(f"- {line}"))


def _lengths(lengths: Lengths | None) -> str:
    return "" if lengths is None else f"{lengths.mean:,.1f} ({lengths.longest:,})"
