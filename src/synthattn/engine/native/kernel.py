"""Attention by the compiled kernel: two operators of torch, and the function with a gradient that calls them.

``torch.ops.synthattn.attend`` gives the result and what its gradient needs, ``attend_backward`` the gradient. Whoever
counts operations or memory sees both. Tensors have the axes batch, heads, place, width, as in :mod:`synthattn.logits`.
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
from synthattn.engine.native.dropout import highest_kept
from synthattn.engine.native.library import block_shape, diagonals_of, loaded, rows_of
from synthattn.engine.native.problem import SCHEMA, Problem, check_attention, check_gradient
from synthattn.shapes import Float

# Exponentials are kept for the backward pass if they are not more than this, and queries and keys are at least twice as
# wide as values: if less, it takes no longer to compute them again than to read them.
KEPT_BYTES = 2**28


def attention(problem: Problem) -> Tensor:
    """Return the result of a problem, recorded by autograd where one of its tensors wants a gradient."""
    tensors = problem.tensors
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors):
        return _Attend.apply(problem.with_tensors([None] * len(tensors)), *tensors)  # pyright: ignore
    return ATTEND(*problem, False)[0]


class _Attend(torch.autograd.Function):
    """Attention with a gradient, which has none itself. Its inputs are the problem without its tensors, and these.

    A custom_op with ``register_autograd`` would take longer at small sizes, see ``benchmarks/gradients.py``.
    """

    @staticmethod
    def forward(ctx: Any, problem: Problem, *tensors: Tensor | None) -> Tensor:
        result, *needed = ATTEND(*problem.with_tensors(list(tensors)), True)
        ctx.save_for_backward(result, *tensors, *needed)
        ctx.problem = problem
        ctx.set_materialize_grads(False)
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:  # pyright: ignore
        (grad,), (result, *rest), wanted = grads, ctx.saved_tensors, list(ctx.needs_input_grad[1:])
        if grad is None:
            return (None,) * len(ctx.needs_input_grad)
        tensors, needed = rest[: len(wanted)], rest[len(wanted) :]
        found = iter(ATTEND_BACKWARD(grad, result, needed, *ctx.problem.with_tensors(tensors), wanted))
        return None, *(next(found) if want else None for want in wanted)


# Operators ------------------------------------------------------------------------------------------------------


def attend(*arguments: Any) -> list[Tensor]:
    """Return the result, and, where a backward pass may follow, what that needs.

    That is the logarithm of the sum of exponentials of each row; and, if they are kept, the exponentials, with the
    peaks that they are relative to. Takes the fields of a problem, and whether a backward pass may follow.
    """
    (*fields, trains), kernel = arguments, loaded()
    problem = Problem(*fields)
    check_attention(problem)
    given, _memory = _described(problem, backward=False)
    result, *needed = _empty_results(problem, trains, lambda shape: memory_pool.empty(shape, problem.value.dtype))
    peaks, kept, kept_peaks = ([t.data_ptr() for t in needed] + [None] * 3)[:3]
    results = library.Forward(result=rows_of(result), peaks=peaks, kept=kept, kept_peaks=kept_peaks)
    kernel.synthattn_forward(given, results)
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
    value, bias, _, _, queries, keys, *_ = problem
    heads, n = value.shape[1], len(queries)
    above, result, needed = _readable(above), _readable(result), [t.contiguous() for t in needed]
    given, _memory = _described(problem, backward=True)
    splits = _splits(heads, torch.get_num_threads())
    makers = [
        lambda: _gradient(value, splits, heads),
        lambda: _bias_gradient(bias, splits, heads),
        lambda: value.new_empty(splits, 1, heads, 1, 1),
        lambda: value.new_zeros(splits, 1, heads, problem.q + value.shape[-2] - 1),
        *(lambda t=t: _gradient(t, 1, heads) for t in queries),
        *(lambda t=t: _gradient(t, splits, heads) for t in keys),
    ]
    found = [make() if want else None for want, make in zip(wanted, makers, strict=True)]
    to_value, to_bias, to_weight, to_diagonals, *to_features = found
    peaks, kept, kept_peaks = ([t.data_ptr() for t in needed] + [None] * 2)[:3]
    to_query, to_key = _all_rows(to_features[:n]), _all_rows(to_features[n:])
    results = library.Backward(
        above=rows_of(above),
        result=rows_of(result),
        peaks=peaks,
        kept=kept,
        kept_peaks=kept_peaks,
        splits=splits,
        to_query=to_query,
        to_key=to_key,
        to_value=rows_of(to_value),
        to_bias=rows_of(to_bias),
        to_diagonals=diagonals_of(None if to_diagonals is None else to_diagonals[:, 0], problem.q),
        to_weight=None if to_weight is None else to_weight.data_ptr(),
    )
    kernel.synthattn_backward(given, results)
    pairs = zip(found, problem.tensors, strict=True)
    return [_summed(gradient, t) for gradient, t in pairs if gradient is not None and t is not None]


def _described(problem: Problem, backward: bool) -> tuple[ctypes.Structure, list[Any]]:
    """Return the structure that the kernel reads, and the memory that it points to."""
    value, bias, weight, diagonals, queries, keys, scales, ends, q, causal, dropout, seed = problem
    value, bias, diagonals = (None if t is None else _readable(t) for t in (value, bias, diagonals))
    queries, keys = [_readable(t) for t in queries], [_readable(t) for t in keys]
    batch, heads, k, _ = problem.value.shape
    weight = None if weight is None else weight.reshape(-1).expand(heads).contiguous()
    first, last = (None, None) if ends is None else (ends := ends.contiguous())
    all_scales = (ctypes.c_float * len(scales))(*scales)
    found = library.Problem(
        batch=batch,
        heads=heads,
        q=q,
        k=k,
        products=len(scales),
        causal=causal,
        threads=torch.get_num_threads(),
        query=_all_rows(queries),
        key=_all_rows(keys),
        scale=ctypes.addressof(all_scales),
        value=rows_of(value),
        bias=rows_of(bias),
        diagonals=diagonals_of(diagonals, q),
        weight=None if weight is None else weight.data_ptr(),
        first=None if first is None else first.data_ptr(),
        last=None if last is None else last.data_ptr(),
        factor=1.0 / (1.0 - dropout),
        limit=highest_kept(dropout),
        seed=seed,
    )
    workspace = memory_pool.empty((loaded().synthattn_workspace(found, backward),), problem.value.dtype)
    found.workspace = workspace.data_ptr()
    return found, [value, bias, diagonals, queries, keys, weight, ends, all_scales, workspace]


def _readable(tensor: Tensor) -> Tensor:
    """Return the tensor, copied where the numbers of a row do not follow each other in memory."""
    return tensor if tensor.dim() == 0 or tensor.stride(-1) == 1 or tensor.shape[-1] == 1 else tensor.contiguous()


def _empty_results(problem: Problem, trains: bool, empty: Callable[[tuple[int, ...]], Tensor]) -> list[Tensor]:
    """Make the tensors that :func:`attend` returns."""
    batch, heads, _, width = problem.value.shape
    result = empty((batch, problem.q, heads, width)).transpose(1, 2)
    return [result, *(empty(shape) for shape in _needed_shapes(problem) if trains)]


def _needed_shapes(problem: Problem) -> list[tuple[int, ...]]:
    """Return the shapes of all that the backward pass needs of the forward pass, beside the result.

    Exponentials and their peaks have the shape of all blocks.
    """
    batch, heads, k, width = problem.value.shape
    rows, keys, stride = block_shape(loaded())
    blocks = batch * heads * (-(-problem.q // rows)) * (-(-k // keys)) * rows
    sums = (batch, heads, problem.q)
    wide = sum(query.shape[-1] for query in problem.queries) >= 2 * width
    return [sums, (blocks, stride), (blocks,)] if wide and blocks * stride * 4 <= KEPT_BYTES else [sums]


def _all_rows(tensors: Sequence[Tensor | None]) -> "ctypes.Array[Any]":
    return (library.Rows * len(tensors))(*map(rows_of, tensors))


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


def _summed(gradient: Float[Tensor, "splits #batch heads *axes"], tensor: Tensor) -> Tensor:
    """Return the sum over the parts of the rows, and over heads and examples that share the tensor."""
    whole = gradient[0] if len(gradient) == 1 else gradient.sum(0)
    whole = whole if tensor.dim() == 4 else whole[0]
    return whole if whole.shape == tensor.shape else whole.sum_to_size(tensor.shape)


def _fake_attend(*arguments: Any) -> list[Tensor]:
    """Make tensors like those of :func:`attend` without computing them, for ``torch.compile`` and ``torch.export``."""
    *fields, trains = arguments
    problem = Problem(*fields)
    return _empty_results(problem, trains, problem.value.new_empty)


def _fake_attend_backward(above: Tensor, result: Tensor, needed: list[Tensor], *arguments: Any) -> list[Tensor]:
    """Make tensors like those of :func:`attend_backward` without computing them."""
    *fields, wanted = arguments
    inputs = Problem(*fields).tensors
    return [t.new_empty(t.shape) for t, want in zip(inputs, wanted, strict=True) if want and t is not None]


_LIBRARY = torch.library.Library("synthattn", "DEF")


def _register(schema: str, function: Callable[..., Any], fake: Callable[..., Any]) -> Any:
    """Register an operator of torch for tensors on the CPU, with a fake implementation for tracing.

    The operator has no gradient. Where one is asked for it raises an error: torch would only warn, and go on without.
    """
    _LIBRARY.define(schema)
    name = schema.split("(")[0]
    operator = getattr(torch.ops.synthattn, name)

    def without_gradient(*arguments: Any) -> Any:
        if torch.is_grad_enabled() and any(isinstance(t, Tensor) and t.requires_grad for t in tree_leaves(arguments)):
            raise RuntimeError(
                f"torch.ops.synthattn.{name} has no gradient; call it in torch.no_grad(), or use SyntheticAttention"
            )
        with torch._C._AutoDispatchBelowAutograd():
            return operator(*arguments)

    _LIBRARY.impl(name, function, "CPU")
    _LIBRARY.impl(name, without_gradient, "AutogradCPU")
    torch.library.register_fake(f"synthattn::{name}", fake, lib=_LIBRARY)
    return operator


ATTEND = _register(f"attend({SCHEMA}, bool trains) -> Tensor[]", attend, _fake_attend)
ATTEND_BACKWARD = _register(
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
