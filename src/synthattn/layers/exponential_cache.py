"""Weights of batch-free attention, kept between calls for as long as the parameters stay what they were."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from synthattn.engine import batch_free
from synthattn.layers.constants import Snapshot, are_constant, constant_logits, is_plain_module, sources_of
from synthattn.masks import Mask
from synthattn.shapes import Float
from synthattn.synthesizers import Synthesizer, Tokens


class ExponentialCache:
    """Per layer; never saved, never copied, and never stale: the parameters are looked at with each call, which costs a
    fraction of the exponentials."""

    def __init__(self) -> None:
        self._entries: dict[bool, _Entry] = {}

    def get(self, synthesizer: Synthesizer, query: Tokens, memory: Tokens, causal: bool) -> "Kept | None":
        """The weights for inputs of these lengths, or None where they must not be kept, or it does not pay."""
        assert (query.start, memory.start) == (0, 0), "what is kept starts at position 0"
        q, k = query.length, memory.length
        if not synthesizer.batch_free or q == 1 or not is_plain_module(synthesizer):
            return None
        sources = sources_of(synthesizer)
        if not are_constant(sources):
            return None
        synthesizer.check_lengths(query, memory)
        heads = sources[0].shape[0]
        if heads * q * k * WORTH < sum(t.numel() for t in sources):
            return None
        entry = self._entries.get(causal)
        current = entry is not None and entry.sources.current(sources)
        height, width = entry.weights.shape[-2:] if entry is not None and current else (0, 0)
        if entry is None or height < q or width < k:
            # Kept for the longest input so far: shorter ones read its corner.
            # The snapshot is taken first and compared afterwards: another thread may load parameters in between.
            snapshot = Snapshot(sources)
            weights = _compute(synthesizer, query, memory, max(q, height), max(k, width), causal)
            if not snapshot.current(sources):
                return None
            entry = _Entry(weights, snapshot)
            self._entries[causal] = entry
        whole = k == entry.weights.shape[-1] or (causal and q <= k)
        return Kept(entry.weights[:, :q, :k], whole)

    def __deepcopy__(self, memo: dict[int, Any]) -> "ExponentialCache":
        return ExponentialCache()

    def __reduce__(self) -> tuple[type["ExponentialCache"], tuple[()]]:
        return ExponentialCache, ()


# Looking at a parameter costs up to half of computing the exponential of a logit.
WORTH = 2


class Kept(NamedTuple):
    weights: Float[Tensor, "heads q k"]
    whole: bool
    """Whether the rows sum to one; those of a corner, without the keys that are not there, do not."""


@dataclass(frozen=True)
class _Entry:
    weights: Tensor
    sources: Snapshot


def _compute(
    synthesizer: Synthesizer, query: Tokens, memory: Tokens, q: int, k: int, causal: bool
) -> Float[Tensor, "heads q k"]:
    # An inference tensor could not be used in training later on, where a frozen matrix is read from here as well.
    with torch.inference_mode(False), torch.no_grad():
        logits = constant_logits(synthesizer, query.vectors, q, k)
        exponentials = batch_free.exponential(logits, Mask(causal=causal).shared(q, k, query.vectors.device))
        return exponentials.div_(exponentials.sum(-1, keepdim=True))
