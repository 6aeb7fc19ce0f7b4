"""Attention logits as a sum of terms. Terms without a batch axis do not depend on the input.

A term is a product, a table, or one of :mod:`synthattn.structured_biases`. All have the methods of :class:`Product`.
"""

from dataclasses import dataclass, replace

from torch import Tensor

from synthattn.shapes import Bool, Float
from synthattn.structured_biases import ByDistance, OuterProduct, Weight, Window


@dataclass(frozen=True)
class Product:
    """The product ``scale * query @ key.T``: a dot product, learned keys, or factors of a table."""

    query: Float[Tensor, "*batch heads q width"]
    key: Float[Tensor, "*key_batch #heads k width"]
    scale: float = 1.0

    @property
    def input_independent(self) -> bool:
        """True if the term is the same for every example."""
        return self.query.dim() == 3 and self.key.dim() == 3

    def times(self, weight: Weight) -> "Product":
        """Return the term times a weight."""
        if self.key.dim() == 3:  # learned keys have fewer entries than the queries of a batch
            return replace(self, key=self.key * weight)
        return Product(self.query * (weight * self.scale), self.key)

    def rows(self, examples: slice, rows: slice, end: int) -> "Product":
        """Return the logits of some queries of some examples for the keys before ``end``."""
        query, key = _examples(self.query, examples), _examples(self.key, examples)
        return Product(query[..., rows, :], key[..., :end, :], self.scale)

    def as_tensor(self) -> Float[Tensor, "*batch heads q k"]:
        """Return the logits of every query for every key."""
        return (self.query if self.scale == 1.0 else self.query * self.scale) @ self.key.mT


@dataclass(frozen=True)
class Bias:
    """The product ``weight * table``, which backends compute block by block. The axes heads and q may be 1."""

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

    def as_tensor(self) -> Float[Tensor, "*batch #heads #q k"]:
        return self.table if self.weight is None else self.table * self.weight


LogitTerm = Product | Bias | ByDistance | Window | OuterProduct


@dataclass(frozen=True)
class Logits:
    """A sum of terms, closed under addition and multiplication by a weight."""

    terms: tuple[LogitTerm, ...]

    def __add__(self, other: "Logits") -> "Logits":
        return Logits(self.terms + other.terms)

    def times(self, weight: Weight) -> "Logits":
        """Multiply by a weight. torch.compile would take the operator ``*`` for a product of tensors."""
        return Logits(tuple(term.times(weight) for term in self.terms))

    @property
    def input_independent(self) -> bool:
        return all(term.input_independent for term in self.terms)

    @property
    def query_length(self) -> int:
        return max(term.q if isinstance(term, ByDistance) else _first(term).shape[-2] for term in self.terms)

    def windows(self) -> list[Bool[Tensor, "*batch q k"]]:
        """Return True for the keys inside each local window."""
        return [term.inside() for term in self.terms if isinstance(term, Window)]

    def as_tensor(self) -> Float[Tensor, "*batch heads q k"]:
        """Return the sum as one tensor. Local windows are not applied; input-independent logits have no batch axis."""
        return sum((term.as_tensor() for term in self.terms[1:]), start=self.terms[0].as_tensor())


def _first(term: LogitTerm) -> Tensor:
    return next(iter(vars(term).values()))


def _examples(tensor: Tensor, examples: slice) -> Tensor:
    return tensor[examples] if tensor.dim() == 4 and tensor.shape[0] > 1 else tensor


__all__ = ["Bias", "ByDistance", "LogitTerm", "Logits", "OuterProduct", "Product", "Weight", "Window"]
