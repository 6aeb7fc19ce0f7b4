"""Exponentials of batch-free logits, kept between calls for as long as the parameters stay what they were."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from synthattn import batch_free
from synthattn.masks import Mask
from synthattn.shapes import Float
from synthattn.synthesizers import Synthesizer, Tokens
from synthattn.tracing import traced


class ExponentialCache:
    """Per layer; never saved, never copied, and never stale.

    A tensor's version counter does not tell whether it has changed: fused optimizers and edits through ``.data`` leave
    it as it is. So a copy of the parameters is kept and compared, which costs a fraction of the exponentials. Off the
    CPU that would cost a synchronisation, more than the exponentials do, and nothing is kept.
    """

    def __init__(self) -> None:
        self._entries: dict[bool, _Entry] = {}

    def get(
        self, synthesizer: Synthesizer, query: Tokens, memory: Tokens, causal: bool
    ) -> Float[Tensor, "heads q k"] | None:
        """The exponentials for inputs of these lengths, or None where they must not be kept, or it does not pay."""
        q, k = query.length, memory.length
        if not synthesizer.batch_free or q == 1 or not _plain_module(synthesizer):
            return None
        sources = [*synthesizer.parameters(), *synthesizer.buffers()]
        if not _constant(sources):
            return None
        synthesizer.check_lengths(query, memory)
        heads = sources[0].shape[0]
        if heads * q * k * WORTH < sum(t.numel() for t in sources):
            return None
        entry = self._entries.get(causal)
        current = entry is not None and entry.current(sources)
        height, width = entry.exponentials.shape[-2:] if entry is not None and current else (0, 0)
        if entry is None or height < q or width < k:
            # Kept for the longest input so far: shorter ones read its corner.
            exponentials = _compute(synthesizer, query, memory, max(q, height), max(k, width), causal)
            entry = _Entry(exponentials, [t.detach().clone() for t in sources])
            self._entries[causal] = entry
        return entry.exponentials[:, :q, :k]

    def __deepcopy__(self, memo: dict[int, Any]) -> "ExponentialCache":
        return ExponentialCache()

    def __reduce__(self) -> tuple[type["ExponentialCache"], tuple[()]]:
        return ExponentialCache, ()


# Comparing a parameter with its copy costs about half of computing the exponential of a logit.
WORTH = 2


@dataclass(frozen=True)
class _Entry:
    exponentials: Tensor
    sources: list[Tensor]

    def current(self, sources: list[Tensor]) -> bool:
        """Whether the parameters still are what the exponentials were computed from."""
        return len(sources) == len(self.sources) and all(
            a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(sources, self.sources, strict=True)
        )


def _constant(sources: list[Tensor]) -> bool:
    """Whether the values are plain memory on the CPU that no gradient has to flow back to."""
    if torch.is_autocast_enabled("cpu") or any(traced(t) for t in sources):
        return False
    wants_gradient = torch.is_grad_enabled() and any(t.requires_grad for t in sources)
    return not wants_gradient and all(type(t) in (Tensor, nn.Parameter) and t.device.type == "cpu" for t in sources)


def _plain_module(synthesizer: Synthesizer) -> bool:
    """False where a hook wants to see every call."""
    return not (synthesizer._forward_hooks or synthesizer._forward_pre_hooks)


def _compute(
    synthesizer: Synthesizer, query: Tokens, memory: Tokens, q: int, k: int, causal: bool
) -> Float[Tensor, "heads q k"]:
    # An inference tensor could not be used in training later on, where a frozen matrix is read from here as well.
    with torch.inference_mode(False), torch.no_grad():
        # The vectors only carry the lengths: batch-free logits do not look at them.
        width = query.vectors.shape[-1]
        empty = torch.empty(1, 1, width, dtype=query.vectors.dtype)
        logits = synthesizer(*(Tokens(empty.expand(1, length, width)) for length in (q, k)))
        return batch_free.exponential(logits, Mask(causal=causal).shared(q, k, query.vectors.device))
