"""A stack of layers: an encoder or a decoder."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from synthattn.layers import TokenLayout
from synthattn.layers.feed_forward import drop
from synthattn.layers.positions import LearnedPositions, SinusoidalPositions
from synthattn.logits import Logits
from synthattn.models.block import Block
from synthattn.models.cache import layer_with_positions
from synthattn.models.compat import Cache
from synthattn.models.layout import cross_layout, relative_layout, token_layout
from synthattn.models.outputs import StackOutput
from synthattn.shapes import Float
from synthattn.synthesizers.base import Tokens
from synthattn.synthesizers.relative import RelativeSynthesizer


class OutputCollector:
    """Collect hidden states and attention weights, if the user asked for them."""

    def __init__(self, hidden_states: bool, attentions: bool, cross_attentions: bool) -> None:
        self.hidden_states: tuple[Any, ...] | None = () if hidden_states else None
        self.attentions: tuple[Any, ...] | None = () if attentions else None
        self.cross_attentions: tuple[Any, ...] | None = () if cross_attentions else None

    def add_hidden_state(self, x: Tensor) -> None:
        if self.hidden_states is not None:
            self.hidden_states += (x,)

    def add_weights(self, own: Tensor | None, cross: Tensor | None) -> None:
        if self.attentions is not None and own is not None:
            self.attentions += (own,)
        if self.cross_attentions is not None and cross is not None:
            self.cross_attentions += (cross,)


class Stack(nn.Module):
    """Transform token vectors by one layer after another.

    Args:
        blocks: the layers, from the first to the last.
        positions: computes position embeddings; None to add none.
        relative: T5's position bias for each number of heads, shared by all layers with so many heads.
        norm: applied at the end.
        dropout: applied at the start and at the end.
    """

    def __init__(
        self,
        blocks: Sequence[Block],
        positions: SinusoidalPositions | LearnedPositions | None,
        relative: dict[int, RelativeSynthesizer],
        norm: nn.Module,
        dropout: float,
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.positions = positions
        self.relative = nn.ModuleDict({str(heads): bias for heads, bias in relative.items()})
        self.norm = norm
        self.dropout = nn.Dropout(dropout)

    @property
    def layers(self) -> list[Block]:
        """Layer at each depth."""
        return [block for block in self.blocks if isinstance(block, Block)]

    @property
    def longest(self) -> int | None:
        """Longest input; None if there is no limit."""
        layers = [part for block in self.layers for part in (block.attention, block.cross_attention)]
        limits = [getattr(part, "max_length", None) for part in layers]
        limits += [len(self.positions.table)] if isinstance(self.positions, LearnedPositions) else []
        known = [limit for limit in limits if limit is not None]
        return min(known) if known else None

    @property
    def keeps_keys(self) -> list[bool]:
        """True for each layer whose keys decoding must keep."""
        return [block.attention.reads_memory for block in self.layers]

    @property
    def cross_keeps_keys(self) -> list[bool]:
        """True for each layer whose keys of the encoder decoding must keep; empty if there is no encoder."""
        return [block.cross_attention.reads_memory for block in self.layers if block.cross_attention is not None]

    def forward(
        self,
        x: Float[Tensor, "batch length d_model"],
        *,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        memory: Float[Tensor, "batch k d_model"] | None = None,
        memory_mask: Tensor | None = None,
        past_key_values: Cache | None = None,
        plain: bool = False,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> StackOutput:
        batch, length = x.shape[:2]
        if batch == 0 or length == 0:
            raise ValueError(f"the input holds no tokens: its shape is ({batch}, {length})")
        offset = 0 if past_key_values is None else past_key_values.get_seq_length()
        # The cache keeps the positions that earlier calls were given.
        cached = layer_with_positions(past_key_values)
        earlier = getattr(cached, "positions", None) if offset else None
        layers, longest = self.layers, self.longest
        own = token_layout(attention_mask, position_ids, batch, length, offset, earlier, longest=longest)
        own = replace(own, is_causal=layers[0].causal and own.attn_mask is None)
        if cached is not None:
            cached.positions = own.memory_positions
        other = None
        if memory is not None:
            beams = getattr(past_key_values, "beams", 1)
            if beams > 1:
                memory, memory_mask = memory[::beams], None if memory_mask is None else memory_mask[::beams]
            source = memory.shape[1]
            other = token_layout(memory_mask, None, memory.shape[0], source, 0, prefix="encoder_", longest=longest)
            other = cross_layout(own, other, length, beams, x.device)
        bias = {int(heads): self._bias(heads, x, own) for heads in self.relative}
        has_cross = any(block.cross_attention is not None for block in layers)
        collector = OutputCollector(output_hidden_states, output_attentions, output_attentions and has_cross)

        def run(x: Tensor, depth: int) -> Tensor:
            block = layers[depth]
            x, weights, cross_weights = block(
                x,
                memory,
                bias.get(block.attention.num_heads) if block.attention.takes_position_bias else None,
                layout=own,
                cross_layout=other,
                past_key_values=past_key_values,
                index=depth,
                plain=plain,
                need_weights=output_attentions,
            )
            collector.add_weights(weights, cross_weights)
            return x

        signal = None if self.positions is None else self.positions(own.query_positions(length, x.device), x.dtype)
        x, ponder_cost = self.run_layers(
            x, signal, own.key_padding_mask, run, collector, complete=past_key_values is not None
        )
        last: Any = drop(self.dropout, self.norm(x))
        collector.add_hidden_state(last)
        return StackOutput(
            last_hidden_state=last,
            past_key_values=past_key_values,
            hidden_states=collector.hidden_states,
            attentions=collector.attentions,
            cross_attentions=collector.cross_attentions,
            ponder_cost=ponder_cost,
        )

    def run_layers(
        self,
        x: Tensor,
        signal: Tensor | None,
        padding: Tensor | None,
        run: Callable[[Tensor, int], Tensor],
        collector: OutputCollector,
        complete: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """Apply all layers. Return the result, and the ponder cost if there is adaptive halting.

        ``signal`` holds position embeddings. If ``complete``, no layer is left out, so that a cache is filled.
        """
        x = drop(self.dropout, x if signal is None else x + signal)
        for depth in range(len(self.blocks)):
            collector.add_hidden_state(x)
            x = run(x, depth)
        return x, None

    def _bias(
        self, heads: str, x: Float[Tensor, "batch length d_model"], own: TokenLayout
    ) -> Float[Tensor, "*batch heads q k"]:
        own = relative_layout(own)
        total = x[:1, :1].expand(1, own.offset + x.shape[1], -1)  # only the length counts
        # Called as a module, so that hooks can fetch a table that is kept elsewhere.
        query, memory = Tokens(x, own.positions, start=own.offset), Tokens(total, own.memory_positions)
        logits: Logits = self.relative[heads](query, memory)
        return logits.as_tensor()
