"""Backend: logits that are the same for every example. One product per head serves the whole batch.

With the weights P of one head, the results of all examples are a single ``(q, k) @ (k, batch * width)`` product.
Key padding differs between examples, yet it needs no softmax for each of them: with ``E = exp(logits - row maximum)``
and the 0/1 mask m of an example, the masked softmax is ``E (m * V) / (E m)``.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from synthattn.engine import compiled, memory_pool, second_order, thresholds
from synthattn.engine.call import Call
from synthattn.engine.projection import as_feature_major, needs_grad
from synthattn.logits import Logits
from synthattn.masks import Mask
from synthattn.shapes import Bool, Float
from synthattn.tracing import is_tracing


def attend(call: Call) -> Float[Tensor, "batch heads q width"] | None:
    """Attend with one softmax for all examples. Declines where only a softmax per example is exact."""
    logits, mask, dropout = call.logits, call.mask, call.dropout
    if mask.per_example or not logits.input_independent:
        return None
    if mask.keep is not None and call.is_tracing:
        return None  # whether the quotient is safe depends on the data
    if not call.is_tracing:  # a traced graph would be bound to the sizes
        if dropout == 0.0 and mask.allowed is None and call.logits_per_example >= thresholds.UNWRITTEN_WEIGHTS:
            heads = _attend_unwritten(logits, call.values.batch_major(), mask)
            if heads is not None:
                return heads
        if call.q > 1:
            call.values.feature_major()  # the order in which they are multiplied fastest
    value = call.values.batch_major()
    shared = mask.shared(call.q, value.shape[-2], value.device)
    if mask.keep is not None:
        return multiply(exponentials(logits, shared), value, mask, dropout)
    empty = None
    if mask.allowed is not None and shared is not None:
        empty = ~shared.any(-1, keepdim=True)
        shared = shared | empty
    total = _masked(logits, shared)
    weights = total.softmax(-1, dtype=torch.promote_types(total.dtype, torch.float32))
    weights = weights if empty is None else weights.masked_fill(empty, 0.0)
    weights = F.dropout(weights, dropout) if dropout > 0.0 else weights
    if weights.shape[-2] == 1:  # decoding: re-ordering all values would cost more than it saves
        return weights.to(value.dtype) @ value
    return _weighted_sum(weights.to(value.dtype), value, mask.causal)


def exponentials(logits: Logits, shared: Bool[Tensor, "q k"] | None) -> Float[Tensor, "heads q k"]:
    """Return ``exp(logits - row maximum)``, zero where the shared part of the mask forbids."""
    total = _masked(logits, shared)
    total = total.to(torch.promote_types(total.dtype, torch.float32))
    peak = total.detach().amax(-1, keepdim=True)
    if shared is not None:
        peak = peak.masked_fill(peak == float("-inf"), 0.0)
    return (total - peak).exp()


def multiply(
    exponentials: Float[Tensor, "heads q k"],
    value: Float[Tensor, "batch heads k width"],
    mask: Mask,
    dropout: float = 0.0,
    normalized: bool = False,
) -> Float[Tensor, "batch heads q width"] | None:
    """Return ``E (m * V) / (E m)``, or None where all keys that a row keeps have underflowed.

    ``normalized`` says that the rows of E sum to one.
    """
    if normalized and mask.keep is None and dropout == 0.0:
        return _weighted_sum(exponentials.to(value.dtype), value, mask.causal)
    if value.dtype == torch.float16:  # sums of hundreds of values do not fit: divide before the product as well
        exponentials = exponentials / exponentials.sum(-1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
    exponentials = exponentials.to(value.dtype)
    if mask.keep is not None and dropout == 0.0 and not needs_grad(exponentials, value):
        features = as_feature_major(value)
        if features is not None and value.dtype in (torch.float32, torch.float64):
            return _masked_sum(exponentials, features, mask.keep, mask)
    with torch.autocast(value.device.type, enabled=False):
        normalizer = _normalizer(exponentials, mask)
    if normalizer is None:
        return None
    weights = F.dropout(exponentials, dropout) if dropout > 0.0 else exponentials
    return _weighted_sum(weights, value, mask.causal, mask.keep, normalizer)


# Weights that are never written ---------------------------------------------------------------------------------


def _attend_unwritten(
    logits: Logits, value: Float[Tensor, "batch heads k width"], mask: Mask
) -> Float[Tensor, "batch heads q width"] | None:
    """Attend by the compiled kernel, which computes weights block by block, forward and backward.

    With rows P of the softmax over all keys, ``P (m * V) / (P m)`` is the softmax over those that are kept.
    """
    keep, number = mask.keep, value.shape[0] * value.shape[-1]
    columns = _heads_first(value) if keep is None else _MaskedColumns.apply(value, keep)
    product = compiled.attend_shared(logits, columns, mask.causal)  # pyright: ignore
    if product is None or keep is None:
        return None if product is None else _examples_first(product, value)
    normalizer = _trusted(product[..., number:], value.shape[-2], mask)
    return None if normalizer is None else _examples_first(product[..., :number], value, normalizer)


class _MaskedColumns(torch.autograd.Function):
    """Values as one matrix per head, the examples side by side, masked keys zero; then the mask of each example."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, keep: Tensor) -> Tensor:
        (batch, heads, k, width), number = value.shape, len(value) * value.shape[-1]
        kept = keep.t().to(value.dtype)
        ctx.save_for_backward(kept)
        result = _empty((heads, k, number + batch), value)
        torch.mul(value.permute(1, 2, 0, 3), kept.unsqueeze(-1), out=result[..., :number].view(heads, k, batch, width))
        result[..., number:] = kept
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, None]:  # pyright: ignore
        (kept,) = ctx.saved_tensors
        batch = kept.shape[-1]
        values = grads[0][..., :-batch].unflatten(-1, (batch, -1)).permute(2, 1, 0, 3)  # as projections have them
        return (values * kept.t()[:, :, None, None]).transpose(1, 2), None


