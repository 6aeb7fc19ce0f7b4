"""Prepare data for training and evaluation: tasks, a tokenizer, and examples as token ids."""

import itertools
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from synthattn.data.cache import key
from synthattn.data.encoded import Encoded, Pieces, cut, packed
from synthattn.data.holdout import HeldOut
from synthattn.data.open import open_source, parse_columns, used_columns
from synthattn.data.source import FirstRecords, Source, check_split
from synthattn.data.tokenizers import cached_tokenizer
from synthattn.messages import suggestion
from synthattn.tasks import SUITES, find_task
from synthattn.tasks.base import Example, Kind, Task
from synthattn.tasks.classification import Classification
from synthattn.tasks.encoding import EncodedSplit, Limits, UsableRecords, encode, examples, no_train_split, reading
from synthattn.tasks.inputs import ClassInputs, Inputs, MixedInputs, PairInputs, TextInputs, span_inputs
from synthattn.training.model import load_tokenizer_of
from synthattn.training.settings import DataSettings

SPAN_SEED = 0
"""Seed of span corruption in training and evaluation, independent of the seed of the run."""


@dataclass
class TaskData:
    """A task with the source of its data; a run has several if it learns a suite."""

    task: Task
    source: Source

    def examples(self, split: str, limit: int | None = None, training: bool = False) -> list[Example]:
        """Return the examples of a split, up to ``limit``."""
        return list(itertools.islice(examples(self.task, self.source, split, training), limit))

    def evaluation_splits(self, chosen: str | None) -> dict[str, str]:
        """Return the splits to score by name: usually one; MNLI has two, which are scored as two tasks."""
        splits = self.source.splits
        if chosen is not None:
            check_split(self.source, chosen)
        else:
            chosen = next((split for split in self.task.scored_on if split in splits), splits[-1])
        parts = {f"{self.task.name}-{end}": f"{chosen}_{end}" for end in ("matched", "mismatched")}
        return parts if all(split in splits for split in parts.values()) else {self.task.name: chosen}


