"""Measure how much each self-attention of a model reads its input, without training.

The attention of a layer is replaced by its mean over some texts: a table of logits, as ``random`` could learn it
without changing anything else. What that changes in the output, on other texts, shows what the dot product is needed
for.
"""

import contextlib
import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from synthattn.convert.attention_modules import is_transformers_model
from synthattn.convert.plan import Installed
from synthattn.convert.replace import attention_layers, replace_attention, restore
from synthattn.logits import Bias, Logits
from synthattn.synthesizers import Synthesizer, Tokens

RARE = 1e-6
"""The attention of pairs of positions that were never seen."""

USUAL_LENGTH = 128
"""Tokens of a text unless another number is given."""

DRAWS = 3
"""The number of random orders of layers."""

KINDS = {
    "ForMaskedLM": "masked",
    "ForCausalLM": "causal",
    "LMHeadModel": "causal",
    "ForSequenceClassification": "class",
}
"""What a model predicts, by the end of the name of its class."""


@dataclass(frozen=True)
class ProbeBatch:
    """Texts for a model, and the predictions that count.

    Attributes:
        inputs: arguments of the model, with ``attention_mask``; padding is on the right.
        counted: the predictions that count, a mask of the logits without their last axis.
        labels: the right answers for these; None if there are none.
    """

    inputs: dict[str, Tensor]
    counted: Tensor
    labels: Tensor | None


@dataclass(frozen=True)
class Effect:
    """What the output loses when the attention of some layers is replaced by its mean.

    Attributes:
        layers: the numbers of these layers.
        kl: the mean divergence of the predictions from those of the original, in nats.
        agreement: the share of predictions whose most probable answer stays.
        accuracy: the share of right answers; None without labels.
        kl_error: the standard error of ``kl``, as if all predictions were independent.
    """

    layers: tuple[int, ...]
    kl: float
    agreement: float
    accuracy: float | None
    kl_error: float = 0.0


@dataclass(frozen=True)
class Probe:
    """The effects of replacing one layer, and of replacing more and more layers in three orders.

    Attributes:
        names: the names of the layers.
        saved: the parameters of each layer that ``random`` does not need, minus those of its table.
        predictions: the number of predictions that were compared.
        accuracy: the share of right answers of the original; None without labels.
        single: the effect of each layer alone.
        lowest: the effects of the layers in the order of their own divergence, least first.
        first: the effects of the first 1, 2, ... layers.
        drawn: the effects of 1, 2, ... layers in random orders, one list for each draw.
        heads: the effect of each head of each layer alone; empty unless asked for.
    """

    names: list[str]
    saved: list[int]
    predictions: int
    accuracy: float | None
    single: list[Effect]
    lowest: list[Effect]
    first: list[Effect]
    drawn: list[list[Effect]]
    heads: list[list[Effect]] = field(default_factory=list)


class MeanAttention(Synthesizer):
    """Fixed logits: the logarithm of mean attention weights, ``(heads, n, n)``."""

    name = "mean"
    input_independent = True

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = logits

    def forward(self, query: Tokens, memory: Tokens) -> Logits:
        return Logits((Bias(self.logits[:, : query.length, : memory.length]),))


class MeanHead(Synthesizer):
    """The logits of a model with one head's logarithm of mean attention weights, ``(heads, n, n)``, in their place."""

    name = "mean head"
    input_independent = False

    def __init__(self, own: Synthesizer, logits: Tensor, head: int) -> None:
        super().__init__()
        self.own, place = own, torch.arange(len(logits), device=logits.device)[:, None, None]
        self.others, self.logits = place != head, logits * (place == head)

    def forward(self, query: Tokens, memory: Tokens) -> Logits:
        assert query.projected is not None, "the model gives its queries"
        others = replace(query, projected=query.projected * self.others)
        return self.own(others, memory) + Logits((Bias(self.logits[:, : query.length, : memory.length]),))


