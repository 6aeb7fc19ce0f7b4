"""The dot product of a model that exists: its own queries and keys, with its norms, rotations and scale."""

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from synthattn.logits import Logits, Product
from synthattn.synthesizers import Mix, Sizes, Spec, Synthesizer, Term, Tokens, build
from synthattn.synthesizers.vanilla import Vanilla, VanillaSynthesizer


@dataclass(frozen=True)
class ModelTokens(Tokens):
    """Tokens whose queries and keys the model has made; ``scale`` is the factor of its dot product."""

    scale: float = 1.0


class ModelDotProduct(VanillaSynthesizer):
    """The product of the queries and keys in the tokens. It has no parameters: the projections stay in the model."""

    def __init__(self, sizes: Sizes) -> None:
        Synthesizer.__init__(self)
        self.num_heads, self.head_dim, self.key_width = sizes.num_heads, sizes.head_dim, sizes.head_dim

    def forward(self, query: Tokens, memory: Tokens) -> Logits:
        assert isinstance(query, ModelTokens), "the model gives its queries"
        return Logits((Product(self.project(query), self.project_keys(memory), query.scale),))

    def project(self, query: Tokens) -> Tensor:
        assert query.projected is not None, "the model gives its queries"
        return query.projected

    def project_keys(self, memory: Tokens) -> Tensor:
        assert memory.keys is not None, "the model gives its keys"
        return memory.keys


@dataclass(frozen=True)
class _ModelVanilla(Term):
    name: ClassVar[str] = "vanilla"

    def build(self, sizes: Sizes) -> ModelDotProduct:
        return ModelDotProduct(sizes)


def build_for_model(spec: Spec, sizes: Sizes, mix: Mix) -> Synthesizer:
    """Build the synthesizer of a spec with the model's own dot product in place of ``vanilla``."""
    terms = tuple(_ModelVanilla() if isinstance(term, Vanilla) else term for term in spec.terms)
    if sum(isinstance(term, _ModelVanilla) for term in terms) > 1:
        raise ValueError(f"a model has one dot product, {spec} has several")
    return build(replace(spec, terms=terms), sizes, mix)


def has_dot_product(spec: Spec) -> bool:
    """Return True if a term of the spec reads the queries and keys of the model."""
    return any(isinstance(term, Vanilla) for term in spec.terms)