@dataclass
class Prepared:
    """Prepared data, which does not depend on the model."""

    parts: list[TaskData]
    kind: Kind
    tokenizer: Any
    longest: int
    """Maximum number of tokens of an input."""
    train: Inputs
    validation: Inputs
    facts: dict[str, Any] = field(default_factory=dict)
    """Fingerprints and counts for the record."""
    notes: list[str] = field(default_factory=list)

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the classes; empty unless the task is a classification."""
        task = self.parts[0].task
        return task.labels.names if isinstance(task, Classification) and task.labels else ()


def open_parts(settings: DataSettings) -> list[TaskData]:
    """Open the tasks of a run, each with its source."""
    return [_part(settings, find_task(name), place) for name, place in places(settings)]


def open_for_evaluation(
    settings: DataSettings,
    split: str | None,
    names: Sequence[str] = (),
    learned: Collection[str] | None = None,
) -> list[TaskData]:
    """Open tasks and sources for evaluation only; they need no training split.

    Args:
        settings: settings of the data.
        split: the split that the user chose, if any.
        names: class names of a classifier; by default, the classes in the data.
        learned: fingerprints of the training data of the model. Other data is used whole, without holding out a part.
            None means the data of the run itself.
    """
    parts = []
    for name, place in places(settings):
        task = find_task(name)
        part = TaskData(task, _judged(settings, task, place, split, learned))
        if isinstance(task, Classification):
            part.task = _with_classes(task, part, split, names)
        parts.append(part)
    return parts


def _judged(
    settings: DataSettings, task: Task, place: str, split: str | None, learned: Collection[str] | None
) -> Source:
    source = held_out(settings, task, place)
    if learned is None or source.fingerprint() in learned:
        return source
    # A validation split that does not exist is the split that training would hold out.
    whole = held_out(settings, task, place, whole=True)
    return whole if split == "validation" else whole.source


def held_out(settings: DataSettings, task: Task, place: str, whole: bool = False) -> HeldOut:
    """Open the source of a task, with a validation split that is cut if there is none; see ``_opened``."""
    reads, columns = task.reads(), parse_columns(settings.columns)
    # A task of a suite has other fields than its neighbours, and a translation may name its languages.
    known = {*reads, *(other for names in reads.values() for other in names)}
    unknown = [field for field in columns if field not in known]
    if unknown and known and settings.task not in SUITES and task.kind == "classification":
        raise ValueError(f"{task.name} has no field {unknown[0]!r} for --columns{suggestion(unknown[0], reads)}")
    source = _opened(settings, task, place, whole)
    return HeldOut(source, columns=used_columns(reads, columns))


def _opened(settings: DataSettings, task: Task, place: str, whole: bool) -> Source:
    """Open the source of a task; unless ``whole``, only the records that training may read."""
    source = open_source(place, parse_columns(settings.columns), settings.skip_bad)
    if settings.read_examples is not None and not whole:
        source = FirstRecords(source, settings.read_examples)
    return UsableRecords(source, task) if settings.skip_bad else source


def _with_classes(task: Classification, part: TaskData, split: str | None, names: Sequence[str]) -> Classification:
    if names:
        return task.with_names(names, "the labels of the model")
    if "train" in part.source.splits:
        return task.with_labels(part.source.read("train"))
    scored = list(part.evaluation_splits(split).values())
    return task.with_labels((record for one in scored for record in part.source.read(one)), " and ".join(scored))


def prepare(
    settings: DataSettings,
    longest: int,
    evaluate_tokens: int,
    start: Path | None = None,
    scored: str | None = None,
) -> Prepared:
    """Read, tokenise and encode the data, or load it from the cache.

    Args:
        settings: settings of the data.
        longest: maximum number of tokens of an input.
        evaluate_tokens: number of validation tokens for the validation loss.
        start: a saved model whose tokenizer is used.
        scored: the split that will be scored, if not the usual one. It is read now, so that its errors are reported
            before training.
    """
    parts = open_parts(settings)
    tokenizer = load_tokenizer_of(start) if start is not None else _tokenizer(settings, parts)
    kind = parts[0].task.kind
    limits = Limits(longest, longest, settings.over_long)
    encoded = {
        split: [encode(part.task, part.source, split, tokenizer, limits) for part in parts]
        for split in ("train", "validation")
    }
    train = _inputs(parts, encoded["train"], tokenizer, longest, settings.train_examples, settings.mix_limit, None)
    validation = _inputs(parts, encoded["validation"], tokenizer, longest, None, None, evaluate_tokens)
    for part in parts:
        for split in part.evaluation_splits(scored).values():
            encode_for_evaluation(part, split, tokenizer, longest)
    facts = {
        "sources": {part.source.name: part.source.fingerprint() for part in parts},
        "tokenizer": key(tokenizer.backend_tokenizer.to_str()),
        "vocabulary": len(tokenizer),
        "train_inputs": len(train),
        "validation_inputs": len(validation),
    }
    notes = [note for part in parts for note in (*part.source.notes, reading(part.task, part.source)) if note]
    notes += [part.task.doubt for part in parts if isinstance(part.task, Classification) and part.task.doubt]
    for split, found in encoded.items():
        facts[split] = [asdict(one.counts) for one in found]
        for part, one in zip(parts, found, strict=True):
            for what in ("truncated", "dropped"):
                count = getattr(one.counts, what)
                if count:
                    total = one.counts.examples + one.counts.dropped
                    notes.append(f"{part.source.name}, {split}: {count:,} of {total:,} examples too long, and {what}")
    return Prepared(parts, kind, tokenizer, longest, train, validation, facts, notes)


def check_same_data(
    before: Mapping[str, Any], now: Mapping[str, Any], source: str, since: str, way_out: str, tokenizer: bool = True
) -> None:
    """Raise an error if the training texts, or their tokens, are not those in a record.

    Args:
        before: the facts in a record; empty if nothing was learned yet.
        now: the facts of the present data.
        source: the user's name of the data, which may have moved.
        since: the event since which the data must not have changed, for the message.
        way_out: advice for the message.
        tokenizer: require an identical tokenizer; equal numbers of tokens are required in any case.
    """
    texts = [sorted(facts.get("sources", {}).values()) for facts in (before, now)]
    if texts[0] and texts[0] != texts[1]:
        raise ValueError(f"{source} has changed since {since}; {way_out}")
    if tokenizer and before.get("tokenizer", now["tokenizer"]) != now["tokenizer"]:
        raise ValueError(f"the tokenizer of {source} has changed since {since}; {way_out}")
    counts = [[split["tokens"] for split in facts.get("train", [])] for facts in (before, now)]
    if all(counts) and counts[0] != counts[1]:
        raise ValueError(
            f"{source} has {sum(counts[1]):,} tokens, not {sum(counts[0]):,} as when {since}: another release of "
            f"its tokenizer's library may choose others; install the one that the record names, or {way_out}"
        )


def encode_for_evaluation(part: TaskData, split: str, tokenizer: Any, longest: int) -> EncodedSplit:
    """Encode all examples of a split without dropping any, so that predictions match references."""
    return encode(part.task, part.source, split, tokenizer, Limits(longest, longest, "truncate"), training=False)


def _part(settings: DataSettings, task: Task, place: str) -> TaskData:
    source = held_out(settings, task, place)
    if "train" not in source.splits:
        raise ValueError(no_train_split(source))
    if isinstance(task, Classification):
        task = task.with_labels(source.read("train"))
        task.check_trainable()
    return TaskData(task, source)


def places(settings: DataSettings) -> Iterator[tuple[str, str]]:
    """Yield tasks with their sources; the source of a suite has a folder or a name for each task."""
    if settings.task not in SUITES:
        yield settings.task, settings.source
        return
    names = SUITES[settings.task]
    if settings.source.startswith("builtin:"):
        # Imported late: only users of built-in data need this code.
        from synthattn.data.builtin import BUILTINS

        suite, question, options = settings.source.removeprefix("builtin:").partition("?")
        if suite != settings.task:
            raise ValueError(f"builtin:{suite} is not {settings.task}; write builtin:{settings.task}")
        labels = ((name, f"{suite}/{_short(name)}") for name in names)
        yield from ((name, f"builtin:{label}{question}{options}") for name, label in labels if label in BUILTINS)
        return
    if settings.source.startswith("hub:"):
        yield from ((name, f"{settings.source}/{_short(name)}") for name in names)
        return
    folder = Path(os.path.expanduser(settings.source))
    if not folder.is_dir():
        raise ValueError(f"{settings.task} needs a folder with a folder for each task, there is none at {folder}")
    found = {_short(entry.name): entry for entry in sorted(folder.iterdir()) if entry.is_dir()}
    some = [(name, str(found[_short(name)])) for name in names if _short(name) in found]
    if not some:
        raise ValueError(f"{folder} holds no folder of a task of {settings.task}, such as {_short(names[0])}")
    yield from some


def _short(name: str) -> str:
    return name.lower().removeprefix("superglue-").replace("-", "").replace("_", "")


def _tokenizer(settings: DataSettings, parts: list[TaskData]) -> Any:
    texts = (
        text
        for part in parts
        for example in examples(part.task, part.source, "train", training=True)
        for text in ((example.source,) if part.task.kind == "classification" else (example.source, example.target))
        if text
    )
    fingerprint = key(*(part.source.fingerprint() for part in parts))
    names = ",".join(part.task.name for part in parts)
    tokenizer, _ = cached_tokenizer(settings.tokenizer, texts, settings.vocab_size, fingerprint, names)
    return tokenizer


def _inputs(
    parts: list[TaskData],
    encoded: list[EncodedSplit],
    tokenizer: Any,
    longest: int,
    limit: int | None,
    mix_limit: int | None,
    tokens: int | None,
) -> Inputs:
    found = [_one(part.task, one, tokenizer, longest, limit, tokens) for part, one in zip(parts, encoded, strict=True)]
    for part, inputs in zip(parts, found, strict=True):
        if len(inputs) == 0:
            raise ValueError(f"{part.source.name}: no example is left to learn from")
    return found[0] if len(found) == 1 else MixedInputs(found, mix_limit)


def _one(
    task: Task, split: EncodedSplit, tokenizer: Any, longest: int, limit: int | None, tokens: int | None
) -> Inputs:
    inputs: Inputs
    if task.kind == "seq2seq":
        inputs = PairInputs(split, limit)
    elif task.kind == "classification":
        inputs = ClassInputs(split, limit)
    elif task.kind == "span-corruption":
        inputs = span_inputs(split.target, longest, tokenizer, SPAN_SEED)
        inputs.lengths = inputs.lengths[:limit]
    else:
        inputs = TextInputs(pieces(task, split.target, longest), limit)
    if tokens is not None and len(inputs):
        enough = int(np.searchsorted(np.cumsum(inputs.lengths), tokens)) + 1
        inputs.lengths = inputs.lengths[:enough]
    return inputs


def pieces(task: Task, texts: Encoded, longest: int) -> Pieces:
    """Return texts as inputs of a causal model; the start token takes one position."""
    return (packed if getattr(task, "packed", False) else cut)(texts, longest - 1)
