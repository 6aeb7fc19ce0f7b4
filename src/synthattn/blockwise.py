"""Attention in blocks of rows, example by example: nothing of size batch x heads x q x k is ever held.

This serves what torch's fused kernel cannot: a bias that wants a gradient (``random+vanilla`` in training), a sum of
two products (``dense+vanilla``), biases in compact form (``factorized_dense``). The backward pass recomputes the
weights of a block, which fits the cache, and padded keys are left out of the products instead of being masked.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from synthattn.logits import Compact, Features, Logits
from synthattn.masks import Mask
from synthattn.shapes import Float
from synthattn.tracing import traced

# Logits held at a time: few enough for the cache, enough rows for efficient products.
BLOCK_ELEMENTS = 2**22
# Rows at a time under a causal mask: fewer rows skip more of the keys that none of them may see. Torch's kernel has
# blocks of its own and wants more rows.
CAUSAL_ROWS, FUSED_CAUSAL_ROWS = 128, 256
# Below this many logits per example, the loop over examples costs more than it saves.
SMALL_EXAMPLE = 2**16


def applies(logits: Logits, value: Tensor) -> bool:
    """Whether the loop pays, and the tensors are of the one kind that it takes."""
    tensors = [value, *_inputs(logits)] + ([] if logits.bias is None else [logits.bias])
    per_example = value.shape[1] * logits.query_length * logits.key_length
    return (
        not traced(value)
        and all(t.dtype == value.dtype and t.device.type == "cpu" for t in tensors)
        and value.dtype in (torch.float32, torch.float64)
        and not torch.is_autocast_enabled("cpu")
        and per_example >= SMALL_EXAMPLE
    )


def attend(
    logits: Logits, value: Float[Tensor, "batch heads k width"], mask: Mask
) -> Float[Tensor, "batch heads q width"]:
    """Softmax(logits) @ value. Every row must keep at least one key."""
    batch, heads, k, _ = value.shape
    q = logits.query_length
    features = tuple(
        Features(f.query.expand(batch, -1, -1, -1), f.key.expand(*f.key.shape[:-3], heads, -1, -1), f.scale)
        for f in (logits.features if len(logits.features) == 1 else [f.scaled() for f in logits.features])
    )
    bias = _with_mask(logits.bias, mask, value, q)
    logits = Logits(features, bias, logits.compact)
    plan = _Plan.make(logits, mask, batch, heads, q, k)
    return _Blockwise.apply(plan, value, bias, *_inputs(logits))  # pyright: ignore[reportReturnType]


def attend_fused(
    query: Float[Tensor, "batch heads q width"],
    key: Float[Tensor, "batch heads k width"],
    value: Float[Tensor, "batch heads k width"],
    bias: Float[Tensor, "#heads #q k"],
    mask: Mask,
    scale: float,
) -> Float[Tensor, "batch heads q width"]:
    """Torch's fused kernel with a bias that all examples share and that needs no gradient."""
    batch, heads, q, _ = query.shape
    k = key.shape[-2]
    shared = _with_mask(bias, mask, value, q)
    assert shared is not None
    plan = _Plan.make(Logits((Features(query, key, scale),)), mask, batch, heads, q, k)
    return _fused(query, key, value, shared.expand(heads, q, k), plan)


def _fused(query: Tensor, key: Tensor, value: Tensor, bias: Tensor, plan: "_Plan") -> Tensor:
    """The kernel on what each example and each block of rows needs: not on padding, not above the diagonal."""
    batch, q = query.shape[0], query.shape[-2]
    examples = [slice(0, batch)] if plan.kept is None else [slice(b, b + 1) for b in range(batch)]
    height = FUSED_CAUSAL_ROWS if plan.causal else q
    blocks = [slice(start, min(start + height, q)) for start in range(0, q, height)]
    results = []
    for some in examples:
        parts = []
        for rows in blocks:
            keys = plan.keys(some.start, rows.stop)
            part = _take((bias if bias.dim() == 3 else bias[some])[..., rows, :], keys, -1)
            # Detached: a mask that requires a gradient, even where none is recorded, keeps torch from its fused kernel.
            part = part.detach().expand(some.stop - some.start, *part.shape[-3:])
            chosen = (_take(t[some], keys, -2) for t in (key, value))
            part = F.scaled_dot_product_attention(query[some, :, rows], *chosen, attn_mask=part, scale=plan.scale)
            parts.append(part.transpose(1, 2))
        results.append(parts[0] if len(parts) == 1 else torch.cat(parts, dim=1))
    return (results[0] if len(results) == 1 else torch.cat(results)).transpose(1, 2)


