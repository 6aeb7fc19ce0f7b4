"""What a step of generation consists of, compiled: the product of a few rows with a matrix, and norms.

Both are operators of torch as well, ``torch.ops.synthattn.thin_product`` and ``rms_norm``, so that whoever counts
operations or memory sees them.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_in_torch_dispatch_mode
from torch.utils.flop_counter import register_flop_formula

from synthattn.native.library import load
from synthattn.shapes import Float
from synthattn.tracing import traced

# With more rows, the product takes longer than reading the matrix, and large products are what others are good at.
MOST_ROWS = 32
# Of smaller matrices, calling it takes longer than the product.
LEAST_SIZE = 2**12
# For so few multiplications a second thread is not worth waking.
ALONE = 2**16


def takes(x: Tensor, weight: Tensor | None, bias: Tensor | None = None) -> bool:
    """Whether the kernels are there for tensors like these, and nobody wants to see torch's own operations."""
    return (
        not torch.is_grad_enabled()
        and not traced(x)  # before anything is asked of its sizes
        and _is_floats(x, Tensor)
        and (weight is None or _is_floats(weight, nn.Parameter))
        and (bias is None or _is_floats(bias, nn.Parameter))
        and x.numel() > 0
        and not torch.is_autocast_enabled("cpu")
        and load() is not None
    )


def _is_floats(tensor: Tensor, kind: type) -> bool:
    """Whether it is a piece of memory and nothing else."""
    return type(tensor) is kind and tensor.dtype is torch.float32 and tensor.is_cpu and tensor.is_contiguous()


def thin_product(
    x: Float[Tensor, "*rows depth"], weight: Float[Tensor, "columns depth"], bias: Float[Tensor, "columns"] | None
) -> Float[Tensor, "*rows columns"]:
    """``x @ weight.T + bias`` for tensors that the kernels take."""
    kernels = load()
    assert kernels is not None
    columns, depth = weight.shape
    y = x.new_empty(*x.shape[:-1], columns)
    size = x.numel() * columns
    kernels.synthattn_thin(
        y.data_ptr(),
        x.data_ptr(),
        weight.data_ptr(),
        None if bias is None else bias.data_ptr(),
        x.numel() // depth,
        columns,
        depth,
        _threads(size),
    )
    return y


def rms_norm(
    x: Float[Tensor, "*rows width"], weight: Float[Tensor, "width"] | None, eps: float
) -> Float[Tensor, "*rows width"]:
    """``x / sqrt(mean(x ** 2) + eps) * weight`` for tensors that the kernels take."""
    kernels = load()
    assert kernels is not None
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


_operators = torch.library.Library("synthattn", "FRAGMENT")
_operators.define("thin_product(Tensor x, Tensor weight, Tensor? bias) -> Tensor")
_operators.define("rms_norm(Tensor x, Tensor? weight, float eps) -> Tensor")
_operators.impl("thin_product", thin_product, "CPU")
_operators.impl("rms_norm", rms_norm, "CPU")
THIN_PRODUCT, RMS_NORM = torch.ops.synthattn.thin_product, torch.ops.synthattn.rms_norm


def watched() -> bool:
    """Whether somebody looks at operators; where nobody does, they take longer to call than what they do."""
    return is_in_torch_dispatch_mode()


@register_flop_formula(THIN_PRODUCT)
def _operations(x: Any, weight: Any, *_: Any, **__: Any) -> int:
    """What torch's counter of operations adds for it."""
    *rows, depth = x
    return 2 * torch.Size(rows).numel() * depth * weight[0]
