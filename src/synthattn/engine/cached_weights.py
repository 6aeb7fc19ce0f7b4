"""Backend: weights that depend on no input, kept between calls for as long as the parameters do not change."""

import weakref
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from synthattn.engine import input_independent, thresholds
from synthattn.engine.call import CacheableLogits, Call
from synthattn.engine.native import kernel
from synthattn.engine.projection import is_watched, needs_grad
from synthattn.masks import Mask
from synthattn.shapes import Float
from synthattn.tracing import is_tracing


def attend(call: Call) -> Float[Tensor, "batch heads q width"] | None:
    """Multiply the values with cached weights. Declines where the parameters may change or keeping does not pay."""
    if call.cacheable is None or call.q == 1 or call.dropout > 0.0 or call.mask.allowed_pairs is not None:
        return None
    found = call.cacheable.cache.get(call.cacheable, call)
    if found is None:
        return None
    features, batch = call.values.feature_major(), call.values.shape[0]
    return input_independent.multiply(found.weights, features, batch, call.mask, normalized=found.sum_to_one)


class WeightsForCall(NamedTuple):
    """Weights for one call. The rows of a corner of the cached weights, which lack keys, do not sum to one."""

    weights: Float[Tensor, "heads q k"]
    sum_to_one: bool


class WeightCache:
    """The cached weights of one layer; never saved, never copied, never stale.

    The parameters are compared with a snapshot in each call, which costs a fraction of the exponentials.
    """

    def __init__(self) -> None:
        self._entries: dict[bool, _Entry] = {}

    def get(self, cacheable: CacheableLogits, call: Call) -> WeightsForCall | None:
        """Return the weights for a call, or None where they must not be kept, or keeping them does not pay."""
        _, heads, k, _ = call.values.shape
        q, causal = call.q, call.mask.causal
        if any(map(is_watched, cacheable.module.modules())):
            return None
        sources = [*cacheable.module.parameters(), *cacheable.module.buffers()]
        if not _are_cacheable(sources):
            return None
        if heads * q * k * thresholds.EXPONENTIALS_PER_COMPARISON < sum(t.numel() for t in sources):
            return None
        entry = self._entries.get(causal)
        current = entry is not None and entry.sources.is_current(sources)
        height, width = entry.weights.shape[-2:] if entry is not None and current else (0, 0)
        if entry is None or height < q or width < k:
            # For the longest input so far: shorter ones read its corner. The snapshot is taken first and compared
            # afterwards, because another thread may load parameters in between.
            snapshot = Snapshot(sources)
            weights = _compute(cacheable, max(q, height), max(k, width), causal)
            if not snapshot.is_current(sources):
                return None
            entry = _Entry(weights, snapshot)
            self._entries[causal] = entry
        sum_to_one = k == entry.weights.shape[-1] or (causal and q <= k)
        return WeightsForCall(entry.weights[:, :q, :k], sum_to_one)

    def __deepcopy__(self, memo: dict[int, Any]) -> "WeightCache":
        return WeightCache()

    def __reduce__(self) -> tuple[type["WeightCache"], tuple[()]]:
        return WeightCache, ()


def _compute(cacheable: CacheableLogits, q: int, k: int, causal: bool) -> Float[Tensor, "heads q k"]:
    # An inference tensor could not be used in training later on, where a frozen matrix is read from here as well.
    with torch.inference_mode(False), torch.no_grad():
        logits = cacheable.build(q, k)
        exponentials = input_independent.exponentials(logits, Mask(causal=causal).shared(q, k, torch.device("cpu")))
        return exponentials.div_(exponentials.sum(-1, keepdim=True))


def _are_cacheable(sources: list[Tensor]) -> bool:
    """Return True if the values are plain memory on the CPU that no gradient flows back to.

    On other devices a comparison would cost a synchronisation, more than computing the weights again.
    """
    if torch.is_autocast_enabled("cpu") or any(is_tracing(t) for t in sources):
        return False
    plain = all(type(t) in (Tensor, nn.Parameter) and t.device.type == "cpu" for t in sources)
    return plain and not needs_grad(*sources)


class Snapshot:
    """A record of the values of some tensors, to tell whether they have changed.

    A tensor's version counter is not enough: fused optimizers and edits through ``.data`` leave it as it is. So the
    values are compared as well, in each call.
    """

    def __init__(self, tensors: list[Tensor]) -> None:
        self._known = [(t.dtype, t.shape, [part.clone() for part in _digests(t)]) for t in tensors]
        self._counters = _VersionCounters(tensors)

    def is_current(self, tensors: list[Tensor]) -> bool:
        """Return True if the tensors have the values that they had."""
        return self._counters.same(tensors) is not False and self._same_values(tensors)

    def _same_values(self, tensors: list[Tensor]) -> bool:
        return len(tensors) == len(self._known) and all(
            t.dtype == dtype and t.shape == shape and all(map(torch.equal, _digests(t), known))
            for t, (dtype, shape, known) in zip(tensors, self._known, strict=True)
        )


def _digests(tensor: Tensor) -> list[Tensor]:
    """Return the values, or digests of a large table.

    Where no kernel computes a digest, these are the sums of the bits along the rows and of the values along the
    columns. That is half the memory traffic of a comparison with a copy, and no copy. The sums of bits are modulo 2^64
    and miss a change of many signs or exponents, which the other sums show; these lose small changes in rounding, which
    the sums of bits show.
    """
    tensor = tensor.detach()
    aligned = tensor.is_contiguous() and tensor.storage_offset() * tensor.element_size() % 8 == 0
    small = tensor.numel() <= thresholds.DIGESTED_ENTRIES
    if small or tensor.dim() < 2 or tensor.shape[-1] * tensor.element_size() % 8 or not aligned:
        return [tensor]
    digest = kernel.digest(tensor)
    if digest is not None:
        return [digest]
    wide = torch.promote_types(tensor.dtype, torch.float32)
    return [tensor.view(torch.int64).sum(-1), tensor.sum(-2, dtype=wide)]


class _VersionCounters:
    """The identities of some tensors and their version counters. A copy of it knows no tensors."""

    def __init__(self, tensors: list[Tensor]) -> None:
        self._known = [(weakref.ref(t), _version(t)) for t in tensors]

    def same(self, tensors: list[Tensor]) -> bool | None:
        """Return False if a counter has changed, and None if one of the tensors is another object."""
        if len(tensors) != len(self._known) or any(
            t is not ref() for t, (ref, _) in zip(tensors, self._known, strict=True)
        ):
            return None
        return all(_version(t) == version for t, (_, version) in zip(tensors, self._known, strict=True))

    def __reduce__(self) -> tuple[type["_VersionCounters"], tuple[list[Tensor]]]:
        return _VersionCounters, ([],)


def _version(tensor: Tensor) -> int | None:
    return None if tensor.is_inference() else tensor._version


@dataclass(frozen=True)
class _Entry:
    weights: Float[Tensor, "heads q k"]
    sources: Snapshot
