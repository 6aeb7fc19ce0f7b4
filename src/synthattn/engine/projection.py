"""Projections of tokens, ``W x + b``: their product by the fastest way, where it is nothing but a product."""

from torch import Tensor, nn
from torch.nn.modules.module import (
    _global_backward_hooks,
    _global_backward_pre_hooks,
    _global_forward_hooks,
    _global_forward_pre_hooks,
)

from synthattn.engine.native import thin
from synthattn.shapes import Float


def project(projection: nn.Module, x: Float[Tensor, "*axes width"]) -> Float[Tensor, "*axes features"]:
    """Return ``projection(x)``; for a few tokens, as in every step of generation, by a kernel that reads W once."""
    if not is_plain_linear(projection):
        return projection(x)
    # Not by their names, which takes longer, and there are some forty products for each token.
    weight, bias = projection._parameters["weight"], projection._parameters["bias"]
    made = None if weight is None else thin.product(x, weight, bias)
    return projection(x) if made is None else made


def is_watched(module: nn.Module) -> bool:
    """Return True if calling the module does more than its forward pass, or something else in its place.

    That is so where it has a hook, or all modules have one, or its ``forward`` was replaced.
    """
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or _global_forward_hooks
        or _global_forward_pre_hooks
        or _global_backward_hooks
        or _global_backward_pre_hooks
        or "forward" in module.__dict__
    )


def is_plain_linear(projection: nn.Module) -> bool:
    """Return True if the projection is nothing but a matrix product: no adapter, no hook."""
    return type(projection) is nn.Linear and not is_watched(projection)
