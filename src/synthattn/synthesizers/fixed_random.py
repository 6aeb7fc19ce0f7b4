"""Fixed random: ``B = R`` with R frozen at its random start; the paper's "Fix"."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from synthattn.shapes import Float
from synthattn.synthesizers.random import Random, RandomSynthesizer


class FixedRandomSynthesizer(RandomSynthesizer):
    """``matrix`` is a persistent buffer: saved, loaded and moved with the model, never trained.

    A loader could make a parameter without gradient trainable again.
    """

    name = "fixed_random"

    def register_matrix(self, matrix: Float[Tensor, "heads n n"]) -> None:
        self.register_buffer("matrix", matrix)


@dataclass(frozen=True)
class FixedRandom(Random):
    """Options of the fixed random synthesizer: ``std``, the standard deviation of the entries."""

    name: ClassVar[str] = "fixed_random"
    synthesizer = FixedRandomSynthesizer
