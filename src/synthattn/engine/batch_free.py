"""Attention whose weights are the same for every example: one product per head for the whole batch.

With the weights P of one head, the results of all examples are a single ``(q, k) @ (k, batch * width)`` product.
Key padding differs between examples and would seem to need a softmax for each of them. It does not: with
``E = exp(logits - row maximum)`` and the 0/1 mask m of an example, the masked softmax is ``E (m * V) / (E m)``.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from synthattn.engine import memory_pool, native, second_order
from synthattn.logits import Logits
from synthattn.masks import Mask
from synthattn.shapes import Bool, Float
from synthattn.tracing import is_tracing

# Rows per block of a causal product. Smaller blocks skip more of the upper triangle, larger ones multiply faster.
CAUSAL_BLOCK = 128
# Weights of all heads: from here on it takes longer to write them down, with their gradients, than to make them twice.
LARGE = 2**24


def attend(
    logits: Logits, value: Float[Tensor, "batch heads k width"], mask: Mask, dropout: float
) -> Float[Tensor, "batch heads q width"] | None:
    """Batch-free attention, or None where only a softmax per example is exact."""
    if mask.keep is not None and is_tracing(value):
        return None  # whether the quotient is safe depends on the data
    # Sizes are not asked for in a traced graph, which would be bound to them.
    in_blocks = dropout == 0.0 and mask.allowed is None and not is_tracing(value)
    if in_blocks and is_large(value.shape[1], logits.query_length, logits.key_length):
        heads = _attend_in_blocks(logits, value, mask)
        if heads is not None:
            return heads
    shared = mask.shared(logits.query_length, logits.key_length, value.device)
    if mask.keep is not None:
        return attend_exponential(exponential(logits, shared), value, mask, dropout)
    dead = None
    if mask.allowed is not None and shared is not None:
        dead = ~shared.any(-1, keepdim=True)
        shared = shared | dead
    total = _masked(logits, shared)
    weights = total.softmax(-1, dtype=torch.promote_types(total.dtype, torch.float32))
    weights = weights if dead is None else weights.masked_fill(dead, 0.0)
    weights = F.dropout(weights, dropout) if dropout > 0.0 else weights
    if weights.shape[-2] == 1:  # decoding: re-ordering all values would cost more than it saves
        return weights.to(value.dtype) @ value
    return _results(weights.to(value.dtype), value, mask.causal)


def is_large(heads: int, q: int, k: int) -> bool:
    """Return True if the weights of all heads are so many that they should not be written down."""
    return heads * q * k >= LARGE


def _attend_in_blocks(
    logits: Logits, value: Float[Tensor, "batch heads k width"], mask: Mask
) -> Float[Tensor, "batch heads q width"] | None:
    """The same by the compiled kernel, which makes the weights where they are used, forward and backward.

    With rows P of the softmax over all keys, ``P (m * V) / (P m)`` is the softmax over those that are kept.
    """
    keep, number = mask.keep, value.shape[0] * value.shape[-1]
    columns = heads_first(value) if keep is None else _MaskedColumns.apply(value, keep)
    product = native.attend_shared(logits, columns, mask.causal)  # pyright: ignore
    if product is None or keep is None:
        return None if product is None else examples_first(product, value)
    normalizer = _trusted(product[..., number:], value.shape[-2], mask)
    return None if normalizer is None else examples_first(product[..., :number], value, normalizer)


class _MaskedColumns(torch.autograd.Function):
    """Values as one matrix per head, the examples side by side, masked keys zero; after them the mask of each."""

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


def exponential(logits: Logits, shared: Bool[Tensor, "q k"] | None) -> Float[Tensor, "heads q k"]:
    """``exp(logits - row maximum)``, zero where the shared part of the mask forbids."""
    total = _masked(logits, shared)
    total = total.to(torch.promote_types(total.dtype, torch.float32))
    peak = total.detach().amax(-1, keepdim=True)
    if shared is not None:
        peak = peak.masked_fill(peak == float("-inf"), 0.0)
    return (total - peak).exp()


def attend_exponential(
    exponentials: Float[Tensor, "heads q k"],
    value: Float[Tensor, "batch heads k width"],
    mask: Mask,
    dropout: float = 0.0,
    normalized: bool = False,
) -> Float[Tensor, "batch heads q width"] | None:
    """``E (m * V) / (E m)``, or None where all keys that a row keeps have underflowed.

    ``normalized`` says that the rows of E sum to one already.
    """
    if normalized and mask.keep is None and dropout == 0.0:
        return _results(exponentials.to(value.dtype), value, mask.causal)
    if value.dtype == torch.float16:  # a sum of hundreds of values would not fit: the normaliser first, its rest below
        exponentials = exponentials / exponentials.sum(-1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
    exponentials = exponentials.to(value.dtype)
    if mask.keep is not None and dropout == 0.0 and not recorded(exponentials, value):
        lines = as_lines(value)
        if lines is not None and value.dtype in (torch.float32, torch.float64):
            return _attend_lines(exponentials, lines, mask.keep, mask)
    with torch.autocast(value.device.type, enabled=False):
        normalizer = _normalizer(exponentials, mask)
    if normalizer is None:
        return None
    weights = F.dropout(exponentials, dropout) if dropout > 0.0 else exponentials
    return _results(weights, value, mask.causal, mask.keep, normalizer)


def _normalizer(exponentials: Tensor, mask: Mask) -> Float[Tensor, "heads q #batch"] | None:
    """``E m``, as :func:`_trusted` has it."""
    wide = exponentials.to(torch.promote_types(exponentials.dtype, torch.float32))
    kept = None if mask.keep is None else mask.keep.t().to(wide.dtype)
    return _trusted(
        wide.sum(-1, keepdim=True) if kept is None else wide @ kept, exponentials.shape[-1], mask, exponentials.dtype
    )


def _trusted(
    normalizer: Float[Tensor, "heads q #batch"], k: int, mask: Mask, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "heads q #batch"] | None:
    """Rows without a key get 1 (their product is zero); None if another row is too small to trust."""
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


def _attend_lines(
    exponentials: Float[Tensor, "heads q k"],
    lines: Float[Tensor, "heads lines k"],
    keep: Bool[Tensor, "batch k"],
    mask: Mask,
) -> Float[Tensor, "batch heads q width"] | None:
    """``E (m * V) / (E m)`` with the masks as further lines: E, which may be large, is read once for both."""
    (heads, number, k), batch, q = lines.shape, len(keep), exponentials.shape[-2]
    kept, by_example = keep.to(lines.dtype), (heads, -1, batch, k)
    joined = _empty((heads, number + batch, k), lines)
    torch.mul(lines.view(by_example), kept, out=joined[:, :number].view(by_example))
    joined[:, number:] = kept
    product = _product(exponentials, joined.mT, mask.causal).mT
    normalizer = _trusted(product[:, number:].mT, k, mask, lines.dtype)
    if normalizer is None:
        return None
    result = _empty((heads, number // batch, batch, q), lines)
    torch.div(product[:, :number].view(result.shape), normalizer.mT.unsqueeze(1), out=result)
    return result.permute(2, 0, 3, 1)


def _floor(k: int, dtype: torch.dtype) -> float:
    """The sum of a row below which terms lost to underflow could be seen in its last digits."""
    info = torch.finfo(dtype)
    lost = info.tiny * info.eps if dtype == torch.float16 else 4 * info.tiny  # the kernel loses some more than torch
    return k * lost / info.eps


def _masked(logits: Logits, shared: Tensor | None) -> Float[Tensor, "heads q k"]:
    total = logits.summed()
    return total if shared is None else total.masked_fill(~shared, float("-inf"))


def _results(
    weights: Float[Tensor, "heads q k"],
    value: Float[Tensor, "batch heads k width"],
    causal: bool,
    keep: Bool[Tensor, "batch k"] | None = None,
    normalizer: Float[Tensor, "heads q #batch"] | None = None,
) -> Float[Tensor, "batch heads q width"]:
    """``weights @ (m * V)`` for every example, divided by the normaliser."""
    lines = as_lines(value)
    if lines is None:
        return examples_first(_product(weights, heads_first(value, keep), causal), value, normalizer)
    batch, heads, k, width = value.shape
    if keep is not None:
        whole, kept = lines.view(heads, width, batch, k), keep.to(value.dtype)
        masked = whole * kept if recorded(value) else torch.mul(whole, kept, out=_empty(whole.shape, value))
        lines = masked.view(lines.shape)
    product = _product(weights, lines.mT, causal).mT.reshape(heads, width, batch, -1)
    if normalizer is not None:
        normalizer = normalizer.mT.unsqueeze(1).to(product.dtype)
        product = product / normalizer if recorded(product, normalizer) else product.div_(normalizer)
    return product.permute(2, 0, 3, 1)


def as_lines(heads: Float[Tensor, "batch heads k width"]) -> Float[Tensor, "heads lines k"] | None:
    """One line for each feature and example, with all its places; None where memory is not in that order.

    The transposed product of a projection makes this order, and the product with the weights keeps it, so that between
    two projections nothing needs to be brought into another one.
    """
    lines = heads.permute(1, 3, 0, 2)
    return lines.flatten(1, 2) if lines.is_contiguous() and heads.shape[-2] > 1 < heads.shape[-1] else None


def _empty(shape: tuple[int, ...], like: Tensor) -> Tensor:
    return memory_pool.empty(shape, like.dtype) if like.device.type == "cpu" else like.new_empty(shape)


def recorded(*tensors: Tensor) -> bool:
    """Whether what is computed from these has a gradient."""
    return torch.is_grad_enabled() and any(t.requires_grad for t in tensors)


def heads_first(value: Tensor, keep: Tensor | None = None) -> Float[Tensor, "heads k columns"]:
    """Values as one matrix per head, the examples side by side, masked keys zero (if they are finite)."""
    batch, heads, k, width = value.shape
    columns = value.permute(1, 2, 0, 3)
    if keep is None:
        return columns.reshape(heads, k, batch * width)
    kept = keep.t()[None, :, :, None].to(value.dtype)
    if recorded(value):
        return (columns * kept).reshape(heads, k, batch * width)
    result = value.new_empty(heads, k, batch, width)
    torch.mul(columns, kept, out=result)  # masks and re-orders in one pass
    return result.view(heads, k, batch * width)


def examples_first(
    product: Tensor, value: Tensor, normalizer: Tensor | None = None
) -> Float[Tensor, "batch heads q width"]:
    batch, heads, _, width = value.shape
    result = product.view(heads, product.shape[1], batch, width).permute(2, 0, 1, 3)
    if normalizer is None:
        return result
    normalizer = normalizer.permute(2, 0, 1).unsqueeze(-1)
    if recorded(product, normalizer):
        return result / normalizer.to(product.dtype)
    target = product.new_empty(batch, result.shape[2], heads, width).transpose(1, 2)
    return torch.div(result, normalizer.to(product.dtype), out=target)  # divides and re-orders in one pass


def _product(weights: Tensor, columns: Tensor, causal: bool) -> Tensor:
    causal = causal and weights.shape[-2] > CAUSAL_BLOCK
    transposed = columns.stride(-1) != 1
    if is_tracing(weights) or torch.is_autocast_enabled(weights.device.type) or not (causal or transposed):
        return torch.bmm(weights, columns)
    return _Product.apply(weights, columns, causal)  # pyright: ignore[reportReturnType]


class _Product(torch.autograd.Function):
    """``weights @ columns`` with memory in the order that the columns have; what a causal mask has made zero, above the
    diagonal, is never multiplied."""

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
            to_weights = torch.bmm(grad, columns.mT)
            return to_weights.tril() if ctx.causal else to_weights, torch.bmm(weights.mT, grad), None
        new = torch.zeros_like if ctx.causal else torch.empty_like
        to_weights = new(weights) if ctx.needs_input_grad[0] else None
        to_columns = new(columns) if ctx.needs_input_grad[1] else None
        for rows, keys in _blocks(weights, ctx.causal):
            if to_weights is not None:
                torch.bmm(grad[:, rows], columns[:, keys].mT, out=to_weights[:, rows, keys])
            if to_columns is not None:
                target = to_columns[:, keys]
                beta = 1.0 if ctx.causal else 0.0
                torch.baddbmm(target, weights[:, rows, keys].mT, grad[:, rows], beta=beta, out=target)
        return to_weights, to_columns, None


def _blocks(weights: Tensor, causal: bool) -> list[tuple[slice, slice]]:
    """Rows and the keys that they are multiplied with."""
    q, k = weights.shape[-2:]
    if not causal:
        return [(slice(0, q), slice(0, k))]
    starts = range(0, q, CAUSAL_BLOCK)
    return [(slice(s, min(s + CAUSAL_BLOCK, q)), slice(0, min(s + CAUSAL_BLOCK, q, k))) for s in starts]
