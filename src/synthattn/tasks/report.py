"""Report the content of a source for a task, and all problems with it."""

import hashlib
import itertools
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from synthattn.data.batching import TokenBatches
from synthattn.data.source import Source
from synthattn.data.tokenizers import TokenizerKind, cached_tokenizer
from synthattn.tasks.base import Example, Task
from synthattn.tasks.classification import Classification
from synthattn.tasks.encoding import Limits, UsableRecords, encode, examples, no_train_split, reading

SHOWN = 3


@dataclass
class Lengths:
    """Summary of text lengths in tokens."""

    mean: float
    median: int
    longest: int

    @classmethod
    def of(cls, lengths: Any) -> "Lengths":
        if len(lengths) == 0:
            return cls(0.0, 0, 0)
        return cls(round(float(np.mean(lengths)), 1), int(np.median(lengths)), int(np.max(lengths)))


@dataclass
class SplitReport:
    """Counts, problems and lengths of one split."""

    name: str
    records: int = 0
    examples: int = 0
    problems: int = 0
    first_problems: list[str] = field(default_factory=list)
    repeated: int = 0
    """Examples that occur more than once in this split."""
    also_in_train: int = 0
    """Examples that also occur in the training split."""
    source: Lengths | None = None
    target: Lengths | None = None
    truncated: int = 0
    dropped: int = 0
    unknown_share: float = 0.0
    padding_share: float = 0.0


@dataclass
class Report:
    """Report on a source, as a task reads it."""

    source: str
    task: str
    fingerprint: str
    notes: list[str]
    splits: list[SplitReport]
    vocabulary: int
    tokenizer: str
    shown: list[tuple[str, str, list[str], list[str]]]
    """A few examples: source and target as texts and as tokens."""
    labels: dict[str, int] = field(default_factory=dict)
    """Number of training examples of each class."""
    without_train: str = ""
    """Message about a missing train split, without which nothing can be trained."""

    @property
    def complaints(self) -> list[str]:
        """Return the remarks that a user should read before training, one line each."""
        found = [note for note in (self.without_train, *self.notes) if note]
        for split in self.splits:
            found += split.first_problems
            if split.problems > len(split.first_problems):
                found.append(f"{split.name}: {split.problems - len(split.first_problems)} more examples like these")
            counts = {
                "also in train": split.also_in_train,
                "repeating others": split.repeated,
                "too long, and truncated": split.truncated,
                "too long, and dropped": split.dropped,
            }
            found += [f"{split.name}: {n:,} of {split.examples:,} examples {what}" for what, n in counts.items() if n]
        return found


def examine(
    source: Source,
    task: Task,
    tokenizer: TokenizerKind = "unigram",
    vocab_size: int = 8000,
    limits: Limits | None = None,
    batch_tokens: int = 4096,
) -> Report:
    """Read all splits, train a tokenizer on the first, and measure the data as a model would see it."""
    limits = limits or Limits(512, 512)
    train = "train" if "train" in source.splits else source.splits[0]
    if isinstance(task, Classification):
        task = task.with_labels(source.read(train))
    in_train: set[int] = set()
    reports = [_count(source, task, train, in_train, is_train=True)]
    if not reports[0].examples:
        reason = next(iter(reports[0].first_problems), "it has no records")
        raise ValueError(f"no record of {train} can be used for {task.name}, of {reports[0].records:,}: {reason}")
    others = (split for split in source.splits if split != train)
    reports += [_count(source, task, split, in_train, is_train=False) for split in others]
    usable = UsableRecords(source, task)
    texts = (text for e in examples(task, usable, train) for text in (e.source, e.target) if text)
    trained, _ = cached_tokenizer(tokenizer, texts, vocab_size, usable.fingerprint(), task.name)
    for report in reports:
        _measure(report, usable, task, trained, limits, batch_tokens)
    shown = [
        (e.source, e.target, trained.tokenize(e.source), trained.tokenize(e.target))
        for e in itertools.islice(examples(task, usable, train), SHOWN)
    ]
    without_train = "" if train == "train" else no_train_split(source)
    doubt = task.doubt if isinstance(task, Classification) else ""
    notes = [*source.notes, "" if without_train else reading(task, usable), doubt]
    return Report(
        source.name,
        task.name,
        source.fingerprint(),
        [note for note in notes if note],
        reports,
        len(trained),
        tokenizer,
        shown,
        _labels(task, usable, train),
        without_train,
    )


def _count(source: Source, task: Task, split: str, in_train: set[int], is_train: bool) -> SplitReport:
    report = SplitReport(split)
    seen: set[int] = set()
    for record in source.read(split):
        report.records += 1
        try:
            found = [example for example in task.examples(record) if is_train or example.evaluated]
        except ValueError as error:
            report.problems += 1
            if len(report.first_problems) < SHOWN:
                report.first_problems.append(str(error))
            continue
        for example in found:
            report.examples += 1
            mark = _mark(example)
            report.repeated += mark in seen
            report.also_in_train += not is_train and mark in in_train
            seen.add(mark)
    if is_train:
        in_train |= seen
    return report


def _mark(example: Example) -> int:
    """Return a hash of eight bytes for an example, so that sets of them stay small."""
    text = f"{example.source}\x1f{example.target}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")


def _measure(
    report: SplitReport, source: Source, task: Task, tokenizer: Any, limits: Limits, batch_tokens: int
) -> None:
    if report.examples == 0:
        return
    found = encode(task, source, report.name, tokenizer, limits, training=report.name == "train")
    report.truncated, report.dropped = found.counts.truncated, found.counts.dropped
    report.unknown_share = found.counts.unknown / max(1, found.counts.tokens)
    whole = task.kind in ("causal-lm", "span-corruption")
    if not whole:
        report.source = Lengths.of(found.source.lengths)
    if task.kind != "classification":
        report.target = Lengths.of(found.target.lengths)
    if len(found.source) and not getattr(task, "packed", False):
        longer = np.maximum(found.source.lengths, found.target.lengths)
        report.padding_share = TokenBatches(longer, max(batch_tokens, int(longer.max())), seed=0).padding_share()


def _labels(task: Task, source: Source, train: str) -> dict[str, int]:
    if not hasattr(task, "labels"):
        return {}
    return dict(sorted(Counter(example.target for example in examples(task, source, train)).items()))
