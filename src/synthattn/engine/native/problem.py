"""The arguments of the attention kernel, written once: operators, checks, fakes and gradients take them from here."""

from typing import NamedTuple, get_type_hints

from torch import Tensor


class Problem(NamedTuple):
    """``dropout(softmax(sum_n scale_n Q_n K_n^T + weight * bias + diagonals)) V``.

    Attributes:
        value: V, with the axes batch, heads, keys, width.
        bias: a table, whose axes but the last may be 1, and the first missing.
        weight: of the bias, one for all heads or for each, in three axes; 1 if None.
        diagonals: for each head, a logit for each difference of key and query, ``1 - q, ..., keys - 1``.
        queries: Q_n for each product.
        keys: K_n for each product.
        scales: scale_n for each product.
        ends: the first key of each example and the one after its last, or None for all keys.
        q: the number of queries.
        causal: query i sees the keys 0..i.
        dropout: the probability of dropping a weight.
        seed: of the random numbers of dropout.
    """

    value: Tensor
    bias: Tensor | None
    weight: Tensor | None
    diagonals: Tensor | None
    queries: list[Tensor]
    keys: list[Tensor]
    scales: list[float]
    ends: Tensor | None
    q: int
    causal: bool
    dropout: float
    seed: int

    @property
    def tensors(self) -> list[Tensor | None]:
        """The tensors that may have gradients: value, bias, weight, diagonals, queries, keys."""
        return [self.value, self.bias, self.weight, self.diagonals, *self.queries, *self.keys]

    def with_tensors(self, tensors: "list[Tensor | None]") -> "Problem":
        """Return the same problem for other tensors, in the order of ``tensors``."""
        (value, bias, weight, diagonals, *features), n = tensors, len(self.scales)
        named = {"value": value, "bias": bias, "weight": weight, "diagonals": diagonals}
        return self._replace(**named, queries=features[:n], keys=features[n:])


_SCHEMA_TYPES = {
    Tensor: "Tensor",
    Tensor | None: "Tensor?",
    list[Tensor]: "Tensor[]",
    list[float]: "float[]",
    int: "int",
    bool: "bool",
    float: "float",
}
SCHEMA = ", ".join(f"{_SCHEMA_TYPES[kind]} {name}" for name, kind in get_type_hints(Problem).items())
"""The fields as arguments in the schema of an operator of torch."""
