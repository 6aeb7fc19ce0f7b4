"""One layer of a stack: self-attention, cross-attention if there is an encoder, and feed-forward."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from synthattn.layers import ProjectedMemory, SyntheticAttention, TokenLayout, TokenMixer
from synthattn.layers.feed_forward import FeedForward
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
        return x + self.dropout(y), weights


class PostNorm(PreNorm):
    """The residual connection ``norm(x + f(x))``."""

    def forward(self, x: Tensor, sublayer: Sublayer) -> tuple[Tensor, Tensor | None]:
        y, weights = sublayer(x)
        return self.norm(x + self.dropout(y)), weights


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

        def mix(x: Tensor) -> tuple[Tensor, Tensor | None]:
            return self._mix(x, position_bias, layout, past_key_values, index, plain, need_weights)

        def cross(x: Tensor) -> tuple[Tensor, Tensor | None]:
            return self._cross(x, memory, cross_layout or TokenLayout(), past_key_values, index, plain, need_weights)

        x, weights = self.attention_residual(x, mix)
        cross_weights = None
        if self.cross_residual is not None:
            x, cross_weights = self.cross_residual(x, cross)
        x, _ = self.feed_forward_residual(x, lambda x: (self.feed_forward(x), None))
        return x, weights, cross_weights

    def _mix(
        self,
        x: Tensor,
        position_bias: Tensor | None,
        layout: TokenLayout,
        cache: Cache | None,
        index: int,
        plain: bool,
        need_weights: bool,
    ) -> tuple[Tensor, Tensor | None]:
        memory = None
        if cache is not None:
            own = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
            new = self.attention.project_memory(x)
            memory = ProjectedMemory(*own.update(new.keys, new.values, index))  # pyright: ignore[reportArgumentType]
        return _with_weights(
            self.attention(
                x,
                memory,
                layout=layout,
                position_bias=position_bias,
                plain=plain,
                need_weights=need_weights,
            )
        )

    def _cross(
        self,
        x: Tensor,
        memory: Tensor | None,
        layout: TokenLayout,
        cache: Cache | None,
        index: int,
        plain: bool,
        need_weights: bool,
    ) -> tuple[Tensor, Tensor | None]:
        assert self.cross_attention is not None
        assert memory is not None, "a model with cross-attention has the encoder's output"
        y, weights = _with_weights(
            self.cross_attention(
                x if layout.beams == 1 else x.reshape(memory.shape[0], -1, x.shape[-1]),
                self._projected(memory, cache, index),
                layout=layout,
                plain=plain,
                need_weights=need_weights,
            )
        )
        if layout.beams == 1:
            return y, weights
        if weights is not None:
            weights = weights.unflatten(2, (layout.beams, -1)).transpose(1, 2).flatten(0, 1)
        return y.view(x.shape), weights

    def _projected(self, memory: Tensor, cache: Cache | None, index: int) -> Tensor | ProjectedMemory:
        """Return the encoder's output, projected once for all decoding steps."""
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


def _with_weights(result: Any) -> tuple[Tensor, Tensor | None]:
    return result if isinstance(result, tuple) else (result, None)
