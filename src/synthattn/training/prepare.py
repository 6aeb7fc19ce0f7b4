"""From settings to what a model learns from and is judged by: tasks, a tokenizer, and examples as token ids."""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from synthattn.data.cache import key
from synthattn.data.encoded import Cut, Encoded, Packed
from synthattn.data.first import First
from synthattn.data.holdout import HeldOut
from synthattn.data.open import open_source, parse_columns, used_columns, with_columns
from synthattn.data.source import Source
from synthattn.data.tokenizers import cached_tokenizer
from synthattn.messages import suggestion
from synthattn.tasks import SUITES, find_task
from synthattn.tasks.base import Kind, Task
from synthattn.tasks.classification import Classification
from synthattn.tasks.encoding import EncodedSplit, Limits, encode, examples
from synthattn.tasks.inputs import Classes, Inputs, Mixed, Pairs, Texts, spans
from synthattn.training.model import load_tokenizer_of
from synthattn.training.settings import DataSettings

SPAN_SEED = 0
"""Of what span corruption hides, in training and in evaluation: the same in every run, whatever its seed."""


@dataclass
class TaskData:
    """One task on one source; a run has several where a suite is learned."""

    task: Task
    source: Source

    def evaluation_splits(self, chosen: str | None) -> dict[str, str]:
        """What is to be scored, by name: usually one split; MNLI has two, which are tasks of their own."""
        splits = self.source.splits
        if chosen is not None and chosen not in splits:
            raise ValueError(f"{self.source.name} has no split {chosen!r}{suggestion(chosen, splits)}")
        if chosen is None:
            chosen = next((split for split in self.task.scored_on if split in splits), splits[-1])
        parts = {f"{self.task.name}-{end}": f"{chosen}_{end}" for end in ("matched", "mismatched")}
        return parts if all(split in splits for split in parts.values()) else {self.task.name: chosen}


@dataclass
class Prepared:
    """Data that is ready, whatever the model."""

    parts: list[TaskData]
    kind: Kind
    tokenizer: Any
    longest: int
    """Tokens of the longest input."""
    train: Inputs
    validation: Inputs
    facts: dict[str, Any] = field(default_factory=dict)
    """For the record: fingerprints and counts."""
    notes: list[str] = field(default_factory=list)

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes, for a classifier."""
        task = self.parts[0].task
        return task.labels.names if isinstance(task, Classification) and task.labels else ()


def open_parts(settings: DataSettings) -> list[TaskData]:
    """The tasks of a run, each with its source."""
    return [_part(settings, find_task(name), place) for name, place in _places(settings)]


def open_for_evaluation(
    settings: DataSettings,
    split: str | None,
    names: Sequence[str] = (),
    learned: Collection[str] | None = None,
) -> list[TaskData]:
    """The same for data on which a model is only judged: nothing of it need be for training.

    Args:
        settings: of the data.
        split: the one that was asked for, if any.
        names: the classes of the model, for a classifier; those that occur in the data else.
        learned: fingerprints of what the model has learned from. Data that is something else is taken as it is: no part
            of it must be held out. None for the data of the run itself.
    """
    parts = []
    for name, place in _places(settings):
        task = find_task(name)
        part = TaskData(task, _judged(settings, task, place, split, learned))
        if isinstance(task, Classification):
            part.task = _with_classes(task, part, split, names)
        parts.append(part)
    return parts


def _judged(
    settings: DataSettings, task: Task, place: str, split: str | None, learned: Collection[str] | None
) -> Source:
    source = _open(settings, place)
    held_out = _held_out(settings, task, _first(settings, source))
    if learned is None or held_out.fingerprint() in learned:
        return held_out
    # Who asks for a validation split where there is none asks for what training would hold out.
    return _held_out(settings, task, source) if split == "validation" else source


def _held_out(settings: DataSettings, task: Task, source: Source) -> HeldOut:
    return HeldOut(source, columns=used_columns(task.reads(), parse_columns(settings.columns)))


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
    """Read, tokenise and encode, or find it done.

    Args:
        settings: what to learn from.
        longest: tokens of the longest input of the model.
        evaluate_tokens: how many of the validation split are for the validation loss.
        start: a saved model whose tokenizer is to be used.
        scored: the split that will be scored, where it is not the usual one: what is wrong in it is said before
            training, not after.
    """
    parts = open_parts(settings)
    tokenizer = load_tokenizer_of(start) if start is not None else _tokenizer(settings, parts)
    kind = parts[0].task.kind
    limits = Limits(longest, longest, settings.over_long)
    encoded = {split: [_encode(part, split, tokenizer, limits) for part in parts] for split in ("train", "validation")}
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
    notes = [note for part in parts for note in part.source.notes]
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
    """Refuse to go on with other texts, or other tokens for them, than those that were learned from.

    Args:
        before: the facts in a record; empty where nothing was learned yet.
        now: the facts of the data as it is.
        source: what the user calls the data, which may have moved.
        since: since when it must not have changed, for the message.
        way_out: what the user can do.
        tokenizer: whether it must be the same too, to the letter; it must make as many tokens in any case.
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
    """All examples of a split, none dropped, so that predictions and references stay side by side."""
    return encode(part.task, part.source, split, tokenizer, Limits(longest, longest, "truncate"), training=False)


def _part(settings: DataSettings, task: Task, place: str) -> TaskData:
    source = _held_out(settings, task, _first(settings, _open(settings, place)))
    if "train" not in source.splits:
        raise ValueError(f"{source.name} has no train split, only {', '.join(source.splits)}; name a file train.*")
    if isinstance(task, Classification):
        task = task.with_labels(source.read("train"))
        task.check_trainable()
    return TaskData(task, source)


def _open(settings: DataSettings, place: str) -> Source:
    source = open_source(place)
    return with_columns(source, parse_columns(settings.columns)) if settings.columns else source


def _first(settings: DataSettings, source: Source) -> Source:
    return source if settings.read_examples is None else First(source, settings.read_examples)


def _places(settings: DataSettings) -> Iterator[tuple[str, str]]:
    """Tasks with their sources: of a suite a folder that is called as the task, or its name on the hub or built in."""
    if settings.task not in SUITES:
        yield settings.task, settings.source
        return
    names = SUITES[settings.task]
    if settings.source.startswith("builtin:"):
        # Code that only users of built-in data need.
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


def _encode(part: TaskData, split: str, tokenizer: Any, limits: Limits) -> EncodedSplit:
    return encode(part.task, part.source, split, tokenizer, limits, training=True)


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
    return found[0] if len(found) == 1 else Mixed(found, mix_limit)


def _one(
    task: Task, split: EncodedSplit, tokenizer: Any, longest: int, limit: int | None, tokens: int | None
) -> Inputs:
    inputs: Inputs
    if task.kind == "seq2seq":
        inputs = Pairs(split, limit)
    elif task.kind == "classification":
        inputs = Classes(split, limit)
    elif task.kind == "span-corruption":
        inputs = spans(split.target, longest, tokenizer, SPAN_SEED)
        inputs.lengths = inputs.lengths[:limit]
    else:
        inputs = Texts(packed(task, split.target, longest), limit)
    if tokens is not None and len(inputs):
        enough = int(np.searchsorted(np.cumsum(inputs.lengths), tokens)) + 1
        inputs.lengths = inputs.lengths[:enough]
    return inputs


def packed(task: Task, texts: Encoded, longest: int) -> Packed | Cut:
    """Texts as a causal model reads them, one place being taken by the start token."""
    return Packed(texts, longest - 1) if getattr(task, "packed", False) else Cut(texts, longest - 1)
