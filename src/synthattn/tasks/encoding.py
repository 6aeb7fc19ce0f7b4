"""Encode a split as token ids on disk, once, and read it as often as needed."""

import contextlib
import itertools
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from synthattn.data import cache, encoded
from synthattn.data.source import Record, Source, WrappedSource
from synthattn.messages import printable
from synthattn.saved_file import read_dataclass
from synthattn.tasks.base import Example, Task

OverLong = Literal["truncate", "drop"]
CHUNK = 1000


@dataclass(frozen=True)
class Limits:
    """Maximum lengths of texts in tokens, the end token included, and the treatment of longer texts."""

    source: int
    target: int
    over_long: OverLong = "truncate"


@dataclass
class Counts:
    """Counts of encoded, shortened and omitted examples."""

    examples: int = 0
    """Examples that were kept."""
    truncated: int = 0
    dropped: int = 0
    """Examples that were too long, if these are dropped."""
    not_trained: int = 0
    """Examples for evaluation only, which are left out of training."""
    tokens: int = 0
    unknown: int = 0
    """Tokens that are not in the vocabulary."""


@dataclass(frozen=True)
class EncodedSplit:
    """Encoded sources and targets of a split, with counts; sources are empty if the task has none."""

    source: encoded.Encoded
    target: encoded.Encoded
    counts: Counts
    folder: Path


class UsableRecords(WrappedSource):
    """A source without the records that a task cannot use; their number is noted after a split was read."""

    def __init__(self, source: Source, task: Task) -> None:
        super().__init__(source)
        self.task = task

    def records(self, split: str) -> Iterator[Record]:
        count, first = 0, ""
        for record in self.source.read(split):
            error = problem(self.task, record)
            if error is None:
                yield record
            else:
                count, first = count + 1, first or str(error)
        if count:
            self.note(f"{split}: {count:,} records left out that cannot be used, the first: {first}")

    def fingerprint(self) -> str:
        return self.source.fingerprint() + " without what cannot be used"


def problem(task: Task, record: Record) -> ValueError | None:
    """Return the reason for which a task cannot use a record; None if it can."""
    try:
        for _ in task.examples(record):
            pass
    except ValueError as error:
        return error
    return None


def reading(task: Task, source: Source) -> str:
    """Return a sentence about guessed columns, judged by the first training record; empty if none was guessed."""
    first = next(iter(source.read("train")), None)
    found = "" if first is None else task.reading(first)
    return found and f"{printable(source.name)}: {found}"


def no_train_split(source: Source) -> str:
    """Return the message about a source that has no train split."""
    return f"{source.name} has no train split, only {', '.join(source.splits)}; name a file train.*"


MOST_COUNTED = 100_000
"""Maximum number of records that are read only to count those that cannot be used."""


def examples(task: Task, source: Source, split: str, training: bool = False) -> Iterator[Example]:
    """Yield the examples of a split that are for training, or those that are for evaluation."""
    every = _every(task, source, split, training)
    return (example for example in every if (example.trained if training else example.evaluated))


def _every(task: Task, source: Source, split: str, training: bool) -> Iterator[Example]:
    """Yield all examples of a split. In training, an error also says how many records cannot be used."""
    records = source.read(split)
    for record in records:
        try:
            yield from task.examples(record)
        except ValueError as error:
            if not training:
                raise
            rest = itertools.islice(records, MOST_COUNTED)
            count = 1 + sum(problem(task, one) is not None for one in rest)
            which, them = ("1 such record", "it") if count == 1 else (f"{count:,} such records", "them")
            raise ValueError(f"{error} ({which} in {split}; --skip-bad leaves {them} out)") from error


def encode(
    task: Task, source: Source, split: str, tokenizer: Any, limits: Limits, training: bool = True
) -> EncodedSplit:
    """Encode a split, or load it from the cache.

    Texts for language modelling stay whole, because packing cuts them. A classifier's target is the class number.
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

    folder = cache.cached_folder("encoded", name, make)
    counts = read_dataclass(Counts, folder / "counts.json", f"is damaged; delete {folder}, and it is made again")
    return EncodedSplit(encoded.Encoded(folder, "source"), encoded.Encoded(folder, "target"), counts, folder)


def _encoded(
    task: Task, source: Source, split: str, tokenizer: Any, limits: Limits, training: bool, counts: Counts
) -> Iterator[tuple[list[int], list[int]]]:
    whole = task.kind in ("causal-lm", "span-corruption")
    every = _every(task, source, split, training)
    while chunk := list(itertools.islice(every, CHUNK)):
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
    """Return token ids with the end token; an empty text has no ids."""
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
    # Keep the end token last: without it, the model would be asked to continue the text.
    read = read if len(read) <= limits.source else [*read[: limits.source - 1], end]
    written = written if len(written) <= limits.target else [*written[: limits.target - 1], end]
    return read, written
