"""Dense: ``B_i = W_2 relu(W_1 x_i + b_1) + b_2``, each row from its own token alone; the paper's "D"."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from synthattn.engine.projection import is_plain_linear, project, split_heads
from synthattn.logits import Bias, Logits, Product, Window
from synthattn.shapes import Float, Int
from synthattn.synthesizers.base import Resize, Sizes, Synthesizer, Tokens, reset_linear
from synthattn.synthesizers.spec import Term
from synthattn.synthesizers.tables import resize_table, rows_at
from synthattn.tracing import is_tracing


class LearnedKeys(Synthesizer):
    """The two layers ``W_2 relu(W_1 x + b_1) + b_2`` that dense and local dense share.

    ``hidden`` holds W_1 and b_1; ``keys`` and ``key_bias`` hold W_2 and b_2, a learned key per entry of a row.

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
            reset_linear(self.hidden)

    def hidden_units(self, query: Tokens) -> Float[Tensor, "batch heads length width"]:
        """Return ``relu(W_1 x + b_1)``, split into heads."""
        if self.hidden is not None:
            return hidden_layer(self.hidden, query.vectors, self.num_heads)
        assert query.projected is not None, "the mixture hands over the queries"
        return query.projected.relu()


class DenseSynthesizer(LearnedKeys):
    """``hidden`` is the paper's W_1 (d x d, split into heads), ``keys`` its W_2 (d_h x N for each head).

    W_2 acts as one learned key per position, so the logits are a product like the dot product. The authors' Mesh code
    shares W_2 between the heads and has no biases: ``dense(shared_keys=true, bias=false)``. In a mixture with the dot
    product it also takes the queries for W_1 x: ``shared_query=true``.
    """

    def __init__(self, sizes: Sizes, shared_keys: bool, shared_query: bool, bias: bool) -> None:
        max_length = sizes.require_max_length(self.name)
        super().__init__(sizes, max_length, shared_keys, shared_query, bias)
        self.max_length = max_length

    def forward(self, query: Tokens, memory: Tokens) -> Logits:
        self.check_lengths(query, memory)
        product = Product(self.hidden_units(query), rows_at(self.keys, memory))
        if self.key_bias is None:
            return Logits((product,))
        return Logits((product, Bias(rows_at(self.key_bias, memory).unsqueeze(-2))))

    def resize_max_length(self, max_length: int, how: Resize) -> None:
        resize_table(self, "keys", max_length, how, std=self.keys.shape[-1] ** -0.5)
        if self.key_bias is not None:
            resize_table(self, "key_bias", max_length, how)
        self.max_length = max_length


class LocalDenseSynthesizer(LearnedKeys):
    """Local dense: entry c of a row is the logit of the key at distance ``c - width // 2`` (Xu et al. 2021, "LDSA").

    ``keys`` is W_2, one learned key per distance. It takes inputs of any length. Keys outside of the window or of the
    input get no weight, in a mixture either.
    """

    def forward(self, query: Tokens, memory: Tokens) -> Logits:
        values = self.hidden_units(query) @ self.keys.mT
        if self.key_bias is not None:
            values = values + self.key_bias.unsqueeze(-2)
        return Logits((Window(values, _distance(query, memory)),))


@dataclass(frozen=True)
class Dense(Term):
    """Options of the dense synthesizer.

    Attributes:
        shared_keys: one W_2 for all heads.
        shared_query: the queries of the dot product in the same mixture in place of W_1 x + b_1.
        bias: b_1 and b_2.
        window: an odd number of keys around the query instead of all positions, for any input length.
    """

    name: ClassVar[str] = "dense"
    shared_keys: bool = False
    shared_query: bool = False
    bias: bool = True
    window: int | None = None

    def __post_init__(self) -> None:
        if self.window is not None and (self.window < 1 or self.window % 2 == 0):
            raise ValueError(f"dense: window must be a positive odd number, got {self.window}")

    def build(self, sizes: Sizes) -> Synthesizer:
        if self.window is not None:
            return LocalDenseSynthesizer(sizes, self.window, self.shared_keys, self.shared_query, self.bias)
        return DenseSynthesizer(sizes, self.shared_keys, self.shared_query, self.bias)


def hidden_layer(
    projection: nn.Module, vectors: Float[Tensor, "batch length d_model"], heads: int
) -> Float[Tensor, "batch heads length width"]:
    """Return ``relu(W_1 x + b_1)``, split into heads."""
    hidden = project(projection, vectors)
    # In place saves memory if nobody else holds the result. With a gradient, writing to a view costs three copies.
    in_place = is_plain_linear(projection) and not hidden.requires_grad and not is_tracing(hidden)
    return split_heads(hidden.relu_() if in_place else hidden.relu(), heads)


def _distance(query: Tokens, memory: Tokens) -> Int[Tensor, "*batch q k"] | None:
    """Return key position minus query position; None if that is ``j - i``."""
    follow = query.positions is None and memory.positions is None
    if follow and (query.start, query.length) == (memory.start, memory.length):
        return None
    return memory.resolved_positions().unsqueeze(-2) - query.resolved_positions().unsqueeze(-1)
