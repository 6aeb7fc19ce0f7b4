"""Matrix products with gradients: by the compiled kernel where it is faster, otherwise by torch.

What a triangle leaves out is never multiplied. Whoever watches torch's operations sees torch's products alone.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from synthattn.engine import memory_pool, native, second_order, thresholds
from synthattn.engine.native import gemm
from synthattn.engine.native.gemm import Axis, Triangle
from synthattn.engine.native.library import are_whole_floats
from synthattn.tracing import is_tracing


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor | None:
    """Return ``W x + b`` for tokens x, ``(*axes, depth)``, or None where torch's product is the one to use."""
    if is_tracing(x) or x.numel() * weight.shape[0] < _least() or x.dim() < 2:
        return None
    tokens = x.flatten(0, -2)
    if not is_for_kernel(tokens, weight.mT, bias):
        return None
    result: Any = _Multiply.apply(tokens, weight.mT, bias, None, False)
    return result.unflatten(0, x.shape[:-1])


def multiply(
    a: Tensor, b: Tensor, bias: Tensor | None = None, triangle: Triangle | None = None, pooled: bool = False
) -> Tensor:
    """Return ``a @ b + bias`` in row-major order. The gradients of a and b lie in memory as these do.

    Args:
        a: ``(rows, depth)`` or ``(heads, rows, depth)``.
        b: ``(depth, columns)`` or ``(heads, depth, columns)``.
        bias: ``(columns,)`` or ``(rows, 1)``.
        triangle: the places that count, see :func:`synthattn.engine.native.gemm.multiply`.
        pooled: take the memory of the result from the memory pool.
    """
    if is_tracing(a) or torch.is_autocast_enabled(a.device.type):
        return _plus(torch.matmul(a, b), bias)
    if a.dim() == 2 and not is_for_kernel(a, b, bias):  # of two axes, the gradients of torch lie as they should
        return _by_torch(a, b, bias, None, pooled)
    return _Multiply.apply(a, b, bias, triangle, pooled)  # pyright: ignore[reportReturnType]


def _least() -> float | int:
    """Return the number of multiplications from which the kernel is faster on this processor."""
    return thresholds.MULTIPLICATIONS.get(thresholds.processor(), math.inf)


def is_for_kernel(a: Tensor, b: Tensor, bias: Tensor | None = None) -> bool:
    """Return True if the kernel multiplies tensors like these, and faster than torch."""
    if is_tracing(a) or is_tracing(b) or not 2 <= a.dim() == b.dim() <= 3 or a.numel() * b.shape[-1] < _least():
        return False
    return (
        min(*a.shape[-2:], b.shape[-1]) >= thresholds.SHORTEST_AXIS
        and a.shape[:-2] == b.shape[:-2]
        and a.shape[-1] == b.shape[-2]
        and all(type(t) in (Tensor, nn.Parameter) and gemm.is_readable(t) for t in (a, b))
        and (bias is None or _fits(bias, a, b))
        and not torch.is_autocast_enabled("cpu")
        and torch.get_float32_matmul_precision() == "highest"
        and native.load() is not None
        and not is_in_torch_dispatch_mode()
    )


def _fits(bias: Tensor, a: Tensor, b: Tensor) -> bool:
    shapes = (b.shape[-1:], (a.shape[-2], 1))
    return type(bias) in (Tensor, nn.Parameter) and bias.shape in shapes and are_whole_floats(bias)


class _Multiply(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, bias: Tensor | None, triangle: Triangle | None, pooled: bool) -> Tensor:
        ctx.save_for_backward(a, b)
        ctx.triangle, ctx.bias_shape = triangle, None if bias is None else bias.shape
        return _computed(a, b, bias, triangle, pooled)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        (a, b), (grad,), triangle = ctx.saved_tensors, grads, ctx.triangle
        to_a = to_b = to_bias = None
        if ctx.needs_input_grad[0]:
            to_a = _in_order_of(a, grad, b.mT, _swapped(triangle, Axis.COLUMN, Axis.DEPTH))
        if ctx.needs_input_grad[1]:
            to_b = _in_order_of(b, a.mT, grad, _swapped(triangle, Axis.ROW, Axis.DEPTH))
        if ctx.needs_input_grad[2]:
            to_bias = grad.sum_to_size(ctx.bias_shape)
        return to_a, to_b, to_bias, None, None


def _in_order_of(like: Tensor, a: Tensor, b: Tensor, triangle: Triangle | None) -> Tensor:
    """Return ``a @ b`` in the memory order of a tensor, by operations that autograd knows where this is wanted."""
    if second_order.is_wanted(a) or second_order.is_wanted(b):
        return _masked(torch.matmul(a, b), triangle)
    if like.stride(-1) == 1:
        return _computed(a, b, None, triangle)
    return _computed(b.mT, a.mT, None, _swapped(triangle, Axis.ROW, Axis.COLUMN)).mT


def _computed(a: Tensor, b: Tensor, bias: Tensor | None, triangle: Triangle | None, pooled: bool = False) -> Tensor:
    way = gemm.multiply if is_for_kernel(a, b, bias) else _by_torch
    return way(a, b, bias, triangle, pooled)


def _by_torch(a: Tensor, b: Tensor, bias: Tensor | None, triangle: Triangle | None, pooled: bool) -> Tensor:
    """Multiply by torch, a triangle in blocks along the axis of the greater index."""
    shape = (*a.shape[:-1], b.shape[-1])
    out = memory_pool.empty(shape, a.dtype) if pooled and a.is_cpu else None
    if triangle is None:
        return _plus(torch.matmul(a, b, out=out), bias)
    lesser, greater = triangle
    out = a.new_empty(shape) if out is None else out
    if lesser is not Axis.DEPTH:  # some numbers are sums of several blocks, or of none
        out.zero_()
    length = {Axis.ROW: shape[-2], Axis.COLUMN: shape[-1], Axis.DEPTH: a.shape[-1]}[greater]
    size = thresholds.CAUSAL_ROWS if a.is_cpu else thresholds.ACCELERATOR_CAUSAL_ROWS
    for start in range(0, length, size):
        stop = start + size
        places = dict.fromkeys(Axis, slice(None)) | {lesser: slice(0, stop), greater: slice(start, stop)}
        rows, columns, depth = (places[axis] for axis in Axis)
        part = out[..., rows, columns]
        torch.baddbmm(part, a[..., rows, depth], b[..., depth, columns], beta=int(greater is Axis.DEPTH), out=part)
    return _plus(out, bias)


def _plus(result: Tensor, bias: Tensor | None) -> Tensor:
    """Add a bias. This is faster than a product that starts from copies of it."""
    return result if bias is None else result.add_(bias)


def _masked(result: Tensor, triangle: Triangle | None) -> Tensor:
    """Set what a triangle leaves out of a result to zero."""
    if triangle == (Axis.COLUMN, Axis.ROW):
        return result.tril()
    return result.triu() if triangle == (Axis.ROW, Axis.COLUMN) else result


def _swapped(triangle: Triangle | None, one: Axis, other: Axis) -> Triangle | None:
    """Return a triangle after two axes have changed places."""
    if triangle is None:
        return None
    names = {one: other, other: one}
    lesser, greater = triangle
    return names.get(lesser, lesser), names.get(greater, greater)
