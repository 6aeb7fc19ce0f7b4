"""Evaluate a model: predict a split, and score the predictions by the metrics of the task."""

import json
import lzma
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from synthattn.data.batching import TokenBatches
from synthattn.data.encoded import Pieces
from synthattn.metrics.averages import suite_average
from synthattn.metrics.base import Metric, MetricValue, Rows
from synthattn.metrics.embedding import EmbeddingSimilarity
from synthattn.metrics.vectors import load_vectors
from synthattn.saved_file import replacing, write_text
from synthattn.tasks.base import Example, Task
from synthattn.tasks.inputs import IGNORED, ClassInputs, Inputs, PairInputs, TextInputs, span_inputs
from synthattn.training.packed_rows import packed_rows, unpacked_rows
from synthattn.training.prepare import SPAN_SEED, TaskData, encode_for_evaluation, pieces
from synthattn.training.settings import EvaluationSettings

Progress = Callable[[int, int], None]
"""A function that receives the number of finished examples and of all examples."""

EXTRA_TOKENS = 50
"""Maximum number of tokens by which an answer may exceed the input, as in Tensor2Tensor."""


@dataclass
class Scored:
    """A metric with its rows, its value and its interval."""

    metric: Metric
    rows: Rows
    score: MetricValue
    low: float
    high: float
    """Upper end of the 95 % bootstrap interval."""

    def as_dict(self) -> dict[str, Any]:
        score = self.score
        return {
            "value": score.value,
            "low": self.low,
            "high": self.high,
            "definition": score.definition,
            "higher_is_better": score.higher_is_better,
            "parts": score.parts,
        }


@dataclass
class Evaluation:
    """Results of an evaluation; the main score comes first."""

    scored: dict[str, Scored]
    predictions: list[dict[str, Any]] = field(default_factory=list)
    """Inputs, references and predictions; empty for models that only score a text."""
    splits: dict[str, str] = field(default_factory=dict)
    examples: int = 0
    unparsable: int = 0
    """Number of answers that the task cannot understand."""
    truncated: int = 0
    """Number of examples that the model read only in part."""
    seconds: float = 0.0

    def facts(self) -> dict[str, Any]:
        """Return the counts for the record of a run."""
        return {name: getattr(self, name) for name in ("splits", "examples", "unparsable", "truncated")}

    def save(self, folder: Path) -> None:
        """Save predictions as JSON lines, and the rows for bootstraps."""
        if self.predictions:
            lines = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in self.predictions)
            write_text(folder / "predictions.jsonl", lines)
        with replacing(folder / "rows.npz") as beside, beside.open("wb") as file:
            np.savez_compressed(file, **packed_rows({name: one.rows for name, one in self.scored.items()}))  # pyright: ignore[reportArgumentType]


def load_rows(folder: Path) -> dict[str, Rows]:
    """Load the rows in the folder of a run; return an empty dictionary if there are none or they cannot be read."""
    return read_rows(folder / "rows.npz")


def read_rows(file: Path) -> dict[str, Rows]:
    """Read a file of rows; return an empty dictionary if there is none or it cannot be read."""
    try:
        with np.load(file, allow_pickle=False) as found:
            return unpacked_rows({name: found[name] for name in found.files})
    except (OSError, EOFError, ValueError, KeyError, IndexError, lzma.LZMAError, zipfile.BadZipFile):
        return {}


@torch.inference_mode()
def evaluate(
    model: nn.Module,
    tokenizer: Any,
    parts: Sequence[TaskData],
    settings: EvaluationSettings,
    progress: Progress | None = None,
) -> Evaluation:
    """Predict and score with the model in eval mode; its previous mode is restored afterwards."""
    training = model.training
    model.eval()
    started = time.monotonic()
    result = Evaluation({})
    groups: dict[str, dict[str, Scored]] = {}
    progress = progress or (lambda done, total: None)
    try:
        for part in parts:
            for name, split in part.evaluation_splits(settings.split).items():
                asked, answers = _predict(model, tokenizer, part, split, settings, progress, result)
                groups[name] = score(_metrics(part.task, model, tokenizer, settings), answers, asked)
                result.splits[name] = split
    finally:
        model.train(training)
    result.scored = merged(groups)
    result.seconds = time.monotonic() - started
    return result


def merged(groups: Mapping[str, Mapping[str, Scored]]) -> dict[str, Scored]:
    """Return the scores of one task, or the scores of several by task and metric with their mean first."""
    if len(groups) == 1:
        return dict(next(iter(groups.values())))
    parts = {(task, name): one for task, scores in groups.items() for name, one in scores.items()}
    mean = suite_average({key: one.metric for key, one in parts.items()})
    rows = mean.joined([parts[key].rows for key in mean.keys])
    named = {f"{task} {name}": one for (task, name), one in parts.items()}
    return {mean.name: _scored(mean, rows)} | named


