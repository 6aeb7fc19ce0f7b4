"""Compiled kernels for a step of generation: the product of a few rows with a matrix, and norms. They have no gradient.

Whoever watches torch's operations sees torch's own product and norm instead.
"""

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from synthattn.engine.native.library import are_whole_floats, load, loaded
from synthattn.tracing import is_tracing

# With more rows, the product takes longer than reading the matrix, and large products are what others are good at.
MOST_ROWS = 32
# Of smaller matrices, calling it takes longer than the product.
LEAST_SIZE = 2**12
# For so few multiplications a second thread is not worth waking.
ALONE = 2**16


def product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor | None:
    """Return ``x @ weight.T + bias``, or None where torch's own product is the one to use."""
    if not _are_readable(x, weight, bias) or weight.dim() != 2 or x.dim() == 0:
        return None
    (columns, depth), size = weight.shape, x.numel()
    if x.shape[-1] != depth or (bias is not None and bias.shape != weight.shape[:1]):
        return None
    if size > MOST_ROWS * depth or columns * depth < LEAST_SIZE:
        return None
    y, added = x.new_empty(*x.shape[:-1], columns), None if bias is None else bias.data_ptr()
    arguments = y.data_ptr(), x.data_ptr(), weight.data_ptr(), added
    loaded().synthattn_thin(*arguments, size // depth, columns, depth, _threads(size * columns))
    return y


def norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor | None:
    """Return ``x / sqrt(mean(x ** 2) + eps) * weight``, or None where torch's own norm is the one to use."""
    if not _are_readable(x, weight, None) or x.dim() == 0 or (weight is not None and weight.shape != x.shape[-1:]):
        return None
    y, width, factors = torch.empty_like(x), x.shape[-1], None if weight is None else weight.data_ptr()
    rows, threads = x.numel() // width, _threads(x.numel())
    loaded().synthattn_rms_norm(y.data_ptr(), x.data_ptr(), factors, eps, rows, width, threads)
    return y


def _are_readable(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> bool:
    """Return True if the kernels read these tensors as they lie, and nobody wants more than their result."""
    return (
        not torch.is_grad_enabled()
        and not is_tracing(x)  # before anything is asked of its sizes
        and type(x) is Tensor
        and are_whole_floats(x)
        and (weight is None or (type(weight) is nn.Parameter and are_whole_floats(weight)))
        and (bias is None or (type(bias) is nn.Parameter and are_whole_floats(bias)))
        and not torch.is_autocast_enabled("cpu")
        and load() is not None
        and not is_in_torch_dispatch_mode()
    )


def _threads(size: int) -> int:
    return 1 if size < ALONE else torch.get_num_threads()
