"""Biases that are not written as tables: by distance, in a local window, and as outer products.

They are terms of :class:`synthattn.logits.Logits`. Backends that know their structure compute less.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from synthattn.shapes import Bool, Float, Int
from synthattn.tracing import is_tracing

Weight = Tensor | float  # tensors broadcast against (heads, q, k)


@dataclass(frozen=True)
class ByDistance:
    """A bias that depends only on the distance from query to key: ``values[..., 0, clip(distance, -range, range)]``.

    The values are those of the distances -range, ..., range. The distance is ``j - i - start`` for query i and key j.
    """

    values: Float[Tensor, "heads 1 distances"]
    q: int
    k: int
    start: int = 0
    input_independent = True

    @property
    def range(self) -> int:
        return self.values.shape[-1] // 2

    def times(self, weight: Weight) -> "ByDistance":
        return replace(self, values=self.values * weight)

    def rows(self, examples: slice, rows: slice, end: int) -> "ByDistance":
        return ByDistance(self.values, rows.stop - rows.start, end, self.start + rows.start)

    def between(self, low: int, high: int) -> Float[Tensor, "heads distances"]:
        """Return the values of the distances low, ..., high."""
        values, last = self.values.squeeze(-2), 2 * self.range
        first, end = low + self.range, high + self.range + 1
        before, after = min(max(-first, 0), end - first), min(max(end - last - 1, 0), end - first)
        inner = values[:, max(first, 0) : max(min(end, last + 1), 0)]
        if before == after == 0:
            return inner
        return torch.cat([values[:, :1].expand(-1, before), inner, values[:, -1:].expand(-1, after)], dim=-1)

    def diagonals(self) -> Float[Tensor, "heads diagonals"]:
        """Return the values of all diagonals, from that of the last query and the first key on."""
        return self.between(1 - self.q - self.start, self.k - 1 - self.start)

    def as_tensor(self) -> Float[Tensor, "heads q k"]:
        if is_tracing(self.values):  # a graph with the view below would hold for some lengths only
            i, j = (torch.arange(n, device=self.values.device) for n in (self.q, self.k))
            distance = j - i[:, None] - self.start
            return self.values[:, 0, distance.clamp(-self.range, self.range) + self.range]
        return self.diagonals().unfold(-1, self.k, 1).flip(1)  # row i starts at distance -(start + i)


@dataclass(frozen=True)
class Window:
    """A bias ``values[..., i, c]`` for the key at distance ``c - window // 2`` from query i. Others get no weight."""

    values: Float[Tensor, "batch heads q window"]
    distance: Int[Tensor, "*batch q k"] | None = None  # key position minus query position; None for j - i
    input_independent = False

    def times(self, weight: Weight) -> "Window":
        return replace(self, values=self.values * weight)

    def rows(self, examples: slice, rows: slice, end: int) -> "Window":
        distance = self._distance()[..., rows, :end]
        return Window(self.values[examples, :, rows], distance[examples] if distance.dim() == 3 else distance)

    def as_tensor(self) -> Float[Tensor, "batch heads q k"]:
        """Return one logit per key, with arbitrary finite numbers outside the window."""
        window = self.values.shape[-1]
        entry = (self._distance() + window // 2).clamp(0, window - 1).unsqueeze(-3)
        return self.values.gather(-1, entry.expand(*self.values.shape[:-1], entry.shape[-1]))

    def inside(self) -> Bool[Tensor, "*batch q k"]:
        return self._distance().abs() <= self.values.shape[-1] // 2

    def _distance(self) -> Int[Tensor, "*batch q k"]:
        i = torch.arange(self.values.shape[-2], device=self.values.device)
        return i - i[:, None] if self.distance is None else self.distance


@dataclass(frozen=True)
class OuterProduct:
    """A bias from two vectors per query: ``a[..., i, r] * b[..., i, s]`` is for the key ``j = r * len_b + s``."""

    a: Float[Tensor, "batch heads q len_a"]
    b: Float[Tensor, "batch heads q len_b"]
    key_length: int
    input_independent = False

    def times(self, weight: Weight) -> "OuterProduct":
        return replace(self, a=self.a * weight)

    def rows(self, examples: slice, rows: slice, end: int) -> "OuterProduct":
        return OuterProduct(self.a[examples, :, rows], self.b[examples, :, rows], end)

    def as_tensor(self) -> Float[Tensor, "batch heads q k"]:
        len_b = self.b.shape[-1]
        if is_tracing(self.a):  # a slice would bind the graph to the number of entries of a that are needed
            j = torch.arange(self.key_length, device=self.a.device)
            return self.a.index_select(-1, j // len_b) * self.b.index_select(-1, j % len_b)
        a = self.a[..., : -(-self.key_length // len_b), None]
        return (a * self.b[..., None, :]).flatten(-2)[..., : self.key_length]
