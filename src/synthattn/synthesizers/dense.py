"""Dense: ``B_i = W_2 relu(W_1 x_i + b_1) + b_2``, each row from its own token alone, the paper's "D"."""

from dataclasses import dataclass
from typing import ClassVar

from synthattn.logits import Bias, Logits, Product
from synthattn.synthesizers.base import (
    Resize,
    Sizes,
    Synthesizer,
    Tokens,
    replace_parameter,
    resized,
    rows_at,
)
from synthattn.synthesizers.local_dense import LearnedKeys, LocalDenseSynthesizer
from synthattn.synthesizers.spec import Term


class DenseSynthesizer(LearnedKeys):
    """``hidden`` is the paper's W_1 (d x d, split over heads), ``keys`` its W_2 (d_h x N for each head).

    W_2 acts as one learned key per position, which is why the dot-product kernels serve here too. The authors' Mesh
    code shares W_2 between the heads and has no biases: ``dense(shared_keys=true, bias=false)``. In a mixture with the
    dot product it also takes the queries for W_1 x: ``shared_query=true``.
    """

    def __init__(self, sizes: Sizes, shared_keys: bool, shared_query: bool, bias: bool) -> None:
        max_length = sizes.require_max_length(self.name)
        super().__init__(sizes, max_length, shared_keys, shared_query, bias)
        self.max_length = max_length

    def forward(self, query: Tokens, memory: Tokens) -> Logits:
        self.check_lengths(query, memory)
        product = Product(self.hidden_of(query), rows_at(self.keys, memory))
        if self.key_bias is None:
            return Logits((product,))
        return Logits((product, Bias(rows_at(self.key_bias, memory).unsqueeze(-2))))

    def resize_max_length(self, max_length: int, how: Resize) -> None:
        fresh = self.keys.new_empty(len(self.keys), max_length, self.keys.shape[-1])
        fresh.normal_(std=self.keys.shape[-1] ** -0.5)
        self.keys = replace_parameter(self.keys, resized(self.keys, max_length, how, fresh))
        if self.key_bias is not None:
            fresh = self.key_bias.new_zeros(len(self.key_bias), max_length)
            self.key_bias = replace_parameter(self.key_bias, resized(self.key_bias, max_length, how, fresh))
        self.max_length = max_length


@dataclass(frozen=True)
class Dense(Term):
    """Options: ``shared_keys``, one W_2 for all heads; ``shared_query``, the queries of the dot product in the same
    mixture for W_1 x + b_1; ``bias``, b_1 and b_2; ``window``, a local window of that many keys around the query
    instead of all positions (an odd number, any input length)."""

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
