"""Attention in blocks of rows, example by example: logits of size batch x heads x q x k are never held at once.

This serves what torch's fused kernel cannot: a bias that wants a gradient (``random+vanilla`` in training), a sum of
two products (``dense+vanilla``), biases in compact form (``factorized_dense``). The backward pass recomputes the
weights of a block, which fits the cache, or finds them where they were kept because that is cheaper; padded keys are
left out of the products instead of being masked.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from synthattn.engine import memory_pool, second_order
from synthattn.logits import Band, Compact, Features, Logits, Outer
from synthattn.masks import Mask
from synthattn.shapes import Float
from synthattn.tracing import is_tracing

# Logits at a time, of one head and in all: few enough to stay near the cores, and many rows of a few heads rather than
# a few rows of all, because thin products are slow. Threads work on heads side by side.
HEAD_ELEMENTS, BLOCK_ELEMENTS = 2**21, 2**22
LEAST_ROWS = 128
# Rows at a time under a causal mask: fewer rows skip more of the keys that none of them may see. Torch's kernel has
# blocks of its own and wants more rows; as many of a large bias are multiplied at a time.
CAUSAL_ROWS, FUSED_ROWS = 128, 256
# Where torch's kernel cannot do the forward pass, its weights are kept for the backward pass if they are not more than
# this: they cost two products and an exponential to compute again.
KEPT_BYTES = 2**28
# Below this many logits per example, the loop over examples costs more than it saves.
SMALL_EXAMPLE = 2**16


def applies(logits: Logits, value: Tensor) -> bool:
    """Whether the loop pays, and the tensors are of the one kind that it takes."""
    if is_tracing(value):  # before anything is asked of its sizes, which a traced graph would be bound to
        return False
    tensors = [value, *_inputs(logits)] + ([] if logits.bias is None else [logits.bias])
    per_example = value.shape[1] * logits.query_length * logits.key_length
    return (
        len(value) > 0
        and all(t.dtype == value.dtype and t.device.type == "cpu" for t in tensors)
        and value.dtype in (torch.float32, torch.float64)
        and not torch.is_autocast_enabled("cpu")
        and per_example >= SMALL_EXAMPLE
    )


def attend(
    logits: Logits, value: Float[Tensor, "batch heads k width"], mask: Mask
) -> Float[Tensor, "batch heads q width"]:
    """Softmax(logits) @ value. Every row must keep at least one key."""
    logits = logits if _weighed_in_blocks(logits, mask, value.shape[1]) else logits.weighed()
    bias = mask.added_to(logits.bias, value, logits.query_length)
    weight = logits.weight
    logits = Logits(_equally_scaled(logits.features, *value.shape[:2]), bias, logits.compact)
    plan = _Plan.make(logits, value, mask)
    in_torch = _in_torch(logits, mask)
    return _Blockwise.apply(plan, in_torch, value, bias, weight, *_inputs(logits)).transpose(1, 2)  # pyright: ignore


def _in_torch(logits: Logits, mask: Mask) -> Callable[..., Tensor]:
    """Return a function that computes in torch's own operations what :class:`_Blockwise` does with these inputs."""
    scales = [f.scale for f in logits.features]
    biases = [(len(c.parts), _maker(c)) for c in logits.compact]
    # What is forbidden beside these is minus infinity in the bias.
    mask = Mask(None if mask.per_example else mask.keep, mask.causal)

    def attend(value: Tensor, bias: Tensor | None, weight: Tensor | None, *inputs: Tensor) -> Tensor:
        rest = iter(inputs)
        queries, keys = ([next(rest) for _ in scales] for _ in range(2))
        features = tuple(Features(q, k, s) for q, k, s in zip(queries, keys, scales, strict=True))
        compact = tuple(make(*(next(rest) for _ in range(count))) for count, make in biases)
        return second_order.softmax_times_value(Logits(features, bias, compact, weight), value, mask).transpose(1, 2)

    return attend


def _maker(compact: Compact) -> Callable[..., Compact]:
    """Return a function that makes a compact bias like this one of other parts; it holds on to none of its parts."""
    if isinstance(compact, Band):
        distance = compact.distance
        return lambda values: Band(values, distance)
    length = compact.key_length
    return lambda a, b: Outer(a, b, length)