def _inputs(logits: Logits) -> list[Tensor]:
    pairs = [t for f in logits.features for t in (f.query, f.key)]
    return pairs + [t for c in logits.compact for t in c.parts]


def _with_mask(bias: Tensor | None, mask: Mask, value: Tensor, q: int) -> Tensor | None:
    """The bias with minus infinity where the mask forbids; padding has its own way unless it is per example anyway."""
    k = value.shape[-2]
    allowed = mask.full(q, k, value.device) if mask.per_example else mask.shared(q, k, value.device)
    if allowed is None:
        return bias
    bias = value.new_zeros(1, 1, k) if bias is None else bias
    return bias.masked_fill(~allowed, float("-inf"))


Keys = slice | Tensor


@dataclass(frozen=True)
class _Plan:
    """What is added up to the logits, which rows are done together, and which keys each example needs for them."""

    products: int
    scale: float
    compact: tuple[Compact, ...]
    rows: list[slice]
    kept: list[Keys] | None
    causal: bool
    k: int

    @classmethod
    def make(cls, logits: Logits, mask: Mask, batch: int, heads: int, q: int, k: int) -> "_Plan":
        height = max(1, min(CAUSAL_ROWS if mask.causal else q, BLOCK_ELEMENTS // (heads * k)))
        rows = [slice(start, min(start + height, q)) for start in range(0, q, height)]
        kept = None
        if mask.keep is not None and not mask.per_example:
            kept = [_kept_keys(mask.keep[b]) for b in range(batch)]
        scale = logits.features[0].scale if logits.features else 1.0
        return cls(len(logits.features), scale, logits.compact, rows, kept, mask.causal, k)

    def keys(self, example: int, end: int) -> Keys:
        """The keys that queries before ``end`` can see."""
        kept = slice(0, self.k) if self.kept is None else self.kept[example]
        if not self.causal:
            return kept
        return slice(0, min(end, kept.stop)) if isinstance(kept, slice) else kept[kept < end]

    def blocks(self, batch: int) -> Iterator[tuple[int, slice, Keys]]:
        # Rows outside, examples inside: a block of a shared bias is used for all examples while it is in the cache.
        for rows in self.rows:
            for b in range(batch):
                yield b, rows, self.keys(b, rows.stop)


def _kept_keys(keep: Tensor) -> Keys:
    count = int(keep.sum())
    return slice(0, count) if bool(keep[:count].all()) else keep.nonzero()[:, 0]


def _take(tensor: Tensor, keys: Keys, dim: int) -> Tensor:
    if isinstance(keys, slice):
        return tensor.narrow(dim, 0, keys.stop)
    return tensor.index_select(dim, keys)


def _example(tensor: Tensor, b: int) -> Tensor:
    """One example of a tensor that may be the same for all."""
    return tensor if tensor.dim() == 3 else tensor[b]


def _side_by_side(tensors: list[Tensor]) -> Tensor:
    return tensors[0] if len(tensors) == 1 else torch.cat(tensors, dim=-1)


def _add_rows(total: Tensor, keys: Keys, part: Tensor, first: bool) -> None:
    """Add to the rows of ``total`` that belong to the keys; the first time, ``total`` holds nothing yet."""
    if not isinstance(keys, slice):
        (total.zero_() if first else total).index_add_(-2, keys, part)
    elif first:
        total.narrow(-2, 0, keys.stop).copy_(part)
        total[..., keys.stop :, :].zero_()
    else:
        total.narrow(-2, 0, keys.stop).add_(part)


def _add_bias(total: Tensor, keys: Keys, part: Tensor) -> None:
    """Add to the gradient of a bias, summing over the axes that it was broadcast over."""
    part = part.sum_to_size(*total.shape[:-1], part.shape[-1])
    if isinstance(keys, slice):
        total.narrow(-1, 0, keys.stop).add_(part)
    else:
        total.index_add_(-1, keys, part)


def _rows_of(bias: Tensor, rows: slice) -> Tensor:
    """Rows of a bias, which may be one for all."""
    return bias if bias.shape[-2] == 1 else bias[:, rows]


class _Blockwise(torch.autograd.Function):
    """Inputs: the plan, value, bias or None, query and key of each product, the parts of each compact bias."""

    @staticmethod
    def forward(ctx: Any, plan: _Plan, value: Tensor, bias: Tensor | None, *inputs: Tensor) -> Tensor:
        batch, heads, _, width = value.shape
        terms = _Terms(plan, bias, inputs)
        if terms.fused(width):
            assert bias is not None
            query, key = inputs
            full = bias.expand(*bias.shape[:-3], heads, query.shape[-2], plan.k)
            result = _fused(query, key.expand(batch, -1, -1, -1), value, full, plan)
        else:
            result = value.new_empty(batch, heads, plan.rows[-1].stop, width)
            workspace = _Workspace(value)
            for b, rows, keys in plan.blocks(batch):
                weights = terms.weights(b, rows, keys, workspace)
                torch.bmm(weights, _take(value[b], keys, -2), out=result[b, :, rows])
        ctx.save_for_backward(value, bias, result, *inputs)
        ctx.plan = plan
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        value, bias, result, *inputs = ctx.saved_tensors
        (grad,) = grads
        terms = _Terms(ctx.plan, bias, inputs)
        # Contiguous whatever the inputs are: products into strided memory are slower than one copy at the end.
        to_value, to_bias, *to_inputs = (
            t.new_empty(t.shape) if needed and t is not None else None
            for t, needed in zip((value, bias, *inputs), ctx.needs_input_grad[1:], strict=True)
        )
        if to_bias is not None:
            to_bias.zero_()
        logits_matter = to_bias is not None or any(t is not None for t in to_inputs)
        workspace, second = _Workspace(value), _Workspace(value)
        for b, rows, keys in ctx.plan.blocks(len(value)):
            weights = terms.weights(b, rows, keys, workspace)
            above = grad[b, :, rows]
            if to_value is not None:
                _add_rows(to_value[b], keys, torch.bmm(weights.transpose(1, 2), above), rows.start == 0)
            if not logits_matter:
                continue
            # d softmax: dS = P * (dP - sum_j P_j dP_j), and the sum equals grad . result.
            centre = (above * result[b, :, rows]).sum(-1, keepdim=True).neg_()
            slope = second.get(*weights.shape)
            torch.baddbmm(centre, above, _take(value[b], keys, -2).transpose(1, 2), out=slope)
            slope.mul_(weights)
            if to_bias is not None:
                _add_bias(_rows_of(_example(to_bias, b), rows), keys, slope)
            terms.backward(b, rows, keys, slope, to_inputs)
        for gradient in to_inputs[: 2 * ctx.plan.products]:
            if gradient is not None and ctx.plan.scale != 1.0:
                gradient.mul_(ctx.plan.scale)
        return None, to_value, to_bias, *to_inputs


class _Terms:
    """The sum that makes the logits, block by block, and its gradient.

    Several products are done as one: features side by side, ``[Q1 Q2] @ [K1 K2].T``, make fewer and better-filled
    multiplications than a sum.
    """

    def __init__(self, plan: _Plan, bias: Tensor | None, inputs: tuple[Tensor, ...] | list[Tensor]) -> None:
        self.plan, self.bias = plan, bias
        self.queries, self.keys = inputs[: 2 * plan.products : 2], inputs[1 : 2 * plan.products : 2]
        self.widths = [query.shape[-1] for query in self.queries]
        rest = iter(inputs[2 * plan.products :])
        self.parts = [tuple(next(rest) for _ in c.parts) for c in plan.compact]

    def fused(self, width: int) -> bool:
        """Whether torch's kernel can do the forward pass."""
        return self.widths == [width] and not self.parts and self.bias is not None

    def weights(self, b: int, rows: slice, keys: Keys, workspace: "_Workspace") -> Float[Tensor, "heads rows keys"]:
        total = None
        if self.bias is not None:
            total = _take(_rows_of(_example(self.bias, b), rows), keys, -1)
        for n, compact in enumerate(self.plan.compact):
            parts = tuple(part[b : b + 1, :, rows] for part in self.parts[n])
            written = _take(compact.with_parts(parts, rows, b).to_bias()[0], keys, -1)
            total = written if total is None else total + written
        if self.widths:
            queries, across = self._queries(b, rows), self._keys(b, keys).transpose(1, 2)
            out = workspace.get(*queries.shape[:2], across.shape[-1])
            start, beta = (out, 0.0) if total is None else (total, 1.0)
            total = torch.baddbmm(start, queries, across, beta=beta, alpha=self.plan.scale, out=out)
        assert total is not None, "logits without any term"
        return torch.softmax(total, -1, out=workspace.get(*total.shape))

    def _queries(self, b: int, rows: slice) -> Float[Tensor, "heads rows features"]:
        return _side_by_side([query[b, :, rows] for query in self.queries])

    def _keys(self, b: int, keys: Keys) -> Float[Tensor, "heads keys features"]:
        return _side_by_side([_take(_example(key, b), keys, -2) for key in self.keys])

    def backward(
        self,
        b: int,
        rows: slice,
        keys: Keys,
        slope: Float[Tensor, "heads rows keys"],
        to: list[Tensor | None],
    ) -> None:
        """Add the gradients of one block; the scale of the product is left to the end."""
        to_queries, to_keys = to[: 2 * self.plan.products : 2], to[1 : 2 * self.plan.products : 2]
        if any(t is not None for t in to_queries):
            parts = torch.bmm(slope, self._keys(b, keys)).split(self.widths, -1)
            for target, part in zip(to_queries, parts, strict=True):
                if target is not None:
                    target[b, :, rows] = part
        if any(t is not None for t in to_keys):
            parts = torch.bmm(slope.transpose(1, 2), self._queries(b, rows)).split(self.widths, -1)
            for target, part in zip(to_keys, parts, strict=True):
                if target is not None:
                    _add_rows(_example(target, b), keys, part, rows.start == 0 and (b == 0 or target.dim() == 4))
        rest = iter(to[2 * self.plan.products :])
        for n, compact in enumerate(self.plan.compact):
            targets = [next(rest) for _ in self.parts[n]]
            if all(t is None for t in targets):
                continue
            with torch.enable_grad():
                parts = tuple(part[b : b + 1, :, rows].detach().requires_grad_() for part in self.parts[n])
                written = _take(compact.with_parts(parts, rows, b).to_bias()[0], keys, -1)
                gradients = torch.autograd.grad(written, parts, slope)
            for target, gradient in zip(targets, gradients, strict=True):
                if target is not None:
                    target[b, :, rows] = gradient[0]


class _Workspace:
    """Memory for one block, handed out again for the next."""

    def __init__(self, example: Tensor) -> None:
        self.memory = example.new_empty(0)

    def get(self, *shape: int) -> Tensor:
        size = shape[0] * shape[1] * shape[2]
        if self.memory.numel() < size:
            self.memory = self.memory.new_empty(size)
        return self.memory[:size].view(shape)
