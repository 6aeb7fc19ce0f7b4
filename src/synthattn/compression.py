"""``compress``: inference in time linear in the length for layers whose attention weights are nearly of low rank."""

import math
from dataclasses import dataclass

import torch
from torch import nn

from synthattn.layers import SyntheticAttention
from synthattn.layers.constants import Sample, are_constant, constant_logits, is_plain_module
from synthattn.layers.low_rank_inference import LowRankInference, all_sources
from synthattn.low_rank import LowRank, factorize, highest_rank, stack
from synthattn.projection import is_plain_linear

# How many times smaller than the values an output may be before the bound on its error no longer suffices. In small
# trained models that was up to 21 (values largely average out, and the bound takes the output projection at its worst).
# It decides only how often the factors can be used: whether they may be is measured with each call.
HEADROOM = 32.0

# What rounding may add, as a share of what may be missing in the factors. It weighs twice as much: errors of all signs
# meet all values, not only those along one direction.
ROUNDING = 0.5


@dataclass(frozen=True)
class Compressed:
    """What ``compress`` did to one layer.

    Attributes:
        name: of the layer in the module, "" for the module itself.
        length: the longest input, for which the factors were made; None where any length will do.
        ranks: what each head needs; empty where the layer stays exact.
        distance: how far the factors are from the weights, measured: the largest norm of a row's error, in units of the
            norm of a row that gives all keys the same weight.
        exact: why the layer stays exact, None where it does not.
    """

    name: str
    length: int | None
    ranks: tuple[int, ...] = ()
    distance: float | None = None
    exact: str | None = None

    @property
    def pays(self) -> bool:
        """Whether low-rank inference is on."""
        return self.exact is None


def compress(module: nn.Module, error: float | None = 1e-3) -> list[Compressed]:
    """Turn low-rank inference on for every batch-free ``SyntheticAttention`` inside ``module`` for which it pays.

    Every output vector of such a layer is then within ``error`` times its norm of the exact one, for every input: a
    bound is computed with each call, and where it does not suffice, that call is computed exactly. Used in eval mode
    without gradients, on the CPU, in float32 and float64, without causal masks. ``error=None`` turns it off again.

    Parameters, state dicts and training stay as they are. After a change of the parameters, the layer is exact until
    ``compress`` is called again. Returns what was done to each ``SyntheticAttention``, or why nothing.
    """
    if error is not None and (isinstance(error, bool) or not isinstance(error, int | float) or not 0.0 < error < 1.0):
        raise ValueError(
            f"error must be a number between 0 and 1, or None to turn low-rank inference off, got {error!r}"
        )
    layers = {name: part for name, part in module.named_modules() if isinstance(part, SyntheticAttention)}
    if not any(layer.synthesizer.batch_free for layer in layers.values()):
        raise ValueError(
            f"{type(module).__name__} has no batch-free attention to compress (random, fixed_random, "
            f"factorized_random or a mixture of these)"
        )
    return [_compress(name, layer, error) for name, layer in layers.items()]


def _compress(name: str, layer: SyntheticAttention, error: float | None) -> Compressed:
    layer.low_rank = None
    length = layer.max_length
    obstacle = _obstacle(layer) or ("turned off" if error is None else None)
    if error is None or length is None or obstacle is not None:
        return Compressed(name, length, exact=obstacle)
    with torch.inference_mode(False), torch.no_grad():
        sources = Sample(all_sources(layer.synthesizer, layer.output))  # first: they may be changed meanwhile
        found = _factors(layer, length, error)
        if isinstance(found, str):
            return Compressed(name, length, exact=found)
        ranks, factors = found
        stretch = float(torch.linalg.matrix_norm(layer.output.weight.double(), 2))
        layer.low_rank = LowRankInference(factors, layer.output.weight.dtype, float(error), stretch, sources)
    return Compressed(name, length, ranks, factors.distance)


def _obstacle(layer: SyntheticAttention) -> str | None:
    if not layer.synthesizer.batch_free:
        return f"{layer.spec} looks at the tokens"
    if not is_plain_linear(layer.output) or not is_plain_module(layer.synthesizer):
        return "hooks or adapters take part in it"
    weight = layer.output.weight
    if layer.max_length is None:
        return f"{layer.spec} has no longest input"
    if weight.dtype not in (torch.float32, torch.float64):
        return f"{str(weight.dtype).removeprefix('torch.')} rounds more than low-rank weights would save"
    with torch.no_grad():
        if not are_constant(all_sources(layer.synthesizer, layer.output)):
            return f"its parameters are on {weight.device} or not plain tensors"
    return None


def _factors(layer: SyntheticAttention, length: int, error: float) -> tuple[tuple[int, ...], LowRank] | str:
    """The rank that each head needs and the factors of all, or why there are none."""
    dtype, missing = layer.output.weight.dtype, error / HEADROOM
    rounds = f"{str(dtype).removeprefix('torch.')} rounds too much for an error of {error:g}"
    if torch.finfo(dtype).eps / 2 > ROUNDING * missing:  # the result alone, however it was computed
        return rounds
    limit = highest_rank(length, length)
    stored, wide = [], []
    # A head at a time: in float64 the weights of a long layer are large.
    for logits in constant_logits(layer.synthesizer, layer.output.weight[:, :1].mT, length, length).total()[0]:
        weights = logits.double().softmax(-1)
        if not weights.isfinite().all():
            return f"head {len(wide)} has rows of logits that are not finite"
        head = factorize(weights, missing / math.sqrt(length), limit, torch.float64)
        if head is None:
            return f"head {len(wide)} needs more than rank {limit}, above which {length} keys are cheaper as they are"
        wide.append(head)
        stored.append(head.stored(weights, dtype))
    ranks = tuple(head.rank for head in wide)
    if _precise(stored, missing):
        return ranks, stack(stored)
    limit = highest_rank(length, length, wide=True)
    if dtype == torch.float64 or not _precise(wide, missing):
        return rounds
    if max(ranks) > limit:
        return f"{rounds}, and in float64 {length} keys are cheaper as they are above rank {limit}, not {max(ranks)}"
    return ranks, stack(wide)


def _precise(heads: list[LowRank], missing: float) -> bool:
    return all(head.distance <= (1.0 + ROUNDING) * missing for head in heads)
