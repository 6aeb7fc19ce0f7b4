"""The two layers ``W_2 relu(W_1 x + b_1) + b_2`` that dense and local dense share."""

import torch
from torch import Tensor, nn

from synthattn.engine.projection import is_plain_linear, project, split_heads
from synthattn.shapes import Float
from synthattn.synthesizers.base import Sizes, Synthesizer, Tokens
from synthattn.tracing import is_tracing


class LearnedKeys(Synthesizer):
    """``hidden`` holds W_1 and b_1; ``keys`` and ``key_bias`` hold W_2 and b_2, a learned key per entry of a row.

    With ``shared_query``, the queries of the dot product in the same mixture stand in for ``W_1 x + b_1``.
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

    def hidden_units(self, query: Tokens) -> Float[Tensor, "batch heads length width"]:
        """Return ``relu(W_1 x + b_1)``, split into heads."""
        if self.hidden is not None:
            return hidden_layer(self.hidden, query.vectors, self.num_heads)
        assert query.projected is not None, "the mixture hands over the queries"
        return query.projected.relu()


def hidden_layer(
    projection: nn.Module, vectors: Float[Tensor, "batch length d_model"], heads: int
) -> Float[Tensor, "batch heads length width"]:
    """Return ``relu(W_1 x + b_1)``, split into heads."""
    hidden = project(projection, vectors)
    # In place saves memory if nobody else holds the result. With a gradient, writing to a view costs three copies.
    in_place = is_plain_linear(projection) and not hidden.requires_grad and not is_tracing(hidden)
    return split_heads(hidden.relu_() if in_place else hidden.relu(), heads)
