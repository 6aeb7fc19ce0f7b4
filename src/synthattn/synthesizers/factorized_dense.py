"""Factorized dense: ``C_i = H_A(F_A(x_i)) * H_B(F_B(x_i))``, two short vectors per token; the paper's "FD"."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from synthattn.logits import Bias, Logits, OuterProduct
from synthattn.synthesizers.base import Resize, Sizes, Synthesizer, Tokens, reset_linear
from synthattn.synthesizers.dense import hidden_layer
from synthattn.synthesizers.spec import Term, at_least_one
from synthattn.synthesizers.tables import resize_table


class FactorizedDenseSynthesizer(Synthesizer):
    """Multiply ``A_i[p] * B_i[q]`` for the key at position ``j = p * b + q``.

    So the paper's H_A repeats every element of A b times and H_B tiles B a times. Tiling both, which its text also
    admits, would leave only lcm(a, b) different products, 16 of 256 for a = b = 16. F_A and F_B have two layers each,
    as in dense: they share a hidden layer of width d_h per head (``hidden``), then map d_h to a and to b.
    """

    name = "factorized_dense"

    def __init__(self, sizes: Sizes, a: int, b: int) -> None:
        super().__init__()
        self.num_heads = sizes.num_heads
        self.max_length = sizes.require_max_length(self.name)
        self.hidden = nn.Linear(sizes.d_model, sizes.inner)
        self.a = nn.Parameter(torch.empty(sizes.num_heads, a, sizes.head_dim))
        self.b = nn.Parameter(torch.empty(sizes.num_heads, b, sizes.head_dim))
        self.a_bias = nn.Parameter(torch.empty(sizes.num_heads, a))
        self.b_bias = nn.Parameter(torch.empty(sizes.num_heads, b))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        reset_linear(self.hidden)
        for factor, bias in ((self.a, self.a_bias), (self.b, self.b_bias)):
            nn.init.normal_(factor, std=factor.shape[-1] ** -0.5)
            nn.init.zeros_(bias)

    def forward(self, query: Tokens, memory: Tokens) -> Logits:
        self.check_lengths(query, memory)
        hidden = hidden_layer(self.hidden, query.vectors, self.num_heads)
        a = hidden @ self.a.mT + self.a_bias.unsqueeze(-2)
        b = hidden @ self.b.mT + self.b_bias.unsqueeze(-2)
        if memory.positions is None:
            assert memory.start == 0, "the first key of an outer product is at position 0"
            return Logits((OuterProduct(a, b, memory.length),))
        width = b.shape[-1]
        at = memory.positions if memory.positions.dim() == 2 else memory.positions[None]
        at = at[:, None, None, :].expand(*a.shape[:-1], -1)
        return Logits((Bias(a.gather(-1, at // width) * b.gather(-1, at % width)),))

    def resize_max_length(self, max_length: int, how: Resize) -> None:
        length = -(-max_length // self.b.shape[1])  # b stays, so that position j keeps its pair (j // b, j % b)
        resize_table(self, "a", length, how, std=self.a.shape[-1] ** -0.5)
        resize_table(self, "a_bias", length, how)
        self.max_length = max_length


@dataclass(frozen=True)
class FactorizedDense(Term):
    """Options of the factorized dense synthesizer: ``a`` and ``b``, the lengths of the two factors.

    Both are about sqrt(max_length) by default.
    """

    name: ClassVar[str] = "factorized_dense"
    a: int | None = None
    b: int | None = None

    def __post_init__(self) -> None:
        for option in ("a", "b"):
            if getattr(self, option) is not None:
                at_least_one(self.name, option, getattr(self, option))

    def after_resize(self, synthesizer: Synthesizer) -> "FactorizedDense":
        assert isinstance(synthesizer, FactorizedDenseSynthesizer)
        return FactorizedDense(a=synthesizer.a.shape[1], b=synthesizer.b.shape[1])

    def build(self, sizes: Sizes) -> FactorizedDenseSynthesizer:
        n = sizes.require_max_length(self.name)
        a, b = self.a, self.b
        if a is None and b is None:
            a = math.isqrt(n - 1) + 1
        if a is None:
            assert b is not None
            a = -(-n // b)
        if b is None:
            b = -(-n // a)
        if a * b < n:
            raise ValueError(
                f"factorized_dense: a * b = {a} * {b} = {a * b} is less than max_length={n}; "
                f"choose a * b of at least {n}"
            )
        return FactorizedDenseSynthesizer(sizes, a, b)
