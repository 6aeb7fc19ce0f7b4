"""Random: ``B = R``, a learned matrix per head and layer that reads no token; the paper's "R"."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from synthattn.logits import Bias, Logits
from synthattn.shapes import Float
from synthattn.synthesizers.base import Resize, Sizes, Synthesizer, Tokens
from synthattn.synthesizers.spec import Term, positive
from synthattn.synthesizers.tables import entries_at, resize_matrix


class RandomSynthesizer(Synthesizer):
    """``matrix`` is R. Its entries start normal with standard deviation ``std``.

    The paper does not give its initial distribution. The authors' Mesh code uses 0.0027 (an accident of an
    initialiser that expects two axes), which starts from plain averaging; ``random(std=0.0027)`` gives that.
    """

    name = "random"
    input_independent = True
    matrix: Tensor

    def __init__(self, sizes: Sizes, std: float) -> None:
        super().__init__()
        self.std = std
        self.max_length = sizes.require_max_length(self.name)
        self.register_matrix(torch.empty(sizes.num_heads, self.max_length, self.max_length))
        self.reset_parameters()

    def register_matrix(self, matrix: Float[Tensor, "heads n n"]) -> None:
        """Make R a parameter of this module."""
        self.matrix = nn.Parameter(matrix)

    def reset_parameters(self) -> None:
        nn.init.normal_(self.matrix, std=self.std)

    def forward(self, query: Tokens, memory: Tokens) -> Logits:
        self.check_lengths(query, memory)
        return Logits((Bias(entries_at(self.matrix, query, memory)),))

    def resize_max_length(self, max_length: int, how: Resize) -> None:
        self.matrix = resize_matrix(self.matrix, max_length, how, self.std)
        self.max_length = max_length


@dataclass(frozen=True)
class Random(Term):
    """Options of the random synthesizer: ``std``, the standard deviation of the initial entries."""

    name: ClassVar[str] = "random"
    synthesizer = RandomSynthesizer
    std: float = 1.0

    def __post_init__(self) -> None:
        positive(self.name, "std", self.std)
