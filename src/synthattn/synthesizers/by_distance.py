"""The base of synthesizers whose logits depend only on the distance from query to key."""

import torch
from torch import Tensor

from synthattn.logits import Bias, ByDistance, Logits
from synthattn.shapes import Float, Int
from synthattn.synthesizers.base import Synthesizer, Tokens


class DistanceSynthesizer(Synthesizer):
    """Compute the logits from the distances, ``key position - query position``. There is no longest input."""

    input_independent = True

    def at(self, distance: Int[Tensor, "*axes"]) -> Float[Tensor, "heads *axes"]:
        """Return the logits of some distances."""
        raise NotImplementedError

    def values(self, largest: int) -> Float[Tensor, "heads distances"]:
        """Return the logits of the distances -range, ..., range, which are constant beyond or as far as ``largest``."""
        raise NotImplementedError

    def forward(self, query: Tokens, memory: Tokens) -> Logits:
        if query.positions is None and memory.positions is None:
            start = query.start - memory.start
            values = self.values(query.length + memory.length + abs(start)).unsqueeze(1)
            return Logits((ByDistance(values, query.length, memory.length, start),))
        distance = memory.resolved_positions().unsqueeze(-2) - query.resolved_positions().unsqueeze(-1)
        bias = self.at(distance)
        return Logits((Bias(bias if bias.dim() == 3 else bias.transpose(0, 1)),))

    def between(self, reach: int, device: torch.device) -> Float[Tensor, "heads distances"]:
        """Return the logits of the distances -reach, ..., reach."""
        return self.at(torch.arange(-reach, reach + 1, device=device))