def _equally_scaled(features: tuple[Features, ...], batch: int, heads: int) -> tuple[Features, ...]:
    """The same products with one scale for all, so that they can be multiplied as one."""
    # The scale of features of the input is that of all: to learned keys, which are few, it is applied at little cost.
    scale = next((f.scale for f in sorted(features, key=lambda f: -f.key.dim())), 1.0)
    equal = [f if f.scale == scale else replace(f, scale=1.0).times(f.scale / scale) for f in features]
    return tuple(
        Features(f.query.expand(batch, -1, -1, -1), f.key.expand(*f.key.shape[:-3], heads, -1, -1), scale)
        for f in equal
    )


def _weighed_in_blocks(logits: Logits, mask: Mask, heads: int) -> bool:
    """Whether the bias is a table for every head with a weight for each, and worth being multiplied in blocks."""
    if logits.bias is None or not isinstance(logits.weight, Tensor) or mask.allowed is not None:
        return False
    return (
        _is_table(logits.bias, heads)
        and logits.weight.shape in ((), (heads, 1, 1))
        and logits.weight.dtype == logits.bias.dtype
    )


def _is_table(bias: Tensor, heads: int) -> bool:
    """Whether all examples share it, and each head and each query has a row of its own in it."""
    return bias.dim() == 3 and bias.shape[0] == heads and bias.shape[1] > 1


def attend_fused(
    query: Float[Tensor, "batch heads q width"],
    key: Float[Tensor, "batch heads k width"],
    value: Float[Tensor, "batch heads k width"],
    bias: Float[Tensor, "#heads #q k"],
    weight: Tensor | float | None,
    mask: Mask,
    scale: float,
) -> Float[Tensor, "batch heads q width"]:
    """Torch's fused kernel with a bias that all examples share and that needs no gradient, times a weight."""
    if mask.allowed is not None and weight is not None:  # minus infinity times a weight of zero would not be masked
        bias, weight = bias * weight, None
    masked = mask.added_to(bias, value, query.shape[-2])
    assert masked is not None
    plan = _Plan.make(Logits((Features(query, key, scale),)), value, mask)
    return _fused(query, key, value, masked, weight, plan)


def _fused(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor, weight: Tensor | float | None, plan: "_Plan"
) -> Tensor:
    """The kernel on what each example and each block of rows needs: not on padding, not above the diagonal."""
    batch, heads, q, _ = query.shape
    examples = [slice(0, batch)] if plan.kept is None else [slice(b, b + 1) for b in range(batch)]
    large = weight is not None and heads * q * plan.k > BLOCK_ELEMENTS
    workspace = _Workspace(bias.dtype)
    results: list[list[Tensor]] = [[] for _ in examples]
    for rows in _slices(q, FUSED_ROWS if plan.causal or large else q):
        block = (
            _bias_of(bias, weight, rows, plan, workspace)
            .to(query.dtype)
            .expand(*bias.shape[:-3], heads, rows.stop - rows.start, -1)
        )
        for parts, some in zip(results, examples, strict=True):
            keys = plan.keys(some.start, rows.stop)
            part = _take(block if block.dim() == 3 else block[some], keys, -1)
            part = part.expand(some.stop - some.start, *part.shape[-3:])
            chosen = (_take(t[some], keys, -2) for t in (key, value))
            part = F.scaled_dot_product_attention(query[some, :, rows], *chosen, attn_mask=part, scale=plan.scale)
            parts.append(part.transpose(1, 2))
    whole = [parts[0] if len(parts) == 1 else torch.cat(parts, dim=1) for parts in results]
    return (whole[0] if len(whole) == 1 else torch.cat(whole)).transpose(1, 2)


def _bias_of(
    bias: Tensor, weight: Tensor | float | None, rows: slice, plan: "_Plan", workspace: "_Workspace"
) -> Float[Tensor, "*batch heads rows keys"]:
    """Rows of a bias, weighed, and without the future."""
    # Detached: a mask that requires a gradient, even where none is recorded, keeps torch from its fused kernel.
    part = (bias if bias.shape[-2] == 1 else bias[..., rows, :]).detach()
    if plan.causal:
        part = part[..., : min(rows.stop, plan.k)].expand(*part.shape[:-2], rows.stop - rows.start, -1)
    if weight is not None:
        part = workspace.times(part, weight.detach() if isinstance(weight, Tensor) else weight)
    if plan.causal:
        part = part.clone() if weight is None else part
        _forbid_future(part, rows, slice(0, part.shape[-1]))
    return part


