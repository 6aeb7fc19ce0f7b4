"""The one idea: attention logits as a sum of *query features x key features* and a *bias*.

Every synthesizer of the paper, the dot product and every mixture has this form. A tensor without a batch axis
(three axes instead of four) does not depend on the input; :mod:`synthattn.attend` exploits that.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from synthattn.shapes import Float, Int


@dataclass(frozen=True)
class Band:
    """Logits of a local window: ``values[..., i, c]`` belongs to the key at distance ``c - width // 2`` from i.

    ``distance`` is key position minus query position; ``None`` stands for the plain ``j - i``.
    """

    values: Float[Tensor, "batch heads q width"]
    distance: Int[Tensor, "*batch q k"] | None = None

    def to_bias(self) -> Float[Tensor, "batch heads q k"]:
        """Scatter the window into the full row; keys outside get minus infinity."""
        length, width = self.values.shape[-2:]
        distance = self.distance
        if distance is None:
            index = torch.arange(length, device=self.values.device)
            distance = index[None, :] - index[:, None]
        slot = (distance + width // 2).unsqueeze(-3)
        inside = (slot >= 0) & (slot < width)
        slot = slot.clamp(0, width - 1).expand(*self.values.shape[:-1], slot.shape[-1])
        return self.values.gather(-1, slot).masked_fill(~inside, float("-inf"))


@dataclass(frozen=True)
class Logits:
    """``scale * query @ key.T + bias`` (+ ``band``), closed under addition and multiplication by a weight.

    Attributes:
        query, key: features, ``(heads, length, features)`` or with a batch axis in front.
        bias: ``(heads, q, k)`` or ``(batch, heads, q, k)``; the axes for heads and q may be 1.
        band: a local window, kept apart from ``bias`` as long as nothing else is added to it.
        scale: a factor of the product of features; kernels apply it for free, a pass over the query is not.
    """

    query: Float[Tensor, "*batch heads q features"] | None = None
    key: Float[Tensor, "*key_batch #heads k features"] | None = None
    bias: Float[Tensor, "*bias_batch #heads #q k"] | None = None
    band: Band | None = None
    scale: float = 1.0

    @property
    def batch_free(self) -> bool:
        """True if the logits are the same for every example."""
        tensors = [t for t in (self.query, self.key, self.bias) if t is not None]
        return self.band is None and all(t.dim() == 3 for t in tensors)

    @property
    def query_length(self) -> int:
        if self.band is not None:
            return self.band.values.shape[-2]
        tensor = self.bias if self.query is None else self.query
        assert tensor is not None, "logits without any term"
        return tensor.shape[-2]

    @property
    def key_length(self) -> int:
        if self.band is not None:
            return self.query_length if self.band.distance is None else self.band.distance.shape[-1]
        if self.key is not None:
            return self.key.shape[-2]
        assert self.bias is not None, "logits without any term"
        return self.bias.shape[-1]

    def __mul__(self, weight: Float[Tensor, "..."] | float) -> "Logits":
        """Scale by a number, or by a tensor that broadcasts against ``(heads, q, k)``."""
        return Logits(
            query=None if self.query is None else self.query * (weight * self.scale),
            key=self.key,
            bias=None if self.bias is None else self.bias * weight,
            band=None if self.band is None else replace(self.band, values=self.band.values * weight),
        )

    __rmul__ = __mul__

    def __add__(self, other: "Logits") -> "Logits":
        left, right = self, other
        if left.band is not None or right.band is not None:
            left, right = left.without_band(), right.without_band()
        if left.batch_free != right.batch_free:
            # Batch-free features are cheaper as a bias shared by all examples than as more columns in each.
            left, right = left._folded_if_batch_free(), right._folded_if_batch_free()
        if left.query is None or right.query is None:
            features = right if left.query is None else left
        else:
            features = _concatenate(left * 1.0, right * 1.0)
        biases = [b for b in (left.bias, right.bias) if b is not None]
        bias = sum(biases[1:], start=biases[0]) if biases else None
        return replace(features, bias=bias)

    def materialize(self) -> Float[Tensor, "#batch heads q k"]:
        """The logits as one tensor; the batch axis is 1 where they are batch-free."""
        total = self.without_band()._folded().bias
        assert total is not None, "logits without any term"
        return total if total.dim() == 4 else total.unsqueeze(0)

    def _folded(self) -> "Logits":
        if self.query is None or self.key is None:
            return self
        query = self.query if self.scale == 1.0 else self.query * self.scale
        product = query @ self.key.transpose(-1, -2)
        return Logits(bias=product if self.bias is None else product + self.bias)

    def _folded_if_batch_free(self) -> "Logits":
        return self._folded() if self.batch_free else self

    def without_band(self) -> "Logits":
        if self.band is None:
            return self
        bias = self.band.to_bias()
        return replace(self, bias=bias if self.bias is None else self.bias + bias, band=None)


def _concatenate(left: Logits, right: Logits) -> Logits:
    """Features side by side: their product is then the sum of the two products."""
    assert left.query is not None
    assert left.key is not None
    assert right.query is not None
    assert right.key is not None
    query = torch.cat([left.query, right.query], dim=-1)
    keys = [key.expand(*query.shape[:-2], *key.shape[-2:]) for key in (left.key, right.key)]
    return Logits(query, torch.cat(keys, dim=-1))
