"""Projections of tokens, ``W x + b``: their product by the fastest way, where it is nothing but a product."""

import torch
from torch import Tensor, nn

from synthattn.native import thin
from synthattn.native.library import load
from synthattn.shapes import Float
from synthattn.tracing import traced


def project(projection: nn.Module, x: Float[Tensor, "*axes width"]) -> Float[Tensor, "*axes features"]:
    """``projection(x)``; for a few tokens, as in every step of generation, by a kernel that reads the matrix once."""
    if torch.is_grad_enabled() or not 0 < x.numel() <= thin.MOST_ROWS * x.shape[-1] or not _is_thin(projection, x):
        return projection(x)
    assert isinstance(projection, nn.Linear)
    rows = x.reshape(-1, x.shape[-1]).contiguous()
    return thin.multiply(rows, projection.weight, projection.bias).view(*x.shape[:-1], -1)


def is_watched(module: nn.Module) -> bool:
    """Whether something else wants to see the module being called, by a hook, or does something else in its place."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return any(hooks) or "forward" in module.__dict__


def is_plain_linear(projection: nn.Module) -> bool:
    """False where there is an adapter in its place, or a hook."""
    return type(projection) is nn.Linear and not is_watched(projection)


def _is_thin(projection: nn.Module, x: Tensor) -> bool:
    if not is_plain_linear(projection):
        return False
    weight, bias = projection.weight, projection.bias
    return (
        type(weight) is nn.Parameter
        and type(x) is Tensor
        and (bias is None or (type(bias) is nn.Parameter and bias.dtype == torch.float32 and bias.is_contiguous()))
        and weight.numel() >= thin.LEAST_SIZE
        and weight.dtype == x.dtype == torch.float32
        and weight.device.type == x.device.type == "cpu"
        and weight.is_contiguous()
        and weight.shape[1] == x.shape[-1]  # else torch has words for it
        and not traced(x)
        and not torch.is_autocast_enabled("cpu")
        and load() is not None
    )
