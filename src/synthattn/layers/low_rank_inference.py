"""A layer's low-rank inference: the factors of its weights, what they were made of, and when they may be used."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from synthattn.layers.constants import Sample, are_constant, is_plain_module, sources_of
from synthattn.low_rank import LowRank
from synthattn.projection import is_plain_linear
from synthattn.shapes import Float
from synthattn.synthesizers import Synthesizer


@dataclass(frozen=True)
class LowRankInference:
    """Every output vector is within ``error`` times its norm of the exact one, or the factors are not used.

    Attributes:
        factors: in place of the attention weights; in float64 where float32 would round too much.
        dtype: of the layer.
        error: what was asked for.
        stretch: the most by which the output projection makes a vector longer.
        sources: what the factors and the stretch were computed from. If that has changed, it is not done again, because
            it takes long: the layer is exact until it is compressed anew.
    """

    factors: LowRank
    dtype: torch.dtype
    error: float
    stretch: float
    sources: Sample

    def applies(self, synthesizer: Synthesizer, projection: nn.Module, value: Tensor, q: int) -> bool:
        """Whether the factors are those of the layer as it is now, and pay for an input of this size."""
        if value.dtype != self.dtype or not self.factors.pays(q, value.shape[-2], self.dtype):
            return False
        if not is_plain_linear(projection) or not is_plain_module(synthesizer):
            return False
        sources = all_sources(synthesizer, projection)
        return are_constant([*sources, value]) and self.sources.current(sources)

    def holds(self, bound: Float[Tensor, "batch q"], y: Float[Tensor, "batch q d_model"]) -> bool:
        """Whether outputs from heads with these bounds on their errors are sure to be as exact as was asked for."""
        # In terms of the output that was computed: the exact one may be shorter than it by as much as the error.
        allowed = self.error / (1.0 + self.error) * torch.linalg.vector_norm(y, dim=-1)
        return bool((self.stretch * bound <= allowed).all())


def all_sources(synthesizer: Synthesizer, projection: nn.Module) -> list[Tensor]:
    """All that the factors and the stretch of the output projection are computed from."""
    assert isinstance(projection, nn.Linear)
    return [*sources_of(synthesizer), projection.weight]
