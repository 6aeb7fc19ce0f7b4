"""Local dense: ``B_i[c] = (W_2 relu(W_1 x_i + b_1) + b_2)[c]`` is the logit of the key at distance ``c - width // 2``.

Xu et al. 2021, "LDSA". It takes inputs of any length. Keys outside of the window or of the input get no weight.
"""

from torch import Tensor

from synthattn.logits import Logits, Window
from synthattn.shapes import Int
from synthattn.synthesizers.base import Tokens
from synthattn.synthesizers.learned_keys import LearnedKeys


class LocalDenseSynthesizer(LearnedKeys):
    """``keys`` is W_2, one learned key per distance. A mixture attends to nothing outside of the window."""

    def forward(self, query: Tokens, memory: Tokens) -> Logits:
        values = self.hidden_units(query) @ self.keys.mT
        if self.key_bias is not None:
            values = values + self.key_bias.unsqueeze(-2)
        return Logits((Window(values, _distance(query, memory)),))


def _distance(query: Tokens, memory: Tokens) -> Int[Tensor, "*batch q k"] | None:
    """Return key position minus query position; None if that is ``j - i``."""
    follow = query.positions is None and memory.positions is None
    if follow and (query.start, query.length) == (memory.start, memory.length):
        return None
    return memory.resolved_positions().unsqueeze(-2) - query.resolved_positions().unsqueeze(-1)
