"""The kernel as two operators of torch, so that whoever counts operations or memory sees them.

``torch.ops.synthattn.attend`` gives the result and what its gradient needs, ``attend_backward`` the gradient. Tensors
have the axes batch, heads, place, width, as in :mod:`synthattn.logits`. Both check all that they are given.
"""

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import register_flop_formula

from synthattn.engine import memory_pool
from synthattn.engine.native.checks import check_attention, check_gradient
from synthattn.engine.native.dropout import highest_kept
from synthattn.engine.native.library import Backward, Forward, Problem, Rows, block_shape, load, loaded
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
    dropout: float,
    seed: int,
    trains: bool,
) -> list[Tensor]:
    """The result, and, where a backward pass may follow, what that needs: for each row the logarithm of its sum of
    exponentials; exponentials, with the peaks that they are relative to, if they are kept."""
    kernel = loaded()
    check_attention(value, bias, weight, queries, keys, scales, ends, q, dropout)
    problem = _Problem(value, bias, weight, queries, keys, scales, ends, q, causal, dropout, seed, False)
    batch, heads, _, width = value.shape
    result = memory_pool.empty((batch, q, heads, width), value.dtype).transpose(1, 2)
    needed = [memory_pool.empty(tuple(shape), value.dtype) for shape in _needed_shapes(value, queries, q) if trains]
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
    dropout: float,
    seed: int,
    wanted: list[bool],
) -> list[Tensor]:
    """The gradients that are wanted, in the order value, bias, weight, queries, keys."""
    kernel = loaded()
    check_attention(value, bias, weight, queries, keys, scales, ends, q, dropout)
    heads, n = value.shape[1], len(scales)
    check_gradient(above, result, needed, value, bias, weight, n, q, wanted, _kept_shape(value, q))
    above, result = readable(above), readable(result)
    problem = _Problem(value, bias, weight, queries, keys, scales, ends, q, causal, dropout, seed, True)
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
    """Return a few numbers that change with a table on the CPU, from one look at its bits.

    Returns None where the table is not one piece of memory, or there is no kernel.
    """
    kernel, size = load(), table.numel() * table.element_size()
    if kernel is None or size % 4 or table.layout != torch.strided or not table.is_cpu or not table.is_contiguous():
        return None
    if table.is_neg() or table.data_ptr() == 0:
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
        dropout: float,
        seed: int,
        backward: bool,
    ) -> None:
        kernel = loaded()
        value, bias = readable(value), None if bias is None else readable(bias)
        queries, keys = [readable(t) for t in queries], [readable(t) for t in keys]
        self.tensors = value, bias, queries, keys
        (batch, heads, k, _), n = value.shape, len(scales)
        self.arguments = Problem(batch, heads, q, k, n, causal, torch.get_num_threads())
        self.arguments.query, self.arguments.key = _all_rows(queries), _all_rows(keys)
        self.arguments.scale = (ctypes.c_float * n)(*scales)
        self.arguments.value, self.arguments.bias = Rows.of(value), Rows.of(bias)
        self.arguments.factor, self.arguments.limit = 1.0 / (1.0 - dropout), highest_kept(dropout)
        self.arguments.seed = seed
        self.weight = None if weight is None else weight.reshape(-1).expand(heads).contiguous()
        self.arguments.weight = None if self.weight is None else self.weight.data_ptr()
        self.ends = None if ends is None else ends.contiguous()
        if self.ends is not None:
            self.arguments.first, self.arguments.last = (row.data_ptr() for row in self.ends)
        self.workspace = memory_pool.empty((kernel.synthattn_workspace(self.arguments, backward),), value.dtype)
        self.arguments.workspace = self.workspace.data_ptr()


def readable(tensor: Tensor) -> Tensor:
    """Return the tensor, copied where the numbers of a row do not follow each other in memory."""
    return tensor if tensor.dim() == 0 or tensor.stride(-1) == 1 or tensor.shape[-1] == 1 else tensor.contiguous()