def score(metrics: Sequence[Metric], answers: Sequence[Any], asked: Sequence[Example]) -> dict[str, Scored]:
    """Score predictions against the references of the examples by all metrics."""
    if not answers:
        raise ValueError("nothing to score: the split has no examples")
    references = [example.reference for example in asked]
    return {metric.name: _scored(metric, metric.rows(answers, references)) for metric in metrics}


def _scored(metric: Metric, rows: Rows) -> Scored:
    # Corpus metrics of many examples are slow, and a few hundred draws give a good interval.
    drawn = metric.bootstrap(rows, 1000 if len(rows) * rows.shape[1] < 50_000 else 300)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Scored(metric, rows, metric.result(rows), float(low), float(high))


def _predict(
    model: Any,
    tokenizer: Any,
    part: TaskData,
    split: str,
    settings: EvaluationSettings,
    progress: Progress,
    result: Evaluation,
) -> tuple[list[Example], list[Any]]:
    """Return the examples of a split with the model's answers in the form that metrics need."""
    longest = model.config.max_position_embeddings
    task = part.task
    encoded = encode_for_evaluation(part, split, tokenizer, longest)
    result.truncated += encoded.counts.truncated
    asked = part.examples(split, settings.limit)
    result.examples += len(asked)
    if task.kind == "span-corruption":
        hidden = span_inputs(encoded.target, longest, tokenizer, SPAN_SEED)
        hidden.lengths = hidden.lengths[: settings.limit]
        nats, counts = _nats_by_item(model, hidden, settings, progress)
        answers = [(nat, count, 0, 0) for nat, count in zip(nats, counts, strict=True)]
        return [Example("", "", None, "") for _ in answers], answers
    if task.kind == "causal-lm":
        return asked, _likelihoods(model, pieces(task, encoded.target, longest), asked, settings, progress)
    if task.kind == "classification":
        inputs = ClassInputs(encoded, settings.limit)
        answers = _classify(model, inputs, settings, progress)
        names = task.labels.names  # pyright: ignore[reportAttributeAccessIssue]
        texts = [names[answer] for answer in answers]
    else:
        texts = _write(model, tokenizer, PairInputs(encoded, settings.limit), settings, progress)
        answers = [task.parse(text, example) for text, example in zip(texts, asked, strict=True)]
        result.unparsable += sum(answer is None for answer in answers)
    for example, text in zip(asked, texts, strict=True):
        result.predictions.append({"source": example.source, "reference": example.target, "prediction": text})
    return asked, answers


def _batches(inputs: Inputs, tokens: int, progress: Progress) -> Iterator[tuple[list[int], dict[str, Tensor]]]:
    """Yield batches sorted by length, and report progress after each."""
    batches = TokenBatches(inputs.lengths, max(tokens, int(inputs.lengths.max())), seed=None).batches()
    done = 0
    # The longest batch comes first, so that a lack of memory is noticed at once.
    for numbers in reversed(batches):
        yield numbers, inputs.batch(numbers)
        done += len(numbers)
        progress(done, len(inputs))


def _on(batch: Mapping[str, Tensor], model: Any) -> dict[str, Tensor]:
    return {name: value.to(model.device) for name, value in batch.items()}


def _write(model: Any, tokenizer: Any, inputs: Inputs, settings: EvaluationSettings, progress: Progress) -> list[str]:
    texts = [""] * len(inputs)
    for numbers, batch in _batches(inputs, settings.batch_tokens, progress):
        for n, text in zip(numbers, write(model, tokenizer, batch, settings), strict=True):
            texts[n] = text
    return texts


def write(model: Any, tokenizer: Any, batch: Mapping[str, Tensor], settings: EvaluationSettings) -> list[str]:
    """Generate a text for each input of a batch."""
    batch = _on(batch, model)
    longest = model.config.max_position_embeddings - 1
    limit = settings.max_new_tokens or batch["input_ids"].shape[1] + EXTRA_TOKENS
    options: dict[str, Any] = {}
    if settings.beams > 1:
        options = {
            "length_penalty": settings.length_penalty,
            "length_penalty_form": settings.length_penalty_form,
            "early_stopping": True,
        }
    found = model.generate(
        input_ids=batch["input_ids"],
        attention_mask=batch["attention_mask"],
        do_sample=False,
        num_beams=settings.beams,
        max_new_tokens=min(limit, longest),
        **options,
    )
    return tokenizer.batch_decode(found, skip_special_tokens=True)


def _classify(model: Any, inputs: Inputs, settings: EvaluationSettings, progress: Progress) -> list[int]:
    chosen = np.zeros(len(inputs), np.int64)
    for numbers, batch in _batches(inputs, settings.batch_tokens, progress):
        batch = _on(batch, model)
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        chosen[numbers] = logits.argmax(-1).cpu().numpy()
    return chosen.tolist()


