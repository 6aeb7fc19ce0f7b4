"""Token layouts from Hugging Face's masks (1 = a token, 0 = padding) and positions."""

from dataclasses import replace

import torch
from torch import Tensor

from synthattn.layers import TokenLayout
from synthattn.tracing import is_tracing


def relative_layout(layout: TokenLayout) -> TokenLayout:
    """Drop the positions where distances between tokens are those of their indices.

    That is so after padding on the left: all positions are smaller than the indices, by as much.
    """
    keys, padding = layout.memory_positions, layout.key_padding_mask
    if keys is None or is_tracing(keys):
        return layout
    shift = torch.arange(keys.shape[-1], device=keys.device) - keys
    least, most = shift, shift
    if padding is not None:
        least, most = shift.masked_fill(padding, shift.numel()), shift.masked_fill(padding, -shift.numel())
    even = bool((least.amin(-1) >= most.amax(-1)).all())
    return replace(layout, positions=None, memory_positions=None) if even else layout


def cross_layout(own: TokenLayout, source: TokenLayout, length: int, beams: int, device: torch.device) -> TokenLayout:
    """Return the layout of attention from some tokens to those of a source."""
    positions = own.positions
    if beams > 1:  # beams of the same source are as many queries to it
        positions = own.query_positions(length, device)
        positions = positions.repeat(beams) if positions.dim() == 1 else positions.reshape(-1, beams * length)
    return replace(source, positions=positions, offset=own.offset, beams=beams)


def token_layout(
    attention_mask: Tensor | None,
    position_ids: Tensor | None,
    batch: int,
    length: int,
    offset: int,
    before: Tensor | None = None,
    what: str = "",
    longest: int | None = None,
) -> TokenLayout:
    """Read a mask and positions in the convention of Hugging Face.

    Padding does not count: the first token after padding on the left is at position 0, as in ``generate``.

    Args:
        attention_mask: 1 = a token, 0 = padding, ``(batch, tokens so far)``; or the whole mask with four axes.
        position_ids: positions of the tokens, where they are not those that the mask implies.
        batch: number of examples.
        length: number of tokens in this call.
        offset: number of tokens that were decoded before.
        before: positions of the tokens that were decoded before, where they are not those that the mask implies.
        what: a prefix of the arguments' names in messages.
        longest: the longest input. Padding may reach beyond it.
    """
    if position_ids is not None and (
        position_ids.shape not in ((length,), (1, length), (batch, length)) or position_ids.is_floating_point()
    ):
        raise ValueError(
            f"{what}position_ids must have one whole number for each of {length} tokens, once or for each of {batch} "
            f"examples, got {str(position_ids.dtype).removeprefix('torch.')} of shape {tuple(position_ids.shape)}"
        )
    padding = mask = where = kept = None
    if attention_mask is not None and attention_mask.dim() == 4:
        if attention_mask.is_floating_point():
            _check_added(attention_mask, what)
        mask = attention_mask if attention_mask.is_floating_point() else attention_mask == 0
        mask = mask.expand(batch, -1, -1, -1)
    elif attention_mask is not None:
        if attention_mask.shape != (batch, offset + length):
            raise ValueError(
                f"{what}attention_mask must have shape (batch, tokens so far) = ({batch}, {offset + length}), or four "
                f"axes with queries and keys, got {tuple(attention_mask.shape)}"
            )
        kept = attention_mask != 0
        if is_tracing(kept) or not kept.all():
            padding = ~kept
            where = (kept.long().cumsum(-1) - 1).clamp(min=0)
            # Where padding reaches beyond it, it must not count as positions of its own.
            if is_tracing(kept) or longest is None or offset + length <= longest:
                where = _shared(where, 0, kept)
    if position_ids is None and before is None:
        return TokenLayout(padding, mask, False, None if where is None else where[..., offset:], where, offset)
    if position_ids is None:
        queries = None if where is None else where[..., offset:]
    else:
        queries = _shared(position_ids, offset, None if kept is None else kept[:, offset:])
    if queries is None and before is None:
        return TokenLayout(padding, mask, False, None, where if position_ids is None else None, offset)
    device = next(t.device for t in (position_ids, before, attention_mask) if t is not None)
    plain = torch.arange(offset + length, device=device)
    past = before[..., :offset] if before is not None else (plain if where is None else where)[..., :offset]
    new = plain[offset:] if queries is None else queries
    if past.dim() != new.dim():
        past, new = (t.expand(batch, -1) for t in (past, new))
    return TokenLayout(padding, mask, False, queries, torch.cat([past, new], dim=-1), offset)


def _check_added(mask: Tensor, what: str) -> None:
    """Refuse floats that are ones and zeros: added to the logits they would mask nothing, not even the future."""
    if not is_tracing(mask) and bool(((mask == 0) | (mask == 1)).all()) and bool(mask.any()):
        raise ValueError(
            f"{what}attention_mask of four axes is {str(mask.dtype).removeprefix('torch.')} with ones and zeros, but "
            "floats are added to the logits (0 = attend, -inf = not); pass it as bool or int"
        )


def _shared(positions: Tensor | None, start: int, kept: Tensor | None) -> Tensor | None:
    """Return the positions, or None where every token that counts is at start, start + 1, ..., which is faster."""
    if positions is None:
        return None
    positions = positions[0] if positions.dim() == 2 and positions.shape[0] == 1 else positions
    if is_tracing(positions):
        return positions
    plain = positions == torch.arange(start, start + positions.shape[-1], device=positions.device)
    return None if bool((plain if kept is None else plain | ~kept).all()) else positions
