"""The verb ``synthattn probe``."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from synthattn.convert.probe import Effect, Probe, kind_of, make_batches, probe
from synthattn.messages import listed, printable, printable_json, shortened
from synthattn.render import terminal
from synthattn.render.table import Cell, Column, Row, Table, number_cell
from synthattn.terminal import SafeConsole

LEAST = 4
"""The smallest number of texts."""


def run(folder: str, data: Path, max_length: int, limit: int, batch: int, as_json: bool) -> None:
    for name, value in (("--max-length", max_length), ("--batch", batch)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if limit < LEAST:
        raise ValueError(f"--limit must be at least {LEAST}, got {limit}")
    texts, labels = read_texts(data, limit)
    model, tokenizer = _load(folder)
    kind = kind_of(model)
    numbers = None if labels is None else _numbered(labels, model.config, data) if kind == "class" else None
    half = len(texts) // 2
    parts = [
        make_batches(texts[part], None if numbers is None else numbers[part], tokenizer, kind, max_length, batch)
        for part in (slice(0, half), slice(half, None))
    ]
    found = probe(model, parts[0], parts[1], max_length)
    if as_json:
        print(printable_json(dataclasses.asdict(found), 2))
        return
    console = SafeConsole()
    for table in tables(found):
        terminal.show(console, [table])
    console.print(sentence(found))


def read_texts(file: Path, limit: int) -> tuple[list[str], list[str] | None]:
    """Read a text per line, with the label of a classifier after a tab."""
    if not file.is_file():
        raise ValueError(f"{file} is not a file; give a file with a text per line")
    try:
        lines = [line for line in file.read_text(encoding="utf-8-sig").split("\n") if line.strip()][:limit]
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not UTF-8: {error.reason} at byte {error.start}") from error
    if len(lines) < LEAST:
        raise ValueError(f"{file} has {len(lines)} texts, probe needs at least {LEAST}")
    pairs = [line.rstrip("\r").rpartition("\t") for line in lines]
    if all(tab for _, tab, _ in pairs):
        return [text for text, _, _ in pairs], [label.strip() for _, _, label in pairs]
    return [line.rstrip("\r") for line in lines], None


def _load(folder: str) -> tuple[Any, Any]:
    if not Path(folder).is_dir():
        raise ValueError(f"there is no folder {folder}; give that of a model of transformers, with its tokenizer")
    import transformers

    transformers.logging.disable_progress_bar()
    try:
        config: Any = transformers.AutoConfig.from_pretrained(folder)
        name = (config.architectures or ["none"])[0]
        kind = getattr(transformers, name, None)
        if kind is None:
            raise ValueError(f"transformers has no model class {name!r}")
        return kind.from_pretrained(folder), transformers.AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{folder} cannot be loaded: {shortened(' '.join(str(error).split()), 300)}") from error


def _numbered(labels: list[str], config: Any, file: Path) -> list[int]:
    """Return the labels as numbers: their own, or those of their names in the configuration."""
    known = {str(number): number for number in range(config.num_labels)} | {
        str(name): int(number) for name, number in (config.label2id or {}).items()
    }
    unknown = sorted({label for label in labels if label not in known})
    if unknown:
        raise ValueError(f"{file} has labels that the model does not know: {listed((repr(u) for u in unknown), 5)}")
    return [known[label] for label in labels]


def tables(found: Probe) -> list[Table]:
    """Return the effects of each layer, and those of more and more layers."""
    alone = Table(
        "Each attention replaced by its mean, alone",
        "layer",
        [Row(f"{number} {printable(name)}") for number, name in enumerate(found.names)],
        [
            *_columns("", found.single),
            Column("parameters saved", [number_cell(saved, lambda value: f"{value:,}") for saved in found.saved]),
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
