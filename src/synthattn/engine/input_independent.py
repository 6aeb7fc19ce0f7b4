"""Backend: logits that are the same for every example. One product per head serves the whole batch.

With the weights P of one head, the results of all examples are a single ``(q, k) @ (k, batch * width)`` product.
Key padding differs between examples, yet it needs no softmax for each of them: with ``E = exp(logits - row maximum)``
and the 0/1 mask m of an example, the masked softmax is ``E (m * V) / (E m)``.

Values are feature-major here, ``(heads, width * batch, k)``: no product then needs a copy of them.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from synthattn.engine import compiled, memory_pool, products, thresholds
from synthattn.engine.call import Call
from synthattn.engine.native.gemm import Axis
from synthattn.engine.projection import needs_grad
from synthattn.logits import Bias, Logits
from synthattn.masks import Mask
from synthattn.shapes import Bool, Float


def attend(call: Call) -> Float[Tensor, "batch heads q width"] | None:
    """Attend with one softmax for all examples. Declines where only a softmax per example is exact."""
    logits, mask, dropout = call.logits, call.mask, call.dropout
    if mask.per_example or not logits.input_independent:
        return None
    # Whether the quotient is safe depends on the data. For one query, re-ordering all values costs more than it saves.
    on_cpu = call.values.device.type == "cpu"
    if mask.unpadded is not None and (call.is_tracing or call.q == 1 or not on_cpu):
        return None
    batch, _, k, _ = call.values.shape
    may_stay_unwritten = (
        on_cpu and dropout == 0.0 and mask.allowed_pairs is None and not call.is_tracing
    )  # tracing binds no sizes
    if may_stay_unwritten and call.logits_per_example >= thresholds.UNWRITTEN_WEIGHTS:
        heads = _attend_unwritten(logits, call.values.batch_major(), mask)
        if heads is not None:
            return heads
    shared = mask.shared(call.q, k, call.values.device)
    if mask.unpadded is not None:
        return multiply(exponentials(logits, shared), call.values.feature_major(), batch, mask, dropout)
    empty = None
    if mask.allowed_pairs is not None and shared is not None:
        empty = ~shared.any(-1, keepdim=True)
        shared = shared | empty
    total = _masked(logits, shared)
    weights = total.softmax(-1, dtype=torch.promote_types(total.dtype, torch.float32))
    weights = weights if empty is None else weights.masked_fill(empty, 0.0)
    weights = F.dropout(weights, dropout) if dropout > 0.0 else weights
    if weights.shape[-2] == 1:
        value = call.values.batch_major()
        return weights.to(value.dtype) @ value
    return multiply(weights, call.values.feature_major(), batch, Mask(causal=mask.causal), normalized=True)


def exponentials(logits: Logits, shared: Bool[Tensor, "q k"] | None) -> Float[Tensor, "heads q k"]:
    """Return ``exp(logits - row maximum)``, zero where the shared part of the mask forbids."""
    total = _masked(logits, shared)
    total = total.to(torch.promote_types(total.dtype, torch.float32))
    peak = total.detach().amax(-1, keepdim=True)
    if shared is not None:
        peak = peak.masked_fill(peak == float("-inf"), 0.0)
    # In place where it can be: a table of a long input takes gigabytes.
    (first, *rest) = logits.terms
    is_new = shared is not None or bool(rest) or not isinstance(first, Bias) or first.weight is not None
    return (total.sub_(peak) if is_new else total - peak).exp_()


def multiply(
    exponentials: Float[Tensor, "heads q k"],
    features: Float[Tensor, "heads features k"],
    batch: int,
    mask: Mask,
    dropout: float = 0.0,
    normalized: bool = False,
) -> Float[Tensor, "batch heads q width"] | None:
    """Return ``E (m * V) / (E m)``, or None where all keys that a row keeps have underflowed.

    ``normalized`` says that the rows of E sum to one.
    """
    unpadded, dtype = mask.unpadded, features.dtype
    if normalized and unpadded is None and dropout == 0.0:
        return heads_of(_product(exponentials.to(dtype), features, mask.causal), batch)
    if dtype == torch.float16:  # sums of hundreds of values do not fit: divide before the product as well
        exponentials = exponentials / exponentials.sum(-1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
    exponentials = exponentials.to(dtype)
    # In single precision the masks are further features, so that E, which may be large, is read once.
    # With gradients, taking the product apart costs more than that saves.
    joined = dropout == 0.0 and unpadded is not None and dtype.itemsize >= 4
    joined = joined and not (torch.is_autocast_enabled(features.device.type) or needs_grad(exponentials, features))
    normalizer = None if joined else _normalizer(exponentials, mask)
    if not joined and normalizer is None:
        return None
    kept: Any = features if unpadded is None else MaskedFeatures.apply(features, unpadded, joined)
    weights = F.dropout(exponentials, dropout) if dropout > 0.0 else exponentials
    product = _product(weights, kept, mask.causal)
    if joined:
        product, sums = product[:, :-batch], product[:, -batch:]
        normalizer = trusted(sums.mT, features.shape[-1], mask, dtype)
    return None if normalizer is None else heads_of(product, batch, normalizer)


def _attend_unwritten(
    logits: Logits, value: Float[Tensor, "batch heads k width"], mask: Mask
) -> Float[Tensor, "batch heads q width"] | None:
    """Attend by the compiled kernel, which computes weights block by block, forward and backward.

    With rows P of the softmax over all keys, ``P (m * V) / (P m)`` is the softmax over those that are kept.
    """
    batch, unpadded, columns = len(value), mask.unpadded, value.permute(1, 2, 0, 3)
    if unpadded is not None:  # the mask of an example is one more column of its values
        columns = F.pad(columns, (0, 1), value=1.0) * unpadded.t().to(value.dtype).unsqueeze(-1)
    product = compiled.attend_shared(logits, columns.flatten(2), mask.causal)
    if product is None:
        return None
    heads = product.unflatten(-1, (batch, -1)).permute(2, 0, 1, 3)
    if unpadded is None:
        return heads
    normalizer = trusted(heads[..., -1].permute(1, 2, 0), value.shape[-2], mask)
    return None if normalizer is None else heads[..., :-1] / normalizer.permute(2, 0, 1).unsqueeze(-1)


class MaskedFeatures(torch.autograd.Function):
    """Values with zeros for masked keys, followed by the mask of each example if that is wanted."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, unpadded: Tensor, with_masks: bool) -> Tensor:
        (heads, number, k), batch, kept = features.shape, len(unpadded), unpadded.to(features.dtype)
        ctx.save_for_backward(kept)
        ctx.number = number
        result = _empty((heads, number + (batch if with_masks else 0), k), features)
        by_example = heads, number // batch, batch, k
        torch.mul(features.view(by_example), kept, out=result[:, :number].view(by_example))
        result[:, number:] = kept[: result.shape[1] - number]
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        (kept,), (grad,) = ctx.saved_tensors, grads
        if grad.shape[1] > ctx.number:  # with masks, which have no gradient
            grad = grad[:, : ctx.number]
        # By reshape alone, which batched gradients know.
        return (grad.reshape(len(grad), -1, *kept.shape) * kept).reshape(grad.shape), None, None


