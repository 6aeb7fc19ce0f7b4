"""Projections of queries and keys that nothing reads: modules that stand in for them."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def _zeros(x: Tensor, width: int) -> Tensor:
    """Return zeros of the dtype that a projection would have, without memory of their own."""
    kind = x.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
    return x.new_zeros((), dtype=dtype).expand(*x.shape[:-1], width)


class NoProjection(nn.Module):
    """Zeros in place of queries or keys that nothing reads. It has no parameters and takes no time.

    ``weight`` is an empty tensor, because T5 initialises the weight of every projection by name.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.out_features = width

    @property
    def weight(self) -> Tensor:
        return torch.empty(0)

    def forward(self, x: Tensor) -> Tensor:
        return _zeros(x, self.out_features)

    def extra_repr(self) -> str:
        return f"out_features={self.out_features}"


class FusedValues(nn.Module):
    """The last third of a projection to queries, keys and values; zeros stand for the other two thirds.

    Args:
        weight: the part of the fused weight that makes the values.
        bias: the part of the fused bias that makes the values.
        transposed: the weight has the axes (in, out), as in GPT-2.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, transposed: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.detach().clone())
        self.bias = None if bias is None else nn.Parameter(bias.detach().clone())
        self.transposed = transposed

    def forward(self, x: Tensor) -> Tensor:
        values = F.linear(x, self.weight.mT if self.transposed else self.weight, self.bias)
        return torch.cat([_zeros(x, 2 * values.shape[-1]).to(values.dtype), values], dim=-1)

    def extra_repr(self) -> str:
        return f"shape={tuple(self.weight.shape)}"


def cut_fused(projection: nn.Module) -> FusedValues:
    """Return the part of a fused projection that makes the values."""
    weight, bias = values_part(projection)
    assert weight is not None
    values = FusedValues(weight, bias, not isinstance(projection, nn.Linear))
    return values.requires_grad_(any(parameter.requires_grad for parameter in projection.parameters()))


def values_part(projection: nn.Module) -> tuple[Tensor | None, Tensor | None]:
    """Return views of the weight and the bias of a fused projection that make the values."""
    weight, bias = projection.weight, projection.bias
    assert isinstance(weight, Tensor)
    part = weight.chunk(3, dim=0 if isinstance(projection, nn.Linear) else 1)[2]
    return part, bias.chunk(3)[2] if isinstance(bias, Tensor) else None
