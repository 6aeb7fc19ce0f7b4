"""Multi-head attention with any synthesizer in place of the dot product."""

from typing import Any

import torch
from torch import Tensor, nn

from synthattn.attend import run
from synthattn.engine.cached_weights import WeightCache
from synthattn.engine.call import CacheableLogits, Call
from synthattn.engine.plain import attend_whole, attention_weights
from synthattn.engine.projection import LazyValues, merge_heads
from synthattn.layers.checks import check_position_bias, check_resize, check_sizes, check_tokens
from synthattn.layers.token_mixer import ProjectedMemory, TokenLayout, TokenMixer
from synthattn.logits import Bias, Logits
from synthattn.masks import Mask, from_torch
from synthattn.shapes import Float, Int
from synthattn.synthesizers import Mix, Mixture, Sizes, Spec, Synthesizer, Term, Tokens, build, parse
from synthattn.synthesizers.base import Resize, reset_linear


class SyntheticAttention(TokenMixer):
    """``Y = softmax(B) G(X)`` for each head, heads concatenated and projected, with B from any synthesizer.

    Args:
        d_model: width of the input and the output.
        num_heads: number of heads.
        attention: spec of the logits, e.g. ``"random"``, ``"dense+vanilla"``, ``"factorized_random(rank=16)"``.
        max_length: the longest input, needed by every synthesizer with a table of positions.
        dropout: probability of dropping an attention weight while training.
        head_dim: width of a head, ``d_model // num_heads`` unless given.
        bias: whether the value, output, query and key projections have biases.
        mix: weights of the terms of a mixture: ``"softmax"`` (the paper: learned per head, with sum one), ``"sum"``
            (unweighted, as in the paper's C4 runs) or ``"sigmoid"`` (the authors' code: one scalar per layer).
    """

    takes_position_bias = True

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
        self.head_dim = self.value_width = d_model // num_heads if head_dim is None else head_dim
        self.dropout = dropout
        self.mix: Mix = mix
        sizes = Sizes(d_model, num_heads, self.head_dim, max_length, bias)
        with torch.device(device or torch.get_default_device()):
            self.synthesizer: Synthesizer = build(self.spec, sizes, mix)
            self.value = nn.Linear(d_model, sizes.inner, bias=bias)
            self.output = nn.Linear(sizes.inner, d_model, bias=bias)
        self.key_width = self.synthesizer.key_width
        self._weight_cache = WeightCache()
        reset_linear(self.value, self.output)
        if dtype is not None:
            self.to(dtype)

    @property
    def max_length(self) -> int | None:
        """Longest input; None if there is no limit."""
        return self.synthesizer.max_length

    def mix_tokens(
        self,
        x: Tensor,
        memory: Tensor | ProjectedMemory | None,
        layout: TokenLayout,
        position_bias: Tensor | None,
        plain: bool,
        need_weights: bool,
    ) -> Any:
        """Attend from ``x`` to itself, or to ``memory``."""
        query, source = self._tokens(x, memory, layout)
        batch, q, k = x.shape[0], query.length, source.length
        if position_bias is not None:
            check_position_bias(position_bias, batch, self.num_heads, q, k)
        shape = (batch, self.num_heads, q, k)
        mask, bias = from_torch(
            layout.key_padding_mask, layout.attn_mask, layout.is_causal, shape, layout.offset, x.device
        )
        added = Logits(tuple(Bias(table) for table in (bias, position_bias) if table is not None))
        call = Call(
            lambda: self.synthesizer(query, source) + added,
            self._values(source.vectors if not isinstance(memory, ProjectedMemory) else memory),
            mask,
            q,
            self.dropout if self.training else 0.0,
            self._cacheable(query, source) if not added.terms else None,
        )
        y = merge_heads((attend_whole if plain else run)(call), self.output)
        return (y, attention_weights(call.logits, mask).expand(batch, -1, -1, -1)) if need_weights else y

    def project_memory(self, memory: Float[Tensor, "batch k d_model"]) -> ProjectedMemory:
        """Project tokens to attend to. ``forward`` takes the result as its ``memory``."""
        check_tokens("memory", memory, self.d_model)
        return ProjectedMemory(self.synthesizer.project_keys(Tokens(memory)), self._values(memory).batch_major())

    def logits(
        self,
        x: Float[Tensor, "batch q d_model"],
        memory: Float[Tensor, "batch k d_model"] | None = None,
        *,
        positions: Int[Tensor, "*batch q"] | None = None,
        memory_positions: Int[Tensor, "*batch k"] | None = None,
    ) -> Float[Tensor, "#batch heads q k"]:
        """Return the logits before masks and softmax. Keys outside a local window have minus infinity.

        The batch axis is 1 if the logits do not depend on the input.
        """
        layout = TokenLayout(positions=positions, memory_positions=memory_positions)
        self._check(x, memory, layout)
        logits = self.synthesizer(*self._tokens(x, memory, layout))
        total, inside = logits.as_tensor(), Mask().within(logits.windows()).allowed_pairs
        total = total if total.dim() == 4 else total.unsqueeze(0)
        return total if inside is None else total.masked_fill(~inside, float("-inf"))

    def resize_max_length(self, max_length: int, how: Resize = "pad") -> None:
        """Change the longest input and keep what was learned.

        ``"pad"`` keeps the logits of the positions that both lengths have and draws new ones at random.
        ``"interpolate"`` stretches or shrinks the tables. The parameters are new: give them to the optimizer.
        """
        check_resize(max_length, how)
        for part in self.synthesizer.modules():
            if isinstance(part, Synthesizer):
                part.check_resize(max_length)
        with torch.no_grad():
            self.synthesizer.resize_max_length(max_length, how)
        parts = self.synthesizer.synthesizers if isinstance(self.synthesizer, Mixture) else [self.synthesizer]
        self.spec = Spec(tuple(t.after_resize(p) for t, p in zip(self.spec.terms, parts, strict=True)))

    def _tokens(self, x: Tensor, memory: Tensor | ProjectedMemory | None, layout: TokenLayout) -> tuple[Tokens, Tokens]:
        """Return the queries, and the tokens to attend to."""
        positions, memory_positions = (
            None if given is None else given.long() for given in (layout.positions, layout.memory_positions)
        )
        query = Tokens(x, positions, start=layout.offset)
        if memory is None:
            return query, query
        if isinstance(memory, ProjectedMemory):
            # The values of one head stand for the tokens, of which only the number counts.
            return query, Tokens(memory.values.select(1, 0), memory_positions, memory.keys)
        return query, Tokens(memory, memory_positions)

    def _values(self, memory: Tensor | ProjectedMemory) -> LazyValues:
        if isinstance(memory, ProjectedMemory):
            return LazyValues(memory.values, None, self.num_heads, self.head_dim)
        return LazyValues(memory, self.value, self.num_heads, self.head_dim)

    def _cacheable(self, query: Tokens, source: Tokens) -> CacheableLogits | None:
        """Return logits that depend on no input and start at position 0, or None if these do not."""
        placed = query.positions is not None or query.start > 0 or source.positions is not None
        if placed or not self.synthesizer.input_independent:
            return None

        def build(q: int, k: int) -> Logits:
            vectors = query.vectors[:1, :1]  # only their number counts
            return self.synthesizer(*(Tokens(vectors.expand(1, length, -1)) for length in (q, k)))

        return CacheableLogits(self._weight_cache, self.synthesizer, build)

    def extra_repr(self) -> str:
        return f"d_model={self.d_model}, num_heads={self.num_heads}, attention={str(self.spec)!r}"
