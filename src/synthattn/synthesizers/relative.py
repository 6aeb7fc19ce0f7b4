"""Relative: T5's bias, one learned number per head and bucket of distances (Raffel et al. 2020)."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from synthattn.shapes import Float, Int
from synthattn.synthesizers.base import Sizes
from synthattn.synthesizers.by_distance import DistanceSynthesizer
from synthattn.synthesizers.spec import Term


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


class RelativeSynthesizer(DistanceSynthesizer):
    """``table`` holds the biases. A mixture adds them without a weight, as the authors' code does."""

    name = "relative"
    weighted = False

    def __init__(self, sizes: Sizes, buckets: int, max_distance: int, bidirectional: bool) -> None:
        super().__init__()
        self.buckets, self.max_distance, self.bidirectional = buckets, max_distance, bidirectional
        self.table = nn.Parameter(torch.empty(sizes.num_heads, buckets))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.table)

    def at(self, distance: Int[Tensor, "*axes"]) -> Float[Tensor, "heads *axes"]:
        return self.table[:, bucket(distance, self.buckets, self.max_distance, self.bidirectional)]

    def values(self, largest: int) -> Float[Tensor, "heads distances"]:
        return self.between(self.max_distance, self.table.device)


@dataclass(frozen=True)
class Relative(Term):
    """Options of the relative bias.

    Attributes:
        buckets: the number of buckets.
        distance: the distance beyond which all distances share a bucket.
        bidirectional: false for a decoder, which has no keys after the query.
    """

    name: ClassVar[str] = "relative"
    synthesizer = RelativeSynthesizer
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
