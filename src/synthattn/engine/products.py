"""Matrix products with gradients by the compiled kernel, where it is faster than torch's own."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from synthattn.engine import native, second_order, thresholds
from synthattn.engine.native import gemm
from synthattn.engine.native.gemm import Axis, Triangle
from synthattn.engine.native.operators import are_plain_floats
from synthattn.tracing import is_tracing


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor | None:
    """Return ``W x + b`` for tokens x, ``(*axes, depth)``, or None where torch's product is the one to use."""
    if is_tracing(x) or x.numel() * weight.shape[0] < _least() or x.dim() < 2:
        return None
    result = multiply(x.flatten(0, -2), weight.mT, bias)
    return None if result is None else result.unflatten(0, x.shape[:-1])


def multiply(
    a: Tensor, b: Tensor, bias: Tensor | None = None, triangle: Triangle | None = None, pooled: bool = False
) -> Tensor | None:
    """Return ``a @ b + bias`` in row-major order, or None where torch's product is the one to use.

    Takes the arguments of :func:`synthattn.engine.native.gemm.multiply`.
    """
    if not _is_faster(a, b) or not (bias is None or _fits(bias, a, b)):
        return None
    return _Multiply.apply(a, b, bias, triangle, pooled)  # pyright: ignore[reportReturnType]


def _least() -> float | int:
    """Return the number of multiplications from which the kernel is faster on this processor."""
    return thresholds.MULTIPLICATIONS.get(thresholds.processor(), math.inf)


def _is_faster(a: Tensor, b: Tensor) -> bool:
    """Return True if the kernel multiplies tensors like these, and faster than torch."""
    if is_tracing(a) or is_tracing(b) or a.numel() * b.shape[-1] < _least():
        return False
    return (
        min(*a.shape[-2:], b.shape[-1]) >= thresholds.SHORTEST_AXIS
        and a.shape[:-2] == b.shape[:-2]
        and a.shape[-1] == b.shape[-2]
        and all(type(t) in (Tensor, nn.Parameter) and gemm.is_readable(t) for t in (a, b))
        and not torch.is_autocast_enabled("cpu")
        and torch.get_float32_matmul_precision() == "highest"
        and native.load() is not None
    )


def _fits(bias: Tensor, a: Tensor, b: Tensor) -> bool:
    shapes = (b.shape[-1:], (a.shape[-2], 1))
    return type(bias) in (Tensor, nn.Parameter) and bias.shape in shapes and are_plain_floats(bias)


class _Multiply(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, bias: Tensor | None, triangle: Triangle | None, pooled: bool) -> Tensor:
        ctx.save_for_backward(a, b)
        ctx.triangle, ctx.bias_shape = triangle, None if bias is None else bias.shape
        return gemm.multiply(a, b, bias, triangle, pooled)

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
        factors, order = (a, b), triangle
    else:
        factors, order = (b.mT, a.mT), _swapped(triangle, Axis.ROW, Axis.COLUMN)
    result = gemm.multiply(*factors, None, order) if _is_faster(*factors) else torch.matmul(*factors)
    return result if like.stride(-1) == 1 else result.mT


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
