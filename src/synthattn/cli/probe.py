"""The verb ``synthattn probe``."""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from synthattn.bench.replaced_layers import ShareSaved, TimesSaved, time_saved
from synthattn.cli.command import command
from synthattn.convert.probe import (
    Effect,
    Probe,
    check_vocabulary,
    kind_of,
    longest_input,
    make_batches,
    probe,
    usual_length,
)
from synthattn.messages import listed, printable_json, shortened
from synthattn.render import terminal
from synthattn.render.charts import Key, Line, Lines
from synthattn.render.document import Block, Command, Document, Figures, Heading, Paragraph, Section
from synthattn.render.html import page as html
from synthattn.render.table import Cell, Column, Row, Table, number_cell
from synthattn.saved_file import write_text
from synthattn.terminal import SafeConsole

LEAST = 4
"""The smallest number of texts."""


def run(
    folder: str,
    data: Path,
    max_length: int | None,
    limit: int,
    batch: int,
    heads: bool,
    report: Path | None,
    as_json: bool,
) -> None:
    for name, value in (("--max-length", max_length), ("--batch", batch)):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if limit < LEAST:
        raise ValueError(f"--limit must be at least {LEAST}, got {limit}")
    if report is not None and not report.parent.is_dir():
        raise ValueError(f"{report}: there is no folder {report.parent}")
    lines = read_lines(data, limit, LEAST)
    model, tokenizer = load(folder)
    kind = kind_of(model)
    longest = longest_input(model)
    if longest is not None and max_length is not None and max_length > longest:
        raise ValueError(f"--max-length is {max_length}, but {folder} has {longest} positions; give at most {longest}")
    length = max_length or usual_length(model)
    texts, labels = labelled(lines, model, data) if kind == "class" else (lines, None)
    half = len(texts) // 2
    parts = [
        make_batches(texts[part], None if labels is None else labels[part], tokenizer, kind, length, batch)
        for part in (slice(0, half), slice(half, None))
    ]
    for batches in parts:
        check_vocabulary(batches, model)
    found, times = probe(model, parts[0], parts[1], length, heads), time_saved(model, parts[1], length)
    said = f"{sentence(found)} {time_sentence(times)} {layer_names(found)}"
    if report is not None:
        write_text(report, page(found, times, said))
    if as_json:
        print(printable_json(dataclasses.asdict(found) | {"time": dataclasses.asdict(times)}, 2))
        return
    console = SafeConsole()
    for table in tables(found, times):
        terminal.show(console, [table])
    console.print(said)


def read_lines(file: Path, limit: int, least: int) -> list[str]:
    """Read the texts of a file, one in each line."""
    if not file.is_file():
        raise ValueError(f"{file} is not a file; give a file with a text per line")
    try:
        with file.open(encoding="utf-8-sig", newline="\n") as opened:
            lines = list(itertools.islice((line.rstrip("\r\n") for line in opened if line.strip()), limit))
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not UTF-8: {error.reason} at byte {error.start}") from error
    if len(lines) < least:
        raise ValueError(f"{file} has {len(lines)} texts, this needs at least {least}")
    return lines


def labelled(lines: list[str], model: Any, file: Path) -> tuple[list[str], list[int] | None]:
    """Split lines into texts and the numbers of their labels, which stand behind a tab; None if no line has one."""
    pairs = [line.rpartition("\t") for line in lines]
    without = [number for number, (_, tab, _) in enumerate(pairs, start=1) if not tab]
    if len(without) == len(lines):
        return lines, None
    if without:
        raise ValueError(
            f"{file}: text {without[0]} has no tab and label, others have; give all texts a label, or none"
        )
    known = {str(number): number for number in range(model.config.num_labels)} | {
        str(name): int(number) for name, number in (model.config.label2id or {}).items()
    }
    unknown = sorted({label.strip() for _, _, label in pairs} - known.keys())
    if unknown:
        raise ValueError(f"{file} has labels that the model does not know: {listed((repr(u) for u in unknown), 5)}")
    return [text for text, _, _ in pairs], [known[label.strip()] for _, _, label in pairs]


def load(folder: str) -> tuple[Any, Any]:
    """Load a saved model, in float32, and its tokenizer."""
    if not Path(folder).is_dir():
        raise ValueError(f"there is no folder {folder}; give that of a model of transformers, with its tokenizer")
    import torch
    import transformers

    transformers.logging.disable_progress_bar()
    transformers.logging.set_verbosity_error()
    own: dict[str, Any] = {"trust_remote_code": False}
    try:
        config: Any = transformers.AutoConfig.from_pretrained(folder, **own)
        if getattr(config, "synthattn", None) is not None:
            raise ValueError("its attention was replaced already; give the original model")
        name = (config.architectures or ["none"])[0]
        kind = getattr(transformers, name, None)
        if kind is None:
            raise ValueError(f"transformers has no model class {name!r}")
        model, report = kind.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
        if report["missing_keys"]:
            raise ValueError(f"it lacks weights of a {name}: {listed(sorted(report['missing_keys']), 3)}")
        return model.eval(), transformers.AutoTokenizer.from_pretrained(folder, **own)
    except (OSError, ValueError, KeyError, ImportError, RuntimeError) as error:
        raise ValueError(f"{folder} cannot be loaded: {shortened(' '.join(str(error).split()), 300)}") from error


MEASURES: dict[str, tuple[str, Callable[[Any], str]]] = {
    "kl": ("lower", lambda value: f"{value:.4f}"),
    "agreement": ("higher", lambda value: f"{value:.1%}"),
    "accuracy": ("higher", lambda value: f"{value:.1%}"),
}
"""Figures of an effect: which direction is better, and their digits."""