def _kept_shape(value: Any, q: int) -> tuple[int, int]:
    """The shape of the exponentials of all blocks."""
    rows, keys, stride = block_shape(loaded())
    batch, heads, k, _ = value.shape
    return batch * heads * (-(-q // rows)) * (-(-k // keys)) * rows, stride


def _needed_shapes(value: Tensor, queries: Sequence[Tensor], q: int) -> list[tuple[int, ...]]:
    """The shapes of all that the backward pass needs of the forward pass, beside the result."""
    batch, heads, _, width = value.shape
    kept = _kept_shape(value, q)
    wide = sum(query.shape[-1] for query in queries) >= 2 * width
    if not wide or math.prod(kept) * value.itemsize > KEPT_BYTES:
        return [(batch, heads, q)]
    return [(batch, heads, q), kept, kept[:1]]


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
    return memory_pool.empty((splits, *batch, length, heads, width), tensor.dtype).transpose(-2, -3)


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


def _fake_attend(
    value: Tensor,
    bias: Tensor | None,
    weight: Tensor | None,
    queries: list[Tensor],
    keys: list[Tensor],
    scales: list[float],
    ends: Tensor | None,
    q: int,
    causal: bool,
    dropout: float,
    seed: int,
    trains: bool,
) -> list[Tensor]:
    """Make tensors like those of :func:`attend` without computing them, for ``torch.compile`` and ``torch.export``."""
    batch, heads, _, width = value.shape
    result = value.new_empty(batch, q, heads, width).transpose(1, 2)
    return [result, *(value.new_empty(shape) for shape in _needed_shapes(value, queries, q) if trains)]


def _fake_attend_backward(
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
    dropout: float,
    seed: int,
    wanted: list[bool],
) -> list[Tensor]:
    """Make tensors like those of :func:`attend_backward` without computing them."""
    inputs = (value, bias, weight, *queries, *keys)
    return [t.new_empty(t.shape) for t, want in zip(inputs, wanted, strict=True) if want and t is not None]


def register(
    library: torch.library.Library, schema: str, function: Callable[..., Any], fake: Callable[..., Any]
) -> Any:
    """Register an operator of torch for tensors on the CPU, with a fake implementation for tracing.

    The operator has no gradient. Where one is asked for it raises an error: torch would only warn, and go on without.
    """
    library.define(schema)
    name = schema.split("(")[0]
    operator = getattr(torch.ops.synthattn, name)

    def checked_fake(*arguments: Any) -> Any:
        devices = sorted({str(t.device) for t in _tensors(arguments)})
        if len(devices) > 1:  # a tensor on the meta device among others brings a call here
            raise ValueError(f"all tensors of synthattn.{name} must be on one device, got {' and '.join(devices)}")
        return fake(*arguments)

    def without_gradient(*arguments: Any) -> Any:
        if torch.is_grad_enabled() and any(t.requires_grad for t in _tensors(arguments)):
            raise RuntimeError(
                f"torch.ops.synthattn.{name} has no gradient; call it in torch.no_grad(), or use SyntheticAttention"
            )
        with torch._C._AutoDispatchBelowAutograd():
            return operator(*arguments)

    library.impl(name, function, "CPU")
    library.impl(name, without_gradient, "AutogradCPU")
    torch.library.register_fake(f"synthattn::{name}", checked_fake, lib=library)
    return operator


def _tensors(arguments: Any) -> list[Tensor]:
    return [t for t in tree_leaves(arguments) if isinstance(t, Tensor)]


_operators = torch.library.Library("synthattn", "DEF")
_problem = (
    "Tensor value, Tensor? bias, Tensor? weight, Tensor[] queries, Tensor[] keys, float[] scales, Tensor? ends, int q, "
    "bool causal, float dropout, int seed"
)
ATTEND = register(_operators, f"attend({_problem}, bool trains) -> Tensor[]", attend, _fake_attend)
ATTEND_BACKWARD = register(
    _operators,
    f"attend_backward(Tensor above, Tensor result, Tensor[] needed, {_problem}, bool[] wanted) -> Tensor[]",
    attend_backward,
    _fake_attend_backward,
)


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
