"""A split of a source as token ids on disk: made once, read as often as wanted."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from synthattn.data import cache, encoded
from synthattn.data.source import Source
from synthattn.tasks.base import Example, Task

OverLong = Literal["truncate", "drop"]
CHUNK = 1000


@dataclass(frozen=True)
class Limits:
    """How long texts may be, in tokens, the end token included; and what is done with longer ones."""

    source: int
    target: int
    over_long: OverLong = "truncate"


@dataclass
class Counts:
    """What happened to the examples on the way."""

    examples: int = 0
    """Those that are left."""
    truncated: int = 0
    dropped: int = 0
    """Too long, where these are dropped."""
    not_trained: int = 0
    """Those that a task has for evaluation only, left out of training."""
    tokens: int = 0
    unknown: int = 0
    """Tokens that the vocabulary does not have."""


@dataclass(frozen=True)
class EncodedSplit:
    """The two sides of all examples, ``source`` being empty texts where a task has none; and what was left out."""

    source: encoded.Encoded
    target: encoded.Encoded
    counts: Counts
    folder: Path


def examples(task: Task, source: Source, split: str, training: bool = False) -> Iterator[Example]:
    """The examples of a split that are for training, or those that are for evaluation, one at a time."""
    for record in source.read(split):
        for example in task.examples(record):
            if example.trained if training else example.evaluated:
                yield example


def encode(
    task: Task, source: Source, split: str, tokenizer: Any, limits: Limits, training: bool = True
) -> EncodedSplit:
    """Encode a split, or find it encoded.

    Language modelling keeps texts whole, since they are cut when they are packed; a classifier's target is the number
    of the class.
    """
    vocabulary = cache.key(tokenizer.backend_tokenizer.to_str())
    labels = getattr(getattr(task, "labels", None), "names", "")
    name = cache.key("2", source.fingerprint(), split, task.name, labels, vocabulary, limits, training)

    def make(folder: Path) -> None:
        counts = Counts()
        size = max(len(tokenizer), len(labels))
        with (
            contextlib.closing(encoded.Writer(folder, "source", size)) as sources,
            contextlib.closing(encoded.Writer(folder, "target", size)) as targets,
        ):
            for read, written in _encoded(task, source, split, tokenizer, limits, training, counts):
                sources.add(read)
                targets.add(written)
        (folder / "counts.json").write_text(json.dumps(asdict(counts)))

    folder = cache.made_once("encoded", name, make)
    try:
        counts = Counts(**json.loads((folder / "counts.json").read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(f"{folder} is damaged ({error}); remove it, and it is made again") from error
    return EncodedSplit(encoded.Encoded(folder, "source"), encoded.Encoded(folder, "target"), counts, folder)


def _encoded(
    task: Task, source: Source, split: str, tokenizer: Any, limits: Limits, training: bool, counts: Counts
) -> Iterator[tuple[list[int], list[int]]]:
    whole = task.kind in ("causal-lm", "span-corruption")
    every = (example for record in source.read(split) for example in task.examples(record))
    for chunk in _chunks(every):
        kept = [example for example in chunk if (example.trained if training else example.evaluated)]
        counts.not_trained += sum(not example.trained for example in chunk) if training else 0
        if not kept:
            continue
        sources = _ids(tokenizer, [example.source for example in kept])
        if task.kind == "classification":
            targets = [[int(example.reference)] for example in kept]
        else:
            targets = _ids(tokenizer, [example.target for example in kept])
        for read, written in zip(sources, targets, strict=True):
            pair = (read, written) if whole else _limited(read, written, tokenizer.eos_token_id, limits, counts)
            if pair is None:
                counts.dropped += 1
                continue
            counts.examples += 1
            seen = pair[0] if task.kind == "classification" else [*pair[0], *pair[1]]
            counts.tokens += len(seen)
            counts.unknown += seen.count(tokenizer.unk_token_id)
            yield pair


def _ids(tokenizer: Any, texts: list[str]) -> list[list[int]]:
    """Ids with the end token; nothing at all for an empty text."""
    found = tokenizer(texts).input_ids
    return [ids if text else [] for text, ids in zip(texts, found, strict=True)]


def _limited(
    read: list[int], written: list[int], end: int, limits: Limits, counts: Counts
) -> tuple[list[int], list[int]] | None:
    if len(read) <= limits.source and len(written) <= limits.target:
        return read, written
    if limits.over_long == "drop":
        return None
    counts.truncated += 1
    # The end token stays the last one: a text without it would ask the model to go on.
    read = read if len(read) <= limits.source else [*read[: limits.source - 1], end]
    written = written if len(written) <= limits.target else [*written[: limits.target - 1], end]
    return read, written


def _chunks(items: Iterator[Example]) -> Iterator[list[Example]]:
    chunk: list[Example] = []
    for item in items:
        chunk.append(item)
        if len(chunk) == CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
