"""Backend: weights that depend on no input, kept between calls for as long as the parameters do not change."""

import torch
from torch import Tensor, nn

from synthattn.engine import input_independent, thresholds
from synthattn.engine.call import CacheableLogits, Call
from synthattn.engine.native.library import digest
from synthattn.engine.projection import is_watched, needs_grad
from synthattn.masks import Mask
from synthattn.shapes import Float
from synthattn.tracing import is_tracing


def attend(call: Call) -> Float[Tensor, "batch heads q width"] | None:
    """Multiply the values with cached weights. Declines where the parameters may change or keeping does not pay."""
    if call.cacheable is None or call.q == 1 or call.dropout > 0.0 or call.mask.allowed_pairs is not None:
        return None
    cached = call.cacheable.cache.get(call.cacheable, call)
    if cached is None:
        return None
    batch, _, k, _ = call.values.shape
    weights = cached[:, : call.q, :k]
    # The rows of a corner lack keys, except those that no causal query can see.
    sum_to_one = k == cached.shape[-1] or (call.mask.causal and call.q <= k)
    return input_independent.multiply(weights, call.values.feature_major(), batch, call.mask, normalized=sum_to_one)


class WeightCache:
    """The cached weights of one layer; never saved, never copied, never stale.

    The parameters are compared with a snapshot in each call, which costs a fraction of the exponentials.
    """

    def __init__(self) -> None:
        self._entries: dict[bool, tuple[Tensor, Snapshot]] = {}

    def get(self, cacheable: CacheableLogits, call: Call) -> Float[Tensor, "heads q k"] | None:
        """Return weights for at least the size of a call; None where they must not be cached, or that does not pay."""
        _, heads, k, _ = call.values.shape
        q, causal = call.q, call.mask.causal
        if any(map(is_watched, cacheable.module.modules())):
            return None
        sources = [*cacheable.module.parameters(), *cacheable.module.buffers()]
        if not _are_cacheable(sources):
            return None
        if heads * q * k * thresholds.EXPONENTIALS_PER_COMPARISON < sum(t.numel() for t in sources):
            return None
        weights, known = self._entries.get(causal, (None, None))
        current = known is not None and known.is_current(sources)
        height, width = weights.shape[-2:] if weights is not None and current else (0, 0)
        if weights is None or height < q or width < k:
            # For the longest input so far: shorter ones read its corner. The snapshot is taken first and compared
            # afterwards, because another thread may load parameters in between.
            snapshot = Snapshot(sources)
            weights = _compute(cacheable, max(q, height), max(k, width), causal)
            if not snapshot.is_current(sources):
                return None
            self._entries[causal] = weights, snapshot
        return weights

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
    values are compared as well, in each call; those of a large table by a digest, which reads half the memory.
    """

    def __init__(self, tensors: list[Tensor]) -> None:
        self._known = [(_kind(t), _values(t).clone()) for t in tensors]

    def is_current(self, tensors: list[Tensor]) -> bool:
        """Return True if the tensors have the values that they had."""
        return len(tensors) == len(self._known) and all(
            _kind(t) == kind and torch.equal(_values(t), values)
            for t, (kind, values) in zip(tensors, self._known, strict=True)
        )


def _kind(tensor: Tensor) -> tuple[torch.Size, torch.dtype, int | None]:
    """Return all that must be equal beside the values: size, type and, where there is one, the version counter."""
    return tensor.shape, tensor.dtype, None if tensor.is_inference() else tensor._version


def _values(tensor: Tensor) -> Tensor:
    """Return the values, or a digest of a large table where there is a kernel for it."""
    found = digest(tensor) if tensor.numel() > thresholds.DIGESTED_ENTRIES else None
    return tensor.detach() if found is None else found
