"""``SyntheticAttention``: multi-head attention with any synthesizer in place of the dot product."""

from typing import Literal, NamedTuple, overload

import torch
from torch import Tensor, nn

from synthattn.attend import attend, attend_plain, attention_weights
from synthattn.engine import batch_free, memory_pool
from synthattn.engine.projection import is_plain_linear, project
from synthattn.layers.checks import (
    check_offset,
    check_position_bias,
    check_positions,
    check_projected_memory,
    check_sizes,
    check_tokens,
)
from synthattn.layers.exponential_cache import ExponentialCache
from synthattn.logits import Logits
from synthattn.masks import Mask, from_torch
from synthattn.shapes import Bool, Float, Int
from synthattn.synthesizers import Mix, Mixture, Sizes, Spec, Synthesizer, Term, Tokens, build, parse
from synthattn.synthesizers.base import Resize, split_heads
from synthattn.tracing import is_tracing


class Remembered(NamedTuple):
    """What attention needs of the tokens attended to: decoding keeps it instead of the tokens."""

    keys: Float[Tensor, "batch heads k key"] | None
    """None where no dot product looks at the tokens."""
    values: Float[Tensor, "batch heads k width"]


class SyntheticAttention(nn.Module):
    """``Y = softmax(B) G(X)`` for each head, heads concatenated and projected, with B from any synthesizer.

    Args:
        d_model: width of the input and the output.
        num_heads: number of heads.
        attention: what makes the logits, e.g. ``"random"``, ``"dense+vanilla"``, ``"factorized_random(rank=16)"``.
        max_length: the longest input; needed by every synthesizer that has a table of positions.
        dropout: probability of dropping an attention weight while training.
        head_dim: width of a head, ``d_model // num_heads`` unless given.
        bias: whether the value, output, query and key projections have biases.
        mix: how a mixture weighs its terms: ``"softmax"`` (the paper: learned per head, summing to one), ``"sum"``
            (unweighted, as in the paper's C4 runs) or ``"sigmoid"`` (the authors' code: one scalar per layer).
    """

    takes_position_bias = True
    can_be_causal = True

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        attention: str | Spec | Term,
        max_length: int | None = None,
        dropout: float = 0.0,
        *,
        head_dim: int | None = None,
        bias: bool = True,
        mix: Mix = "softmax",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_sizes(d_model, num_heads, head_dim, max_length, dropout)
        self.spec = parse(attention)
        self.d_model, self.num_heads = d_model, num_heads
        self.head_dim = d_model // num_heads if head_dim is None else head_dim
        self.dropout = dropout
        self.mix: Mix = mix
        sizes = Sizes(d_model, num_heads, self.head_dim, max_length, bias)
        with torch.device(device or torch.get_default_device()):
            self.synthesizer: Synthesizer = build(self.spec, sizes, mix)
            self.value = nn.Linear(d_model, sizes.inner, bias=bias)
            self.output = nn.Linear(sizes.inner, d_model, bias=bias)
        self._exponentials = ExponentialCache()
        self.reset_projections()
        if dtype is not None:
            self.to(dtype)

    def reset_projections(self) -> None:
        for projection in (self.value, self.output):
            nn.init.xavier_uniform_(projection.weight)
            if projection.bias is not None:
                nn.init.zeros_(projection.bias)

    @property
    def max_length(self) -> int | None:
        """The longest input, None where any length will do."""
        return self.synthesizer.max_length

    @overload
    def forward(
        self,
        x: Tensor,
        memory: Tensor | Remembered | None = None,
        *,
        key_padding_mask: Tensor | None = None,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        positions: Tensor | None = None,
        memory_positions: Tensor | None = None,
        offset: int = 0,
        position_bias: Tensor | None = None,
        plain: bool = False,
        need_weights: Literal[False] = False,
    ) -> Tensor: ...

    @overload
    def forward(
        self,
        x: Tensor,
        memory: Tensor | Remembered | None = None,
        *,
        key_padding_mask: Tensor | None = None,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        positions: Tensor | None = None,
        memory_positions: Tensor | None = None,
        offset: int = 0,
        position_bias: Tensor | None = None,
        plain: bool = False,
        need_weights: Literal[True],
    ) -> tuple[Tensor, Tensor]: ...

    def forward(
        self,
        x: Float[Tensor, "batch q d_model"],
        memory: Float[Tensor, "batch k d_model"] | Remembered | None = None,
        *,
        key_padding_mask: Bool[Tensor, "batch k"] | None = None,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        positions: Int[Tensor, "*batch q"] | None = None,
        memory_positions: Int[Tensor, "*batch k"] | None = None,
        offset: int = 0,
        position_bias: Float[Tensor, "*examples #heads #q k"] | None = None,
        plain: bool = False,
        need_weights: bool = False,
    ) -> Float[Tensor, "batch q d_model"] | tuple[Float[Tensor, "batch q d_model"], Float[Tensor, "batch heads q k"]]:
        """Attend from ``x`` to itself, or to ``memory``.

        Args:
            x: queries.
            memory: what to attend to, ``x`` unless given: tokens, or what ``remember`` made of them.
            key_padding_mask: True = ignore this key.
            attn_mask: bool, True = may not attend, or float, added to the logits; ``(q, k)``,
                ``(batch * heads, q, k)`` or ``(batch, 1 or heads, q, k)``.
            is_causal: query i attends to the keys 0..offset + i.
            positions: where the tokens of ``x`` stand, offset, offset + 1, ... unless given: ``(q,)`` or
                ``(batch, q)``.
            memory_positions: the same for ``memory``, from 0 on unless given.
            offset: how many tokens came before ``x``, for decoding with a memory of what was decoded so far.
            position_bias: added to the logits, ``(heads, q, k)`` or ``(batch, heads, q, k)``; all axes but the last may
                be 1.
            plain: compute the weights and multiply, in place of faster ways to the same result.
            need_weights: also return the attention weights (before dropout).

        Rows that keep no key give zeros (then the output projection's bias).
        """
        query, source = self._tokens(x, memory, positions, memory_positions, offset)
        batch, q, k = x.shape[0], query.length, source.length
        if position_bias is not None:
            check_position_bias(position_bias, batch, self.num_heads, q, k)
        mask, bias = from_torch(key_padding_mask, attn_mask, is_causal, batch, self.num_heads, q, k, offset, x.device)
        value = memory.values if isinstance(memory, Remembered) else self._values(source.vectors, q)

        if bias is None and position_bias is None and not need_weights and not plain:
            y = self._forward_kept(query, source, value, mask)
            if y is not None:
                return y
        logits = self.synthesizer(query, source)
        for extra in (bias, position_bias):
            if extra is not None:
                logits = logits + Logits(bias=extra)
        dropout = self.dropout if self.training else 0.0
        y = self._merge((attend_plain if plain else attend)(logits, value, mask, dropout))
        return (y, attention_weights(logits, mask, batch)) if need_weights else y

    def remember(self, memory: Float[Tensor, "batch k d_model"]) -> Remembered:
        """Project tokens that will be attended to; ``forward`` takes the result as its ``memory``."""
        check_tokens("memory", memory, self.d_model)
        return Remembered(self.synthesizer.remember(Tokens(memory)), self._values(memory))

    @property
    def reads_memory(self) -> bool:
        """Whether the logits depend on the tokens attended to, so that decoding must keep keys."""
        return self.synthesizer.reads_memory

    def logits(
        self,
        x: Float[Tensor, "batch q d_model"],
        memory: Float[Tensor, "batch k d_model"] | None = None,
        *,
        positions: Int[Tensor, "*batch q"] | None = None,
        memory_positions: Int[Tensor, "*batch k"] | None = None,
    ) -> Float[Tensor, "#batch heads q k"]:
        """The logits before masks and softmax; the batch axis is 1 where they do not depend on the input.

        Keys outside a local window have minus infinity.
        """
        logits = self.synthesizer(*self._tokens(x, memory, positions, memory_positions))
        inside = Mask().within(logits.windows()).allowed
        return logits.total() if inside is None else logits.total().masked_fill(~inside, float("-inf"))

    def resize_max_length(self, max_length: int, how: Resize = "pad") -> None:
        """Change the longest input, keeping what was learned.

        ``"pad"`` keeps the logits of the positions that both lengths have and draws new ones at random;
        ``"interpolate"`` stretches or shrinks the tables. The parameters are new: give them to the optimizer.
        """
        if how not in ("pad", "interpolate"):
            raise ValueError(f"how must be 'pad' or 'interpolate', got {how!r}")
        if max_length < 1:
            raise ValueError(f"max_length must be at least 1, got {max_length}")
        for part in self.synthesizer.modules():
            if isinstance(part, Synthesizer):
                part.check_resize(max_length)
        with torch.no_grad():
            self.synthesizer.resize_max_length(max_length, how)
        parts = self.synthesizer.synthesizers if isinstance(self.synthesizer, Mixture) else [self.synthesizer]
        self.spec = Spec(tuple(t.after_resize(p) for t, p in zip(self.spec.terms, parts, strict=True)))

    def _tokens(
        self,
        x: Tensor,
        memory: Tensor | Remembered | None,
        positions: Tensor | None,
        memory_positions: Tensor | None,
        offset: int = 0,
    ) -> tuple[Tokens, Tokens]:
        check_tokens("x", x, self.d_model)
        check_positions("positions", positions, x)
        check_offset(offset)
        query = Tokens(x, None if positions is None else positions.long(), start=offset)
        if memory is None:
            if offset > 0:
                raise ValueError(f"offset={offset} was given without the memory of the tokens before x")
            if memory_positions is not None:
                raise ValueError("memory_positions was given without memory; use positions")
            return query, query
        keys = None
        if isinstance(memory, Remembered):
            keys = memory.keys
            width = self.synthesizer.key_width
            check_projected_memory(keys, memory.values, x.shape[0], self.num_heads, width, self.head_dim)
            # The values of a head stand in for tokens that are no longer there: only their number counts.
            memory = memory.values.select(1, 0)
        else:
            check_tokens("memory", memory, self.d_model)
        if memory.shape[0] != x.shape[0]:
            raise ValueError(f"x has {x.shape[0]} examples, memory has {memory.shape[0]}")
        if memory.device != x.device:
            raise ValueError(f"x is on {x.device}, memory is on {memory.device}")
        check_positions("memory_positions", memory_positions, memory)
        return query, Tokens(memory, None if memory_positions is None else memory_positions.long(), keys)

    def _forward_kept(self, query: Tokens, source: Tokens, value: Tensor, mask: Mask) -> Tensor | None:
        """The output from what was kept of batch-free logits; None where that cannot be used."""
        if query.positions is not None or query.start > 0 or source.positions is not None or mask.allowed is not None:
            return None
        if self.training and self.dropout > 0.0:
            return None
        kept = self._exponentials.get(self.synthesizer, query, source, mask.causal)
        if kept is None:
            return None
        heads = batch_free.attend_exponential(kept.weights, value, mask, normalized=kept.whole)
        return None if heads is None else self._merge(heads)

    def _values(
        self, tokens: Float[Tensor, "batch k d_model"], q: int | None = None
    ) -> Float[Tensor, "batch heads k width"]:
        """For so many queries, if that is known: memory is then in the order in which they are read fastest."""
        if q is None or not self._reads_lines(q, tokens):
            return split_heads(project(self.value, tokens), self.num_heads)
        batch, k, _ = tokens.shape
        weight, bias, columns = self.value.weight, self.value.bias, tokens.flatten(0, 1).t()
        out = (
            None
            if batch_free.recorded(tokens, *self.value.parameters())
            else memory_pool.empty((len(weight), batch * k), tokens.dtype)
        )
        made = torch.mm(weight, columns, out=out)
        made = made if bias is None else made.add_(bias[:, None])  # faster than a product that starts from copies of it
        return made.view(self.num_heads, -1, batch, k).permute(2, 0, 3, 1)

    def _reads_lines(self, q: int, tokens: Tensor) -> bool:
        """Return True if batch-free attention multiplies written weights with all places of a feature."""
        if not self.synthesizer.batch_free or not _in_lines(self.value, tokens) or q == 1:
            return False
        large = batch_free.is_large(self.num_heads, q, tokens.shape[1])
        return not (large and batch_free.recorded(*self.synthesizer.parameters()))

    def _merge(self, heads: Float[Tensor, "batch heads q width"]) -> Float[Tensor, "batch q d_model"]:
        lines = batch_free.as_lines(heads) if _in_lines(self.output, heads) else None
        if lines is None:
            return project(self.output, heads.transpose(1, 2).flatten(2))
        weight, bias = self.output.weight.t(), self.output.bias
        columns = lines.reshape(weight.shape[0], -1).t()
        made = torch.mm(columns, weight)
        made = made if bias is None else made.add_(bias)
        return made.view(heads.shape[0], heads.shape[2], -1)

    def extra_repr(self) -> str:
        return f"d_model={self.d_model}, num_heads={self.num_heads}, attention={str(self.spec)!r}"


def _in_lines(projection: nn.Linear, tensor: Tensor) -> bool:
    """Return True if the projection is nothing but a product, which may as well be computed transposed."""
    return (
        not is_tracing(tensor)
        and is_plain_linear(projection)
        and tensor.device.type == "cpu"
        and tensor.dtype == projection.weight.dtype
        and tensor.numel() > 0
        and not torch.is_autocast_enabled("cpu")
    )
