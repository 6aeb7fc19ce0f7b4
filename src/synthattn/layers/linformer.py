"""Linformer: attention to k mixtures of the tokens instead of to the tokens."""

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from synthattn.attend import attend
from synthattn.engine.projection import project
from synthattn.layers.checks import check_positions, check_sizes, check_tokens
from synthattn.layers.synthetic_attention import Remembered
from synthattn.logits import Features, Logits
from synthattn.masks import from_torch
from synthattn.shapes import Bool, Float, Int
from synthattn.synthesizers.base import Resize, Tokens, check_length, replace_parameter, resized, rows_at, split_heads


class Linformer(nn.Module):
    """``softmax(Q (E K)^T / sqrt(d_h)) (F V)`` for each head, heads concatenated and projected.

    Wang et al. 2020, "Linformer: Self-Attention with Linear Complexity". ``e`` and ``f`` are the paper's E and F.
    Padding is zero in K and V, and so is missing from the mixtures. A mixture holds tokens from the whole input, so
    there is no causal version.

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
    reads_memory: bool = True
    takes_position_bias: bool = False
    can_be_causal: bool = False
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
        for projection in (self.query, self.key, self.value, self.output):
            nn.init.xavier_uniform_(projection.weight)
            if projection.bias is not None:
                nn.init.zeros_(projection.bias)
        # A sum over max_length tokens then has the scale of one token.
        for table in self.parameters(recurse=False):
            nn.init.normal_(table, std=self.max_length**-0.5)

    @property
    def max_length(self) -> int:
        """The longest input."""
        return self.e.shape[-1]

    def forward(
        self,
        x: Float[Tensor, "batch q d_model"],
        memory: Float[Tensor, "batch n d_model"] | Remembered | None = None,
        *,
        key_padding_mask: Bool[Tensor, "batch n"] | None = None,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        positions: Int[Tensor, "*batch q"] | None = None,
        memory_positions: Int[Tensor, "*batch n"] | None = None,
        offset: int = 0,
        position_bias: Tensor | None = None,
        plain: bool = False,
        need_weights: bool = False,
    ) -> Float[Tensor, "batch q d_model"] | tuple[Float[Tensor, "batch q d_model"], Float[Tensor, "batch heads q k"]]:
        """Attend from ``x`` to mixtures of itself, or of ``memory``.

        Args:
            x: queries.
            memory: tokens to attend to, ``x`` unless given.
            key_padding_mask: True = leave this token out of the mixtures.
            attn_mask: refused, as ``is_causal``, ``offset`` and ``position_bias``: a mixture has no place.
            is_causal: see ``attn_mask``.
            positions: where the tokens of ``x`` stand, 0, 1, ... unless given: ``(q,)`` or ``(batch, q)``.
            memory_positions: the same for ``memory``.
            offset: see ``attn_mask``.
            position_bias: see ``attn_mask``.
            plain: compute the weights and multiply, in place of faster ways to the same result.
            need_weights: also return the weights of the k mixtures (before dropout).
        """
        self._refuse(attn_mask, is_causal, offset, position_bias)
        source = self._source(x, memory, positions, memory_positions)
        batch, q, n = x.shape[0], x.shape[1], source.length
        mask, _ = from_torch(key_padding_mask, None, False, batch, self.num_heads, q, n)
        queries = split_heads(project(self.query, x), self.num_heads)
        keys = self._mixtures(self.e, self.key, source, mask.keep)
        values = self._mixtures(self.e if self.f is None else self.f, self.value, source, mask.keep)
        dropout = self.dropout if self.training else 0.0
        if not plain and not need_weights:
            logits = Logits((Features(queries, keys, self.head_dim**-0.5),))
            return self._merge(attend(logits, values, dropout=dropout))
        logits = queries @ keys.mT * self.head_dim**-0.5
        # Half precision has too few digits to sum a row in.
        weights = logits.softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32)).to(logits.dtype)
        y = self._merge(F.dropout(weights, dropout) @ values)
        return (y, weights) if need_weights else y

    def remember(self, memory: Float[Tensor, "batch n d_model"]) -> Remembered:
        raise ValueError("linformer cannot decode: its mixtures hold tokens from the whole input; use vanilla for that")

    def resize_max_length(self, max_length: int, how: Resize = "pad") -> None:
        """Change the longest input, keeping what was learned.

        ``"pad"`` keeps the columns that both lengths have and draws new ones at random; ``"interpolate"`` stretches
        or shrinks the matrices, such that a stretched input has the mixtures that it had before. The parameters are
        new: give them to the optimizer.
        """
        if how not in ("pad", "interpolate"):
            raise ValueError(f"how must be 'pad' or 'interpolate', got {how!r}")
        if max_length < 1:
            raise ValueError(f"max_length must be at least 1, got {max_length}")
        # A mixture is a sum: of twice as many tokens, each must count half.
        scale = 1.0 if how == "pad" else self.max_length / max_length
        for name, old in list(self.named_parameters(recurse=False)):
            fresh = old.new_empty(len(old), max_length, self.k).normal_(std=max_length**-0.5)
            columns = resized(old.detach().mT, max_length, how, fresh) * scale
            setattr(self, name, replace_parameter(old, columns.mT))

    def _refuse(self, attn_mask: Tensor | None, is_causal: bool, offset: int, bias: Tensor | None) -> None:
        if is_causal:
            raise ValueError("linformer cannot be causal: its mixtures hold tokens from the whole input; use vanilla")
        if offset != 0:
            raise ValueError(f"linformer cannot decode, but offset={offset} was given; use vanilla for that")
        if attn_mask is not None:
            raise ValueError("linformer takes no attn_mask: queries attend to mixtures; use key_padding_mask")
        if bias is not None:
            raise ValueError("linformer takes no position_bias: queries attend to mixtures; leave it out")

    def _source(
        self, x: Tensor, memory: Tensor | Remembered | None, positions: Tensor | None, memory_positions: Tensor | None
    ) -> Tokens:
        """What is attended to; the positions of other queries than these do not matter."""
        check_tokens("x", x, self.d_model)
        check_positions("positions", positions, x)
        if isinstance(memory, Remembered):
            raise ValueError("linformer takes tokens as memory, this was remembered by another layer")
        if memory is None:
            if memory_positions is not None:
                raise ValueError("memory_positions was given without memory; use positions")
            memory, memory_positions = x, positions
        check_tokens("memory", memory, self.d_model)
        if memory.shape[0] != x.shape[0]:
            raise ValueError(f"x has {x.shape[0]} examples, memory has {memory.shape[0]}")
        check_positions("memory_positions", memory_positions, memory)
        source = Tokens(memory, None if memory_positions is None else memory_positions.long())
        check_length(self.name, self.max_length, source)
        return source

    def _mixtures(
        self,
        table: Float[Tensor, "shared k max_length"],
        projection: nn.Module,
        source: Tokens,
        keep: Bool[Tensor, "batch n"] | None,
    ) -> Float[Tensor, "batch heads k dim"]:
        """E K or F V: the table's columns at the tokens' positions, times the projected tokens."""
        projected = projection(source.vectors)
        if keep is not None:
            projected = projected.masked_fill(~keep.unsqueeze(-1), 0.0)
        columns = rows_at(table.mT, source).mT.to(projected.dtype)
        if len(table) == 1:  # one product for all heads
            return split_heads(columns.squeeze(-3) @ projected, self.num_heads)
        return columns @ split_heads(projected, self.num_heads)

    def _merge(self, heads: Float[Tensor, "batch heads q dim"]) -> Float[Tensor, "batch q d_model"]:
        return project(self.output, heads.transpose(1, 2).flatten(2))

    def extra_repr(self) -> str:
        return f"d_model={self.d_model}, num_heads={self.num_heads}, k={self.k}, max_length={self.max_length}"