def kind_of(model: nn.Module) -> str:
    """Return what a model predicts: ``masked`` tokens, ``causal`` tokens or a ``class``."""
    name = type(model).__name__
    kind = next((kind for end, kind in KINDS.items() if name.endswith(end)), None)
    if kind is None or not is_transformers_model(model):
        raise ValueError(
            f"{name} cannot be probed; probe takes classes of transformers that end with {', '.join(KINDS)}"
        )
    config: Any = model.config
    if kind == "class" and (config.num_labels < 2 or config.problem_type not in (None, "single_label_classification")):
        raise ValueError(
            f"{name} has {config.num_labels} labels and the problem type {config.problem_type}; this needs one of "
            "several labels for each text"
        )
    return kind


def longest_input(model: nn.Module) -> int | None:
    """Return the number of tokens that a model has positions for; None if there is no limit."""
    config: Any = model.config
    tables = [part for path, part in model.named_modules() if path.endswith("position_embeddings")]
    for table in tables:
        if isinstance(table, nn.Embedding) and table.padding_idx is not None:  # RoBERTa counts from there
            return table.num_embeddings - table.padding_idx - 1
    return getattr(config, "max_position_embeddings", None)


def usual_length(model: nn.Module) -> int:
    """Return the longest text unless one is given: 128 tokens, or fewer if the model has fewer positions."""
    limit = longest_input(model)
    return USUAL_LENGTH if limit is None else min(USUAL_LENGTH, limit)


def make_batches(
    texts: Sequence[str],
    labels: Sequence[int] | None,
    tokenizer: Any,
    kind: str,
    max_length: int,
    size: int,
    seed: int = 0,
) -> list[ProbeBatch]:
    """Tokenize texts. For masked language models 15 % of the tokens are masked, the same ones for equal seeds."""
    if kind == "masked" and tokenizer.mask_token_id is None:
        raise ValueError("the tokenizer has no mask token, which a masked language model needs")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    chance = torch.Generator().manual_seed(seed)
    batches = []
    for start in range(0, len(texts), size):
        found = tokenizer(
            list(texts[start : start + size]),
            padding=True,
            padding_side="right",
            truncation=True,
            max_length=max_length,
            return_special_tokens_mask=True,
            return_tensors="pt",
        )
        special = found.pop("special_tokens_mask").bool()
        given = dict(found)
        tokens, real = given["input_ids"], given["attention_mask"].bool()
        if kind == "class":
            counted = torch.ones(len(tokens), dtype=torch.bool)
            right = None if labels is None else torch.tensor(labels[start : start + size])
        elif kind == "causal":
            counted = torch.zeros_like(real)
            counted[:, :-1] = real[:, 1:]
            right = tokens.roll(-1, 1)[counted]
        else:
            counted = (torch.rand(tokens.shape, generator=chance) < 0.15) & real & ~special
            right = tokens[counted]
            given["input_ids"] = tokens.masked_fill(counted, tokenizer.mask_token_id)
        batches.append(ProbeBatch(given, counted, right))
    return batches


def check_vocabulary(batches: Iterable[ProbeBatch], model: Any) -> None:
    """Raise a ValueError if the model does not know a token."""
    size = model.get_input_embeddings().num_embeddings
    largest = max(int(batch.inputs["input_ids"].max()) for batch in batches)
    if largest >= size:
        raise ValueError(f"the tokenizer gives token {largest}, but the model has {size} tokens; they do not fit")


