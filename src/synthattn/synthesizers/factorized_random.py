"""Factorized random: ``B = R_1 R_2^T`` with two learned ``(N, k)`` matrices per head; the paper's "FR"."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from synthattn.logits import Logits, Product
from synthattn.synthesizers.base import Resize, Sizes, Synthesizer, Tokens
from synthattn.synthesizers.spec import Term, at_least_one, positive
from synthattn.synthesizers.tables import resize_table, rows_at


class FactorizedRandomSynthesizer(Synthesizer):
    """``left`` is the paper's R_1 with a row per query position, ``right`` its R_2 with a row per key position.

    The authors' Mesh code indexes both factors by the key, so that all queries share one row of logits; this is the
    product of the paper. The logits start with standard deviation ``std``: with far smaller factors, neither would get
    much of a gradient from the other.
    """

    name = "factorized_random"
    input_independent = True

    def __init__(self, sizes: Sizes, rank: int, std: float) -> None:
        super().__init__()
        self.max_length = sizes.require_max_length(self.name)
        check_rank(rank, self.max_length)
        self.factor_std = (std**2 / rank) ** 0.25
        self.left = nn.Parameter(torch.empty(sizes.num_heads, self.max_length, rank))
        self.right = nn.Parameter(torch.empty(sizes.num_heads, self.max_length, rank))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.left, std=self.factor_std)
        nn.init.normal_(self.right, std=self.factor_std)

    def forward(self, query: Tokens, memory: Tokens) -> Logits:
        self.check_lengths(query, memory)
        left, right = rows_at(self.left, query), rows_at(self.right, memory)
        if left.dim() != right.dim():  # positions were given for one side only
            left, right = (t if t.dim() == 4 else t.unsqueeze(0) for t in (left, right))
            left, right = (t.expand(query.vectors.shape[0], -1, -1, -1) for t in (left, right))
        return Logits((Product(left, right),))

    def check_resize(self, max_length: int) -> None:
        check_rank(self.left.shape[-1], max_length)

    def resize_max_length(self, max_length: int, how: Resize) -> None:
        resize_table(self, "left", max_length, how, self.factor_std)
        resize_table(self, "right", max_length, how, self.factor_std)
        self.max_length = max_length


def check_rank(rank: int, max_length: int) -> None:
    """Raise a ValueError if no matrix of this size has the rank."""
    if rank > max_length:
        raise ValueError(
            f"factorized_random: rank={rank} exceeds max_length={max_length}; "
            f"a {max_length} x {max_length} matrix has at most rank {max_length}, use random instead"
        )


@dataclass(frozen=True)
class FactorizedRandom(Term):
    """Options of the factorized random synthesizer.

    Attributes:
        rank: the paper's k.
        std: the standard deviation of the initial logits.
    """

    name: ClassVar[str] = "factorized_random"
    synthesizer = FactorizedRandomSynthesizer
    rank: int = 8
    std: float = 1.0

    def __post_init__(self) -> None:
        at_least_one(self.name, "rank", self.rank)
        positive(self.name, "std", self.std)
