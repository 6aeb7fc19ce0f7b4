"""Compiled kernels for a step of generation: the product of a few rows with a matrix, and norms.

Both are operators of torch as well, ``torch.ops.synthattn.thin_product`` and ``rms_norm``, so that whoever counts
operations or memory sees them.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import register_flop_formula

from synthattn.engine.native.library import load, loaded
from synthattn.engine.native.operators import are_whole_floats, is_observed, register
from synthattn.masks import check_tensor, name_of
from synthattn.tracing import is_tracing

# With more rows, the product takes longer than reading the matrix, and large products are what others are good at.
MOST_ROWS = 32
# Of smaller matrices, calling it takes longer than the product.
LEAST_SIZE = 2**12
# For so few multiplications a second thread is not worth waking.
ALONE = 2**16


def product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor | None:
    """Return ``x @ weight.T + bias``, or None where torch's own product is the one to use."""
    if not _applies(x, weight, bias) or not _can_multiply(x, weight, bias):
        return None
    if x.numel() > MOST_ROWS * x.shape[-1] or weight.numel() < LEAST_SIZE:
        return None
    return THIN_PRODUCT(x, weight, bias) if is_observed() else _product(x, weight, bias)


def norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor | None:
    """Return ``x / sqrt(mean(x ** 2) + eps) * weight``, or None where torch's own norm is the one to use."""
    if not _applies(x, weight, None) or not _can_normalise(x, weight):
        return None
    return RMS_NORM(x, weight, eps) if is_observed() else _norm(x, weight, eps)


def _applies(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> bool:
    """Return True if no gradient is recorded, nothing is traced, and the tensors are not of a class of their own."""
    return (
        not torch.is_grad_enabled()
        and not is_tracing(x)  # before anything is asked of its sizes
        and type(x) is Tensor
        and (weight is None or type(weight) is nn.Parameter)
        and (bias is None or type(bias) is nn.Parameter)
        and not torch.is_autocast_enabled("cpu")
        and load() is not None
    )


def _can_multiply(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Return True if the kernel can multiply these tensors. Every call of it comes after this."""
    return (
        are_whole_floats(x)
        and are_whole_floats(weight)
        and weight.dim() == 2
        and x.dim() > 0
        and x.shape[-1] == weight.shape[1]
        and (bias is None or (are_whole_floats(bias) and bias.shape == weight.shape[:1]))
    )


def _can_normalise(x: Tensor, weight: Tensor | None) -> bool:
    """Return True if the kernel can normalise these tensors. Every call of it comes after this."""
    return (
        are_whole_floats(x)
        and x.dim() > 0
        and (weight is None or (are_whole_floats(weight) and weight.shape == x.shape[-1:]))
    )


def thin_product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Implement ``torch.ops.synthattn.thin_product``, for tensors of any strides."""
    check_tensor("x", x)
    check_tensor("weight", weight)
    x, weight, bias = x.contiguous(), weight.contiguous(), None if bias is None else bias.contiguous()
    if not _can_multiply(x, weight, bias):
        raise ValueError(
            f"thin_product takes float32 tensors on the CPU, not empty, of shapes (..., depth), (columns, depth) and "
            f"(columns,), got {_described(x, weight, bias)}"
        )
    return _product(x, weight, bias)


def rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """Implement ``torch.ops.synthattn.rms_norm``, for tensors of any strides."""
    check_tensor("x", x)
    x, weight = x.contiguous(), None if weight is None else weight.contiguous()
    if not _can_normalise(x, weight):
        raise ValueError(
            f"rms_norm takes float32 tensors on the CPU, not empty, of shapes (..., width) and (width,), "
            f"got {_described(x, weight)}"
        )
    return _norm(x, weight, eps)


def _described(*tensors: Tensor | None) -> str:
    return " and ".join(f"{name_of(t.dtype)} {tuple(t.shape)}" for t in tensors if t is not None)


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Call the kernel with tensors that have no fault."""
    (columns, depth), added = weight.shape, None if bias is None else bias.data_ptr()
    y = x.new_empty(*x.shape[:-1], columns)
    rows, threads = x.numel() // depth, _threads(x.numel() * columns)
    loaded().synthattn_thin(y.data_ptr(), x.data_ptr(), weight.data_ptr(), added, rows, columns, depth, threads)
    return y


def _norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """Call the kernel with tensors that have no fault."""
    y, width, factors = torch.empty_like(x), x.shape[-1], None if weight is None else weight.data_ptr()
    rows, threads = x.numel() // width, _threads(x.numel())
    loaded().synthattn_rms_norm(y.data_ptr(), x.data_ptr(), factors, eps, rows, width, threads)
    return y


def _threads(size: int) -> int:
    return 1 if size < ALONE else torch.get_num_threads()


THIN_PRODUCT = register(
    "thin_product(Tensor x, Tensor weight, Tensor? bias) -> Tensor",
    thin_product,
    lambda x, weight, bias: x.new_empty(*x.shape[:-1], weight.shape[0]),
)
RMS_NORM = register(
    "rms_norm(Tensor x, Tensor? weight, float eps) -> Tensor",
    rms_norm,
    lambda x, weight, eps: x.new_empty(x.shape),
)


@register_flop_formula(THIN_PRODUCT)
def _operations(x: Any, weight: Any, *_: Any, **__: Any) -> int:
    """Return the number of operations that torch's counter adds for a product."""
    *rows, depth = x
    return 2 * torch.Size(rows).numel() * depth * weight[0]
