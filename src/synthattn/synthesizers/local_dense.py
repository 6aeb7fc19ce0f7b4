"""Local dense: the dense synthesizer over a window around each token (Xu et al. 2021, "LDSA"), for any length.

``B_i[c] = (W_2 relu(W_1 x_i + b_1) + b_2)[c]`` is the logit of the key at distance ``c - width // 2`` from token i.
Keys before the start, after the end or in the padding take no part in the softmax.
"""

import torch
from torch import Tensor, nn

from synthattn.logits import Logits, Window
from synthattn.shapes import Float
from synthattn.synthesizers.base import Sizes, Synthesizer, Tokens, hidden_layer


class LearnedKeys(Synthesizer):
    """What dense and local dense share: the hidden layer W_1, b_1, and W_2, b_2 as a learned key per entry of a row.

    With ``shared_query`` W_1 and b_1 are those of the queries of the dot product in the same mixture.
    """

    name = "dense"

    def __init__(self, sizes: Sizes, entries: int, shared_keys: bool, shared_query: bool, bias: bool) -> None:
        super().__init__()
        self.num_heads = sizes.num_heads
        tables = 1 if shared_keys else sizes.num_heads
        self.shares_query = shared_query
        self.hidden = None if shared_query else nn.Linear(sizes.d_model, sizes.inner, bias=bias)
        self.keys = nn.Parameter(torch.empty(tables, entries, sizes.head_dim))
        self.key_bias = nn.Parameter(torch.empty(tables, entries)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.keys, std=self.keys.shape[-1] ** -0.5)
        if self.key_bias is not None:
            nn.init.zeros_(self.key_bias)
        if self.hidden is not None:
            nn.init.xavier_uniform_(self.hidden.weight)
            if self.hidden.bias is not None:
                nn.init.zeros_(self.hidden.bias)

    def hidden_of(self, query: Tokens) -> Float[Tensor, "batch heads length dim"]:
        """``relu(W_1 x + b_1)``, split over heads."""
        if self.hidden is not None:
            return hidden_layer(self.hidden, query.vectors, self.num_heads)
        assert query.projected is not None, "the mixture hands over the queries"
        return query.projected.relu()


class LocalDenseSynthesizer(LearnedKeys):
    """``keys`` holds W_2, one learned key per distance. In a mixture, nothing outside the window is attended to."""

    def forward(self, query: Tokens, memory: Tokens) -> Logits:
        values = self.hidden_of(query) @ self.keys.mT
        if self.key_bias is not None:
            values = values + self.key_bias.unsqueeze(-2)
        return Logits((Window(values, _distance(query, memory)),))


def _distance(query: Tokens, memory: Tokens) -> torch.Tensor | None:
    """Key position minus query position; None where that is the plain ``j - i``."""
    plain = query.positions is None and memory.positions is None
    if plain and (query.start, query.length) == (memory.start, memory.length):
        return None
    return memory.resolved_positions().unsqueeze(-2) - query.resolved_positions().unsqueeze(-1)
