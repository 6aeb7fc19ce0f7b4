"""Relative: T5's bias, one learned number per head and bucket of distances (Raffel et al. 2020)."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from synthattn.logits import Bias, Logits
from synthattn.shapes import Float, Int
from synthattn.synthesizers.base import Sizes, Synthesizer, Tokens
from synthattn.synthesizers.spec import Term
from synthattn.tracing import is_tracing


def bucket(
    distance: Int[Tensor, "*axes"], buckets: int, max_distance: int, bidirectional: bool
) -> Int[Tensor, "*axes"]:
    """Return T5's bucket of each distance ``key - query``: one per small distance, then logarithmic ones.

    If ``bidirectional``, half of the buckets are for keys after the query; otherwise such keys share bucket 0.
    """
    offset = torch.zeros_like(distance)
    if bidirectional:
        buckets //= 2
        offset = (distance > 0) * buckets
        distance = distance.abs()
    else:
        distance = (-distance).clamp(min=0)
    exact = buckets // 2
    logarithmic = (distance.clamp(min=1).float() / exact).log() / math.log(max_distance / exact)
    far = (exact + (logarithmic * (buckets - exact)).long()).clamp(max=buckets - 1)
    return offset + torch.where(distance < exact, distance, far)


class RelativeSynthesizer(Synthesizer):
    """``table`` holds the biases. A mixture adds them without a weight, as the authors' code does."""

    name = "relative"
    input_independent = True
    weighted = False

    def __init__(self, sizes: Sizes, buckets: int, max_distance: int, bidirectional: bool) -> None:
        super().__init__()
        self.buckets, self.max_distance, self.bidirectional = buckets, max_distance, bidirectional
        self.table = nn.Parameter(torch.empty(sizes.num_heads, buckets))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.table)

    def forward(self, query: Tokens, memory: Tokens) -> Logits:
        if query.positions is None and memory.positions is None:
            return Logits((Bias(self._diagonals(query.length, memory.length, query.start - memory.start)),))
        distance = memory.resolved_positions().unsqueeze(-2) - query.resolved_positions().unsqueeze(-1)
        bias = self._at(distance)
        return Logits((Bias(bias if bias.dim() == 3 else bias.transpose(0, 1)),))

    def _at(self, distance: Int[Tensor, "*axes"]) -> Float[Tensor, "heads *axes"]:
        return self.table[:, bucket(distance, self.buckets, self.max_distance, self.bidirectional)]

    def _diagonals(self, q: int, k: int, offset: int) -> Float[Tensor, "heads q k"]:
        """Return the bias of queries at offset, offset + 1, ... for keys at 0, 1, ..., looked up once per diagonal."""
        device = self.table.device
        if is_tracing(self.table):  # a graph with the view below would hold for some lengths only
            return self._at(torch.arange(k, device=device) - torch.arange(offset, offset + q, device=device)[:, None])
        biases = self._at(torch.arange(1 - q - offset, k - offset, device=device))
        return biases.unfold(-1, k, 1).flip(1)  # row i starts at distance -(offset + i)


@dataclass(frozen=True)
class Relative(Term):
    """Options of the relative bias.

    Attributes:
        buckets: the number of buckets.
        distance: the distance beyond which all distances share a bucket.
        bidirectional: false for a decoder, which has no keys after the query.
    """

    name: ClassVar[str] = "relative"
    buckets: int = 32
    distance: int = 128
    bidirectional: bool = True

    def __post_init__(self) -> None:
        smallest = 4 if self.bidirectional else 2
        if self.buckets < smallest or self.buckets % smallest:
            raise ValueError(f"relative: buckets must be a multiple of {smallest}, got {self.buckets}")
        exact = self.buckets // smallest
        if self.distance <= exact:
            raise ValueError(
                f"relative: distance must exceed the {exact} distances that have buckets of their own, "
                f"got {self.distance}"
            )

    def build(self, sizes: Sizes) -> RelativeSynthesizer:
        return RelativeSynthesizer(sizes, self.buckets, self.distance, self.bidirectional)
