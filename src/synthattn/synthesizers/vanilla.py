"""Vanilla: the dot product, ``B = (X W_Q) (X W_K)^T / sqrt(d_h)``; the paper's "V"."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from synthattn.engine.projection import project, project_scaled, split_heads
from synthattn.logits import Logits, Product
from synthattn.shapes import Float
from synthattn.synthesizers.base import Sizes, Synthesizer, Tokens, reset_linear
from synthattn.synthesizers.spec import Term


class VanillaSynthesizer(Synthesizer):
    """``query`` is W_Q and ``key`` is W_K. A mixture weighs the scaled product.

    The authors' Mesh code folds the scale into the initial values of W_Q, which is equal at the start of training.
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
        reset_linear(self.query, self.key)

    def forward(self, query: Tokens, memory: Tokens) -> Logits:
        queries = self.project(query) if query.projected is None else query.projected
        return Logits((Product(queries, self.project_keys(memory), self.scale),))

    def project(self, query: Tokens) -> Float[Tensor, "batch heads length width"]:
        """Return the queries before scaling."""
        return split_heads(project(self.query, query.vectors), self.num_heads)

    def project_keys(self, memory: Tokens) -> Float[Tensor, "batch heads length width"]:
        return split_heads(project(self.key, memory.vectors), self.num_heads) if memory.keys is None else memory.keys

    def weighted_logits(self, query: Tokens, memory: Tokens, weight: Tensor) -> Logits:
        queries = None
        if query.projected is None:
            queries = project_scaled(self.query, query.vectors, weight * self.scale, self.num_heads)
        if queries is None:
            return super().weighted_logits(query, memory, weight)
        return Logits((Product(split_heads(queries, self.num_heads), self.project_keys(memory)),))


@dataclass(frozen=True)
class Vanilla(Term):
    """The dot product has no options."""

    name: ClassVar[str] = "vanilla"
    synthesizer = VanillaSynthesizer
