"""The interface of all layers that mix tokens, and the inputs that they share."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from synthattn.layers.checks import check_offset, check_positions, check_projected_memory, check_tokens
from synthattn.shapes import Bool, Float, Int
from synthattn.synthesizers.base import Resize


class ProjectedMemory(NamedTuple):
    """The keys and values of tokens to attend to. Decoding keeps these in place of the tokens."""

    keys: Float[Tensor, "batch heads k key"] | None
    """None if the layer needs no keys, because it has no dot product."""
    values: Float[Tensor, "batch heads k width"]


@dataclass(frozen=True)
class TokenLayout:
    """Padding, masks and positions of one attention, which a model hands to its layers.

    The fields are arguments of :meth:`TokenMixer.forward`, except ``beams``: that many neighbouring examples attend to
    the same keys, which are stored once.
    """

    key_padding_mask: Bool[Tensor, "batch k"] | None = None
    attn_mask: Tensor | None = None
    is_causal: bool = False
    positions: Int[Tensor, "*batch q"] | None = None
    memory_positions: Int[Tensor, "*batch k"] | None = None
    offset: int = 0
    beams: int = 1

    def to(self, device: torch.device, non_blocking: bool = False) -> "TokenLayout":
        """Move all tensors to a device. accelerate calls this for a model on several devices."""
        tensors = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        moved = {name: value.to(device, non_blocking=non_blocking) for name, value in tensors.items()}
        return replace(self, **moved)

    def query_positions(self, length: int, device: torch.device) -> Int[Tensor, "*batch q"]:
        """Return the positions of the queries as a tensor."""
        if self.positions is not None:
            return self.positions
        return torch.arange(self.offset, self.offset + length, device=device)


class TokenMixer(nn.Module):
    """A layer that mixes tokens, such as self-attention.

    Attributes:
        d_model: width of the input and the output.
        num_heads: number of heads.
        key_width: width of the keys in projected memory, 0 if the layer needs none.
        value_width: width of the values in projected memory.
        takes_position_bias: True if a position bias can be added to the logits of the layer.
        can_be_causal: True if the layer can leave out the tokens after each query.
    """

    d_model: int
    num_heads: int
    key_width: int = 0
    value_width: int
    takes_position_bias: bool = False
    can_be_causal: bool = True

    @property
    def reads_memory(self) -> bool:
        """True if the weights depend on the tokens attended to, so that decoding must keep keys."""
        return self.key_width > 0

    def forward(
        self,
        x: Float[Tensor, "batch q d_model"],
        memory: Float[Tensor, "batch k d_model"] | ProjectedMemory | None = None,
        *,
        key_padding_mask: Bool[Tensor, "batch k"] | None = None,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        positions: Int[Tensor, "*batch q"] | None = None,
        memory_positions: Int[Tensor, "*batch k"] | None = None,
        offset: int = 0,
        layout: TokenLayout | None = None,
        position_bias: Float[Tensor, "*examples #heads #q k"] | None = None,
        plain: bool = False,
        need_weights: bool = False,
    ) -> Float[Tensor, "batch q d_model"] | tuple[Float[Tensor, "batch q d_model"], Float[Tensor, "batch heads q k"]]:
        """Mix the tokens of ``x`` with each other, or with the tokens of ``memory``.

        Args:
            x: queries.
            memory: tokens to attend to, or the result of ``project_memory`` for them; ``x`` unless given.
            key_padding_mask: True = ignore this key.
            attn_mask: bool, True = may not attend, or float, added to the logits; ``(q, k)``,
                ``(batch * heads, q, k)`` or ``(batch, 1 or heads, q, k)``.
            is_causal: query i attends to the keys 0..offset + i.
            positions: positions of the tokens of ``x``, offset, offset + 1, ... unless given: ``(q,)`` or
                ``(batch, q)``.
            memory_positions: positions of the tokens of ``memory``, from 0 on unless given.
            offset: the number of tokens before ``x``, in decoding with a memory of all tokens so far.
            layout: all masks and positions in one object, in place of the single arguments.
            position_bias: added to the logits, ``(heads, q, k)`` or ``(batch, heads, q, k)``; all axes but the last may
                be 1.
            plain: compute all weights and multiply them with the values; otherwise the fastest backend is used.
            need_weights: also return the attention weights (before dropout).

        A row without keys gives zeros, to which the output projection adds its bias.
        """
        if layout is None:
            if memory is None and memory_positions is not None:
                raise ValueError("memory_positions was given without memory; use positions")
            layout = TokenLayout(key_padding_mask, attn_mask, is_causal, positions, memory_positions, offset)
        elif offset or (key_padding_mask, attn_mask, positions, memory_positions).count(None) < 4:
            raise ValueError("layout was given together with masks or positions; put all of them into the layout")
        self._check(x, memory, layout)
        return self.mix_tokens(x, memory, layout, position_bias, plain, need_weights)

    def mix_tokens(
        self,
        x: Tensor,
        memory: Tensor | ProjectedMemory | None,
        layout: TokenLayout,
        position_bias: Tensor | None,
        plain: bool,
        need_weights: bool,
    ) -> Any:
        """Compute ``forward``, with the same arguments, after the checks that all layers share."""
        raise NotImplementedError

    def project_memory(self, memory: Float[Tensor, "batch k d_model"]) -> ProjectedMemory:
        """Project tokens to attend to. ``forward`` takes the result as its ``memory``."""
        raise NotImplementedError

    def resize_max_length(self, max_length: int, how: Resize = "pad") -> None:
        """Change the longest input and keep what was learned."""
        raise NotImplementedError

    def _check(self, x: Tensor, memory: Tensor | ProjectedMemory | None, layout: TokenLayout) -> None:
        check_tokens("x", x, self.d_model)
        check_positions("positions", layout.positions, x)
        check_offset(layout.offset)
        if memory is None:
            if layout.offset > 0:
                raise ValueError(f"offset={layout.offset} was given without the memory of the tokens before x")
            return
        if isinstance(memory, ProjectedMemory):
            key_width = self.key_width
            check_projected_memory(*memory, x.shape[0], self.num_heads, key_width, self.value_width)
            tokens = memory.values
        else:
            check_tokens("memory", memory, self.d_model)
            tokens = memory
        if tokens.shape[0] != x.shape[0]:
            raise ValueError(f"x has {x.shape[0]} examples, memory has {tokens.shape[0]}")
        if tokens.device != x.device:
            raise ValueError(f"x is on {x.device}, memory is on {tokens.device}")
        if layout.memory_positions is not None:  # one for each token; the values have an axis of heads as well
            check_positions("memory_positions", layout.memory_positions, tokens if tokens.dim() == 3 else tokens[:, 0])
