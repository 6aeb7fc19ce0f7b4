"""The paper's sum: attention logits as a tuple of terms that are added up.

Every synthesizer of the paper, the dot product and every mixture of them is such a sum. A term whose tensors have no
batch axis (three axes in place of four) does not depend on the input; :mod:`synthattn.attend` makes use of that.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from synthattn.shapes import Bool, Float, Int
from synthattn.tracing import is_tracing

Weight = Tensor | float  # a tensor broadcasts against (heads, q, k)


@dataclass(frozen=True)
class Product:
    """``scale * query @ key.T``: the dot product, learned keys, or factors of a table."""

    query: Float[Tensor, "*batch heads q width"]
    key: Float[Tensor, "*key_batch #heads k width"]
    scale: float = 1.0

    @property
    def input_independent(self) -> bool:
        return self.query.dim() == 3 and self.key.dim() == 3

    def times(self, weight: Weight) -> "Product":
        if self.key.dim() == 3:  # learned keys are fewer numbers than the queries of a batch
            return replace(self, key=self.key * weight)
        return Product(self.query * (weight * self.scale), self.key)

    def rows(self, examples: slice, rows: slice, end: int) -> "Product":
        query, key = _examples(self.query, examples), _examples(self.key, examples)
        return Product(query[..., rows, :], key[..., :end, :], self.scale)

    def dense(self) -> Float[Tensor, "*batch heads q k"]:
        return (self.query if self.scale == 1.0 else self.query * self.scale) @ self.key.mT


@dataclass(frozen=True)
class Bias:
    """``weight * table``. The axes for heads and queries may be 1. Backends apply the weight block by block."""

    table: Float[Tensor, "*batch heads q k"]
    weight: Weight | None = None

    @property
    def input_independent(self) -> bool:
        return self.table.dim() == 3

    def times(self, weight: Weight) -> "Bias":
        return Bias(self.table, weight if self.weight is None else self.weight * weight)

    def rows(self, examples: slice, rows: slice, end: int) -> "Bias":
        table = _examples(self.table, examples)
        return Bias((table if table.shape[-2] == 1 else table[..., rows, :])[..., :end], self.weight)

    def dense(self) -> Float[Tensor, "*batch #heads #q k"]:
        return self.table if self.weight is None else self.table * self.weight


@dataclass(frozen=True)
class Window:
    """A bias inside a local window: ``values[..., i, c]`` is for the key at distance ``c - width // 2`` from query i.

    Keys outside the window are not attended to, see ``inside``. ``distance`` is the position of the key minus that of
    the query; ``None`` stands for ``j - i``.
    """

    values: Float[Tensor, "batch heads q width"]
    distance: Int[Tensor, "*batch q k"] | None = None
    input_independent = False

    def times(self, weight: Weight) -> "Window":
        return replace(self, values=self.values * weight)

    def rows(self, examples: slice, rows: slice, end: int) -> "Window":
        distance = self._distance()[..., rows, :end]
        return Window(self.values[examples, :, rows], distance[examples] if distance.dim() == 3 else distance)

    def dense(self) -> Float[Tensor, "batch heads q k"]:
        """Return one logit per key, with arbitrary finite numbers outside the window."""
        width = self.values.shape[-1]
        slot = (self._distance() + width // 2).clamp(0, width - 1).unsqueeze(-3)
        return self.values.gather(-1, slot.expand(*self.values.shape[:-1], slot.shape[-1]))

    def inside(self) -> Bool[Tensor, "*batch q k"]:
        return self._distance().abs() <= self.values.shape[-1] // 2

    def _distance(self) -> Int[Tensor, "*batch q k"]:
        i = torch.arange(self.values.shape[-2], device=self.values.device)
        return i - i[:, None] if self.distance is None else self.distance


@dataclass(frozen=True)
class OuterProduct:
    """A bias from two short vectors per query: ``a[..., i, p] * b[..., i, q]`` is for key ``j = p * len(b) + q``."""

    a: Float[Tensor, "batch heads q len_a"]
    b: Float[Tensor, "batch heads q len_b"]
    key_length: int
    input_independent = False

    def times(self, weight: Weight) -> "OuterProduct":
        return replace(self, a=self.a * weight)

    def rows(self, examples: slice, rows: slice, end: int) -> "OuterProduct":
        return OuterProduct(self.a[examples, :, rows], self.b[examples, :, rows], end)

    def dense(self) -> Float[Tensor, "batch heads q k"]:
        width = self.b.shape[-1]
        if is_tracing(self.a):  # a slice would bind the graph to the number of entries of a that are needed
            j = torch.arange(self.key_length, device=self.a.device)
            return self.a.index_select(-1, j // width) * self.b.index_select(-1, j % width)
        a = self.a[..., : -(-self.key_length // width), None]
        return (a * self.b[..., None, :]).flatten(-2)[..., : self.key_length]


LogitTerm = Product | Bias | Window | OuterProduct


@dataclass(frozen=True)
class Logits:
    """A sum of terms, closed under addition and multiplication by a weight."""

    terms: tuple[LogitTerm, ...]

    def __add__(self, other: "Logits") -> "Logits":
        return Logits(self.terms + other.terms)

    def times(self, weight: Weight) -> "Logits":
        """Multiply by a weight. A method in place of ``*``, which torch.compile takes for a product of tensors."""
        return Logits(tuple(term.times(weight) for term in self.terms))

    @property
    def input_independent(self) -> bool:
        """True if the logits are the same for every example."""
        return all(term.input_independent for term in self.terms)

    @property
    def query_length(self) -> int:
        # The first field of every term has the queries on its last axis but one.
        return max(next(iter(vars(term).values())).shape[-2] for term in self.terms)

    def windows(self) -> list[Bool[Tensor, "*batch q k"]]:
        """Return where keys must lie to be attended to at all, for each local window."""
        return [term.inside() for term in self.terms if isinstance(term, Window)]

    def dense(self) -> Float[Tensor, "*batch heads q k"]:
        """Return the sum as one tensor, windows not yet applied; without a batch axis where it is input-independent."""
        first, *rest = (term.dense() for term in self.terms)
        return sum(rest, start=first)


def _examples(tensor: Tensor, examples: slice) -> Tensor:
    return tensor[examples] if tensor.dim() == 4 and tensor.shape[0] > 1 else tensor