@torch.no_grad()
def probe(
    model: nn.Module,
    seen: Sequence[ProbeBatch],
    held_out: Sequence[ProbeBatch],
    max_length: int,
    heads: bool = False,
) -> Probe:
    """Measure the effects of mean attention. The model is as it was afterwards.

    Args:
        model: a model of transformers.
        seen: texts for the mean.
        held_out: texts on which effects are measured.
        max_length: the longest text.
        heads: also measure each head alone, which takes a forward pass for each.
    """
    names = attention_layers(model)
    saved = _parameters_saved(model, max_length)
    with own_attention(model) as modules:
        means = mean_logits(model, modules, seen, max_length)
        count = range(len(modules))
        single = effects(model, modules, means, held_out, [(n,) for n in count])
        order = sorted(count, key=lambda n: single[n].kl)
        orders = [order, list(count), *(random.Random(seed).sample(count, len(count)) for seed in range(DRAWS))]
        sets = [tuple(sorted(each[: n + 1])) for each in orders for n in count]
        every = effects(model, modules, means, held_out, [(), *dict.fromkeys(sets)])
        found = {effect.layers: effect for effect in every}
        alone = [
            _measured(model, modules, held_out, [{n: MeanHead(modules[n].synthesizer, means[n], head)} for head in
                                                 range(len(means[n]))])
            for n in count if heads
        ]  # fmt: skip
        lists = [[found[tuple(sorted(each[: n + 1]))] for n in count] for each in orders]
    predictions = sum(int(batch.counted.sum()) for batch in held_out)
    return Probe(names, saved, predictions, found[()].accuracy, single, lists[0], lists[1], lists[2:], alone)


@contextlib.contextmanager
def own_attention(model: nn.Module) -> Iterator[list[Any]]:
    """Yield the attention modules of a model, which compute their own dot product but can be given other logits."""
    training, names = model.training, attention_layers(model)
    replace_attention(model, "vanilla", layers=range(len(names)))
    try:
        model.eval()
        yield [model.get_submodule(name) for name in names]
    finally:
        restore(model)
        model.train(training)


def _parameters_saved(model: nn.Module, max_length: int) -> list[int]:
    """Count the parameters of each layer with its own attention minus those with ``random``."""
    names = attention_layers(model)
    modules = [model.get_submodule(name) for name in names]
    before = [sum(parameter.numel() for parameter in module.parameters()) for module in modules]
    replace_attention(model, "random", max_length, layers=range(len(names)))
    after = [sum(parameter.numel() for parameter in module.parameters()) for module in modules]
    restore(model)
    return [one - other for one, other in zip(before, after, strict=True)]


@torch.no_grad()
def mean_logits(model: nn.Module, modules: Sequence[Any], seen: Iterable[ProbeBatch], n: int) -> list[Tensor]:
    """Return the logarithm of the mean attention weights of each module, ``(heads, n, n)``.

    Pairs of positions that no text has take the mean of the pairs with the same distance.
    """
    sums: list[Tensor | None] = [None] * len(modules)
    counts = torch.zeros(n, n)
    real = torch.zeros(0)

    def record(number: int, weights: Tensor) -> None:
        total = sums[number]
        # Many small numbers are added, for which half precision is too coarse.
        total = torch.zeros(weights.shape[1], n, n) if total is None else total
        pairs = real[:, None, :, None] * real[:, None, None, :]
        total[:, : weights.shape[2], : weights.shape[3]] += (weights.float().cpu() * pairs).sum(0)
        sums[number] = total

    hooks = []
    for number, module in enumerate(modules):
        _installed(module).returns_weights = True
        hooks.append(module.register_forward_hook(lambda m, a, result, number=number: record(number, result[-1])))
    try:
        for batch in seen:
            real = batch.inputs["attention_mask"].float()
            counts[: real.shape[1], : real.shape[1]] += real.T @ real
            outputs(model, batch)
    finally:
        for hook, module in zip(hooks, modules, strict=True):
            hook.remove()
            _installed(module).returns_weights = False
    tables = []
    for total in sums:
        if total is None:
            raise ValueError("an attention of the model is not called for texts; it cannot be probed")
        # A layer that is used several times, as in ALBERT, has a multiple of the counts, which softmax takes out.
        mean = torch.where(counts > 0, total / counts.clamp(min=1.0), along_diagonals(total, counts))
        weight = next(part for part in model.parameters())
        tables.append(mean.clamp(min=RARE).log().to(weight))
    return tables