def tables(found: Probe, times: TimesSaved) -> list[Table]:
    """Return the effects of each layer, and, measure by measure, those of more and more layers."""
    alone = Table(
        "Each attention replaced by its mean, alone",
        "layer",
        [Row(str(number)) for number in range(len(found.names))],
        [
            *(_column(_title(name), name, [[effect] for effect in found.single]) for name in MEASURES),
            Column("parameters saved", [number_cell(saved, lambda value: f"{value:,}") for saved in found.saved]),
            Column("time saved", [_time_cell(share) for share in times.layers]),
        ],
    )
    rows = [Row(str(count)) for count in range(1, len(found.names) + 1)]
    more = [
        Table(
            f"{_title(name)} with several layers replaced together",
            "layers replaced",
            rows,
            [_column(title, name, list(zip(*lists, strict=True))) for title, lists in _orders(found).items()],
        )
        for name in MEASURES
        if name != "accuracy" or found.accuracy is not None
    ]
    if found.heads:
        ends = [[sorted(range(len(row)), key=lambda n: row[n].kl)[end] for row in found.heads] for end in (0, -1)]
        columns = [
            Column(title, [_head_cell(row[n], n) for row, n in zip(found.heads, which, strict=True)])
            for title, which in zip(("lowest KL", "highest KL"), ends, strict=True)
        ]
        columns.append(_column("KL of all heads", "kl", [[effect] for effect in found.single]))
        more.append(Table("One head of a layer replaced by its mean", "layer", alone.rows, columns).filled())
    return [alone.filled(), *more]


def page(found: Probe, times: TimesSaved, said: str) -> str:
    """Return a page with the charts, the sentences and the tables, as one HTML file."""
    charts = [chart(found, name, _title(name)) for name in MEASURES if name != "accuracy" or found.accuracy is not None]
    blocks: list[Block] = [Figures(charts)]
    for table in tables(found, times):
        blocks += [Heading(table.title), table]
    lead = [Paragraph(said), Command(command())]
    title = "Which layers need their dot products?"
    return html(Document(title, "synthattn probe", lead, [Section("layers", "Layers replaced by their mean", blocks)]))


def chart(found: Probe, name: str, title: str) -> Lines:
    """Draw a measure against the number of layers that are replaced, in three orders."""
    factor = 1 if name == "kl" else 100
    start = {"kl": 0.0, "agreement": 1.0, "accuracy": found.accuracy or 0.0}[name]
    lines = []
    for place, (order, lists) in reversed(list(enumerate(_orders(found).items(), start=1))):
        columns = [[factor * getattr(effect, name) for effect in column] for column in zip(*lists, strict=True)]
        means = [(n, sum(values) / len(values)) for n, values in enumerate(columns, start=1)]
        band = [(n, min(values), max(values)) for n, values in enumerate(columns, start=1)] if len(lists) > 1 else []
        lines.append(Line(order, place, [(0, factor * start), *means], band=band))
    up = {"kl": "KL, nats", "agreement": "predictions that stay, %", "accuracy": "right, %"}[name]
    keys = [Key(line.place, line.name) for line in reversed(lines)]
    return Lines(title, "layers replaced", up, lines, width=420, legend=keys)


def _orders(found: Probe) -> dict[str, list[list[Effect]]]:
    return {"lowest KL first": [found.lowest], "first layers": [found.first], "random order": found.drawn}


def _head_cell(effect: Effect, head: int) -> Cell:
    return Cell(f"{effect.kl:.4f}", f"(head {head})", key=effect.kl)


def _title(name: str) -> str:
    return "KL" if name == "kl" else name


def _column(head: str, name: str, rows: Sequence[Sequence[Effect]]) -> Column:
    """Return a column with the mean of a measure in each row."""
    direction, digits = MEASURES[name]
    values = [[getattr(effect, name) for effect in effects] for effects in rows]
    means = [None if None in row else sum(row) / len(row) for row in values]
    return Column(head, [number_cell(mean, digits) for mean in means], direction=direction)


def _time_cell(share: ShareSaved) -> Cell:
    return Cell(f"{share.median:.1%}", f"({share.low:.1%} to {share.high:.1%})", key=share.median)


def layer_names(found: Probe) -> str:
    """Say which modules the numbers of the layers stand for."""
    if len(found.names) == 1:
        return f"Layer 0 is {found.names[0]}."
    return f"Layer 0 is {found.names[0]}, layer {len(found.names) - 1} is {found.names[-1]}; --json lists all."


def sentence(found: Probe) -> str:
    """Say how many layers can be replaced before one prediction in a hundred changes."""
    kept = [len(effect.layers) for effect in found.lowest if effect.agreement >= 0.99]
    original = "" if found.accuracy is None else f" The original is right in {found.accuracy:.1%}."
    total = len(found.names)
    return (
        f"{max(kept, default=0)} of {total} layers, lowest KL first, can be replaced by their mean attention before "
        f"more than 1 % of {found.predictions:,} predictions change.{original} Nothing was trained."
    )


def time_sentence(times: TimesSaved) -> str:
    """Say how fast the model is with ``random`` in all layers, and how the times were measured."""
    return (
        f"With random in all layers, a forward pass is {times.faster:.2f} times as fast. Time saved is a part of the "
        f"forward pass of the original, {times.seconds:.3g} s for {times.batch} texts of {times.length} tokens: median "
        f"and quartiles of {times.rounds} rounds, threads: {times.threads}."
    )