# Normalisers ----------------------------------------------------------------------------------------------------


def _normalizer(exponentials: Tensor, mask: Mask) -> Float[Tensor, "heads q #batch"] | None:
    """Return ``E m``, or None where it cannot be trusted."""
    wide = exponentials.to(torch.promote_types(exponentials.dtype, torch.float32))
    kept = None if mask.keep is None else mask.keep.t().to(wide.dtype)
    sums = wide.sum(-1, keepdim=True) if kept is None else wide @ kept
    return _trusted(sums, exponentials.shape[-1], mask, exponentials.dtype)


def _trusted(
    normalizer: Float[Tensor, "heads q #batch"], k: int, mask: Mask, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "heads q #batch"] | None:
    """Set rows without a key to 1 (their product is zero). Returns None if another row is too small to trust."""
    too_small = normalizer.detach() < _floor(k, dtype)
    if not too_small.any():
        return normalizer
    shared = mask.shared(normalizer.shape[1], k, normalizer.device)
    if mask.keep is None:
        empty = torch.zeros((), dtype=torch.bool) if shared is None else ~shared.any(-1, keepdim=True)
    else:
        kept = mask.keep.t().to(normalizer.dtype)
        counts = kept.sum(0, keepdim=True) if shared is None else shared.to(kept.dtype) @ kept
        empty = counts == 0
    if (too_small & ~empty).any():
        return None
    return normalizer.masked_fill(empty, 1.0)


def _floor(k: int, dtype: torch.dtype) -> float:
    """Return the sum of a row below which terms lost to underflow could be seen in its last digits."""
    info = torch.finfo(dtype)
    lost = info.tiny * info.eps if dtype == torch.float16 else 4 * info.tiny  # the kernel loses some more than torch
    return k * lost / info.eps


def _masked(logits: Logits, shared: Tensor | None) -> Float[Tensor, "heads q k"]:
    total = logits.dense()
    return total if shared is None else total.masked_fill(~shared, float("-inf"))


# Products of written weights ------------------------------------------------------------------------------------


def _weighted_sum(
    weights: Float[Tensor, "heads q k"],
    value: Float[Tensor, "batch heads k width"],
    causal: bool,
    keep: Bool[Tensor, "batch k"] | None = None,
    normalizer: Float[Tensor, "heads q #batch"] | None = None,
) -> Float[Tensor, "batch heads q width"]:
    """Return ``weights @ (m * V)`` for every example, divided by the normaliser."""
    features = as_feature_major(value)
    if features is None:
        return _examples_first(_product(weights, _heads_first(value, keep), causal), value, normalizer)
    batch, heads, k, width = value.shape
    if keep is not None:
        whole, kept = features.view(heads, width, batch, k), keep.to(value.dtype)
        masked = whole * kept if needs_grad(value) else torch.mul(whole, kept, out=_empty(whole.shape, value))
        features = masked.view(features.shape)
    product = _product(weights, features.mT, causal).mT.reshape(heads, width, batch, -1)
    if normalizer is not None:
        normalizer = normalizer.mT.unsqueeze(1).to(product.dtype)
        product = product / normalizer if needs_grad(product, normalizer) else product.div_(normalizer)
    return product.permute(2, 0, 3, 1)


