"""Dense: ``B_i = W_2 relu(W_1 x_i + b_1) + b_2``, each row from its own token alone; the paper's "D"."""

from dataclasses import dataclass
from typing import ClassVar

from synthattn.logits import Bias, Logits, Product
from synthattn.synthesizers.base import Resize, Sizes, Synthesizer, Tokens
from synthattn.synthesizers.learned_keys import LearnedKeys
from synthattn.synthesizers.local_dense import LocalDenseSynthesizer
from synthattn.synthesizers.spec import Term
from synthattn.synthesizers.tables import resize_table, rows_at


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
