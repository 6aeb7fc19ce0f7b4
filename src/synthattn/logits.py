"""The one idea: attention logits as a sum of *query features x key features* and *biases*.

Every synthesizer of the paper, the dot product and every mixture has this form. A tensor without a batch axis
(three axes instead of four) does not depend on the input; :mod:`synthattn.attend` exploits that.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from synthattn.shapes import Bool, Float, Int
from synthattn.tracing import is_tracing


@dataclass(frozen=True)
class Features:
    """``scale * query @ key.T``. Kernels apply the scale for free, a pass over the query is not."""

    query: Float[Tensor, "*batch heads q width"]
    key: Float[Tensor, "*key_batch #heads k width"]
    scale: float = 1.0

    @property
    def batch_free(self) -> bool:
        return self.query.dim() == 3 and self.key.dim() == 3

    def scaled(self) -> "Features":
        """The same with the scale applied to the query."""
        return self if self.scale == 1.0 else Features(self.query * self.scale, self.key)

    def product(self) -> Float[Tensor, "*batch heads q k"]:
        return self.scaled().query @ self.key.transpose(-1, -2)

    def times(self, weight: Tensor | float) -> "Features":
        if self.key.dim() == 3:  # learned keys are fewer numbers than the queries of a batch
            return replace(self, key=self.key * weight)
        return Features(self.query * (weight * self.scale), self.key)


@dataclass(frozen=True)
class Band:
    """A bias within a local window: ``values[..., i, c]`` is for the key at distance ``c - width // 2`` from i.

    Keys outside the window are not attended to: that is a matter of the mask, see ``inside``. ``distance`` is key
    position minus query position; ``None`` stands for the plain ``j - i``.
    """

    values: Float[Tensor, "batch heads q width"]
    distance: Int[Tensor, "*batch q k"] | None = None

    @property
    def parts(self) -> tuple[Tensor, ...]:
        return (self.values,)

    @property
    def key_length(self) -> int:
        return self.values.shape[-2] if self.distance is None else self.distance.shape[-1]

    def times(self, weight: Tensor | float) -> "Band":
        return replace(self, values=self.values * weight)

    def with_parts(self, parts: tuple[Tensor, ...], rows: slice, example: int) -> "Band":
        (values,) = parts
        if self.distance is None:
            index = torch.arange(self.key_length, device=values.device)
            return Band(values, index[None, :] - index[rows, None])
        per_example = self.distance.dim() == 3
        return Band(values, self.distance[example : example + 1, rows] if per_example else self.distance[rows])

    def to_bias(self) -> Float[Tensor, "batch heads q k"]:
        """The window written out, with arbitrary finite numbers outside it."""
        width = self.values.shape[-1]
        slot = (self._distance() + width // 2).clamp(0, width - 1).unsqueeze(-3)
        return self.values.gather(-1, slot.expand(*self.values.shape[:-1], slot.shape[-1]))

    def inside(self) -> Bool[Tensor, "*batch q k"]:
        half = self.values.shape[-1] // 2
        return self._distance().abs() <= half

    def _distance(self) -> Tensor:
        if self.distance is not None:
            return self.distance
        index = torch.arange(self.values.shape[-2], device=self.values.device)
        return index[None, :] - index[:, None]


@dataclass(frozen=True)
class Outer:
    """A bias from two short vectors per query: ``a[..., i, p] * b[..., i, q]`` is for key ``j = p * len(b) + q``."""

    a: Float[Tensor, "batch heads q len_a"]
    b: Float[Tensor, "batch heads q len_b"]
    key_length: int

    @property
    def parts(self) -> tuple[Tensor, ...]:
        return self.a, self.b

    def times(self, weight: Tensor | float) -> "Outer":
        return replace(self, a=self.a * weight)

    def with_parts(self, parts: tuple[Tensor, ...], rows: slice, example: int) -> "Outer":
        a, b = parts
        return Outer(a, b, self.key_length)

    def to_bias(self) -> Float[Tensor, "batch heads q k"]:
        if is_tracing(self.a):  # the number of rows of a that are needed would be baked into the graph
            j = torch.arange(self.key_length, device=self.a.device)
            width = self.b.shape[-1]
            return self.a.index_select(-1, j // width) * self.b.index_select(-1, j % width)
        needed = -(-self.key_length // self.b.shape[-1])
        products = self.a[..., :needed, None] * self.b[..., None, :]
        return products.flatten(-2)[..., : self.key_length]


Compact = Band | Outer
"""Biases whose rows are functions of a few numbers per query, their ``parts``; written out only where needed."""


@dataclass(frozen=True)
class Logits:
    """A sum of products of features and of biases, closed under addition and multiplication by a weight.

    Attributes:
        features: the products.
        bias: ``(heads, q, k)`` or ``(batch, heads, q, k)``; the axes for heads and q may be 1.
        compact: biases that are kept in a smaller form.
        weight: what the bias has still to be multiplied with, None for 1. A large table is multiplied block by block,
            while it is in the cache, where an execution path can.
        key_bias: a bias that is the same for all queries, apart from the other, which may be a large table: their sum
            would be another one. ``(heads, 1, k)`` or ``(batch, heads, 1, k)``; the axis for heads may be 1.
    """

    features: tuple[Features, ...] = ()
    bias: Float[Tensor, "*batch heads q k"] | None = None
    compact: tuple[Compact, ...] = ()
    weight: Tensor | float | None = None
    key_bias: Float[Tensor, "*key_batch key_heads 1 k"] | None = None

    @property
    def batch_free(self) -> bool:
        """True if the logits are the same for every example."""
        bias_free = all(bias is None or bias.dim() == 3 for bias in (self.bias, self.key_bias))
        return bias_free and len(self.compact) == 0 and all(f.batch_free for f in self.features)

    @property
    def query_length(self) -> int:
        tensors = [f.query for f in self.features] + [c.parts[0] for c in self.compact]
        tensors += [bias for bias in (self.bias, self.key_bias) if bias is not None]
        return max(t.shape[-2] for t in tensors)

    @property
    def key_length(self) -> int:
        if self.features:
            return self.features[0].key.shape[-2]
        if self.compact:
            return self.compact[0].key_length
        bias = self.key_bias if self.bias is None else self.bias
        assert bias is not None, "logits without any term"
        return bias.shape[-1]

    def times(self, weight: Float[Tensor, "..."] | float) -> "Logits":
        """Scale by a number, or by a tensor that broadcasts against ``(heads, q, k)``.

        A method instead of ``*``: torch.compile takes every product with a tensor for one of tensors.
        """
        return Logits(
            tuple(f.times(weight) for f in self.features),
            self.bias,
            tuple(c.times(weight) for c in self.compact),
            None if self.bias is None else weight if self.weight is None else self.weight * weight,
            None if self.key_bias is None else self.key_bias * weight,
        )

    def weighed(self) -> "Logits":
        """The same with the weight of the bias multiplied out."""
        if self.bias is None or self.weight is None:
            return self
        return replace(self, bias=self.bias * self.weight, weight=None)

    def with_one_bias(self) -> "Logits":
        """The same with the bias of keys in the other one."""
        if self.key_bias is None:
            return self
        bias = self.weighed().bias
        return Logits(self.features, self.key_bias if bias is None else bias + self.key_bias, self.compact)

    @property
    def bias_wants_gradient(self) -> bool:
        parts = (self.bias, self.weight)
        return torch.is_grad_enabled() and any(isinstance(part, Tensor) and part.requires_grad for part in parts)

    def __add__(self, other: "Logits") -> "Logits":
        features, compact = self.features + other.features, self.compact + other.compact
        key_bias = _sum(self.key_bias, other.key_bias)
        if self.bias is None or other.bias is None:
            biased = other if self.bias is None else self
            return Logits(features, biased.bias, compact, biased.weight, key_bias)
        return Logits(features, _sum(self.weighed().bias, other.weighed().bias), compact, key_bias=key_bias)

    def windows(self) -> list[Bool[Tensor, "*batch q k"]]:
        """Where keys must lie to be attended to at all, for each local window."""
        return [c.inside() for c in self.compact if isinstance(c, Band)]

    def total(self) -> Float[Tensor, "#batch heads q k"]:
        """The sum as one tensor, windows not yet applied; the batch axis is 1 where it is batch-free."""
        total = self.summed()
        return total if total.dim() == 4 else total.unsqueeze(0)

    def summed(self) -> Float[Tensor, "*batch heads q k"]:
        """The same without a batch axis where it is batch-free."""
        parts = [f.product() for f in self.features] + [c.to_bias() for c in self.compact]
        bias = self.with_one_bias().weighed().bias
        parts += [] if bias is None else [bias]
        return sum(parts[1:], start=parts[0])

    def with_shared_features_as_bias(self, widest: int = 0) -> "Logits":
        """Batch-free features written out if they are wider: one bias for the batch is cheaper than many columns."""
        wide = [f.batch_free and f.query.shape[-1] > widest for f in self.features]
        if not any(wide):
            return self
        shared = [f.product() for f, is_wide in zip(self.features, wide, strict=True) if is_wide]
        rest = tuple(f for f, is_wide in zip(self.features, wide, strict=True) if not is_wide)
        bias = self.weighed().bias
        shared += [] if bias is None else [bias]
        return Logits(rest, sum(shared[1:], start=shared[0]), self.compact, key_bias=self.key_bias)


def _sum(one: Tensor | None, two: Tensor | None) -> Tensor | None:
    if one is None or two is None:
        return two if one is None else one
    return one + two
