"""The kernel as two operators of torch, so that whoever counts operations or memory sees them.

``torch.ops.synthattn.attend`` gives the result and what its gradient needs, ``attend_backward`` the gradient. Tensors
have the axes batch, heads, place, width, as in :mod:`synthattn.logits`. Both check all that they are given.
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import register_flop_formula

from synthattn.engine import memory_pool
from synthattn.engine.native import library
from synthattn.engine.native.checks import check_attention, check_gradient
from synthattn.engine.native.dropout import highest_kept
from synthattn.engine.native.library import Rows, block_shape, load, loaded
from synthattn.engine.native.problem import SCHEMA, Problem
from synthattn.shapes import Float, Int

# Exponentials are kept for the backward pass if they are not more than this, and queries and keys are at least twice as
# wide as values: if less, it takes no longer to compute them again than to read them.
KEPT_BYTES = 2**28


def attend(*arguments: Any) -> list[Tensor]:
    """Return the result, and, where a backward pass may follow, what that needs.

    That is the logarithm of the sum of exponentials of each row; and, if they are kept, the exponentials, with the
    peaks that they are relative to. Takes the fields of a problem, and whether a backward pass may follow.
    """
    (*fields, trains), kernel = arguments, loaded()
    problem = Problem(*fields)
    check_attention(problem)
    given = _Arguments(problem, backward=False)
    value = problem.value
    batch, heads, _, width = value.shape
    result = memory_pool.empty((batch, problem.q, heads, width), value.dtype).transpose(1, 2)
    needed = [memory_pool.empty(tuple(shape), value.dtype) for shape in _needed_shapes(problem) if trains]
    kernel.synthattn_forward(given.c, library.Forward(Rows.of(result), *(t.data_ptr() for t in needed)))
    return [result, *needed]


def attend_backward(above: Tensor, result: Tensor, needed: list[Tensor], *arguments: Any) -> list[Tensor]:
    """Return the gradients that are wanted, in the order of ``Problem.tensors``.

    Takes the gradient of the result, what :func:`attend` returned, the fields of its problem, and which gradients are
    wanted.
    """
    (*fields, wanted), kernel = arguments, loaded()
    problem = Problem(*fields)
    check_attention(problem)
    check_gradient(above, result, needed, _needed_shapes(problem), problem, wanted)
    value, bias, weight, diagonals, queries, keys, *_ = problem
    heads, n = value.shape[1], len(queries)
    above, result, needed = readable(above), readable(result), [t.contiguous() for t in needed]
    given = _Arguments(problem, backward=True)
    splits = _splits(heads, torch.get_num_threads())
    makers = [
        lambda: _gradient(value, splits, heads),
        lambda: _bias_gradient(bias, splits, heads),
        lambda: value.new_empty(splits, heads),
        lambda: value.new_zeros(splits, heads, problem.q + value.shape[-2] - 1),
        *(lambda t=t: _gradient(t, 1, heads) for t in queries),
        *(lambda t=t: _gradient(t, splits, heads) for t in keys),
    ]
    found = [make() if want else None for want, make in zip(wanted, makers, strict=True)]
    to_value, to_bias, to_weight, to_diagonals, *to_features = found
    c = library.Backward(above=Rows.of(above), result=Rows.of(result), splits=splits)
    c.peaks, c.kept, c.kept_peaks = ([t.data_ptr() for t in needed] + [None, None])[:3]
    c.to_query, c.to_key = _all_rows(to_features[:n]), _all_rows(to_features[n:])
    c.to_value, c.to_bias = Rows.of(to_value), Rows.of(to_bias)
    c.to_diagonals = Rows.of_diagonals(to_diagonals, problem.q)
    c.to_weight = None if to_weight is None else to_weight.data_ptr()
    kernel.synthattn_backward(given.c, c)
    if to_weight is not None and weight is not None:
        found[2] = to_weight.sum(0)[:, None, None].sum_to_size(weight.shape)
    if to_diagonals is not None and diagonals is not None:
        found[3] = to_diagonals.sum(0).sum_to_size(diagonals.shape)
    pairs = enumerate(zip(found, problem.tensors, strict=True))
    sums = [t if n in (2, 3) else _summed(t, source) for n, (t, source) in pairs]
    return [gradient for gradient in sums if gradient is not None]


def digest(table: Tensor) -> Int[Tensor, "numbers"] | None:
    """Return a few numbers that change with a table on the CPU, from one look at its bits.

    Returns None where the table is not one piece of memory, or there is no kernel.
    """
    kernel, size = load(), table.numel() * table.element_size()
    if kernel is None or size % 4 or table.layout != torch.strided or not table.is_cpu or not table.is_contiguous():
        return None
    if table.is_neg() or table.data_ptr() == 0:
        return None
    sums = torch.empty(kernel.synthattn_digest_size(), dtype=torch.int32, device="cpu")  # whatever the default is
    kernel.synthattn_digest(table.data_ptr(), size // 4, torch.get_num_threads(), sums.data_ptr())
    return sums


class _Arguments:
    """The structure that the kernel reads, and the memory that it points to."""

    def __init__(self, problem: Problem, backward: bool) -> None:
        value, bias, weight, diagonals, queries, keys, scales, ends, q, causal, dropout, seed = problem
        value, bias = readable(value), None if bias is None else readable(bias)
        diagonals = None if diagonals is None else readable(diagonals)
        queries, keys = [readable(t) for t in queries], [readable(t) for t in keys]
        (batch, heads, k, _), n = value.shape, len(scales)
        self.c = c = library.Problem(batch, heads, q, k, n, causal, torch.get_num_threads())
        c.query, c.key = _all_rows(queries), _all_rows(keys)
        c.scale = (ctypes.c_float * n)(*scales)
        c.value, c.bias, c.diagonals = Rows.of(value), Rows.of(bias), Rows.of_diagonals(diagonals, q)
        c.factor, c.limit, c.seed = 1.0 / (1.0 - dropout), highest_kept(dropout), seed
        weight = None if weight is None else weight.reshape(-1).expand(heads).contiguous()
        c.weight = None if weight is None else weight.data_ptr()
        ends = None if ends is None else ends.contiguous()
        if ends is not None:
            c.first, c.last = (row.data_ptr() for row in ends)
        workspace = memory_pool.empty((loaded().synthattn_workspace(c, backward),), value.dtype)
        c.workspace = workspace.data_ptr()
        self.tensors = value, bias, diagonals, queries, keys, weight, ends, workspace


def readable(tensor: Tensor) -> Tensor:
    """Return the tensor, copied where the numbers of a row do not follow each other in memory."""
    return tensor if tensor.dim() == 0 or tensor.stride(-1) == 1 or tensor.shape[-1] == 1 else tensor.contiguous()


def _needed_shapes(problem: Problem) -> list[tuple[int, ...]]:
    """Return the shapes of all that the backward pass needs of the forward pass, beside the result.

    Exponentials and their peaks have the shape of all blocks.
    """
    value, queries = problem.value, problem.queries
    batch, heads, k, width = value.shape
    rows, keys, stride = block_shape(loaded())
    blocks = batch * heads * (-(-problem.q // rows)) * (-(-k // keys)) * rows
    sums = (batch, heads, problem.q)
    wide = sum(query.shape[-1] for query in queries) >= 2 * width
    return [sums, (blocks, stride), (blocks,)] if wide and blocks * stride * 4 <= KEPT_BYTES else [sums]


def _all_rows(tensors: Sequence[Tensor | None]) -> "ctypes.Array[Rows]":
    return (Rows * len(tensors))(*(Rows.of(t) for t in tensors))


def _splits(heads: int, threads: int) -> int:
    """Return the number of parts to divide the rows of each head into, so that threads have about equal shares."""
    waste = {n: -(-heads * n // threads) * threads / (heads * n) for n in range(1, 9)}
    return next((n for n in waste if waste[n] < 1.2), min(waste, key=lambda n: waste[n]))


def _gradient(tensor: Tensor, splits: int, heads: int) -> Float[Tensor, "splits batch heads length width"]:
    """Return memory for the gradient of features or values, for each part of the rows."""
    *batch, _, length, width = tensor.shape
    if not batch:  # the gradient of a parameter stays where it is, and is no loan
        return tensor.new_empty(splits, 1, heads, length, width)
    # The heads of a token side by side, as the projections want them.
    return memory_pool.empty((splits, *batch, length, heads, width), tensor.dtype).transpose(-2, -3)


def _bias_gradient(bias: Tensor | None, splits: int, heads: int) -> Float[Tensor, "splits batch heads q k"]:
    """Return zeros for the gradient of a bias, with a part for each split only where splits share rows."""
    assert bias is not None
    *batch, _, q, k = bias.shape
    return bias.new_zeros(splits if q == 1 else 1, *(batch or (1,)), heads, q, k)


def _summed(gradient: Tensor | None, tensor: Tensor | None) -> Tensor | None:
    """Return the sum over the parts of the rows, and over heads and examples that share the tensor."""
    if gradient is None or tensor is None:
        return None
    whole = gradient[0] if len(gradient) == 1 else gradient.sum(0)
    whole = whole if tensor.dim() == 4 else whole[0]
    return whole if whole.shape == tensor.shape else whole.sum_to_size(tensor.shape)


def _fake_attend(*arguments: Any) -> list[Tensor]:
    """Make tensors like those of :func:`attend` without computing them, for ``torch.compile`` and ``torch.export``."""
    *fields, trains = arguments
    problem = Problem(*fields)
    value = problem.value
    batch, heads, _, width = value.shape
    result = value.new_empty(batch, problem.q, heads, width).transpose(1, 2)
    return [result, *(value.new_empty(shape) for shape in _needed_shapes(problem) if trains)]


def _fake_attend_backward(above: Tensor, result: Tensor, needed: list[Tensor], *arguments: Any) -> list[Tensor]:
    """Make tensors like those of :func:`attend_backward` without computing them."""
    *fields, wanted = arguments
    inputs = Problem(*fields).tensors
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
ATTEND = register(_operators, f"attend({SCHEMA}, bool trains) -> Tensor[]", attend, _fake_attend)
ATTEND_BACKWARD = register(
    _operators,
    f"attend_backward(Tensor above, Tensor result, Tensor[] needed, {SCHEMA}, bool[] wanted) -> Tensor[]",
    attend_backward,
    _fake_attend_backward,
)


@register_flop_formula(ATTEND)
def _operations(*arguments: Any, **_: Any) -> int:
    """Return what torch's counter of operations adds for the forward pass; it hands shapes in place of tensors."""
    problem = Problem(*arguments[: len(Problem._fields)])
    batch, heads, k, width = problem.value  # pyright: ignore
    return 2 * batch * heads * problem.q * k * (sum(query[-1] for query in problem.queries) + width)  # pyright: ignore


@register_flop_formula(ATTEND_BACKWARD)
def _operations_backward(above: Any, result: Any, needed: Any, *arguments: Any, **_: Any) -> int:
    """Return that for the backward pass: twice the forward products, and the logits if they were not kept."""
    forward = _operations(*arguments)
    batch, heads, k, width = arguments[0]
    values = 2 * batch * heads * above[-2] * k * width
    return 2 * forward + (0 if len(needed) > 1 else forward - values)
