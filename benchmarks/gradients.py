"""Compare two ways to give an operator of the kernels a gradient: autograd.Function, and register_autograd of torch.

``python benchmarks/gradients.py`` prints the median time of an attention with its gradient, at about the smallest size
that the kernel takes. The package uses the first way. A step of generation records no gradient: it has no part in this.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from synthattn.engine import native
from synthattn.engine.native import kernel
from synthattn.engine.native.problem import SCHEMA, Problem

SHAPE = (1, 8, 96, 64)
"""Examples, heads, tokens and width."""


def registered() -> Callable[..., list[Tensor]]:
    """Return the operator of the kernel as a custom_op with register_autograd."""
    schema = f"({SCHEMA}, bool trains) -> Tensor[]"
    operator = torch.library.custom_op("probe::attend", kernel.attend, mutates_args=(), schema=schema)

    def keep(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
        problem = Problem(*inputs[:-1])
        ctx.save_for_backward(*output, *problem.tensors)
        ctx.problem, ctx.needed = problem, len(output) - 1

    def differentiate(ctx: Any, grads: list[Tensor]) -> tuple[Any, ...]:
        result, *rest = ctx.saved_tensors
        needed, tensors = rest[: ctx.needed], rest[ctx.needed :]
        wanted = [t is not None and t.requires_grad for t in tensors]
        problem = ctx.problem.with_tensors([None if t is None else t.detach() for t in tensors])
        found = iter(kernel.ATTEND_BACKWARD(grads[0].contiguous(), result, needed, *problem, wanted))
        value, bias, weight, diagonals, *features = (next(found) if want else None for want in wanted)
        half = len(features) // 2
        return value, bias, weight, diagonals, features[:half], features[half:], *[None] * 7

    operator.register_autograd(differentiate, setup_context=keep)
    return operator


def main() -> None:
    torch.set_num_threads(1)  # so that waiting for another thread is not measured
    query, key, value = (torch.randn(SHAPE, requires_grad=True) for _ in range(3))
    problem = Problem(value, None, None, None, [query], [key], [1.0], None, SHAPE[2], False, 0.0, 0)
    operator = registered()
    ways = {
        "autograd.Function": lambda: native.attention(problem),
        "register_autograd": lambda: operator(*problem, True)[0],
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    above = torch.randn(SHAPE)
    for _ in range(500):
        for name, attend in ways.items():
            start = time.perf_counter()
            torch.autograd.grad(attend(), (query, key, value), above)
            times[name].append(time.perf_counter() - start)
    for name, found in times.items():
        print(f"{statistics.median(found) * 1e6:7.1f} us  {name}")


if __name__ == "__main__":
    main()
