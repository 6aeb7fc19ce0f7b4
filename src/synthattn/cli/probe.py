"""The verb ``synthattn probe``."""

import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from synthattn.bench.replaced_layers import ShareSaved, TimesSaved, time_saved
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
from synthattn.messages import listed, printable, printable_json, shortened
from synthattn.render import terminal
from synthattn.render.table import Cell, Column, Row, Table, number_cell
from synthattn.terminal import SafeConsole

LEAST = 4
"""The smallest number of texts."""


def run(folder: str, data: Path, max_length: int | None, limit: int, batch: int, as_json: bool) -> None:
    for name, value in (("--max-length", max_length), ("--batch", batch)):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if limit < LEAST:
        raise ValueError(f"--limit must be at least {LEAST}, got {limit}")
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
    found, times = probe(model, parts[0], parts[1], length), time_saved(model, parts[1], length)
    if as_json:
        print(printable_json(dataclasses.asdict(found) | {"time": dataclasses.asdict(times)}, 2))
        return
    console = SafeConsole()
    for table in tables(found, times):
        terminal.show(console, [table])
    console.print(f"{sentence(found)} {time_sentence(times)}")


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


def tables(found: Probe, times: TimesSaved) -> list[Table]:
    """Return the effects of each layer, and those of more and more layers."""
    alone = Table(
        "Each attention replaced by its mean, alone",
        "layer",
        [Row(f"{number} {printable(name)}") for number, name in enumerate(found.names)],
        [
            *_columns("", found.single),
            Column("parameters saved", [number_cell(saved, lambda value: f"{value:,}") for saved in found.saved]),
            Column("time saved", [_time_cell(share) for share in times.layers]),
        ],
    )
    count = range(len(found.names))
    orders = {"lowest KL first": [found.lowest], "first layers": [found.first], "random order": found.drawn}
    columns = []
    for title, lists in orders.items():
        means = [_mean([effects[n] for effects in lists]) for n in count]
        columns += _columns(title, means)
    more = Table(
        "The first layers of an order replaced together", "replaced", [Row(str(n + 1)) for n in count], columns
    )
    return [alone.filled(), more.filled()]


def _time_cell(share: ShareSaved) -> Cell:
    return Cell(f"{share.median:.1%}", f"({share.low:.1%} to {share.high:.1%})", key=share.median)


def _columns(group: str, effects: list[Effect]) -> list[Column]:
    def cells(digits: Callable[[Any], str], name: str) -> list[Cell]:
        return [number_cell(getattr(effect, name), digits) for effect in effects]

    return [
        Column("KL", cells(lambda value: f"{value:.4f}", "kl"), direction="lower", group=group),
        Column("agreement", cells(lambda value: f"{value:.1%}", "agreement"), direction="higher", group=group),
        Column("accuracy", cells(lambda value: f"{value:.1%}", "accuracy"), direction="higher", group=group),
    ]


def _mean(effects: list[Effect]) -> Effect:
    def mean(name: str) -> float:
        return sum(getattr(effect, name) for effect in effects) / len(effects)

    known = all(effect.accuracy is not None for effect in effects)
    return Effect((), mean("kl"), mean("agreement"), mean("accuracy") if known else None)


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
