"""The product of a few rows with a matrix, as one more operator of torch: ``torch.ops.synthattn.thin_product``."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_in_torch_dispatch_mode
from torch.utils.flop_counter import register_flop_formula

from synthattn.native.library import load
from synthattn.shapes import Float

# With more rows, the product takes longer than reading the matrix, and large products are what others are good at.
MOST_ROWS = 32
# Of smaller matrices, calling it takes longer than the product.
LEAST_SIZE = 2**12
# For so many products a second thread is not worth waking.
ALONE = 2**16


def thin_product(
    x: Float[Tensor, "rows depth"], weight: Float[Tensor, "columns depth"], bias: Float[Tensor, "columns"] | None
) -> Float[Tensor, "rows columns"]:
    """``x @ weight.T + bias`` for float32 tensors without gaps, where the kernels are there."""
    kernels = load()
    assert kernels is not None
    (rows, depth), columns = x.shape, len(weight)
    y = x.new_empty(rows, columns)
    threads = 1 if rows * depth * columns < ALONE else torch.get_num_threads()
    kernels.synthattn_thin(
        y.data_ptr(),
        x.data_ptr(),
        weight.data_ptr(),
        None if bias is None else bias.data_ptr(),
        rows,
        columns,
        depth,
        threads,
    )
    return y


_operators = torch.library.Library("synthattn", "FRAGMENT")
_operators.define("thin_product(Tensor x, Tensor weight, Tensor? bias) -> Tensor")
_operators.impl("thin_product", thin_product, "CPU")
THIN_PRODUCT = torch.ops.synthattn.thin_product


def multiply(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The same by way of the operator where somebody watches: for nobody it would take longer than a small product."""
    return (THIN_PRODUCT if is_in_torch_dispatch_mode() else thin_product)(x, weight, bias)


@register_flop_formula(THIN_PRODUCT)
def _operations(x: Any, weight: Any, *_: Any, **__: Any) -> int:
    """What torch's counter of operations adds for it."""
    (rows, depth), (columns, _) = x, weight
    return 2 * rows * depth * columns
