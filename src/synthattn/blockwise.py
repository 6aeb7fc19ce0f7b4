"""Attention in blocks of rows, example by example: nothing of size batch x heads x q x k is ever held.

This serves what torch's fused kernel cannot: a bias that wants a gradient (``random+vanilla`` in training), query
and key features of another width than the values (``dense+vanilla``), logits that are a bias alone
(``factorized_dense``). The backward pass recomputes the weights of a block, which fits the cache, and padded keys
are left out of the products instead of being masked.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from synthattn.logits import Logits
from synthattn.masks import Mask
from synthattn.shapes import Float

# Logits held at a time: few enough for the cache, enough rows for efficient products.
BLOCK_ELEMENTS = 2**22
# Below this many logits per example, the loop over examples costs more than it saves.
SMALL_EXAMPLE = 2**16


def applies(logits: Logits, value: Tensor) -> bool:
    """Whether the loop pays, and the tensors are of the one kind that it takes."""
    tensors = [t for t in (logits.query, logits.key, logits.bias, value) if t is not None]
    per_example = value.shape[1] * logits.query_length * logits.key_length
    return (
        not torch.compiler.is_compiling()
        and value.device.type == "cpu"
        and value.dtype in (torch.float32, torch.float64)
        and all(t.dtype == value.dtype for t in tensors)
        and not torch.is_autocast_enabled("cpu")
        and per_example >= SMALL_EXAMPLE
    )


def attend(
    logits: Logits, value: Float[Tensor, "batch heads k width"], mask: Mask
) -> Float[Tensor, "batch heads q width"]:
    """Softmax(logits) @ value. Every row must keep at least one key."""
    batch, heads, k, _ = value.shape
    q = logits.query_length
    query, key, bias = logits.query, logits.key, logits.bias
    if query is not None and key is not None:
        query, key = query.expand(batch, -1, -1, -1), key.expand(batch, heads, -1, -1)
    bias = _with_mask(bias, mask, value, q)
    if bias is not None:
        bias = bias.expand(*bias.shape[:-3], heads, q, k)
    plan = _Plan.make(mask, batch, heads, q, k, logits.scale)
    return _Blockwise.apply(query, key, value, bias, plan)  # pyright: ignore[reportReturnType]


def attend_each(logits: Logits, value: Float[Tensor, "batch heads k width"], mask: Mask) -> Tensor:
    """One call of torch's fused kernel per example, on the keys that the example keeps. No gradient for the bias."""
    batch, heads, k, _ = value.shape
    assert logits.query is not None
    assert logits.key is not None
    q = logits.query_length
    bias = _with_mask(logits.bias, mask, value, q)
    assert bias is not None
    bias = bias.expand(heads, q, k)
    plan = _Plan.make(mask, batch, heads, q, k, logits.scale)
    results = []
    for b in range(batch):
        kept = plan.keys(b, k)
        args = [_take(t[b], kept, -2)[None] for t in (logits.key, value)]
        part = _take(bias, kept, -1)[None]
        query = logits.query[b][None]
        results.append(F.scaled_dot_product_attention(query, *args, attn_mask=part, scale=plan.scale))
    return torch.cat(results)


def _with_mask(bias: Tensor | None, mask: Mask, value: Tensor, q: int) -> Tensor | None:
    """The bias with minus infinity where the mask forbids, key padding excepted unless it is per example anyway."""
    k = value.shape[-2]
    allowed = mask.full(q, k, value.device) if mask.per_example else mask.shared(q, k, value.device)
    if allowed is None:
        return bias
    bias = value.new_zeros(1, 1, k) if bias is None else bias
    return bias.masked_fill(~allowed, float("-inf"))


