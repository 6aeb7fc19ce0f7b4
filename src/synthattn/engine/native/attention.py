"""Attention by the compiled kernel, with gradients."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from synthattn.engine import second_order
from synthattn.engine.native import kernel
from synthattn.engine.native.dropout import undropped
from synthattn.engine.native.problem import Problem
from synthattn.logits import Bias, Logits, LogitTerm, Product
from synthattn.masks import Mask


def attention(problem: Problem) -> Tensor:
    """Return the result of a problem, recorded by autograd where one of its tensors wants a gradient."""
    tensors = [None if t is None else kernel.readable(t) for t in problem.tensors]
    trains = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)
    if not trains:
        return kernel.ATTEND(*problem.with_tensors(tensors), trains)[0]
    return _Attend.apply(problem.with_tensors([None] * len(tensors)), *tensors)  # pyright: ignore


class _Attend(torch.autograd.Function):
    """Attention with a gradient. Its inputs are the problem without its tensors, and these in their order.

    A custom_op with ``register_autograd`` would take longer at small sizes, see ``benchmarks/gradients.py``.
    """

    @staticmethod
    def forward(ctx: Any, problem: Problem, *tensors: Tensor | None) -> Tensor:
        result, *needed = kernel.ATTEND(*problem.with_tensors(list(tensors)), True)
        ctx.save_for_backward(result, *tensors, *needed)
        ctx.problem = problem
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        result, *rest = ctx.saved_tensors
        wanted = list(ctx.needs_input_grad[1:])
        tensors, needed = rest[: len(wanted)], rest[len(wanted) :]
        if second_order.is_wanted(grads[0]):
            return None, *second_order.gradients(_in_torch(ctx.problem), tensors, wanted, grads[0])
        found = kernel.ATTEND_BACKWARD(grads[0], result, needed, *ctx.problem.with_tensors(tensors), wanted)
        remaining = iter(found)
        return None, *(next(remaining) if want else None for want in wanted)


def _in_torch(problem: Problem) -> Callable[..., Tensor]:
    """Return a function of the tensors of a problem that does what the kernel does, in torch's own operations."""

    def attend(*tensors: Tensor | None) -> Tensor:
        given = problem.with_tensors(list(tensors))
        value, bias, weight, diagonals, queries, keys, scales, ends, q, causal, dropout, seed = given
        batch, heads, k, _ = value.shape
        unpadded = factors = None
        if ends is not None:
            first, last = ends.unsqueeze(-1)
            places = torch.arange(k, device="cpu")
            unpadded = (places >= first) & (places < last)
        terms: list[LogitTerm] = [Product(*some) for some in zip(queries, keys, scales, strict=True)]
        terms += [] if bias is None else [Bias(bias, weight)]
        terms += [] if diagonals is None else [Bias(diagonals.unfold(-1, k, 1).flip(1))]
        if dropout > 0.0:
            factors = undropped(dropout, seed, (batch, heads, q, k)) / (1.0 - dropout)
        return second_order.softmax_times_value(Logits(tuple(terms)), value, Mask(unpadded, causal), factors)

    return attend
