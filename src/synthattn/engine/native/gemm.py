"""Products of large matrices, ``A B + bias``, by the compiled kernel.

They are an operator of torch as well, ``torch.ops.synthattn.matmul``, so that whoever counts operations or memory sees
them. It has no gradient: :mod:`synthattn.engine.products` has.
"""

from ctypes import Structure
from enum import IntEnum
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from synthattn.engine import memory_pool
from synthattn.engine.native import library
from synthattn.engine.native.library import loaded
from synthattn.engine.native.operators import are_plain_floats, check_floats, is_observed, register


class Axis(IntEnum):
    """The axes of a product: rows and columns of the result, and the depth that is summed over."""

    ROW = 0
    COLUMN = 1
    DEPTH = 2


Triangle = tuple[Axis, Axis]
"""Two axes: only places count whose index along the first is at most that along the second.

``(DEPTH, ROW)`` says that A is lower triangular, ``(COLUMN, ROW)`` that the upper triangle of the result is not needed.
"""


def multiply(
    a: Tensor, b: Tensor, bias: Tensor | None = None, triangle: Triangle | None = None, pooled: bool = False
) -> Tensor:
    """Return ``a @ b + bias``, in row-major order.

    Args:
        a: ``(rows, depth)`` or ``(batch, rows, depth)``.
        b: ``(depth, columns)`` or ``(batch, depth, columns)``.
        bias: ``(columns,)`` or ``(rows, 1)``.
        triangle: the places that count. Numbers of a and b elsewhere must be zero; those of the result are arbitrary.
        pooled: take the memory of the result from the memory pool.
    """
    lesser, greater = (-1, -1) if triangle is None else map(int, triangle)
    return (MATMUL if is_observed() else matmul)(a, b, bias, lesser, greater, pooled)


def is_readable(tensor: Tensor) -> bool:
    """Return True if the kernel reads a matrix without a copy of it."""
    return are_plain_floats(tensor) and _strides(tensor) is not None


def matmul(a: Tensor, b: Tensor, bias: Tensor | None, lesser: int, greater: int, pooled: bool) -> Tensor:
    """Implement ``torch.ops.synthattn.matmul``, for tensors of any strides."""
    a, b, bias = _checked(a, b, bias)
    if (lesser, greater) != (-1, -1) and (lesser == greater or not {lesser, greater} <= set(Axis)):
        raise ValueError(f"lesser and greater must be two of the axes 0, 1, 2, or both -1, got {lesser} and {greater}")
    kernels, threads = loaded(), torch.get_num_threads()
    (rows, depth), columns = a.shape[-2:], b.shape[-1]
    batch = a.shape[:-2].numel()
    shape = (*a.shape[:-2], rows, columns)
    result = memory_pool.empty(shape, a.dtype) if pooled else a.new_empty(shape)
    workspace = memory_pool.empty((threads * kernels.synthattn_gemm_workspace(),), a.dtype)
    by_row = bias is not None and bias.dim() == 2
    kernels.synthattn_gemm(
        library.Gemm(
            a=_matrix(a),
            b=_matrix(b),
            c=_matrix(result),
            bias=None if bias is None else bias.data_ptr(),
            workspace=workspace.data_ptr(),
            bias_row=int(by_row),
            bias_column=int(not by_row),
            batch=batch,
            rows=rows,
            columns=columns,
            depth=depth,
            threads=threads,
            lesser=lesser,
            greater=greater,
        )
    )
    return result


def _checked(a: Tensor, b: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the tensors, copied where the kernel cannot read them; refuse those that do not belong together."""
    a, b = _as_floats("a", a), _as_floats("b", b)
    if not (2 <= a.dim() == b.dim() <= 3 and a.shape[:-2] == b.shape[:-2] and a.shape[-1] == b.shape[-2]):
        raise ValueError(
            f"a and b must have shapes (rows, depth) and (depth, columns), or one batch of these, got {tuple(a.shape)} "
            f"and {tuple(b.shape)}"
        )
    a, b = (tensor if _strides(tensor) is not None else tensor.contiguous() for tensor in (a, b))
    if bias is None:
        return a, b, None
    bias, rows, columns = _as_floats("bias", bias), a.shape[-2], b.shape[-1]
    if tuple(bias.shape) not in ((columns,), (rows, 1)):
        raise ValueError(f"bias must have shape ({columns},) or ({rows}, 1), got {tuple(bias.shape)}")
    return a, b, bias.contiguous()


def _as_floats(name: str, tensor: Tensor) -> Tensor:
    """Return the tensor, copied where its memory holds the numbers with the other sign."""
    tensor = tensor.resolve_neg() if isinstance(tensor, Tensor) and tensor.is_neg() else tensor
    check_floats(name, tensor)
    return tensor


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


MATMUL = register(
    "matmul(Tensor a, Tensor b, Tensor? bias, int lesser, int greater, bool pooled) -> Tensor",
    matmul,
    lambda a, b, *_: a.new_empty(*a.shape[:-1], b.shape[-1]),
)


@register_flop_formula(MATMUL)
def _operations(a: Any, b: Any, bias: Any, lesser: int, *_: Any, **__: Any) -> int:
    """Return what torch's counter of operations adds for it; a triangle leaves about half of them."""
    return (2 if lesser < 0 else 1) * torch.Size(a).numel() * b[-1]