@dataclass(frozen=True)
class _Plan:
    """Which rows are done together, and which keys each example needs for them."""

    rows: list[slice]
    kept: list[slice | Tensor] | None
    causal: bool
    scale: float

    @classmethod
    def make(cls, mask: Mask, batch: int, heads: int, q: int, k: int, scale: float) -> "_Plan":
        height = max(1, min(q, BLOCK_ELEMENTS // (heads * k)))
        rows = [slice(start, min(start + height, q)) for start in range(0, q, height)]
        kept = None
        if mask.keep is not None and not mask.per_example:
            kept = [_kept_keys(mask.keep[b]) for b in range(batch)]
        return cls(rows, kept, mask.causal, scale)

    def keys(self, example: int, end: int) -> slice | Tensor:
        """The keys that queries before ``end`` can see."""
        kept = slice(0, None) if self.kept is None else self.kept[example]
        if not self.causal:
            return kept
        if isinstance(kept, slice):
            return slice(0, end if kept.stop is None else min(end, kept.stop))
        return kept[kept < end]

    def blocks(self, batch: int) -> Iterator[tuple[int, slice, slice | Tensor]]:
        # Rows outside, examples inside: a block of a shared bias is used for all examples while it is in the cache.
        for rows in self.rows:
            for b in range(batch):
                yield b, rows, self.keys(b, rows.stop)


def _kept_keys(keep: Tensor) -> slice | Tensor:
    count = int(keep.sum())
    return slice(0, count) if bool(keep[:count].all()) else keep.nonzero()[:, 0]


def _take(tensor: Tensor, keys: slice | Tensor, dim: int) -> Tensor:
    if isinstance(keys, slice):
        stop = tensor.shape[dim] if keys.stop is None else min(keys.stop, tensor.shape[dim])
        return tensor.narrow(dim, 0, stop)
    return tensor.index_select(dim, keys)


def _add_at(total: Tensor, keys: slice | Tensor, dim: int, part: Tensor) -> None:
    if isinstance(keys, slice):
        _take(total, keys, dim).add_(part)
    else:
        total.index_add_(dim, keys, part)


class _Blockwise(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor | None, key: Tensor | None, value: Tensor, bias: Tensor | None, plan: _Plan
    ) -> Tensor:
        batch, heads, _, width = value.shape
        q = query.shape[-2] if query is not None else bias.shape[-2]  # pyright: ignore[reportOptionalMemberAccess]
        result = value.new_empty(batch, q, heads, width).transpose(1, 2)
        fused = query is not None and query.shape[-1] == width and bias is not None
        if fused and plan.kept is None:
            mask = bias.expand(batch, -1, -1, -1)  # pyright: ignore[reportOptionalMemberAccess]
            result = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=plan.scale)  # pyright: ignore
        else:
            workspace = _Workspace(value)
            for b, rows, keys in plan.blocks(batch):
                weights = _weights(query, key, bias, b, rows, keys, plan.scale, workspace)
                torch.bmm(weights, _take(value[b], keys, -2), out=result[b, :, rows])
        ctx.save_for_backward(query, key, value, bias, result)
        ctx.plan = plan
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, bias, result = ctx.saved_tensors
        (grad,) = grads
        batch = len(value)
        to_query, to_key, to_value, to_bias = (
            torch.zeros_like(t) if needed and t is not None else None
            for t, needed in zip((query, key, value, bias), ctx.needs_input_grad, strict=False)
        )
        # d softmax: dS = P * (dP - sum_j P_j dP_j), and the sum equals grad . result.
        centre = (grad * result).sum(-1, keepdim=True)
        workspace, second = _Workspace(value), _Workspace(value)
        for b, rows, keys in ctx.plan.blocks(batch):
            weights = _weights(query, key, bias, b, rows, keys, ctx.plan.scale, workspace)
            above = grad[b, :, rows]
            if to_value is not None:
                _add_at(to_value[b], keys, -2, torch.bmm(weights.transpose(1, 2), above))
            if to_query is None and to_key is None and to_bias is None:
                continue
            values = _take(value[b], keys, -2)
            slope = second.like(weights)
            torch.bmm(above, values.transpose(1, 2), out=slope)
            slope.sub_(centre[b, :, rows]).mul_(weights)
            if to_bias is not None:
                target = to_bias[:, rows] if to_bias.dim() == 3 else to_bias[b, :, rows]
                _add_at(target, keys, -1, slope)
            if to_query is not None:
                to_query[b, :, rows] = torch.bmm(slope, _take(key[b], keys, -2))
            if to_key is not None:
                _add_at(to_key[b], keys, -2, torch.bmm(slope.transpose(1, 2), query[b, :, rows]))
        for gradient in (to_query, to_key):
            if gradient is not None and ctx.plan.scale != 1.0:
                gradient.mul_(ctx.plan.scale)
        return to_query, to_key, to_value, to_bias, None


class _Workspace:
    """Memory for one block, handed out again for the next."""

    def __init__(self, example: Tensor) -> None:
        self.memory = example.new_empty(0)

    def get(self, *shape: int) -> Tensor:
        size = shape[0] * shape[1] * shape[2]
        if self.memory.numel() < size:
            self.memory = self.memory.new_empty(size)
        return self.memory[:size].view(shape)

    def like(self, tensor: Tensor) -> Tensor:
        return self.get(*tensor.shape)


def _weights(
    query: Tensor | None,
    key: Tensor | None,
    bias: Tensor | None,
    example: int,
    rows: slice,
    keys: slice | Tensor,
    scale: float,
    workspace: _Workspace,
) -> Float[Tensor, "heads rows keys"]:
    part = None
    if bias is not None:
        part = _take((bias if bias.dim() == 3 else bias[example])[:, rows], keys, -1)
    if query is None or key is None:
        assert part is not None
        return torch.softmax(part, -1, out=workspace.like(part))
    queries, keyed = query[example, :, rows], _take(key[example], keys, -2).transpose(1, 2)
    logits = workspace.get(*queries.shape[:2], keyed.shape[-1])
    beta = 0.0 if part is None else 1.0
    torch.baddbmm(logits if part is None else part, queries, keyed, beta=beta, alpha=scale, out=logits)
    return torch.softmax(logits, -1, out=logits)