# Normalisers ----------------------------------------------------------------------------------------------------


def _normalizer(exponentials: Tensor, mask: Mask) -> Float[Tensor, "heads q #batch"] | None:
    """Return ``E m``, or None where it cannot be trusted."""
    wide = exponentials.to(torch.promote_types(exponentials.dtype, torch.float32))
    kept = None if mask.unpadded is None else mask.unpadded.t().to(wide.dtype)
    sums = wide.sum(-1, keepdim=True) if kept is None else wide @ kept
    return trusted(sums, exponentials.shape[-1], mask, exponentials.dtype)


def trusted(
    normalizer: Float[Tensor, "heads q #batch"], k: int, mask: Mask, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "heads q #batch"] | None:
    """Set rows without a key to 1 (their product is zero). Returns None if another row is too small to trust."""
    too_small = normalizer.detach() < _floor(k, dtype)
    if not too_small.any():
        return normalizer
    q = normalizer.shape[1]
    kept = (normalizer.new_ones(1, k) if mask.unpadded is None else mask.unpadded.to(normalizer.dtype)).t()
    if mask.allowed_pairs is not None:
        shared = mask.shared(q, k, normalizer.device)
        assert shared is not None
        counts = shared.to(normalizer.dtype) @ kept
    elif mask.causal:
        counts = kept.cumsum(0)[torch.arange(q, device=kept.device).clamp(max=k - 1)]
    else:
        counts = kept.sum(0, keepdim=True)
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
    total = logits.as_tensor()
    return total if shared is None else total.masked_fill(~shared, float("-inf"))


# Products -----------------------------------------------------------------------------------------------------


def heads_of(
    product: Float[Tensor, "heads features q"], batch: int, normalizer: Float[Tensor, "heads q #batch"] | None = None
) -> Float[Tensor, "batch heads q width"]:
    """Return the heads of a feature-major product, divided by the normaliser."""
    whole = product.unflatten(1, (-1, batch))
    if normalizer is not None:
        divisor = normalizer.mT.unsqueeze(1).to(product.dtype)
        out = None if needs_grad(product, normalizer) else _empty(whole.shape, product)
        whole = torch.div(whole, divisor, out=out)
    return whole.permute(2, 0, 3, 1)


def _product(weights: Tensor, features: Tensor, causal: bool) -> Float[Tensor, "heads features q"]:
    triangle = (Axis.DEPTH, Axis.COLUMN) if causal else None
    return products.multiply(features, weights.mT, triangle=triangle, pooled=True)


def _empty(shape: tuple[int, ...], like: Tensor) -> Tensor:
    return memory_pool.empty(shape, like.dtype) if like.device.type == "cpu" else like.new_empty(shape)
