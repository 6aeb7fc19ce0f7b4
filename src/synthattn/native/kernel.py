"""The kernel as two operators of torch, so that whoever counts operations or memory sees them.

``torch.ops.synthattn.attend`` gives the result and what its gradient needs, ``attend_backward`` the gradient. Tensors
have the axes batch, heads, place, width, as in :mod:`synthattn.logits`, and rows whose numbers follow each other.
"""

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from synthattn import spare
from synthattn.native.library import Backward, Forward, Problem, Rows, load
from synthattn.shapes import Float, Int

# Exponentials are kept for the backward pass if they are not more than this, and queries and keys are at least twice as
# wide as values: if less, it takes no longer to compute them again than to read them.
KEPT_BYTES = 2**28


def attend(
    value: Tensor,
    bias: Tensor | None,
    weight: Tensor | None,
    queries: list[Tensor],
    keys: list[Tensor],
    scales: list[float],
    ends: Tensor | None,
    q: int,
    causal: bool,
    trains: bool,
) -> list[Tensor]:
    """The result, and, where a backward pass may follow, what that needs: for each row the logarithm of its sum of
    exponentials; exponentials, with the peaks that they are relative to, if they are kept."""
    kernel = load()
    assert kernel is not None
    problem = _Problem(value, bias, weight, queries, keys, scales, ends, q, causal, backward=False)
    batch, heads, _, width = value.shape
    result = spare.empty((batch, q, heads, width), value.dtype).transpose(1, 2)
    needed = [value.new_empty(batch, heads, q)] if trains else []
    kept = kernel.synthattn_kept_rows(problem.arguments), kernel.synthattn_stride()
    wide = sum(query.shape[-1] for query in queries) >= 2 * width
    if trains and wide and math.prod(kept) * value.itemsize <= KEPT_BYTES:
        needed += [spare.empty(kept, value.dtype), spare.empty(kept[:1], value.dtype)]
    kernel.synthattn_forward(problem.arguments, Forward(Rows.of(result), *(t.data_ptr() for t in needed)))
    return [result, *needed]


def attend_backward(
    above: Tensor,
    result: Tensor,
    needed: list[Tensor],
    value: Tensor,
    bias: Tensor | None,
    weight: Tensor | None,
    queries: list[Tensor],
    keys: list[Tensor],
    scales: list[float],
    ends: Tensor | None,
    q: int,
    causal: bool,
    wanted: list[bool],
) -> list[Tensor]:
    """The gradients that are wanted, in the order value, bias, weight, queries, keys."""
    kernel = load()
    assert kernel is not None
    problem = _Problem(value, bias, weight, queries, keys, scales, ends, q, causal, backward=True)
    heads, n = value.shape[1], len(scales)
    splits = _splits(heads, torch.get_num_threads())
    to_value, to_bias, to_weight, *to_features = (
        make() if want else None
        for want, make in zip(
            wanted,
            [
                lambda: _gradient(value, splits, heads),
                lambda: _bias_gradient(bias, splits, heads),
                lambda: value.new_empty(splits, heads),
                *(lambda t=t: _gradient(t, 1, heads) for t in queries),
                *(lambda t=t: _gradient(t, splits, heads) for t in keys),
            ],
            strict=True,
        )
    )
    arguments = Backward(above=Rows.of(above), result=Rows.of(result), splits=splits)
    arguments.peaks, arguments.kept, arguments.kept_peaks = ([t.data_ptr() for t in needed] + [None, None])[:3]
    arguments.to_query, arguments.to_key = _all_rows(to_features[:n]), _all_rows(to_features[n:])
    arguments.to_value, arguments.to_bias = Rows.of(to_value), Rows.of(to_bias)
    arguments.to_weight = None if to_weight is None else to_weight.data_ptr()
    kernel.synthattn_backward(problem.arguments, arguments)
    found = [_summed(to_value, value), _summed(to_bias, bias)]
    found += [
        None if to_weight is None or weight is None else to_weight.sum(0)[:, None, None].sum_to_size(weight.shape)
    ]
    found += [_summed(gradient, t) for gradient, t in zip(to_features, (*queries, *keys), strict=True)]
    return [gradient for gradient in found if gradient is not None]