def along_diagonals(total: Tensor, counts: Tensor) -> Tensor:
    """Return the mean by distance of sums ``(heads, n, n)``, of ``counts`` texts each, in the same shape."""
    by_distance = mean_by_distance(total, counts)
    n = len(counts)
    place = torch.arange(n)
    return by_distance[:, place[None] - place[:, None] + n - 1]


def mean_by_distance(total: Tensor, counts: Tensor) -> Tensor:
    """Return the means of sums ``(heads, n, n)`` by distance, ``(heads, 2 n - 1)``, keys before the query first."""
    n = len(counts)
    place = torch.arange(n)
    distance = (place[None] - place[:, None] + n - 1).flatten()
    sums = total.new_zeros(len(total), 2 * n - 1).index_add_(1, distance, total.flatten(1))
    numbers = counts.new_zeros(2 * n - 1).index_add_(0, distance, counts.flatten())
    return sums / numbers.clamp(min=1.0)


@torch.no_grad()
def effects(
    model: nn.Module,
    modules: Sequence[Any],
    tables: Sequence[Tensor],
    batches: Iterable[ProbeBatch],
    sets: Sequence[tuple[int, ...]],
) -> list[Effect]:
    """Measure the effects of replacing each set of layers by tables."""
    means = [MeanAttention(table) for table in tables]
    return _measured(model, modules, batches, [{number: means[number] for number in layers} for layers in sets])


def _measured(
    model: nn.Module, modules: Sequence[Any], batches: Iterable[ProbeBatch], changes: Sequence[dict[int, Synthesizer]]
) -> list[Effect]:
    """Measure the effects of giving layers, by number, other logits, batch by batch."""
    sums = [EffectSums() for _ in changes]
    own = [module.synthesizer for module in modules]
    for batch in batches:
        original = predicted(model, batch)
        for row, change in zip(sums, changes, strict=True):
            for number, logits in change.items():
                modules[number].synthesizer = logits
            changed = predicted(model, batch) if change else original
            for number in change:
                modules[number].synthesizer = own[number]
            row.add(original, changed, batch.labels)
    return [row.effect(tuple(change)) for change, row in zip(changes, sums, strict=True)]


class EffectSums:
    """Sums over predictions, from which an effect is made."""

    def __init__(self) -> None:
        self.predictions, self.labelled = 0, False
        self.kl, self.squares, self.agreeing, self.right = 0.0, 0.0, 0, 0

    def add(self, original: Tensor, changed: Tensor, labels: Tensor | None) -> None:
        """Add predictions of the original and of another model, as logarithms of probabilities."""
        self.predictions += len(original)
        each = (original.exp() * (original - changed)).sum(-1, dtype=torch.float64)
        self.kl += float(each.sum())
        self.squares += float(each.square().sum())
        self.agreeing += int((original.argmax(-1) == changed.argmax(-1)).sum())
        if labels is not None:
            self.labelled = True
            self.right += int((changed.argmax(-1) == labels.to(changed.device)).sum())

    def effect(self, layers: tuple[int, ...]) -> Effect:
        """Return the means."""
        if self.predictions == 0:
            raise ValueError("the texts have no prediction that counts; give more or longer texts")
        n = self.predictions
        kl, agreement, right = (value / n for value in (self.kl, self.agreeing, self.right))
        variance = max(0.0, self.squares / n - kl * kl)
        return Effect(layers, kl, agreement, right if self.labelled else None, math.sqrt(variance / max(1, n - 1)))


def predicted(model: nn.Module, batch: ProbeBatch) -> Tensor:
    """Return the logarithms of the probabilities of the predictions that count."""
    logits = outputs(model, batch).logits
    return logits[batch.counted.to(logits.device)].float().log_softmax(-1)


def outputs(model: nn.Module, batch: ProbeBatch, **more: Any) -> Any:
    """Call a model with the inputs of a batch, on the device of the model."""
    device = next(model.parameters()).device
    return model(**{name: value.to(device) for name, value in batch.inputs.items()}, **more)


def _installed(module: Any) -> Installed:
    return module.synthattn