def _masked_sum(
    exponentials: Float[Tensor, "heads q k"],
    features: Float[Tensor, "heads features k"],
    keep: Bool[Tensor, "batch k"],
    mask: Mask,
) -> Float[Tensor, "batch heads q width"] | None:
    """Return ``E (m * V) / (E m)`` with the masks as further features: E, which may be large, is read once for both."""
    (heads, number, k), batch, q = features.shape, len(keep), exponentials.shape[-2]
    kept, by_example = keep.to(features.dtype), (heads, -1, batch, k)
    joined = _empty((heads, number + batch, k), features)
    torch.mul(features.view(by_example), kept, out=joined[:, :number].view(by_example))
    joined[:, number:] = kept
    product = _product(exponentials, joined.mT, mask.causal).mT
    normalizer = _trusted(product[:, number:].mT, k, mask, features.dtype)
    if normalizer is None:
        return None
    result = _empty((heads, number // batch, batch, q), features)
    torch.div(product[:, :number].view(result.shape), normalizer.mT.unsqueeze(1), out=result)
    return result.permute(2, 0, 3, 1)


def _heads_first(value: Tensor, keep: Tensor | None = None) -> Float[Tensor, "heads k columns"]:
    """Return the values as one matrix per head, the examples side by side, masked keys zero (if they are finite)."""
    batch, heads, k, width = value.shape
    columns = value.permute(1, 2, 0, 3)
    if keep is None:
        return columns.reshape(heads, k, batch * width)
    kept = keep.t()[None, :, :, None].to(value.dtype)
    if needs_grad(value):
        return (columns * kept).reshape(heads, k, batch * width)
    result = value.new_empty(heads, k, batch, width)
    torch.mul(columns, kept, out=result)  # masks and re-orders in one pass
    return result.view(heads, k, batch * width)


def _examples_first(
    product: Float[Tensor, "heads q columns"], value: Tensor, normalizer: Tensor | None = None
) -> Float[Tensor, "batch heads q width"]:
    """Undo :func:`_heads_first` for a product, and divide by the normaliser."""
    batch, heads, _, width = value.shape
    result = product.view(heads, product.shape[1], batch, width).permute(2, 0, 1, 3)
    if normalizer is None:
        return result
    normalizer = normalizer.permute(2, 0, 1).unsqueeze(-1)
    if needs_grad(product, normalizer):
        return result / normalizer.to(product.dtype)
    target = product.new_empty(batch, result.shape[2], heads, width).transpose(1, 2)
    return torch.div(result, normalizer.to(product.dtype), out=target)  # divides and re-orders in one pass


def _empty(shape: tuple[int, ...], like: Tensor) -> Tensor:
    return memory_pool.empty(shape, like.dtype) if like.device.type == "cpu" else like.new_empty(shape)


def _product(weights: Tensor, columns: Tensor, causal: bool) -> Tensor:
    causal = causal and weights.shape[-2] > thresholds.CAUSAL_ROWS
    transposed = columns.stride(-1) != 1
    if is_tracing(weights) or torch.is_autocast_enabled(weights.device.type) or not (causal or transposed):
        return torch.bmm(weights, columns)
    return _Product.apply(weights, columns, causal)  # pyright: ignore[reportReturnType]


class _Product(torch.autograd.Function):
    """``weights @ columns`` in the memory order of the columns. What a causal mask made zero is never multiplied."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, columns: Tensor, causal: bool) -> Tensor:
        ctx.save_for_backward(weights, columns)
        ctx.causal = causal
        (heads, q, _), n = weights.shape, columns.shape[-1]
        result = _empty((heads, q, n), weights) if columns.stride(-1) == 1 else _empty((heads, n, q), weights).mT
        for rows, keys in _blocks(weights, causal):
            torch.bmm(weights[:, rows, keys], columns[:, keys], out=result[:, rows])
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        weights, columns = ctx.saved_tensors
        (grad,) = grads
        if second_order.is_wanted(grad):
            grad_weights = torch.bmm(grad, columns.mT)
            return grad_weights.tril() if ctx.causal else grad_weights, torch.bmm(weights.mT, grad), None
        new = torch.zeros_like if ctx.causal else torch.empty_like
        grad_weights = new(weights) if ctx.needs_input_grad[0] else None
        grad_columns = new(columns) if ctx.needs_input_grad[1] else None
        for rows, keys in _blocks(weights, ctx.causal):
            if grad_weights is not None:
                torch.bmm(grad[:, rows], columns[:, keys].mT, out=grad_weights[:, rows, keys])
            if grad_columns is not None:
                target = grad_columns[:, keys]
                beta = 1.0 if ctx.causal else 0.0
                torch.baddbmm(target, weights[:, rows, keys].mT, grad[:, rows], beta=beta, out=target)
        return grad_weights, grad_columns, None


def _blocks(weights: Tensor, causal: bool) -> list[tuple[slice, slice]]:
    """Return blocks of rows, each with the keys that they are multiplied with."""
    q, k = weights.shape[-2:]
    if not causal:
        return [(slice(0, q), slice(0, k))]
    size = thresholds.CAUSAL_ROWS
    return [(slice(s, min(s + size, q)), slice(0, min(s + size, q, k))) for s in range(0, q, size)]
