"""Linformer: attention to k mixtures of the tokens in place of the tokens."""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from synthattn.attend import attend
from synthattn.engine.projection import merge_heads, project, split_heads
from synthattn.layers.checks import check_resize, check_sizes
from synthattn.layers.token_mixer import ProjectedMemory, TokenLayout, TokenMixer
from synthattn.logits import Logits, Product
from synthattn.masks import from_torch
from synthattn.shapes import Bool, Float
from synthattn.synthesizers.base import Resize, Tokens, check_length, reset_linear
from synthattn.synthesizers.tables import replace_data, resized, rows_at


class Linformer(TokenMixer):
    """``softmax(Q (E K)^T / sqrt(d_h)) (F V)`` for each head, heads concatenated and projected.

    Wang et al. 2020, "Linformer: Self-Attention with Linear Complexity". ``e`` and ``f`` are the paper's E and F.
    Padding is zero in K and V, and so is missing from the mixtures. A mixture holds tokens from the whole input and has
    no position: ``is_causal``, ``attn_mask``, ``offset`` and ``position_bias`` are refused. There is one attention
    weight for each mixture.

    Args:
        d_model: width of the input and the output.
        num_heads: number of heads.
        k: number of mixtures, the paper's projected dimension.
        max_length: the longest input.
        dropout: probability of dropping an attention weight while training.
        shared_heads: one E and one F for all heads, the paper's headwise sharing.
        shared_kv: one matrix for E and F, the paper's key-value sharing.
        head_dim: width of a head, ``d_model // num_heads`` unless given.
        bias: whether the projections have biases.
    """

    name: ClassVar[str] = "linformer"
    can_be_causal = False
    f: nn.Parameter | None

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        k: int,
        max_length: int,
        dropout: float = 0.0,
        *,
        shared_heads: bool = True,
        shared_kv: bool = False,
        head_dim: int | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        check_sizes(d_model, num_heads, head_dim, max_length, dropout)
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        self.d_model, self.num_heads, self.k, self.dropout = d_model, num_heads, k, dropout
        self.head_dim = d_model // num_heads if head_dim is None else head_dim
        self.key_width = self.value_width = self.head_dim
        inner = num_heads * self.head_dim
        self.query = nn.Linear(d_model, inner, bias=bias)
        self.key = nn.Linear(d_model, inner, bias=bias)
        self.value = nn.Linear(d_model, inner, bias=bias)
        self.output = nn.Linear(inner, d_model, bias=bias)
        shape = (1 if shared_heads else num_heads, k, max_length)
        self.e = nn.Parameter(torch.empty(shape))
        self.f = None if shared_kv else nn.Parameter(torch.empty(shape))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        reset_linear(self.query, self.key, self.value, self.output)
        # Then a sum over max_length tokens has the scale of one token.
        for table in self.parameters(recurse=False):
            nn.init.normal_(table, std=self.max_length**-0.5)

    @property
    def max_length(self) -> int:
        """Longest input."""
        return self.e.shape[-1]

    def mix_tokens(
        self,
        x: Tensor,
        memory: Tensor | ProjectedMemory | None,
        layout: TokenLayout,
        position_bias: Tensor | None,
        plain: bool,
        need_weights: bool,
    ) -> Any:
        """Attend from ``x`` to mixtures of its tokens, or of the tokens of ``memory``."""
        self._refuse(layout, position_bias)
        source = self._source(x, memory, layout)
        batch, q, n = x.shape[0], x.shape[1], source.length
        mask, _ = from_torch(layout.key_padding_mask, None, False, (batch, self.num_heads, q, n))
        queries = split_heads(project(self.query, x), self.num_heads)
        keys = self._mixtures(self.e, self.key, source, mask.unpadded)
        values = self._mixtures(self.e if self.f is None else self.f, self.value, source, mask.unpadded)
        dropout = self.dropout if self.training else 0.0
        if not plain and not need_weights:
            logits = Logits((Product(queries, keys, self.head_dim**-0.5),))
            return merge_heads(attend(logits, values, dropout=dropout), self.output)
        logits = queries @ keys.mT * self.head_dim**-0.5
        # Half precision has too few digits to sum a row in.
        weights = logits.softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32)).to(logits.dtype)
        y = merge_heads(F.dropout(weights, dropout) @ values, self.output)
        return (y, weights) if need_weights else y

    def project_memory(self, memory: Float[Tensor, "batch length d_model"]) -> ProjectedMemory:
        raise ValueError("linformer cannot decode: its mixtures hold tokens from the whole input; use vanilla for that")

    def resize_max_length(self, max_length: int, how: Resize = "pad") -> None:
        """Change the longest input and keep what was learned.

        ``"pad"`` keeps the columns that both lengths have and draws new ones at random. ``"interpolate"`` stretches
        or shrinks the matrices, so that a stretched input has the mixtures that it had before. The parameters are
        new: give them to the optimizer.
        """
        check_resize(max_length, how)
        # A mixture is a sum: of twice as many tokens, each must count half.
        scale = 1.0 if how == "pad" else self.max_length / max_length
        for name, old in list(self.named_parameters(recurse=False)):
            new = old.new_empty(len(old), max_length, self.k).normal_(std=max_length**-0.5)
            rows = resized(old.detach().mT, max_length, how, new) * scale
            setattr(self, name, replace_data(old, rows.mT))

    def _refuse(self, layout: TokenLayout, bias: Tensor | None) -> None:
        if layout.is_causal:
            raise ValueError("linformer cannot be causal: its mixtures hold tokens from the whole input; use vanilla")
        if layout.offset != 0:
            raise ValueError(f"linformer cannot decode, but offset={layout.offset} was given; use vanilla for that")
        if layout.attn_mask is not None:
            raise ValueError("linformer takes no attn_mask: queries attend to mixtures; use key_padding_mask")
        if bias is not None:
            raise ValueError("linformer takes no position_bias: queries attend to mixtures; leave it out")

    def _source(self, x: Tensor, memory: Tensor | ProjectedMemory | None, layout: TokenLayout) -> Tokens:
        """Return the tokens to attend to. The positions of the queries have no effect."""
        if isinstance(memory, ProjectedMemory):
            raise ValueError("linformer takes tokens as memory, this was projected by another layer")
        memory, positions = (x, layout.positions) if memory is None else (memory, layout.memory_positions)
        source = Tokens(memory, None if positions is None else positions.long())
        check_length(self.name, self.max_length, source)
        return source

    def _mixtures(
        self,
        table: Float[Tensor, "#heads k n"],
        projection: nn.Module,
        source: Tokens,
        unpadded: Bool[Tensor, "batch length"] | None,
    ) -> Float[Tensor, "batch heads k width"]:
        """Return E K or F V: the coefficients at the positions of the tokens times the projected tokens."""
        projected = projection(source.vectors)
        if unpadded is not None:
            projected = projected.masked_fill(~unpadded.unsqueeze(-1), 0.0)
        coefficients = rows_at(table.mT, source).mT.to(projected.dtype)
        if len(table) == 1:  # one product for all heads
            return split_heads(coefficients.squeeze(-3) @ projected, self.num_heads)
        return coefficients @ split_heads(projected, self.num_heads)

    def extra_repr(self) -> str:
        return f"d_model={self.d_model}, num_heads={self.num_heads}, k={self.k}, max_length={self.max_length}"
