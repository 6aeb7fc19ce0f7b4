"""Fixed random: ``B = R`` with R frozen at its random start, the paper's "Fix"."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from synthattn.logits import Bias, Logits
from synthattn.synthesizers.base import Resize, Sizes, Synthesizer, Tokens
from synthattn.synthesizers.random import read_matrix, resize_matrix
from synthattn.synthesizers.spec import Term, positive


class FixedRandomSynthesizer(Synthesizer):
    """R is a persistent buffer: saved, loaded and moved with the model, never trained.

    A parameter that wants no gradient would do the same until a loader makes it trainable again.
    """

    name = "fixed_random"
    input_independent = True
    matrix: Tensor

    def __init__(self, sizes: Sizes, std: float) -> None:
        super().__init__()
        self.std = std
        self.max_length = sizes.require_max_length(self.name)
        self.register_buffer("matrix", torch.empty(sizes.num_heads, self.max_length, self.max_length))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        torch.nn.init.normal_(self.matrix, std=self.std)

    def forward(self, query: Tokens, memory: Tokens) -> Logits:
        self.check_lengths(query, memory)
        return Logits((Bias(read_matrix(self.matrix, query, memory)),))

    def resize_max_length(self, max_length: int, how: Resize) -> None:
        self.matrix = resize_matrix(self.matrix, max_length, how, self.std).contiguous()
        self.max_length = max_length


@dataclass(frozen=True)
class FixedRandom(Term):
    """Options: ``std``, the standard deviation of the entries."""

    name: ClassVar[str] = "fixed_random"
    std: float = 1.0

    def __post_init__(self) -> None:
        positive(self.name, "std", self.std)

    def build(self, sizes: Sizes) -> FixedRandomSynthesizer:
        return FixedRandomSynthesizer(sizes, self.std)
