"""The matrix products inside a computation: how many operations they are, and how fast they would be alone.

Alone, on operands that lie ready in memory, by whichever library is the fastest, they are the physical limit of the
machine for this computation.
"""

import math
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from synthattn.engine import native
from synthattn.engine.native import Problem, gemm, kernel

Shape = tuple[int, int, int, int]
"""``(count, rows, inner, columns)``: that many products of a ``(rows, inner)`` and an ``(inner, columns)`` matrix."""
Operands = tuple[Tensor, Tensor, Tensor]
"""Two factors, and where their product goes."""


class Products(TorchDispatchMode):
    """Collects the shapes of all matrix products while it is on, the backward pass and fused attention included."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: Counter[Shape] = Counter()

    @property
    def gigaflop(self) -> float:
        return sum(2 * times * math.prod(shape) for shape, times in self.shapes.items()) / 1e9

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        read = _READERS.get(func.overloadpacket)
        if read is not None:
            self.shapes.update(read(*args))
        return func(*args, **(kwargs or {}))

    def alone(self, known: dict[Shape, Operands] | None = None) -> Callable[[], None]:
        """A function that does these products and nothing else, each by the library that is the fastest at it.

        Operands that are ``known`` are used again, new ones are added to them: of long inputs they are large.
        """
        known = {} if known is None else known
        known |= {shape: _operands(shape) for shape in self.shapes if shape not in known}
        ready = [(_fastest(known[shape]), known[shape], times) for shape, times in self.shapes.items()]

        def run() -> None:
            with torch.no_grad():
                for multiply, operands, times in ready:
                    for _ in range(times):
                        multiply(*operands)

        return run


def products(run: Callable[[], object]) -> Products:
    """The products that a call of a function executes."""
    with Products() as found:
        run()
    return found


def _operands(shape: Shape) -> Operands:
    count, rows, inner, columns = shape
    if count == 1:
        return torch.randn(rows, inner), torch.randn(inner, columns), torch.empty(rows, columns)
    return torch.randn(count, rows, inner), torch.randn(count, inner, columns), torch.empty(count, rows, columns)


def _by_torch(a: Tensor, b: Tensor, out: Tensor) -> None:
    torch.mm(a, b, out=out) if a.dim() == 2 else torch.bmm(a, b, out=out)


def _by_numpy(a: Tensor, b: Tensor, out: Tensor) -> None:
    np.matmul(a.numpy(), b.numpy(), out=out.numpy())


def _by_kernel(a: Tensor, b: Tensor, out: Tensor) -> None:
    gemm.multiply(a, b, pooled=True)


_LIBRARIES = [_by_torch, _by_numpy, _by_kernel]


def _fastest(operands: Operands) -> Callable[..., None]:
    """Return the function that multiplies these operands in the shortest time of three calls after the first."""
    times: dict[Callable[..., None], float] = {}
    for multiply in _LIBRARIES:
        if multiply is _by_kernel and native.load() is None:
            continue
        multiply(*operands)
        for _ in range(3):
            start = time.perf_counter()
            multiply(*operands)
            times[multiply] = min(times.get(multiply, math.inf), time.perf_counter() - start)
    return min(times, key=lambda multiply: times[multiply])


def _mm(a: Tensor, b: Tensor, *_: Any) -> list[Shape]:
    return [(1, a.shape[0], a.shape[1], b.shape[1])]


def _bmm(a: Tensor, b: Tensor, *_: Any) -> list[Shape]:
    return [(*a.shape, b.shape[2])]  # pyright: ignore[reportReturnType]


def _attention(query: Tensor, key: Tensor, value: Tensor, *_: Any) -> list[Shape]:
    # Example by example, as fused kernels do: never the logits of a whole batch at once.
    batch, heads, q, width = query.shape
    k = key.shape[-2]
    return batch * [(heads, q, width, k), (heads, q, k, value.shape[-1])]


def _attention_backward(grad: Tensor, query: Tensor, key: Tensor, value: Tensor, *_: Any) -> list[Shape]:
    batch, heads, q, width = query.shape
    k, out = key.shape[-2], value.shape[-1]
    logits, to_weights, to_value = (heads, q, width, k), (heads, q, out, k), (heads, k, q, out)
    return batch * [logits, to_weights, to_value, (heads, q, k, width), (heads, k, q, width)]


def _native(*arguments: Any) -> list[Shape]:
    problem = Problem(*arguments[: len(Problem._fields)])
    batch, heads, k, out = problem.value.shape
    width = sum(t.shape[-1] for t in problem.queries)
    shapes = [(heads, problem.q, width, k), (heads, problem.q, k, out)]
    return batch * [shape for shape in shapes if min(shape) > 0]


def _native_backward(above: Tensor, result: Tensor, needed: list[Tensor], *arguments: Any) -> list[Shape]:
    problem = Problem(*arguments[: len(Problem._fields)])
    (batch, heads, k, out), q = problem.value.shape, problem.q
    width = sum(t.shape[-1] for t in problem.queries)
    again = [] if len(needed) > 1 else [(heads, q, width, k)]  # unless exponentials were kept
    to_weights, to_value = (heads, q, out, k), (heads, k, q, out)
    shapes = [*again, to_weights, to_value, (heads, q, k, width), (heads, k, q, width)]
    return batch * [shape for shape in shapes if min(shape) > 0]


_aten = torch.ops.aten
_READERS: dict[Any, Callable[..., list[Shape]]] = {
    _aten.mm: _mm,
    _aten.addmm: lambda start, a, b, *_: _mm(a, b),
    _aten.bmm: _bmm,
    _aten.baddbmm: lambda start, a, b, *_: _bmm(a, b),
    _aten.baddbmm_: lambda start, a, b, *_: _bmm(a, b),
    _aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
    kernel.ATTEND: _native,
    kernel.ATTEND_BACKWARD: _native_backward,
}