def digest(table: Tensor) -> Int[Tensor, "numbers"] | None:
    """A few numbers that tell whether a table on the CPU has changed, from one look at its bits; None where it is no
    whole piece of memory, or there is no kernel."""
    kernel, size = load(), table.numel() * table.element_size()
    if kernel is None or not table.is_contiguous() or size % 4:
        return None
    sums = torch.empty(kernel.synthattn_digest_size(), dtype=torch.int32)
    kernel.synthattn_digest(table.data_ptr(), size // 4, torch.get_num_threads(), sums.data_ptr())
    return sums


class _Problem:
    """The arguments of the kernel, and what they point to."""

    def __init__(
        self,
        value: Tensor,
        bias: Tensor | None,
        weight: Tensor | None,
        queries: Sequence[Tensor],
        keys: Sequence[Tensor],
        scales: Sequence[float],
        ends: Tensor | None,
        q: int,
        causal: bool,
        backward: bool,
    ) -> None:
        kernel = load()
        assert kernel is not None
        (batch, heads, k, _), n = value.shape, len(scales)
        self.arguments = Problem(batch, heads, q, k, n, causal, torch.get_num_threads())
        self.arguments.query, self.arguments.key = _all_rows(queries), _all_rows(keys)
        self.arguments.scale = (ctypes.c_float * n)(*scales)
        self.arguments.value, self.arguments.bias = Rows.of(value), Rows.of(bias)
        self.weight = None if weight is None else weight.reshape(-1).expand(heads).contiguous()
        self.arguments.weight = None if self.weight is None else self.weight.data_ptr()
        self.ends = None if ends is None else ends.contiguous()
        if self.ends is not None:
            self.arguments.first, self.arguments.last = (row.data_ptr() for row in self.ends)
        self.workspace = spare.empty((kernel.synthattn_workspace(self.arguments, backward),), value.dtype)
        self.arguments.workspace = self.workspace.data_ptr()


def _all_rows(tensors: Sequence[Tensor | None]) -> "ctypes.Array[Rows]":
    return (Rows * len(tensors))(*(Rows.of(t) for t in tensors))


def _splits(heads: int, threads: int) -> int:
    """In how many parts the rows of each head are divided, so that threads have about equal shares."""
    waste = {n: -(-heads * n // threads) * threads / (heads * n) for n in range(1, 9)}
    return next((n for n in waste if waste[n] < 1.2), min(waste, key=lambda n: waste[n]))


def _gradient(tensor: Tensor, splits: int, heads: int) -> Float[Tensor, "splits batch heads length width"]:
    """Memory for the gradient of features or values, for each part of the rows."""
    *batch, _, length, width = tensor.shape
    if not batch:  # the gradient of a parameter stays where it is, and is no loan
        return tensor.new_empty(splits, 1, heads, length, width)
    # The heads of a token side by side, as the projections want them.
    return spare.empty((splits, *batch, length, heads, width), tensor.dtype).transpose(-2, -3)


def _bias_gradient(bias: Tensor | None, splits: int, heads: int) -> Float[Tensor, "splits batch heads q k"]:
    """The same for a bias, which is added to; with parts of its own only where these share rows."""
    assert bias is not None
    *batch, _, q, k = bias.shape
    return bias.new_zeros(splits if q == 1 else 1, *(batch or (1,)), heads, q, k)


def _summed(gradient: Tensor | None, tensor: Tensor | None) -> Tensor | None:
    """Over the parts that the rows were divided in, and over what all heads share."""
    if gradient is None or tensor is None:
        return None
    whole = gradient[0] if len(gradient) == 1 else gradient.sum(0)
    whole = whole if tensor.dim() == 4 else whole[0]
    return whole if whole.shape == tensor.shape else whole.sum_to_size(tensor.shape)


_operators = torch.library.Library("synthattn", "DEF")
_problem = (
    "Tensor value, Tensor? bias, Tensor? weight, Tensor[] queries, Tensor[] keys, float[] scales, Tensor? ends, int q, "
    "bool causal"
)
_operators.define(f"attend({_problem}, bool trains) -> Tensor[]")
_operators.define(
    f"attend_backward(Tensor above, Tensor result, Tensor[] needed, {_problem}, bool[] wanted) -> Tensor[]"
)
_operators.impl("attend", attend, "CPU")
_operators.impl("attend_backward", attend_backward, "CPU")
ATTEND, ATTEND_BACKWARD = torch.ops.synthattn.attend, torch.ops.synthattn.attend_backward


@register_flop_formula(ATTEND)
def _operations(
    value: Any, bias: Any, weight: Any, queries: Any, keys: Any, scales: Any, ends: Any, q: int, *_: Any, **__: Any
) -> int:
    """What torch's counter of operations adds for the forward pass."""
    batch, heads, k, width = value
    return 2 * batch * heads * q * k * (sum(query[-1] for query in queries) + width)


@register_flop_formula(ATTEND_BACKWARD)
def _operations_backward(above: Any, result: Any, needed: Any, value: Any, *rest: Any, **__: Any) -> int:
    """The same for the backward pass: twice the products of the forward pass, and the logits if they were not kept."""
    forward = _operations(value, *rest)
    batch, heads, k, width = value
    values = 2 * batch * heads * above[-2] * k * width
    return 2 * forward + (0 if len(needed) > 1 else forward - values)
