"""Backend: logits that depend only on the distance, in time and memory linear in the length.

With ``E[d] = exp(r[d] - peak)`` and the 0/1 mask m of an example, the result is ``E (m * V) / (E m)``. A block of rows
needs E itself only for keys within the range of r. These weights depend on ``j - i``, so one tile of them serves all
blocks. Beyond the range E is constant: there, sums of the values before and after the block do.

Values are feature-major here, ``(heads, width * batch, k)``.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from synthattn.engine import second_order, thresholds
from synthattn.engine.call import Call
from synthattn.engine.input_independent import MaskedFeatures, heads_of, trusted
from synthattn.logits import ByDistance, Logits
from synthattn.masks import Mask
from synthattn.shapes import Float


def attend(call: Call) -> Float[Tensor, "batch heads q width"] | None:
    """Attend in linear time. Declines short inputs, dropout, and where only a softmax for each row is exact."""
    mask, (batch, _, k, _) = call.mask, call.values.shape
    if call.is_tracing or call.dropout > 0.0 or mask.allowed_pairs is not None or call.values.device.type != "cpu":
        return None
    if min(call.q, k) <= thresholds.LINEAR_SPANS * thresholds.LINEAR_ROWS or torch.is_autocast_enabled("cpu"):
        return None
    terms = [term for term in call.logits.terms if isinstance(term, ByDistance) and term.start == 0]
    if len(terms) < len(call.logits.terms):
        return None
    shape = _Shape.of(max(term.range for term in terms), mask.causal)
    if min(call.q, k) < thresholds.LINEAR_SPANS * shape.span:
        return None
    features = call.values.feature_major()
    dtype = torch.promote_types(features.dtype, torch.float32)
    weights = _exponentials(terms, shape, mask.causal, dtype)
    if weights is None:
        return None
    columns, unpadded = features.to(dtype), mask.unpadded
    counted = columns.new_ones(1, k) if unpadded is None else unpadded.to(dtype)
    counted = counted.expand(len(columns), -1, -1)
    columns = columns if unpadded is None else MaskedFeatures.apply(columns, unpadded, False)
    with torch.no_grad():
        normalizer = trusted(_multiply(shape, call.q, counted, *weights).mT, k, mask)
    if normalizer is None:
        return None
    quotient: Any = _Quotient.apply(shape, normalizer.mT, counted, columns, *weights)
    heads = heads_of(quotient, batch).to(features.dtype)
    values = [term.values for term in terms]
    return second_order.twice_differentiable(heads, _in_torch(call.q, k, batch, mask), features, *values)


class _Shape(NamedTuple):
    """Rows of a block, and the keys before and after them that are within the range. All are multiples of ``unit``."""

    rows: int
    left: int
    right: int
    unit: int

    @classmethod
    def of(cls, reach: int, causal: bool) -> "_Shape":
        rows = thresholds.LINEAR_ROWS
        unit = max(1, rows // 4)
        reach = -(-reach // unit) * unit
        return cls(rows, reach, 0 if causal else reach, unit)

    @property
    def span(self) -> int:
        return self.left + self.rows + self.right

    def mirrored(self) -> "_Shape":
        return self._replace(left=self.right, right=self.left)

    def blocks(self, q: int, k: int) -> list[tuple[slice, slice, slice]]:
        """Return the rows of each block, the keys within its range, and the columns of the tile for these."""
        found = []
        for row in range(0, q, self.rows):
            first = row - self.left
            low, high = min(max(first, 0), k), min(row + self.rows + self.right, k)
            found.append((slice(row, min(row + self.rows, q)), slice(low, high), slice(low - first, high - first)))
        return found


def _exponentials(terms: list[ByDistance], shape: _Shape, causal: bool, dtype: torch.dtype) -> "_Weights | None":
    """Return the weights of a block, or None if a logit is not finite, which concerns some rows only."""
    low, high = 1 - shape.rows - shape.left, 0 if causal else shape.rows + shape.right - 1
    logits = sum((term.between(low, high) for term in terms[1:]), start=terms[0].between(low, high)).to(dtype)
    peak = logits.detach().amax(-1, keepdim=True)
    if not peak.isfinite().all():
        return None
    weights = (logits - peak).exp()
    diagonals = F.pad(weights, (0, shape.rows - 1)) if causal else weights
    tile = diagonals.unfold(-1, shape.span, 1).flip(1)  # row r starts at distance -(left + r)
    return _Weights(tile, weights[:, :1], None if causal else weights[:, -1:])


class _Quotient(torch.autograd.Function):
    """``E C / (E n)`` for columns C, counted keys n, and the normalizer ``E n``, which has been computed before."""

    @staticmethod
    def forward(
        ctx: Any,
        shape: _Shape,
        normalizer: Tensor,
        counted: Tensor,
        columns: Tensor,
        tile: Tensor,
        before: Tensor,
        after: Tensor | None,
    ) -> Tensor:
        result = _multiply(shape, normalizer.shape[-1], columns, tile, before, after)
        _by_example(result, normalizer).div_(normalizer.unsqueeze(1))
        ctx.save_for_backward(normalizer, counted, columns, tile, before, after, result)
        ctx.shape = shape
        ctx.set_materialize_grads(False)
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:  # pyright: ignore
        normalizer, counted, columns, tile, before, after, result = ctx.saved_tensors
        (grad,), shape = grads, ctx.shape
        if grad is None:
            return (None,) * 7
        to_product = torch.empty_like(result)
        torch.div(_by_example(grad, normalizer), normalizer.unsqueeze(1), out=_by_example(to_product, normalizer))
        to_columns = None
        if ctx.needs_input_grad[3]:
            to_columns = _multiply(shape.mirrored(), columns.shape[-1], to_product, tile.flip(1, 2), after, before)
        if not ctx.needs_input_grad[4]:
            return None, None, None, to_columns, None, None, None
        found = _Weights(torch.zeros_like(tile), torch.zeros_like(before), None if after is None else after * 0)
        _add_gradient(found, shape, to_product, columns)
        to_normalizer = torch.empty_like(normalizer)
        for head in range(len(tile)):  # one at a time, because the product is as large as the values
            by_feature = _by_example(to_product[head : head + 1] * result[head : head + 1], normalizer)
            to_normalizer[head] = -by_feature.sum(1)[0]
        _add_gradient(found, shape, to_normalizer, counted)
        return None, None, None, to_columns, *found


class _Weights(NamedTuple):
    """The weights of a block of rows: within its range, and of each key before and after it."""

    tile: Tensor
    before: Tensor
    after: Tensor | None


def _add_gradient(to: _Weights, shape: _Shape, grad: Tensor, columns: Tensor) -> None:
    """Add the gradient of ``_multiply`` for its weights."""
    k = columns.shape[-1]
    sums_before, sums_after = _sums(columns, shape.unit)
    for rows, keys, inside in shape.blocks(grad.shape[-1], k):
        some, whole = grad[..., rows], grad[..., rows].sum(-1)
        part = to.tile[:, : some.shape[-1], inside]
        torch.baddbmm(part, some.mT, columns[..., keys], out=part)
        if keys.start > 0:  # else there are no such keys, and zero times NaN is NaN
            to.before.add_((whole * _at(sums_before, keys.start, shape.unit)).sum(-1, keepdim=True))
        if to.after is not None and keys.stop < k:
            to.after.add_((whole * _at(sums_after, keys.stop, shape.unit)).sum(-1, keepdim=True))


def _by_example(features: Tensor, normalizer: Tensor) -> Float[Tensor, "heads width #batch q"]:
    """Return features with an axis for the examples if each of them has its own normalizer."""
    return features.unflatten(1, (-1, normalizer.shape[1]))


def _multiply(
    shape: _Shape, q: int, columns: Tensor, tile: Tensor, before: Tensor | None, after: Tensor | None
) -> Float[Tensor, "heads features q"]:
    heads, features, k = columns.shape
    result = columns.new_empty(heads, features, q)
    sums_before, sums_after = _sums(columns, shape.unit)
    for rows, keys, inside in shape.blocks(q, k):
        far = columns.new_zeros(()) if before is None else before * _at(sums_before, keys.start, shape.unit)
        far = far if after is None else far + after * _at(sums_after, keys.stop, shape.unit)
        out = result[..., rows]
        weights = tile[:, : out.shape[-1], inside].mT
        torch.baddbmm(far.expand(heads, features).unsqueeze(-1), columns[..., keys], weights, out=out)
    return result


def _sums(columns: Tensor, unit: int) -> tuple[Tensor, Tensor]:
    """Return the sums of the columns before and from each multiple of ``unit``. Both have a zero where nothing is."""
    k = columns.shape[-1]
    padded = F.pad(columns, (0, -k % unit)) if k % unit else columns
    units = padded.unflatten(-1, (-1, unit)).sum(-1)
    return F.pad(units.cumsum(-1), (1, 0)), F.pad(units.flip(-1).cumsum(-1).flip(-1), (0, 1))


def _at(sums: Tensor, key: int, unit: int) -> Float[Tensor, "heads features"]:
    return sums[..., -(-key // unit)]  # the last key need not be a multiple


def _in_torch(q: int, k: int, batch: int, mask: Mask) -> second_order.Function:
    def attend(features: Tensor, *values: Tensor) -> Tensor:
        value = features.unflatten(1, (-1, batch)).permute(2, 0, 3, 1)
        return second_order.softmax_times_value(Logits(tuple(ByDistance(v, q, k) for v in values)), value, mask)

    return attend
