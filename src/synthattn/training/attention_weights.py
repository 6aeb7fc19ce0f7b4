"""Collect the attention weights of a trained model: maps of its heads, their entropy, and the weights of mixtures."""

import base64
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from synthattn.layers.linformer import Linformer
from synthattn.layers.synthetic_attention import SyntheticAttention
from synthattn.models.stack import Stack
from synthattn.shapes import Bool, Float
from synthattn.synthesizers import Mixture

# Of histograms, in powers of ten; smaller weights count in the first bin.
LOWEST, BINS_PER_POWER = -6, 4
EDGES = [LOWEST + n / BINS_PER_POWER for n in range(-LOWEST * BINS_PER_POWER + 1)]
# Maps with fewer rows show nothing any more; rather have fewer of them.
SMALLEST_MAP = 16


@dataclass
class Heads:
    """Attention of one layer, for one text, or for the mean of several."""

    stack: str
    """``encoder`` or ``decoder``."""
    layer: int
    """Counted from 0; the page counts from 1."""
    size: int
    """Each map has ``size`` rows (from) and ``size`` columns (to)."""
    span: int
    """How many positions the map covers; where it is more than ``size``, each cell is a mean of neighbours."""
    maps: list[str]
    """One for each head: base64 of ``size * size`` bytes by rows, 255 standing for ``peaks`` of the same head."""
    peaks: list[float]
    entropy: list[float]
    """Of each head, mean over positions, in nats divided by that of even weights: 0 is one token, 1 is all alike."""


@dataclass
class Histogram:
    """How often attention weights of each size occur in a layer, all heads together."""

    stack: str
    layer: int
    edges: list[float]
    """Of the bins, in powers of ten: -4 stands for 0.0001."""
    counts: list[float]
    """Shares, that sum to 1."""


@dataclass
class MixtureShares:
    """How much each term of a mixture weighs in a layer."""

    stack: str
    layer: int
    terms: list[str]
    weights: list[list[float]]
    """For each term a number for each head, or a single one."""


def pictures(
    model: nn.Module, batch: Mapping[str, Tensor], cells: int = 40, budget: int = 120_000
) -> tuple[list[Heads], list[Histogram], list[MixtureShares]]:
    """Look at all self-attention of a model on a batch.

    Maps are of the example with the most tokens, without its padding. Entropy and histograms are of all examples and
    all keys that a mask allows, also those outside of the window of a local layer, so that layers of all kinds compare.

    Args:
        model: one of those with a head; its mode is left as it was.
        batch: as the model takes it for training, with labels.
        cells: rows and columns that a map has at most.
        budget: bytes of all maps together. Where they need more, only the first, the middle and the last layer of a
            stack have maps; then these get smaller; then only the first heads have some.

    The weights of convolutions are their kernels written out. Linformer attends to no tokens but to mixtures of them,
    and is left out. Layers that are one and the same (Universal Transformer) are shown once for each depth at which
    they were used, and their mixture once.
    """
    found = list(_layers(model, batch))
    shown = _shown([(layer.stack, layer.weights.shape[1], layer.longest) for layer in found], cells, budget)
    heads, histograms = [], []
    for layer, (size, count) in zip(found, shown, strict=True):
        entropy, shares = _statistics(layer)
        maps, peaks = _maps(layer, size, count)
        heads.append(Heads(layer.stack, layer.number, size, layer.longest, maps, peaks, entropy))
        histograms.append(Histogram(layer.stack, layer.number, list(EDGES), shares))
    return heads, histograms, _mixtures(model)


@dataclass(frozen=True)
class _Layer:
    stack: str
    number: int
    weights: Float[Tensor, "batch heads n n"]
    kept: Bool[Tensor, "batch n"]

    @property
    def causal(self) -> bool:
        return self.stack == "decoder"

    @property
    def longest(self) -> int:
        return int(self.kept.sum(-1).max())

    def example(self, number: int) -> Float[Tensor, "heads tokens tokens"]:
        """The weights between the tokens of an example, in double precision whatever the model's is."""
        kept = self.kept[number]
        return self.weights[number][:, kept][:, :, kept].double()


def _layers(model: Any, batch: Mapping[str, Tensor]) -> Iterator[_Layer]:
    device = next(model.parameters()).device
    batch = {name: tensor.to(device) for name, tensor in batch.items()}
    stacks = _stacks(model)
    # Only what is really computed: with a cache, a Universal Transformer would go on when all tokens have stopped.
    options = {"use_cache": False} if "decoder" in stacks else {}
    with _evaluating(model), torch.no_grad():
        output = model(**batch, **options, output_attentions=True)
    for name, stack in stacks.items():
        weights = output.attentions if len(stacks) == 1 else output[f"{name}_attentions"]
        kept = _kept(batch, name, after_encoder="encoder" in stacks)
        for number, (block, of_layer) in enumerate(zip(stack.layers, weights, strict=False)):
            if not isinstance(block.attention, Linformer):
                yield _Layer(name, number, of_layer, kept)


def _stacks(model: Any) -> dict[str, Stack]:
    stacks = {name: getattr(model.base_model, name) for name in ("encoder", "decoder")}
    return {name: stack for name, stack in stacks.items() if stack is not None}


