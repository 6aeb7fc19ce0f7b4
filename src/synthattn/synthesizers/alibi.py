"""ALiBi: ``B_ij = -m |j - i|`` with a fixed slope m for each head (Press et al. 2022)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from synthattn.shapes import Float, Int
from synthattn.synthesizers.base import Sizes
from synthattn.synthesizers.by_distance import DistanceSynthesizer
from synthattn.synthesizers.spec import Term


def slopes_of(heads: int) -> list[float]:
    """Return the slopes of the paper: a geometric sequence from 2^(-8 / heads) to 2^-8.

    Where the number of heads is no power of two, the heads beyond the power below it take every other slope of
    the power above.
    """
    power = 2 ** (heads.bit_length() - 1)
    slopes = [2.0 ** (-8 * (n + 1) / power) for n in range(power)]
    return slopes + [2.0 ** (-4 * (2 * n + 1) / power) for n in range(heads - power)]


class AlibiSynthesizer(DistanceSynthesizer):
    """``slopes`` is a persistent buffer. A mixture adds the biases without a weight, as position biases are."""

    name = "alibi"
    weighted = False
    slopes: Tensor

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.register_buffer("slopes", torch.tensor(slopes_of(sizes.num_heads)))

    def at(self, distance: Int[Tensor, "*axes"]) -> Float[Tensor, "heads *axes"]:
        return -self.slopes.view(-1, *(1 for _ in distance.shape)) * distance.abs()

    def values(self, largest: int) -> Float[Tensor, "heads distances"]:
        return self.between(largest, self.slopes.device)


@dataclass(frozen=True)
class Alibi(Term):
    """ALiBi has no options."""

    name: ClassVar[str] = "alibi"
    synthesizer = AlibiSynthesizer
