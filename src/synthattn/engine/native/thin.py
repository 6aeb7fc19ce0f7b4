"""Compiled kernels for a step of generation: the product of a few rows with a matrix, and norms.

Both are operators of torch as well, ``torch.ops.synthattn.thin_product`` and ``rms_norm``, so that whoever counts
operations or memory sees them.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_in_torch_dispatch_mode
from torch.utils.flop_counter import register_flop_formula

from synthattn.engine.native.checks import are_plain_floats, check_tensors
from synthattn.engine.native.kernel import register
from synthattn.engine.native.library import load, loaded
from synthattn.tracing import traced

# With more rows, the product takes longer than reading the matrix, and large products are what others are good at.
MOST_ROWS = 32
# Of smaller matrices, calling it takes longer than the product.
LEAST_SIZE = 2**12
# For so few multiplications a second thread is not worth waking.
ALONE = 2**16
NOT_WHOLE = "x, weight and bias must be float32 tensors on the CPU that are not empty"


def product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor | None:
    """Return ``x @ weight.T + bias``, or None where torch's own product is the one to use."""
    if not _applies(x, weight, bias) or _product_fault(x, weight, bias) is not None:
        return None
    if x.numel() > MOST_ROWS * x.shape[-1] or weight.numel() < LEAST_SIZE:
        return None
    return THIN_PRODUCT(x, weight, bias) if _is_observed() else _product(x, weight, bias)


def norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor | None:
    """Return ``x / sqrt(mean(x ** 2) + eps) * weight``, or None where torch's own norm is the one to use."""
    if not _applies(x, weight, None) or _norm_fault(x, weight) is not None:
        return None
    return RMS_NORM(x, weight, eps) if _is_observed() else _norm(x, weight, eps)


def _applies(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> bool:
    """Return True if no gradient is recorded, nothing is traced, and the tensors are not of a class of their own."""
    return (
        not torch.is_grad_enabled()
        and not traced(x)  # before anything is asked of its sizes
        and type(x) is Tensor
        and (weight is None or type(weight) is nn.Parameter)
        and (bias is None or type(bias) is nn.Parameter)
        and not torch.is_autocast_enabled("cpu")
        and load() is not None
    )


def _product_fault(x: Tensor, weight: Tensor, bias: Tensor | None) -> str | None:
    """Return what keeps the kernel from multiplying these tensors; None where nothing does."""
    if not (_are_whole_floats(x) and _are_whole_floats(weight) and (bias is None or _are_whole_floats(bias))):
        return NOT_WHOLE
    if weight.dim() != 2 or x.dim() < 1 or x.shape[-1] != weight.shape[1]:
        return f"x {tuple(x.shape)} and weight {tuple(weight.shape)} must have the same last axis"
    if bias is not None and bias.shape != weight.shape[:1]:
        return f"bias must have shape ({weight.shape[0]},), got {tuple(bias.shape)}"
    return None


def _norm_fault(x: Tensor, weight: Tensor | None) -> str | None:
    """Return what keeps the kernel from normalising these tensors; None where nothing does."""
    if not (_are_whole_floats(x) and (weight is None or _are_whole_floats(weight))):
        return NOT_WHOLE
    if x.dim() < 1 or (weight is not None and weight.shape != x.shape[-1:]):
        return f"weight must have shape {tuple(x.shape[-1:])}, got {() if weight is None else tuple(weight.shape)}"
    return None


def _are_whole_floats(tensor: Tensor) -> bool:
    return are_plain_floats(tensor) and tensor.is_contiguous()


def thin_product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Implement ``torch.ops.synthattn.thin_product``, for tensors of any strides."""
    check_tensors(x=x, weight=weight)
    x, weight, bias = x.contiguous(), weight.contiguous(), None if bias is None else bias.contiguous()
    fault = _product_fault(x, weight, bias)
    if fault is not None:
        raise ValueError(fault)
    return _product(x, weight, bias)


def rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """Implement ``torch.ops.synthattn.rms_norm``, for tensors of any strides."""
    check_tensors(x=x)
    x, weight = x.contiguous(), None if weight is None else weight.contiguous()
    fault = _norm_fault(x, weight)
    if fault is not None:
        raise ValueError(fault)
    return _norm(x, weight, eps)


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Call the kernel with tensors that have no fault."""
    kernels = loaded()
    columns, depth = weight.shape
    y = x.new_empty(*x.shape[:-1], columns)
    kernels.synthattn_thin(
        y.data_ptr(),
        x.data_ptr(),
        weight.data_ptr(),
        None if bias is None else bias.data_ptr(),
        x.numel() // depth,
        columns,
        depth,
        _threads(x.numel() * columns),
    )
    return y


def _norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """Call the kernel with tensors that have no fault."""
    kernels = loaded()
    y, width = torch.empty_like(x), x.shape[-1]
    kernels.synthattn_rms_norm(
        y.data_ptr(),
        x.data_ptr(),
        None if weight is None else weight.data_ptr(),
        eps,
        x.numel() // width,
        width,
        _threads(x.numel()),
    )
    return y


def _threads(size: int) -> int:
    return 1 if size < ALONE else torch.get_num_threads()


def _is_observed() -> bool:
    """Return True if a dispatch mode looks at operators; otherwise calling one takes longer than its work."""
    return is_in_torch_dispatch_mode()


_operators = torch.library.Library("synthattn", "FRAGMENT")
THIN_PRODUCT = register(
    _operators,
    "thin_product(Tensor x, Tensor weight, Tensor? bias) -> Tensor",
    thin_product,
    lambda x, weight, bias: x.new_empty(*x.shape[:-1], weight.shape[0]),
)
RMS_NORM = register(
    _operators,
    "rms_norm(Tensor x, Tensor? weight, float eps) -> Tensor",
    rms_norm,
    lambda x, weight, eps: x.new_empty(x.shape),
)


@register_flop_formula(THIN_PRODUCT)
def _operations(x: Any, weight: Any, *_: Any, **__: Any) -> int:
    """What torch's counter of operations adds for it."""
    *rows, depth = x
    return 2 * torch.Size(rows).numel() * depth * weight[0]
