"""Vanilla: the dot product, ``B = (X W_Q) (X W_K)^T / sqrt(d_h)``, the paper's "V"."""

from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from synthattn.engine.projection import is_plain_linear, project
from synthattn.logits import Features, Logits
from synthattn.shapes import Float
from synthattn.synthesizers.base import Sizes, Synthesizer, Tokens, split_heads
from synthattn.synthesizers.spec import Term
from synthattn.tracing import is_tracing


class VanillaSynthesizer(Synthesizer):
    """The dot product owns its scale; a mixture weighs the scaled product.

    The authors' Mesh code folds the scale into the initial values of W_Q instead, which is the same function at the
    start of training.
    """

    name = "vanilla"

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.num_heads, self.head_dim = sizes.num_heads, sizes.head_dim
        self.key_width = sizes.head_dim
        self.scale = sizes.head_dim**-0.5
        self.query = nn.Linear(sizes.d_model, sizes.inner, bias=sizes.bias)
        self.key = nn.Linear(sizes.d_model, sizes.inner, bias=sizes.bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for projection in (self.query, self.key):
            nn.init.xavier_uniform_(projection.weight)
            if projection.bias is not None:
                nn.init.zeros_(projection.bias)

    def forward(self, query: Tokens, memory: Tokens) -> Logits:
        queries = self.project(query) if query.projected is None else query.projected
        return Logits((Features(queries, self.remember(memory), self.scale),))

    def project(self, query: Tokens) -> Float[Tensor, "batch heads length dim"]:
        """The queries, not yet scaled."""
        return split_heads(project(self.query, query.vectors), self.num_heads)

    def remember(self, memory: Tokens) -> Float[Tensor, "batch heads length dim"]:
        return split_heads(project(self.key, memory.vectors), self.num_heads) if memory.keys is None else memory.keys

    def weighted_logits(self, query: Tokens, memory: Tokens, weight: Tensor) -> Logits:
        if _are_few(query.vectors) or query.projected is not None or not is_plain_linear(self.query):
            return super().weighted_logits(query, memory, weight)
        # Weighing the rows of W_Q spares a pass over the queries of the whole batch, unless there are fewer of these.
        rows = (weight * self.scale).expand(self.num_heads, 1, 1).repeat_interleave(self.head_dim, 0).view(-1)
        bias = None if self.query.bias is None else self.query.bias * rows
        queries = F.linear(query.vectors, self.query.weight * rows[:, None], bias)
        return Logits((Features(split_heads(queries, self.num_heads), self.remember(memory)),))


def _are_few(vectors: Float[Tensor, "batch length d_model"]) -> bool:
    """Whether there are fewer of them than rows of a projection; a traced graph is for any number of them."""
    return not is_tracing(vectors) and vectors.shape[0] * vectors.shape[1] < vectors.shape[2]


@dataclass(frozen=True)
class Vanilla(Term):
    name: ClassVar[str] = "vanilla"

    def build(self, sizes: Sizes) -> VanillaSynthesizer:
        return VanillaSynthesizer(sizes)