def _forbid_future(block: Float[Tensor, "*batch heads rows keys"], rows: slice, keys: "Keys") -> None:
    """Minus infinity for the keys after each query of a block of rows, in place."""
    index = torch.arange(rows.start, rows.stop, device=block.device)
    if isinstance(keys, slice):  # only those in the last columns can come after one of these queries
        first = min(rows.start, keys.stop)
        block, keys = block[..., first:], torch.arange(first, keys.stop, device=block.device)
    block.masked_fill_(keys > index[:, None], float("-inf"))


def _inputs(logits: Logits) -> list[Tensor]:
    """In the order that :meth:`_Plan.sorted` undoes."""
    products = [f.query for f in logits.features] + [f.key for f in logits.features]
    return products + [t for c in logits.compact for t in c.parts]


Keys = slice | Tensor
Item = TypeVar("Item")


@dataclass(frozen=True)
class _Plan:
    """What is added up to the logits, which rows are done together, and which keys each example needs for them."""

    products: int
    """How many products of features there are."""
    scale: float
    compact: tuple[Compact, ...]
    rows: list[slice]
    heads: list[slice]
    kept: list[Keys] | None
    causal: bool
    k: int
    trains: bool
    """Whether a backward pass may follow; inside an autograd function that can no longer be told."""

    @classmethod
    def make(cls, logits: Logits, value: Tensor, mask: Mask) -> "_Plan":
        (batch, heads, k, _), q = value.shape, logits.query_length
        height = min(q, CAUSAL_ROWS if mask.causal else max(LEAST_ROWS, HEAD_ELEMENTS // k))
        kept = None
        if mask.keep is not None and not mask.per_example:
            kept = [_kept_keys(mask.keep[b]) for b in range(batch)]
        scale = logits.features[0].scale if logits.features else 1.0
        return cls(
            len(logits.features),
            scale,
            logits.compact,
            _slices(q, height),
            _slices(heads, min(heads, max(torch.get_num_threads(), BLOCK_ELEMENTS // (height * k)))),
            kept,
            mask.causal,
            k,
            torch.is_grad_enabled()
            and any(t.requires_grad for t in (*_inputs(logits), logits.bias, value) if t is not None),
        )

    def sorted(self, inputs: Sequence[Item]) -> tuple[Sequence[Item], Sequence[Item], Sequence[Item]]:
        """Queries, keys, and parts of compact biases, or what belongs to them."""
        n = self.products
        return inputs[:n], inputs[n : 2 * n], inputs[2 * n :]

    def keys(self, example: int, end: int) -> Keys:
        """The keys that queries before ``end`` can see."""
        kept = slice(0, self.k) if self.kept is None else self.kept[example]
        if not self.causal:
            return kept
        return slice(0, min(end, kept.stop)) if isinstance(kept, slice) else kept[kept < end]

    def blocks(self, batch: int) -> "Iterator[_Block]":
        # Examples inside: a block of a shared bias is used for all of them while it is in the cache.
        for rows in self.rows:
            for heads in self.heads:
                for b in range(batch):
                    yield _Block(b, heads, rows, self.keys(b, rows.stop))

    def number_of_weights(self, batch: int) -> int:
        """Those of all blocks; not of padding, nor of the future."""
        return sum(
            (block.heads.stop - block.heads.start) * (block.rows.stop - block.rows.start) * _count(block.keys)
            for block in self.blocks(batch)
        )


@dataclass(frozen=True)
class _Block:
    """What is computed at a time: some rows of some heads of one example."""

    b: int
    heads: slice
    rows: slice
    keys: Keys

    def queries(self, tensor: Tensor) -> Float[Tensor, "heads rows width"]:
        """What belongs to these rows, of a tensor with a row for every query."""
        return tensor[self.b, self.heads, self.rows]

    def across(self, tensor: Tensor) -> Float[Tensor, "heads k width"]:
        """All that belongs to these heads, of a tensor with a row for every key; one that all examples share has no
        axis for them, and one that all heads share has 1."""
        tensor = tensor if tensor.dim() == 3 else tensor[self.b]
        return tensor if tensor.shape[0] == 1 else tensor[self.heads]

    def of_bias(self, bias: Tensor) -> Float[Tensor, "#heads #rows k"]:
        bias = self.across(bias)
        return bias if bias.shape[-2] == 1 else bias[:, self.rows]


def _slices(total: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, total)) for start in range(0, total, size)]


def _kept_keys(keep: Tensor) -> Keys:
    count = int(keep.sum())
    return slice(0, count) if bool(keep[:count].all()) else keep.nonzero()[:, 0]


def _count(keys: Keys) -> int:
    return keys.stop if isinstance(keys, slice) else len(keys)


def _take(tensor: Tensor, keys: Keys, dim: int) -> Tensor:
    if isinstance(keys, slice):
        return tensor.narrow(dim, 0, keys.stop)
    return tensor.index_select(dim, keys)


def _add_product(total: Tensor, keys: Keys, one: Tensor, two: Tensor, scale: float, first: bool) -> None:
    """Add a product to the rows of ``total`` that belong to the keys; the first time, ``total`` holds nothing yet."""
    if isinstance(keys, slice):
        rows = total.narrow(-2, 0, keys.stop)
        torch.baddbmm(rows, one, two, beta=0.0 if first else 1.0, alpha=scale, out=rows)
        if first:
            total[..., keys.stop :, :].zero_()
    else:
        (total.zero_() if first else total).index_add_(-2, keys, torch.bmm(one, two), alpha=scale)


def _add_bias(total: Tensor, keys: Keys, part: Tensor, first: bool) -> None:
    """Add to the gradient of a bias, summing over the axes that it was broadcast over; the first time, ``total`` holds
    nothing yet."""
    part = part.sum_to_size(*total.shape[:-1], part.shape[-1])
    if isinstance(keys, slice):
        columns = total.narrow(-1, 0, keys.stop)
        columns.copy_(part) if first else columns.add_(part)
        if first:
            total[..., keys.stop :].zero_()
    else:
        (total.zero_() if first else total).index_add_(-1, keys, part)


def _side_by_side(features: Sequence[Tensor], batch: int) -> Float[Tensor, "*batch heads length width"]:
    """Several products as one: ``[Q1 Q2] @ [K1 K2].T`` makes fewer and better-filled multiplications than a sum."""
    if len(features) == 1:
        return features[0]
    heads, length = features[0].shape[-3:-1]
    widths = [f.shape[-1] for f in features]
    whole = memory_pool.empty((batch, heads, length, sum(widths)), features[0].dtype)
    for place, part in zip(whole.split(widths, -1), features, strict=True):
        place.copy_(part)
    return whole


def _apart(joined: Tensor | None, shapes: Sequence[torch.Size], needed: Sequence[bool]) -> list[Tensor | None]:
    """The gradients of features, given that of what :func:`_side_by_side` made of them."""
    if joined is None:
        return [None for _ in shapes]
    parts = joined.split([shape[-1] for shape in shapes], -1)
    return [
        (_interleaved(part).transpose(1, 2) if len(shape) == 4 else part.sum_to_size(shape)) if wanted else None
        for part, shape, wanted in zip(parts, shapes, needed, strict=True)
    ]


def _interleaved(heads: Float[Tensor, "batch heads length width"]) -> Float[Tensor, "batch length heads width"]:
    """The heads of a token side by side, as the projections want them.

    Products are not written there at once: into memory with gaps they take longer than with this copy.
    """
    batch, count, length, width = heads.shape
    return memory_pool.empty((batch, length, count, width), heads.dtype).copy_(heads.transpose(1, 2))


class _Blockwise(torch.autograd.Function):
    """Attention block by block.

    Inputs: the plan; a function that does the same in torch's operations; value; bias and its weight, or None; queries
    and keys of the products; the parts of each compact bias. The output has the heads of a token side by side.
    """

    @staticmethod
    def forward(
        ctx: Any,
        plan: _Plan,
        in_torch: Callable[..., Tensor],
        value: Tensor,
        bias: Tensor | None,
        weight: Tensor | None,
        *inputs: Tensor,
    ) -> Tensor:
        batch, heads, _, width = value.shape
        queries, keys, parts = plan.sorted(inputs)
        product = [_side_by_side(some, batch) for some in (queries, keys) if some]
        terms = _Terms(plan, bias, weight, product, parts)
        kept: list[Tensor] = []
        if terms.fused(width):
            assert bias is not None
            query, key = product
            result = _fused(query, key.expand(batch, -1, -1, -1), value, bias, weight, plan).transpose(1, 2)
        else:
            found = memory_pool.empty((batch, heads, plan.rows[-1].stop, width), value.dtype)
            number = plan.number_of_weights(batch)
            keep = plan.trains and number * value.itemsize <= KEPT_BYTES
            memory = memory_pool.empty((number,), value.dtype) if keep else None
            for block in plan.blocks(batch):
                weights = terms.weights(block, memory)
                torch.bmm(weights, _take(block.across(value), block.keys, -2), out=block.queries(found))
                if memory is not None:
                    kept.append(weights)
                    memory = memory[weights.numel() :]
            result = _interleaved(found)
        ctx.save_for_backward(value, bias, weight, *inputs, *kept)
        ctx.plan, ctx.in_torch, ctx.given = plan, in_torch, len(inputs)
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        plan: _Plan = ctx.plan
        value, bias, weight, *rest = ctx.saved_tensors
        inputs, kept = rest[: ctx.given], iter(rest[ctx.given :])
        if second_order.is_wanted(grads[0]):
            wanted = ctx.needs_input_grad[2:]
            return None, None, *second_order.gradients(ctx.in_torch, [value, bias, weight, *inputs], wanted, grads[0])
        queries, keys, parts = plan.sorted(inputs)
        query_shapes, key_shapes = [t.shape for t in queries], [t.shape for t in keys]
        product = [_side_by_side(some, len(value)) for some in (queries, keys) if some]
        grad = grads[0].transpose(1, 2)
        terms = _Terms(plan, bias, weight, product, parts)

        _, _, needs_value, needs_bias, needs_weight, *needs_inputs = ctx.needs_input_grad
        needs_queries, needs_keys, needs_parts = plan.sorted(needs_inputs)
        to_query, to_key = (
            # The gradient of a parameter stays where it is, and is no loan.
            None
            if t is None or not any(needs)
            else memory_pool.empty(tuple(t.shape), t.dtype)
            if t.dim() == 4
            else t.new_empty(t.shape)
            for t, needs in zip(product or (None, None), (needs_queries, needs_keys), strict=True)
        )
        to_parts = [torch.empty_like(t) if needed else None for t, needed in zip(parts, needs_parts, strict=True)]
        to_value = memory_pool.empty(value.shape, value.dtype) if needs_value else None
        to_bias, table = None, False
        if needs_bias or needs_weight:
            table = _is_table(bias, value.shape[1])
            to_bias = (torch.empty_like if table else torch.zeros_like)(bias, memory_format=torch.contiguous_format)

        logits_matter = to_bias is not None or any(t is not None for t in (to_query, to_key, *to_parts))
        slopes = _Workspace(value.dtype)
        for block in plan.blocks(len(value)):
            weights = next(kept, None)
            weights = terms.weights(block) if weights is None else weights
            above = block.queries(grad)
            if to_value is not None:
                first = block.rows.start == 0
                _add_product(block.across(to_value), block.keys, weights.transpose(1, 2), above, 1.0, first)
            if not logits_matter:
                continue
            slope = slopes.get(*weights.shape)
            torch.bmm(above, _take(block.across(value), block.keys, -2).transpose(1, 2), out=slope)
            # d softmax in one pass, dS = P * (dP - sum_j P_j dP_j); written out it would be three.
            torch.ops.aten._softmax_backward_data.out(slope, weights, -1, weights.dtype, grad_input=slope)
            if to_bias is not None:
                _add_bias(block.of_bias(to_bias), block.keys, slope, first=table and block.b == 0)
            terms.backward(block, slope, to_query, to_key, to_parts)

        to_weight = None
        if weight is not None and to_bias is not None:
            to_weight = _unweigh(to_bias, bias, weight, plan)
        # What was lent for one is used for the next, so each is given back as soon as it is copied.
        del terms, slopes
        to_queries, to_query = _apart(to_query, query_shapes, needs_queries), None
        to_keys, to_key = _apart(to_key, key_shapes, needs_keys), None
        to_value = None if to_value is None else _interleaved(to_value).transpose(1, 2)
        return None, None, to_value, to_bias, to_weight, *to_queries, *to_keys, *to_parts


def _unweigh(to_product: Tensor, bias: Tensor, weight: Tensor, plan: _Plan) -> Tensor:
    """From the gradient of ``bias * weight`` to that of the weight, and in place to that of the bias."""
    to_weight = weight.new_zeros(len(bias), 1, 1)
    workspace = _Workspace(bias.dtype)
    for rows in plan.rows:
        for heads in plan.heads:
            part = to_product[heads, rows]
            to_weight[heads] += workspace.times(part, bias[heads, rows]).sum((1, 2), keepdim=True)
            part.mul_(weight if weight.dim() == 0 else weight[heads])
    return to_weight.sum_to_size(weight.shape)


class _Terms:
    """The sum that makes the logits, block by block, and its gradient."""

    def __init__(
        self,
        plan: _Plan,
        bias: Tensor | None,
        weight: Tensor | None,
        product: Sequence[Tensor],
        parts: Sequence[Tensor],
    ) -> None:
        self.plan, self.bias, self.weight = plan, bias, weight
        self.query, self.key = product if product else (None, None)
        rest = iter(parts)
        self.parts = [tuple(next(rest) for _ in c.parts) for c in plan.compact]
        (some, *_) = (t for t in (bias, *product, *parts) if t is not None)
        self.workspace = _Workspace(some.dtype)

    def fused(self, width: int) -> bool:
        """Whether torch's kernel can do the forward pass."""
        same = self.query is not None and self.query.shape[-1] == width
        return same and not self.parts and self.bias is not None

    def weights(self, block: _Block, memory: Tensor | None = None) -> Float[Tensor, "heads rows keys"]:
        """The weights of one block, at the beginning of the memory given, or where the next block's will be."""
        total = None
        if self.bias is not None:
            total = _take(block.of_bias(self.bias), block.keys, -1)
        if total is not None and self.weight is not None:
            total = self.workspace.times(total, self.weight if self.weight.dim() == 0 else self.weight[block.heads])
        for n, compact in enumerate(self.plan.compact):
            written = self._written(compact, self._parts(n, block), block)
            total = written if total is None else total + written
        if self.query is not None:
            queries, across = block.queries(self.query), self._keys(block).transpose(1, 2)
            out = self.workspace.get(*queries.shape[:2], across.shape[-1])
            start, beta = (out, 0.0) if total is None else (total, 1.0)
            total = torch.baddbmm(start, queries, across, beta=beta, alpha=self.plan.scale, out=out)
        assert total is not None, "logits without any term"
        if self.plan.causal:
            total = total.expand(-1, block.rows.stop - block.rows.start, -1).clone() if self.query is None else total
            _forbid_future(total, block.rows, block.keys)
        if memory is None:
            return torch.softmax(total, -1, out=self.workspace.get(*total.shape))
        return torch.softmax(total, -1, out=memory[: total.numel()].view(total.shape))

    def _keys(self, block: _Block) -> Float[Tensor, "heads keys features"]:
        assert self.key is not None
        return _take(block.across(self.key), block.keys, -2)

    def _parts(self, n: int, block: _Block) -> tuple[Tensor, ...]:
        return tuple(block.queries(part).unsqueeze(0) for part in self.parts[n])

    def _written(self, compact: Compact, parts: tuple[Tensor, ...], block: _Block) -> Float[Tensor, "heads rows keys"]:
        return _take(compact.with_parts(parts, block.rows, block.b).to_bias()[0], block.keys, -1)

    def backward(
        self,
        block: _Block,
        slope: Float[Tensor, "heads rows keys"],
        to_query: Tensor | None,
        to_key: Tensor | None,
        to_parts: Sequence[Tensor | None],
    ) -> None:
        """Add the gradients of one block."""
        scale = self.plan.scale
        if to_query is not None:
            out = block.queries(to_query)
            torch.baddbmm(out, slope, self._keys(block), beta=0.0, alpha=scale, out=out)
        if to_key is not None:
            assert self.query is not None
            first = block.rows.start == 0 and (block.b == 0 or to_key.dim() == 4)
            queries = block.queries(self.query)
            _add_product(block.across(to_key), block.keys, slope.transpose(1, 2), queries, scale, first)
        rest = iter(to_parts)
        for n, compact in enumerate(self.plan.compact):
            targets = [next(rest) for _ in self.parts[n]]
            if all(t is None for t in targets):
                continue
            with torch.enable_grad():
                parts = tuple(part.detach().requires_grad_() for part in self._parts(n, block))
                gradients = torch.autograd.grad(self._written(compact, parts, block), parts, slope)
            for target, gradient in zip(targets, gradients, strict=True):
                if target is not None:
                    block.queries(target).copy_(gradient[0])


class _Workspace:
    """Memory for one block, handed out again for the next."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.memory = torch.empty(0, dtype=dtype)

    def get(self, *shape: int) -> Tensor:
        size = math.prod(shape)
        if self.memory.numel() < size:
            self.memory = memory_pool.empty((size,), self.memory.dtype)
        return self.memory[:size].view(shape)

    def times(self, one: Tensor, two: Tensor | float) -> Tensor:
        """Their product, element by element; in new memory where something may be recorded that reads it later."""
        if not isinstance(two, Tensor) or two.dtype != one.dtype or torch.is_grad_enabled():
            return one * two
        return torch.mul(one, two, out=self.get(*torch.broadcast_shapes(one.shape, two.shape)))
