"""Exponentials of batch-free logits, kept between calls for as long as the parameters stay what they were."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from synthattn import batch_free
from synthattn.masks import Mask
from synthattn.shapes import Float
from synthattn.synthesizers import Synthesizer, Tokens


class ExponentialCache:
    """Per layer; never saved, never copied, and never stale.

    A tensor's version counter does not tell whether it has changed: fused optimizers and edits through ``.data`` leave
    it as it is. So the parameters are compared by a fingerprint of their values, one cheap pass over them.
    Off the CPU that would cost a synchronisation, more than the exponentials do, and nothing is kept.
    """

    def __init__(self) -> None:
        self._entries: dict[bool, _Entry] = {}

    def get(
        self, synthesizer: Synthesizer, query: Tokens, memory: Tokens, causal: bool
    ) -> Float[Tensor, "heads q k"] | None:
        """The exponentials for inputs of these lengths, or None where they must not be kept."""
        sources = [*synthesizer.parameters(), *synthesizer.buffers()]
        if not synthesizer.batch_free or not _constant(sources):
            return None
        synthesizer.check_lengths(query, memory)
        q, k = query.length, memory.length
        if q == 1:
            return None  # one row of a decoding step is cheaper to compute than to look up
        fingerprint = _fingerprint(sources)
        entry = self._entries.get(causal)
        if entry is None or not entry.serves(q, k, fingerprint):
            # Kept for the longest input so far: shorter ones read its corner.
            height, width = entry.exponentials.shape[-2:] if entry is not None else (0, 0)
            if entry is not None and not entry.serves(0, 0, fingerprint):
                height, width = 0, 0
            height, width = max(q, height), max(k, width)
            entry = _Entry(_compute(synthesizer, query, memory, height, width, causal), fingerprint)
            self._entries[causal] = entry
        return entry.exponentials[:, :q, :k]

    def __deepcopy__(self, memo: dict[int, Any]) -> "ExponentialCache":
        return ExponentialCache()

    def __reduce__(self) -> tuple[type["ExponentialCache"], tuple[()]]:
        return ExponentialCache, ()


@dataclass(frozen=True)
class _Entry:
    exponentials: Tensor
    fingerprint: list[Tensor]

    def serves(self, q: int, k: int, fingerprint: list[Tensor]) -> bool:
        height, width = self.exponentials.shape[-2:]
        return (
            height >= q
            and width >= k
            and len(self.fingerprint) == len(fingerprint)
            and all(_same(a, b) for a, b in zip(self.fingerprint, fingerprint, strict=True))
        )


def _constant(sources: list[Tensor]) -> bool:
    """Whether the values are plain memory on the CPU that no gradient has to flow back to."""
    if torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu"):
        return False
    wants_gradient = torch.is_grad_enabled() and any(t.requires_grad for t in sources)
    return not wants_gradient and all(type(t) in (Tensor, nn.Parameter) and t.device.type == "cpu" for t in sources)


def _fingerprint(sources: list[Tensor]) -> list[Tensor]:
    """A random combination of the columns of each tensor: whatever changes a row visibly changes its entry."""
    with torch.no_grad():
        return [t.detach() @ _probe(t.shape[-1], t.dtype) if t.dim() else t.detach().clone() for t in sources]


def _same(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and torch.equal(a, b)


_PROBES: dict[tuple[int, torch.dtype], Tensor] = {}


def _probe(size: int, dtype: torch.dtype) -> Tensor:
    if (size, dtype) not in _PROBES:
        generator = torch.Generator().manual_seed(size)
        _PROBES[size, dtype] = (torch.rand(size, generator=generator) + 0.5).to(dtype)
    return _PROBES[size, dtype]


def _compute(
    synthesizer: Synthesizer, query: Tokens, memory: Tokens, q: int, k: int, causal: bool
) -> Float[Tensor, "heads q k"]:
    # The vectors only carry the lengths: batch-free logits do not look at them.
    tokens = [Tokens(t.vectors[:1, :1].expand(1, length, -1)) for t, length in ((query, q), (memory, k))]
    with torch.no_grad():
        logits = synthesizer(*tokens)
        return batch_free.exponential(logits, Mask(causal=causal).shared(q, k, query.vectors.device))