def token_nats(model: Any, batch: Mapping[str, Tensor]) -> Tensor:
    """Return the negative log-likelihood of each label, 0 where a label is ignored, in the shape of the labels."""
    batch = _on(batch, model)
    labels = batch["labels"]
    logits = model(**batch).logits
    nats = torch.zeros(labels.shape, device=labels.device)
    if not model.config.is_encoder_decoder:
        logits, labels = logits[:, :-1], labels[:, 1:]
    found = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), ignore_index=IGNORED, reduction="none")
    nats[:, -labels.shape[1] :] = found.view(labels.shape)
    return nats


def _nats_by_item(
    model: Any, inputs: Inputs, settings: EvaluationSettings, progress: Progress
) -> tuple[list[float], list[int]]:
    nats = np.zeros(len(inputs))
    counts = np.zeros(len(inputs), np.int64)
    for numbers, batch in _batches(inputs, settings.batch_tokens, progress):
        nats[numbers] = token_nats(model, batch).double().sum(1).cpu().numpy()
        counts[numbers] = (batch["labels"] != IGNORED).sum(1).numpy()
    return nats.tolist(), counts.tolist()


def _likelihoods(
    model: Any, pieces: Pieces, asked: Sequence[Example], settings: EvaluationSettings, progress: Progress
) -> list[tuple[float, int, int, int]]:
    """Return negative log-likelihood, tokens, words and bytes of each text, across the pieces it was cut into."""
    ends = pieces.texts.ends[: len(asked)]
    inputs = TextInputs(pieces, int(np.searchsorted(pieces.starts, ends[-1])))
    by_token: NDArray[np.float64] = np.zeros(len(pieces.texts.ids))
    for numbers, batch in _batches(inputs, settings.batch_tokens, progress):
        for n, nats in zip(numbers, token_nats(model, batch).double().cpu().numpy(), strict=True):
            start, stop = int(pieces.starts[n]), int(pieces.starts[n + 1])
            by_token[start:stop] = nats[1 : 1 + stop - start]
    sums = np.diff(np.append(0.0, np.cumsum(by_token))[np.append(0, ends)])
    tokens = np.diff(ends, prepend=0)
    return [
        (float(nats), int(count), example.reference.words, example.reference.bytes)
        for nats, count, example in zip(sums, tokens, asked, strict=True)
    ]


def metrics_of(parts: Sequence[TaskData], settings: EvaluationSettings) -> dict[str, Metric]:
    """Return the metrics of an evaluation by name, able to compute values from rows."""
    return metrics_of_tasks({name: part.task for part in parts for name in part.evaluation_splits(settings.split)})


def metrics_of_tasks(tasks: Mapping[str, Task]) -> dict[str, Metric]:
    """Return the metrics of tasks by the names of the evaluation, with the mean of several tasks first."""
    # The rows already contain the similarities, so no vectors are needed.
    none = {"": np.zeros(1, np.float32)}
    groups = {
        name: {metric.name: metric for metric in (*task.metrics(), *similarities(task, none, ""))}
        for name, task in tasks.items()
    }
    if len(groups) == 1:
        return next(iter(groups.values()))
    named = {(task, name): metric for task, metrics in groups.items() for name, metric in metrics.items()}
    mean = suite_average(named)
    return {mean.name: mean} | {f"{task} {name}": metric for (task, name), metric in named.items()}


def _metrics(task: Task, model: Any, tokenizer: Any, settings: EvaluationSettings) -> list[Metric]:
    if not task.compares_vectors:
        return list(task.metrics())
    if settings.vectors is None:
        vectors, origin = ModelVectors(model, tokenizer), "the model's own, of a word the mean of its tokens"
    else:
        vectors, origin = load_vectors(settings.vectors), Path(settings.vectors).name
    return [*task.metrics(), *similarities(task, vectors, origin)]


def similarities(task: Task, vectors: Mapping[str, Any], origin: str) -> list[Metric]:
    if not task.compares_vectors:
        return []
    return [EmbeddingSimilarity(kind, vectors, origin) for kind in ("average", "greedy", "extrema")]


class ModelVectors(Mapping[str, NDArray[np.float32]]):
    """Word vectors of a model: the mean embedding of the word's tokens."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.weight = model.get_input_embeddings().weight.detach().float().cpu().numpy()
        self.tokenizer = tokenizer
        self.found: dict[str, NDArray[np.float32]] = {}

    def __getitem__(self, word: str) -> NDArray[np.float32]:
        if word not in self.found:
            ids = self.tokenizer(word, add_special_tokens=False).input_ids
            if not ids:
                raise KeyError(word)
            self.found[word] = self.weight[ids].mean(0)
        return self.found[word]

    def __len__(self) -> int:
        return len(self.tokenizer)

    def __iter__(self) -> Iterator[str]:
        # All words cannot be listed; the tokens of the vocabulary are some of them.
        return iter(self.tokenizer.get_vocab())
