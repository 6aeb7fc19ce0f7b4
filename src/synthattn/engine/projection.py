"""Projections of tokens, ``W x + b``, in the memory order and by the product that suits the reader."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.module import (
    _global_backward_hooks,
    _global_backward_pre_hooks,
    _global_forward_hooks,
    _global_forward_pre_hooks,
)

from synthattn.engine import products
from synthattn.engine.native import thin
from synthattn.shapes import Float
from synthattn.tracing import is_tracing


def project(projection: nn.Module, x: Float[Tensor, "*axes width"]) -> Float[Tensor, "*axes features"]:
    """Return ``projection(x)``; for a few tokens, as in every step of generation, by a kernel that reads W once."""
    if not is_plain_linear(projection):
        return projection(x)
    # Reading _parameters is faster than attribute access, and there are some forty products for each token.
    weight, bias = projection._parameters["weight"], projection._parameters["bias"]
    result = None if weight is None else thin.product(x, weight, bias)
    if result is None and weight is not None:
        result = products.linear(x, weight, bias)
    return projection(x) if result is None else result


def project_scaled(
    projection: nn.Module, x: Float[Tensor, "batch length d_model"], factors: Float[Tensor, "*heads"], heads: int
) -> Float[Tensor, "batch length inner"] | None:
    """Return ``projection(x)`` with each head's features multiplied by a factor, at the cost of ``projection(x)``.

    The factors are multiplied into W. Returns None where that would change what a hook sees, or where W has more rows
    than there are tokens.
    """
    few = not is_tracing(x) and x.shape[0] * x.shape[1] < x.shape[2]
    if few or not is_plain_linear(projection):
        return None
    assert isinstance(projection, nn.Linear)
    rows = factors.expand(heads, 1, 1).repeat_interleave(projection.out_features // heads, 0).view(-1)
    bias = None if projection.bias is None else projection.bias * rows
    weight = projection.weight * rows[:, None]
    result = products.linear(x, weight, bias)
    return F.linear(x, weight, bias) if result is None else result


def split_heads(vectors: Float[Tensor, "batch length inner"], heads: int) -> Float[Tensor, "batch heads length dim"]:
    return vectors.reshape(vectors.shape[0], vectors.shape[1], heads, -1).transpose(1, 2)


class LazyValues:
    """The values of an attention, projected when a backend asks, in the memory order that it asks for.

    Args:
        source: the tokens, or values that were projected before, ``(batch, heads, k, width)``.
        projection: projects the tokens; None where ``source`` holds values.
        heads: the number of heads.
        width: the width of a head.
    """

    def __init__(self, source: Tensor, projection: nn.Module | None, heads: int, width: int) -> None:
        self.source, self.projection = source, projection
        self.shape = (source.shape[0], heads, source.shape[1 if projection is not None else 2], width)
        self.device = source.device
        self._values = None if projection is not None else source

    @property
    def dtype(self) -> torch.dtype:
        if self._values is None and is_transposable(self.projection, self.source):
            return self.source.dtype
        return self.batch_major().dtype

    def batch_major(self) -> Float[Tensor, "batch heads k width"]:
        """Return the values with the axes batch, heads, k, width, in any memory order."""
        if self._values is None:
            assert self.projection is not None
            self._values = split_heads(project(self.projection, self.source), self.shape[1])
        return self._values

    def feature_major(self) -> Float[Tensor, "heads features k"]:
        """Return the values feature by feature, copied where a hook or a cache forbids to project them so."""
        if self._values is None and is_transposable(self.projection, self.source):
            assert isinstance(self.projection, nn.Linear)
            self._values = _transposed_projection(self.projection, self.source, self.shape[1])
        return self.batch_major().permute(1, 3, 0, 2).flatten(1, 2)


def merge_heads(heads: Float[Tensor, "batch heads q width"], projection: nn.Module) -> Float[Tensor, "batch q d_model"]:
    """Concatenate the heads of each token and project them. Reads either memory order without a copy."""
    features = as_feature_major(heads) if is_transposable(projection, heads) else None
    if features is None:
        return project(projection, heads.transpose(1, 2).flatten(2))
    assert isinstance(projection, nn.Linear)
    tokens, weight = features.reshape(projection.in_features, -1).t(), projection.weight
    return products.multiply(tokens, weight.t(), projection.bias).view(heads.shape[0], heads.shape[2], -1)


def as_feature_major(heads: Float[Tensor, "batch heads k width"]) -> Float[Tensor, "heads features k"] | None:
    """Return a feature-major view of a batch-major tensor, or None where memory is in another order.

    The transposed product of a projection makes this order, and the product with the weights keeps it, so that nothing
    is copied between two projections.
    """
    if heads.shape[-2] == 1 or heads.shape[-1] == 1:  # both orders are one
        return None
    features = heads.permute(1, 3, 0, 2)
    return features.flatten(1, 2) if features.is_contiguous() else None


def _transposed_projection(projection: nn.Linear, tokens: Tensor, heads: int) -> Float[Tensor, "batch heads k width"]:
    """Return ``W X^T + b``, whose memory is feature-major."""
    weight, bias, (batch, k, _) = projection.weight, projection.bias, tokens.shape
    columns, pooled = tokens.flatten(0, 1).t(), not needs_grad(tokens, *projection.parameters())
    result = products.multiply(weight, columns, None if bias is None else bias[:, None], pooled=pooled)
    return result.view(heads, -1, batch, k).permute(2, 0, 3, 1)


def needs_grad(*tensors: Tensor | None) -> bool:
    """Return True if autograd records what is computed from these tensors."""
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def is_transposable(projection: nn.Module | None, tensor: Tensor) -> bool:
    """Return True if the projection is nothing but a product, which may as well be computed transposed."""
    return (
        not is_tracing(tensor)
        and is_plain_linear(projection)
        and tensor.device.type == "cpu"
        and tensor.dtype == projection.weight.dtype  # pyright: ignore[reportOptionalMemberAccess]
        and tensor.numel() > 0
        and not torch.is_autocast_enabled("cpu")
    )


def is_watched(module: nn.Module) -> bool:
    """Return True if a call of the module does more than its forward pass, or something else in its place.

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


def is_plain_linear(projection: nn.Module | None) -> bool:
    """Return True if the projection is nothing but a matrix product: no adapter, no hook."""
    return type(projection) is nn.Linear and not is_watched(projection)
