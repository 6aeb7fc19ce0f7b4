"""One layer of a stack: self-attention, cross-attention if there is an encoder, and feed-forward."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from synthattn.layers import ProjectedMemory, SyntheticAttention, TokenLayout, TokenMixer
from synthattn.layers.feed_forward import FeedForward, drop
from synthattn.models.compat import Cache, EncoderDecoderCache, GradientCheckpointingLayer
from synthattn.shapes import Float

Sublayer = Callable[[Tensor], tuple[Tensor, Tensor | None]]


class PreNorm(nn.Module):
    """The residual connection ``x + f(norm(x))``."""

    def __init__(self, norm: nn.Module, dropout: float) -> None:
        super().__init__()
        self.norm = norm
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, sublayer: Sublayer) -> tuple[Tensor, Tensor | None]:
        y, weights = sublayer(self.norm(x))
        return x + drop(self.dropout, y), weights


class PostNorm(PreNorm):
    """The residual connection ``norm(x + f(x))``."""

    def forward(self, x: Tensor, sublayer: Sublayer) -> tuple[Tensor, Tensor | None]:
        y, weights = sublayer(x)
        return self.norm(x + drop(self.dropout, y)), weights


class Block(GradientCheckpointingLayer):
    """Sublayers, each inside its own residual connection.

    Args:
        attention: mixes the tokens.
        cross_attention: attends to the encoder; None if there is no encoder.
        feed_forward: transforms each token alone.
        residual: makes a residual connection.
        causal: True if a token attends only to itself and earlier tokens.
    """

    def __init__(
        self,
        attention: TokenMixer,
        cross_attention: SyntheticAttention | None,
        feed_forward: FeedForward,
        residual: Callable[[], PreNorm],
        causal: bool,
    ) -> None:
        super().__init__()
        self.causal = causal
        self.attention = attention
        self.attention_residual = residual()
        self.cross_attention = cross_attention
        self.cross_residual = None if cross_attention is None else residual()
        self.feed_forward = feed_forward
        self.feed_forward_residual = residual()

    def forward(
        self,
        x: Float[Tensor, "batch q d_model"],
        memory: Float[Tensor, "sources k d_model"] | None = None,
        position_bias: Float[Tensor, "*examples heads q n"] | None = None,
        *,
        layout: TokenLayout,
        cross_layout: TokenLayout | None = None,
        past_key_values: Cache | None = None,
        index: int = 0,
        plain: bool = False,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return the vectors after this layer, and the weights of both attentions if ``need_weights``.

        There is one source per example, or one for all beams of an example, see ``cross_layout``. ``memory`` and
        ``position_bias`` are positional arguments, so that checkpointing passes their gradients.
        """

        options: Any = {"plain": plain, "need_weights": need_weights}

        def mix(x: Tensor) -> tuple[Tensor, Tensor | None]:
            own = self._own_memory(x, past_key_values, index)
            return _with_weights(self.attention(x, own, layout=layout, position_bias=position_bias, **options))

        def cross(x: Tensor) -> tuple[Tensor, Tensor | None]:
            assert memory is not None, "a model with cross-attention has the encoder's output"
            source = self._source_memory(memory, past_key_values, index)
            return self._cross(x, memory.shape[0], source, cross_layout or TokenLayout(), options)

        x, weights = self.attention_residual(x, mix)
        cross_weights = None
        if self.cross_residual is not None:
            x, cross_weights = self.cross_residual(x, cross)
        x, _ = self.feed_forward_residual(x, lambda x: (self.feed_forward(x), None))
        return x, weights, cross_weights

    def _own_memory(self, x: Tensor, cache: Cache | None, index: int) -> ProjectedMemory | None:
        """Return all tokens so far, projected, if there is a cache."""
        if cache is None:
            return None
        own = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
        new = self.attention.project_memory(x)
        return ProjectedMemory(*own.update(new.keys, new.values, index))  # pyright: ignore[reportArgumentType]

    def _source_memory(self, memory: Tensor, cache: Cache | None, index: int) -> Tensor | ProjectedMemory:
        """Return the encoder's output. With a cache, it is projected once for all decoding steps."""
        if not isinstance(cache, EncoderDecoderCache):
            return memory
        assert self.cross_attention is not None
        source = cache.cross_attention_cache
        if not cache.is_updated.get(index, False):
            new = self.cross_attention.project_memory(memory)
            source.update(new.keys, new.values, index)  # pyright: ignore[reportArgumentType]
            cache.is_updated[index] = True
        layer: Any = source.layers[index]
        return ProjectedMemory(layer.keys, layer.values)

    def _cross(
        self, x: Tensor, sources: int, memory: Tensor | ProjectedMemory, layout: TokenLayout, options: dict[str, Any]
    ) -> tuple[Tensor, Tensor | None]:
        """Attend to the encoder. The beams of an example are queries to one source."""
        assert self.cross_attention is not None
        queries = x if layout.beams == 1 else x.reshape(sources, -1, x.shape[-1])
        y, weights = _with_weights(self.cross_attention(queries, memory, layout=layout, **options))
        if layout.beams == 1:
            return y, weights
        if weights is not None:
            weights = weights.unflatten(2, (layout.beams, -1)).transpose(1, 2).flatten(0, 1)
        return y.view(x.shape), weights


def _with_weights(result: Any) -> tuple[Tensor, Tensor | None]:
    return result if isinstance(result, tuple) else (result, None)
