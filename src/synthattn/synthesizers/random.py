"""Random: ``B = R``, a learned matrix per head and layer that looks at no token, the paper's "R"."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from synthattn.logits import Bias, Logits
from synthattn.shapes import Float
from synthattn.synthesizers.base import Resize, Sizes, Synthesizer, Tokens, slice_at_tokens, replace_parameter, resized
from synthattn.synthesizers.spec import Term, positive


def read_matrix(matrix: Float[Tensor, "heads n n"], query: Tokens, memory: Tokens) -> Float[Tensor, "*batch heads q k"]:
    """The entries of R at the positions of queries and keys; a rectangle where these follow each other."""
    if query.positions is None and memory.positions is None:
        return slice_at_tokens(slice_at_tokens(matrix, 1, query), 2, memory)
    rows, columns = query.resolved_positions(), memory.resolved_positions()
    entries = matrix[:, rows.unsqueeze(-1), columns.unsqueeze(-2)]
    return entries if entries.dim() == 3 else entries.transpose(0, 1)


def resize_matrix(matrix: Tensor, max_length: int, how: Resize, std: float) -> Tensor:
    """R for another length: its corner with new entries around it, or R stretched in both directions."""
    heads, old, _ = matrix.shape
    size = max(old, max_length)
    fresh = matrix.new_empty(heads, size, size).normal_(std=std)
    rows = resized(matrix, max_length, how, fresh[:, :max_length, :old])
    return resized(rows.mT, max_length, how, fresh[:, :max_length, :max_length].mT).mT


class RandomSynthesizer(Synthesizer):
    """R starts normal with standard deviation ``std``.

    The paper does not give its initial distribution. The authors' Mesh code uses 0.0027 (an accident of an
    initialiser that expects two axes), which starts from plain averaging; ``random(std=0.0027)`` gives that.
    """

    name = "random"
    input_independent = True

    def __init__(self, sizes: Sizes, std: float) -> None:
        super().__init__()
        self.std = std
        self.max_length = sizes.require_max_length(self.name)
        self.matrix = nn.Parameter(torch.empty(sizes.num_heads, self.max_length, self.max_length))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.matrix, std=self.std)

    def forward(self, query: Tokens, memory: Tokens) -> Logits:
        self.check_lengths(query, memory)
        return Logits((Bias(read_matrix(self.matrix, query, memory)),))

    def resize_max_length(self, max_length: int, how: Resize) -> None:
        resized_matrix = resize_matrix(self.matrix.detach(), max_length, how, self.std)
        self.matrix = replace_parameter(self.matrix, resized_matrix)
        self.max_length = max_length


@dataclass(frozen=True)
class Random(Term):
    """Options: ``std``, the standard deviation of the initial entries."""

    name: ClassVar[str] = "random"
    std: float = 1.0

    def __post_init__(self) -> None:
        positive(self.name, "std", self.std)

    def build(self, sizes: Sizes) -> RandomSynthesizer:
        return RandomSynthesizer(sizes, self.std)
