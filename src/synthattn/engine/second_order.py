"""Gradients that can themselves be differentiated.

The gradients of the fast backends, written by hand or by torch, have no gradient of their own. Where one is asked for
(``create_graph=True``, as for a gradient penalty) or gradients are batched (``is_grads_batched=True``), the backward
pass computes the attention again in torch's own operations, and differentiates that.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor  # pyright: ignore[reportMissingModuleSource]

from synthattn.logits import Logits
from synthattn.masks import Mask
from synthattn.shapes import Float
from synthattn.tracing import is_tracing

Function = Callable[..., Tensor]
Factors = Callable[[], Tensor]


def take_apart(logits: Logits) -> tuple[list[Tensor], Callable[[Sequence[Tensor]], Logits]]:
    """Return the tensors of a sum, and a function that makes a sum of such tensors. The function holds none of them.

    Tensors of whole numbers have no gradient and are left where they are.
    """
    tensors: list[Tensor] = []
    kinds: list[tuple[type, list[str], dict[str, Any]]] = []
    for term in logits.terms:
        fields = vars(term)
        names = [name for name, field in fields.items() if isinstance(field, Tensor) and field.is_floating_point()]
        tensors += [fields[name] for name in names]
        kinds.append((type(term), names, {name: field for name, field in fields.items() if name not in names}))

    def rebuild(tensors: Sequence[Tensor]) -> Logits:
        rest = iter(tensors)
        return Logits(tuple(kind(**others, **{name: next(rest) for name in names}) for kind, names, others in kinds))

    return tensors, rebuild


def is_wanted(grad: Tensor) -> bool:
    """Return True if a backward pass must produce gradients by torch's own operations."""
    return torch.is_grad_enabled() or is_tracing(grad) or is_legacy_batchedtensor(grad)


def gradients(
    function: Function, inputs: Sequence[Tensor | None], wanted: Sequence[bool], grad: Tensor
) -> list[Tensor | None]:
    """Return the gradients of ``function(*inputs)`` for the inputs that are wanted, None for the others.

    ``grad`` is the gradient of the result. The gradients are recorded if gradients are enabled.
    """
    records = torch.is_grad_enabled()
    with torch.enable_grad():
        # New tensors: an input may have been computed from another one, whose gradient must not include that way.
        fresh = [
            t if t is None or not want else t.view_as(t) if records else t.detach().requires_grad_()
            for t, want in zip(inputs, wanted, strict=True)
        ]
        result = function(*fresh)
    sources = [t for t, want in zip(fresh, wanted, strict=True) if want and t is not None]
    found = iter(torch.autograd.grad(result, sources, grad, create_graph=records, allow_unused=True) if sources else ())
    return [next(found) if want and t is not None else None for t, want in zip(inputs, wanted, strict=True)]


def twice_differentiable_sum(
    result: Tensor, logits: Logits, value: Tensor, mask: Mask, factors: Factors | None = None
) -> Tensor:
    """Return ``result``, which equals :func:`softmax_times_value`, with a gradient that can be differentiated."""
    if not result.requires_grad:
        return result
    tensors, rebuild = take_apart(logits)

    def attend(value: Tensor, *tensors: Tensor) -> Tensor:
        return softmax_times_value(rebuild(tensors), value, mask, factors)

    return twice_differentiable(result, attend, value, *tensors)


def softmax_times_value(
    logits: Logits, value: Float[Tensor, "batch heads k width"], mask: Mask, factors: Factors | None = None
) -> Float[Tensor, "batch heads q width"]:
    """Return softmax(logits) @ value in torch's own operations; rows whose logits are all minus infinity give zeros.

    ``factors`` returns what multiplies the weights, such as those of dropout.
    """
    total = logits.as_tensor()
    allowed = mask.full(total.shape[-2], total.shape[-1], total.device)
    if allowed is not None:
        total = total.masked_fill(~allowed, float("-inf"))
    empty = (total == float("-inf")).all(-1, keepdim=True)
    weights = total.masked_fill(empty, 0.0).softmax(-1).masked_fill(empty, 0.0)
    return (weights if factors is None else weights * factors().to(weights.dtype)) @ value


def twice_differentiable(result: Tensor, function: Function, *inputs: Tensor | None) -> Tensor:
    """Return ``result``, which equals ``function(*inputs)``, with a gradient that can be differentiated.

    The gradient is that of ``result`` itself, except where it has to be differentiable: then ``function`` is computed.
    """
    if is_tracing(result) or not result.requires_grad:
        return result
    return _TwiceDifferentiable.apply(result, function, *inputs)  # pyright: ignore[reportReturnType]


class _TwiceDifferentiable(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, result: Tensor, function: Function, *inputs: Tensor | None) -> Tensor:
        ctx.save_for_backward(*inputs)
        ctx.function = function
        return result.view_as(result)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        (grad,), wanted = grads, ctx.needs_input_grad[2:]
        if not is_wanted(grad):
            return grad, None, *(None for _ in wanted)
        return None, None, *gradients(ctx.function, ctx.saved_tensors, wanted, grad)