def _kept(batch: Mapping[str, Tensor], stack: str, after_encoder: bool) -> Bool[Tensor, "batch n"]:
    """Which tokens are no padding: as the mask says, or where a decoder has none, those up to the last label.

    After an encoder the mask is that of its texts; the decoder has a token for each label, the one that predicts it.
    """
    if "attention_mask" in batch and (stack == "encoder" or not after_encoder):
        return batch["attention_mask"] != 0
    if stack == "decoder" and "labels" in batch:
        labelled = (batch["labels"] != -100).long()
        return labelled.flip(-1).cumsum(-1).flip(-1) > 0
    return torch.ones_like(batch["input_ids"], dtype=torch.bool)


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


def _shown(layers: Sequence[tuple[str, int, int]], cells: int, budget: int) -> list[tuple[int, int]]:
    """Return the size of the maps of each layer (stack, heads, tokens), and how many maps it has."""
    stacks = [[n for n, layer in enumerate(layers) if layer[0] == name] for name in {name for name, _, _ in layers}]
    some = {own[at] for own in stacks for at in (0, (len(own) - 1) // 2, -1)}
    most = max((heads for _, heads, _ in layers), default=0)
    smaller = [(some, size, most) for size in range(cells, min(cells, SMALLEST_MAP) - 1, -1)]
    fewer = [(some, min(cells, SMALLEST_MAP), count) for count in range(most - 1, -1, -1)]
    plan: list[tuple[int, int]] = []
    for shown, size, count in [(set(range(len(layers))), cells, most), *smaller, *fewer]:
        plan = [(min(size, span), min(heads, count) * (n in shown)) for n, (_, heads, span) in enumerate(layers)]
        if sum(size * size * count for size, count in plan) <= budget:
            break
    return plan


def _maps(layer: _Layer, size: int, count: int) -> tuple[list[str], list[float]]:
    """Encode maps as base64, each with the weight that its brightest byte stands for."""
    weights = layer.example(int(layer.kept.sum(-1).argmax()))[:count]
    # Groups do not overlap: cells above the diagonal stay zero where tokens see none after them.
    groups = torch.arange(layer.longest, device=weights.device) * size // layer.longest
    members = (groups == torch.arange(size, device=weights.device)[:, None]).to(weights.dtype)
    mean = members / members.sum(-1, keepdim=True)
    pooled = mean @ weights @ mean.T
    peaks = pooled.amax((1, 2))
    scaled = (pooled / peaks.clamp(min=1e-30)[:, None, None] * 255).round().to(torch.uint8)
    return [base64.b64encode(bytes(one.flatten().tolist())).decode() for one in scaled], peaks.tolist()


def _statistics(layer: _Layer) -> tuple[list[float], list[float]]:
    """The entropy of each head, and the shares of the bins of the histogram."""
    heads = layer.weights.shape[1]
    entropy, rows = layer.weights.new_zeros(heads, dtype=torch.float64), 0
    counts = torch.zeros(len(EDGES) - 1, dtype=torch.float64, device=entropy.device)
    for number in range(len(layer.kept)):
        weights = layer.example(number)
        tokens = weights.shape[-1]
        allowed = torch.ones(tokens, tokens, dtype=torch.bool, device=weights.device)
        allowed = allowed.tril() if layer.causal else allowed
        counts += _histogram(weights[:, allowed])
        keys = allowed.sum(-1)
        several = keys > 1  # a token that sees but one has no choice
        entropy += (_entropy(weights)[:, several] / keys[several].double().log()).sum(-1)
        rows += int(several.sum())
    return (entropy / max(1, rows)).clamp(0.0, 1.0).tolist(), (counts / counts.sum()).tolist()


def _entropy(weights: Float[Tensor, "heads q k"]) -> Float[Tensor, "heads q"]:
    # Kernels of convolutions do not sum to one where they reach over the ends of a text.
    share = weights / weights.sum(-1, keepdim=True).clamp(min=1e-30)
    return -torch.special.xlogy(share, share).sum(-1)


def _histogram(weights: Float[Tensor, "heads allowed"]) -> Float[Tensor, " bins"]:
    bins = ((weights.flatten().log10() - LOWEST) * BINS_PER_POWER).floor().clamp(0, len(EDGES) - 2)
    return bins.long().bincount(minlength=len(EDGES) - 1).double()


def _mixtures(model: Any) -> list[MixtureShares]:
    found = []
    for name, stack in _stacks(model).items():
        for number, block in enumerate(stack.blocks):
            mixer: Any = block.attention
            if not isinstance(mixer, SyntheticAttention):
                continue
            mixture = mixer.synthesizer
            if not isinstance(mixture, Mixture) or mixture.weights is None:
                continue  # a plain sum
            parts = zip(mixer.spec.terms, mixture.synthesizers, strict=True)
            terms = [str(term) for term, part in parts if part.weighted]
            with torch.no_grad():
                weights = [weight.flatten().tolist() for weight in mixture.weights()]
            found.append(MixtureShares(name, number, terms, weights))
    return found
