"""Vanilla: the dot product, ``B = (X W_Q) (X W_K)^T / sqrt(d_h)``, the paper's "V"."""

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from synthattn.logits import Logits
from synthattn.synthesizers.base import Sizes, Synthesizer, Tokens, split_heads
from synthattn.synthesizers.spec import Term


class VanillaSynthesizer(Synthesizer):
    """The dot product owns its scale; a mixture weighs the scaled product.

    The authors' Mesh code folds the scale into the initial values of W_Q instead, which is the same function at the
    start of training.
    """

    name = "vanilla"
    reads_memory = True

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.num_heads, self.scale = sizes.num_heads, sizes.head_dim**-0.5
        self.query = nn.Linear(sizes.d_model, sizes.inner, bias=sizes.bias)
        self.key = nn.Linear(sizes.d_model, sizes.inner, bias=sizes.bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for projection in (self.query, self.key):
            nn.init.xavier_uniform_(projection.weight)
            if projection.bias is not None:
                nn.init.zeros_(projection.bias)

    def forward(self, query: Tokens, memory: Tokens) -> Logits:
        return Logits(
            query=split_heads(self.query(query.vectors), self.num_heads),
            key=split_heads(self.key(memory.vectors), self.num_heads),
            scale=self.scale,
        )


@dataclass(frozen=True)
class Vanilla(Term):
    name: ClassVar[str] = "vanilla"

    def build(self, sizes: Sizes) -> VanillaSynthesizer:
        return VanillaSynthesizer(sizes)
