"""Projections of tokens, ``W x + b``: their product by the fastest way, where it is nothing but a product."""

from torch import Tensor, nn

from synthattn.native import thin
from synthattn.shapes import Float


def project(projection: nn.Module, x: Float[Tensor, "*axes width"]) -> Float[Tensor, "*axes features"]:
    """``projection(x)``; for a few tokens, as in every step of generation, by a kernel that reads the matrix once."""
    if not is_plain_linear(projection):
        return projection(x)
    # Not by their names, which takes longer, and there are some forty products for each token.
    weight, bias = projection._parameters["weight"], projection._parameters["bias"]
    if weight is None or not thin.takes(x, weight, bias) or not _is_thin(x, weight):
        return projection(x)
    return (thin.THIN_PRODUCT if thin.watched() else thin.thin_product)(x, weight, bias)


def _is_thin(x: Tensor, weight: Tensor) -> bool:
    columns, width = weight.shape
    # Where the widths differ, torch has words for it.
    return x.shape[-1] == width and x.numel() <= thin.MOST_ROWS * width and columns * width >= thin.LEAST_SIZE


def is_watched(module: nn.Module) -> bool:
    """Whether something else wants to see the module being called, by a hook, or does something else in its place."""
    hooked = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    return bool(hooked) or "forward" in module.__dict__


def is_plain_linear(projection: nn.Module) -> bool:
    """False where there is an adapter in its place, or a hook."""
    return type(projection) is nn.Linear and not is_watched(projection)
