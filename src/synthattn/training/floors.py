"""Floors: what trivial systems score on the same examples. A model below them has not learned its task."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synthattn.tasks.base import Example
from synthattn.tasks.inputs import IGNORED, span_inputs
from synthattn.tasks.trivial import Answerer, TrivialSystem
from synthattn.training.evaluation import Evaluation, merged, score
from synthattn.training.prepare import SPAN_SEED, TaskData, encode_for_evaluation
from synthattn.training.settings import EvaluationSettings

TOKEN_KINDS = ("causal-lm", "span-corruption")
"""Kinds of tasks whose trivial systems predict tokens."""
TUNED_ON = 200
"""Training examples on which the versions of a trivial system are compared."""
COUNTED_TEXTS = 20_000
"""Training texts whose tokens the unigram model counts."""


def floors(
    parts: Sequence[TaskData],
    settings: EvaluationSettings,
    tokenizer: Any,
    longest: int,
    train_examples: int | None = None,
) -> dict[str, Evaluation]:
    """Score every trivial system of a task, by name.

    Args:
        parts: tasks and their data.
        settings: what is scored.
        tokenizer: counts the tokens of language models.
        longest: tokens of the longest input.
        train_examples: the number of training examples to learn from; all unless given.
    """
    if parts[0].task.kind in TOKEN_KINDS:
        (part,) = parts
        return _token_models(part, settings, tokenizer, longest, train_examples)
    learned = [_learned(part, train_examples) for part in parts]
    systems = [part.task.trivial_system(some) for part, some in zip(parts, learned, strict=True)]
    if any(system is None for system in systems):
        return {}
    started, result, groups = time.monotonic(), Evaluation({}), {}
    for part, system, some in zip(parts, systems, learned, strict=True):
        assert system is not None
        splits = part.evaluation_splits(settings.split)
        asked = {name: part.examples(split, settings.limit) for name, split in splits.items()}
        answer = _best_version(part, system, asked if system.by_hindsight else {"train": some[:TUNED_ON]})
        for name, questions in asked.items():
            groups[name] = score(part.task.metrics(), _answers(part, answer, questions), questions)
            result.examples += len(questions)
        result.splits |= splits
    result.scored = merged(groups)
    result.seconds = time.monotonic() - started
    return {systems[0].name: result} if systems[0] is not None else {}


def _learned(part: TaskData, limit: int | None) -> list[Example]:
    found = part.examples("train", limit, training=True)
    if not found:
        raise ValueError(f"{part.source.name}: no example is left to learn from")
    return found


def _best_version(part: TaskData, system: TrivialSystem, asked: Mapping[str, Sequence[Example]]) -> Answerer:
    """Return the version with the best mean over all metrics of the task."""

    def value(version: Answerer) -> float:
        values = [
            metric(_answers(part, version, questions), [example.reference for example in questions]).value
            for questions in asked.values()
            for metric in part.task.metrics()
        ]
        return sum(values) / len(values)

    return system.versions[0] if len(system.versions) == 1 else max(system.versions, key=value)


def _answers(part: TaskData, version: Answerer, asked: Sequence[Example]) -> list[object]:
    return [part.task.parse(version(example), example) for example in asked]


def _token_models(
    part: TaskData, settings: EvaluationSettings, tokenizer: Any, longest: int, train_examples: int | None
) -> dict[str, Evaluation]:
    """Score the uniform model, and the one that knows how frequent each token is in training data."""
    limit = COUNTED_TEXTS if train_examples is None else min(train_examples, COUNTED_TEXTS)
    tokens = np.concatenate(_tokens(part, "train", tokenizer, longest, limit))
    size = max(len(tokenizer), int(tokens.max(initial=0)) + 1)
    counts = 1 + np.bincount(tokens, minlength=size)  # no token is impossible
    models = {"uniform model": np.full(size, np.log(size)), "unigram model": -np.log(counts / counts.sum())}
    return {name: _score_tokens(part, settings, tokenizer, longest, nats) for name, nats in models.items()}


def _score_tokens(
    part: TaskData, settings: EvaluationSettings, tokenizer: Any, longest: int, nats: NDArray[np.float64]
) -> Evaluation:
    result, groups = Evaluation({}), {}
    for name, split in part.evaluation_splits(settings.split).items():
        texts = _tokens(part, split, tokenizer, longest, settings.limit)
        asked = part.examples(split, settings.limit) if part.task.kind == "causal-lm" else [None] * len(texts)
        sizes = [(0, 0) if one is None else (one.reference.words, one.reference.bytes) for one in asked]
        rows = [(float(nats[ids].sum()), len(ids), *size) for ids, size in zip(texts, sizes, strict=True)]
        groups[name] = score(part.task.metrics(), rows, [Example("", "", None, "") for _ in rows])
        result.examples += len(rows)
        result.splits[name] = split
    result.scored = merged(groups)
    return result


def _tokens(part: TaskData, split: str, tokenizer: Any, longest: int, limit: int | None) -> list[NDArray[np.int64]]:
    """Return the tokens that a model must predict, text by text."""
    texts = encode_for_evaluation(part, split, tokenizer, longest).target
    if part.task.kind == "causal-lm":
        return [texts[n] for n in range(len(texts))[:limit]]
    hidden = span_inputs(texts, longest, tokenizer, SPAN_SEED)
    labels = [hidden.item(0, n)[-1] for n in range(len(hidden))[:limit]]
    return [label[label != IGNORED] for label in labels]
