"""Products of large matrices, ``A B + bias``, by the compiled kernel. :mod:`synthattn.engine.products` chooses it."""

from ctypes import Structure
from enum import IntEnum

import torch
from torch import Tensor

from synthattn.engine import memory_pool
from synthattn.engine.native import library
from synthattn.engine.native.library import are_plain_floats, loaded
from synthattn.masks import has_memory


class Axis(IntEnum):
    """The axes of a product: rows and columns of the result, and the depth that is summed over."""

    ROW = 0
    COLUMN = 1
    DEPTH = 2


Triangle = tuple[Axis, Axis]
"""Two axes: only places count whose index along the first is at most that along the second.

``(DEPTH, ROW)`` says that A is lower triangular, ``(COLUMN, ROW)`` that the upper triangle of the result is not needed.
"""


def is_readable(tensor: Tensor) -> bool:
    """Return True if the kernel reads a matrix without a copy of it."""
    return are_plain_floats(tensor) and _strides(tensor) is not None and has_memory(tensor)


def multiply(
    a: Tensor, b: Tensor, bias: Tensor | None = None, triangle: Triangle | None = None, pooled: bool = False
) -> Tensor:
    """Return ``a @ b + bias``, in row-major order and without a gradient.

    Args:
        a: ``(rows, depth)`` or ``(batch, rows, depth)``; readable.
        b: ``(depth, columns)`` or ``(batch, depth, columns)``; readable.
        bias: ``(columns,)`` or ``(rows, 1)``, without gaps.
        triangle: the places that count. Numbers of a and b elsewhere must be zero; those of the result are arbitrary.
        pooled: take the memory of the result from the memory pool.
    """
    kernels, threads = loaded(), torch.get_num_threads()
    shape = (*a.shape[:-1], b.shape[-1])
    result = memory_pool.empty(shape, a.dtype) if pooled else a.new_empty(shape)
    workspace = memory_pool.empty((threads * kernels.synthattn_gemm_workspace(),), a.dtype)
    lesser, greater = (-1, -1) if triangle is None else triangle
    by_row = bias is not None and bias.dim() == 2
    kernels.synthattn_gemm(
        library.Gemm(
            a=_matrix(a),
            b=_matrix(b),
            c=_matrix(result),
            bias=None if bias is None else bias.data_ptr(),
            workspace=workspace.data_ptr(),
            bias_row=by_row,
            bias_column=not by_row,
            batch=a.shape[:-2].numel(),
            rows=a.shape[-2],
            columns=b.shape[-1],
            depth=a.shape[-1],
            threads=threads,
            lesser=lesser,
            greater=greater,
        )
    )
    return result


def _strides(matrix: Tensor) -> tuple[int, int] | None:
    """Return the strides of rows and columns, one of which is 1; None where none is."""
    (rows, columns), (row, column) = matrix.shape[-2:], matrix.stride()[-2:]
    if column == 1 or columns == 1:
        return row, 1
    return (1, column) if row == 1 or rows == 1 else None


def _matrix(tensor: Tensor) -> Structure:
    strides = _strides(tensor)
    assert strides is not None
    batch = tensor.stride(0) if tensor.dim() == 3 else 0
    return library.Matrix(data=tensor.data_ptr(), batch=batch, row=strides[0], column=strides[1])
