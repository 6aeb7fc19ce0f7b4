"""Toeplitz: ``B_ij = r[clip(j - i)]``, one learned number per distance; the paper's "R" for any length."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from synthattn.shapes import Float, Int
from synthattn.synthesizers.base import Sizes
from synthattn.synthesizers.by_distance import DistanceSynthesizer
from synthattn.synthesizers.spec import Term, positive

LARGEST_RANGE = 2**20


class ToeplitzSynthesizer(DistanceSynthesizer):
    """``table`` holds the logits of the distances -range, ..., range; keys beyond have the logit at the end.

    The entries start as those of random attention, normal with standard deviation ``std``. A layer that was trained on
    short inputs takes long ones: its keys far away share two learned numbers, one before the query and one after it.
    """

    name = "toeplitz"

    def __init__(self, sizes: Sizes, range: int, std: float) -> None:
        super().__init__()
        self.range, self.std = range, std
        self.table = nn.Parameter(torch.empty(sizes.num_heads, 2 * range + 1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.table, std=self.std)

    def at(self, distance: Int[Tensor, "*axes"]) -> Float[Tensor, "heads *axes"]:
        return self.table[:, distance.clamp(-self.range, self.range) + self.range]

    def values(self, largest: int) -> Float[Tensor, "heads distances"]:
        return self.table

    def describe_mismatch(self, saved: Tensor, table: Tensor) -> str | None:
        if len(saved) != len(table) or saved.shape[1] % 2 == 0 or saved.shape == table.shape:
            return None
        range = saved.shape[1] // 2
        built = f"toeplitz was built with range={self.range}; build it as 'toeplitz(range={range})'"
        return f"was saved with range={range}, {built}"


@dataclass(frozen=True)
class Toeplitz(Term):
    """Options of the Toeplitz synthesizer.

    Attributes:
        range: the largest distance with a number of its own, on each side of the query.
        std: the standard deviation of the initial entries.
    """

    name: ClassVar[str] = "toeplitz"
    synthesizer = ToeplitzSynthesizer
    range: int = 128
    std: float = 1.0

    def __post_init__(self) -> None:
        if not 1 <= self.range <= LARGEST_RANGE:
            raise ValueError(f"toeplitz: range must be from 1 to {LARGEST_RANGE}, got {self.range}")
        positive(self.name, "std", self.std)
