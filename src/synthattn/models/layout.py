"""Convert Hugging Face's masks (1 = a token, 0 = padding) and positions to token layouts."""

from dataclasses import replace

import torch
from torch import Tensor

from synthattn.layers import TokenLayout
from synthattn.tracing import Conditions, is_tracing, is_unreadable


def relative_layout(layout: TokenLayout) -> TokenLayout:
    """Drop the positions if they do not change the distances between tokens.

    This is so after padding on the left: all positions are smaller than the indices by the same number.
    """
    keys, padding = layout.memory_positions, layout.key_padding_mask
    if keys is None or is_unreadable(keys):
        return layout
    shift = torch.arange(keys.shape[-1], device=keys.device) - keys
    lowest, highest = shift, shift
    if padding is not None:
        lowest, highest = shift.masked_fill(padding, shift.numel()), shift.masked_fill(padding, -shift.numel())
    equal = bool((lowest.amin(-1) >= highest.amax(-1)).all())
    return replace(layout, positions=None, memory_positions=None) if equal else layout


def cross_layout(own: TokenLayout, source: TokenLayout, length: int, beams: int, device: torch.device) -> TokenLayout:
    """Return the layout of attention from the tokens of ``own`` to the tokens of ``source``."""
    positions = own.positions
    if beams > 1:  # the beams of one source are more queries for it
        positions = own.query_positions(length, device)
        positions = positions.repeat(beams) if positions.dim() == 1 else positions.reshape(-1, beams * length)
    return replace(source, positions=positions, offset=own.offset, beams=beams)


def token_layout(
    attention_mask: Tensor | None,
    position_ids: Tensor | None,
    batch: int,
    length: int,
    offset: int,
    earlier: Tensor | None = None,
    prefix: str = "",
    longest: int | None = None,
) -> TokenLayout:
    """Convert a mask and positions in the convention of Hugging Face.

    Padding has no positions: the first token after padding on the left is at position 0, as in ``generate``.

    Args:
        attention_mask: 1 = a token, 0 = padding, ``(batch, tokens so far)``; or the whole mask with four axes.
        position_ids: positions of the tokens; None for the positions that the mask implies.
        batch: number of examples.
        length: number of tokens in this call.
        offset: number of tokens that were decoded earlier.
        earlier: positions of these tokens; None for the positions that the mask implies.
        prefix: prefix of the names of arguments in messages.
        longest: the longest input. Padding may reach beyond it.
    """
    if position_ids is not None and (
        position_ids.shape not in ((length,), (1, length), (batch, length)) or position_ids.is_floating_point()
    ):
        raise ValueError(
            f"{prefix}position_ids must have one whole number for each of {length} tokens, once or for each of {batch} "
            f"examples, got {str(position_ids.dtype).removeprefix('torch.')} of shape {tuple(position_ids.shape)}"
        )
    padding = mask = implied = is_token = None
    if attention_mask is not None and attention_mask.dim() == 4:
        if attention_mask.is_floating_point():
            _check_added(attention_mask, prefix)
        mask = attention_mask if attention_mask.is_floating_point() else attention_mask == 0
        mask = mask.expand(batch, -1, -1, -1)
    elif attention_mask is not None:
        if attention_mask.shape != (batch, offset + length):
            raise ValueError(
                f"{prefix}attention_mask must have shape (batch, tokens so far) = ({batch}, {offset + length}), or "
                f"four axes with queries and keys, got {tuple(attention_mask.shape)}"
            )
        is_token = attention_mask != 0
    known = _conditions(is_token, position_ids, offset)
    if is_token is not None and not (known and known["no padding"]):
        padding, implied = ~is_token, _implied(is_token)
        # Padding beyond the longest input must not be at positions beyond it.
        if not known or longest is None or offset + length <= longest:
            implied = None if known and known["implied as indices"] else _one_row(implied)
    if position_ids is None and earlier is None:
        return TokenLayout(padding, mask, False, None if implied is None else implied[..., offset:], implied, offset)
    if position_ids is None:
        queries = None if implied is None else implied[..., offset:]
    else:
        queries = None if known and known["given as indices"] else _one_row(position_ids)
    if queries is None and earlier is None:
        return TokenLayout(padding, mask, False, None, implied if position_ids is None else None, offset)
    device = next(t.device for t in (position_ids, earlier, attention_mask) if t is not None)
    indices = torch.arange(offset + length, device=device)
    past = earlier[..., :offset] if earlier is not None else (indices if implied is None else implied)[..., :offset]
    new = indices[offset:] if queries is None else queries
    if past.dim() != new.dim():
        past, new = (t.expand(batch, -1) for t in (past, new))
    return TokenLayout(padding, mask, False, queries, torch.cat([past, new], dim=-1), offset)


def _check_added(mask: Tensor, prefix: str) -> None:
    """Raise a ValueError for a float mask of ones and zeros, which would mask nothing if added to the logits."""
    if not is_tracing(mask) and bool(((mask == 0) | (mask == 1)).all()) and bool(mask.any()):
        raise ValueError(
            f"{prefix}attention_mask of four axes is {str(mask.dtype).removeprefix('torch.')} with ones and zeros, but "
            "floats are added to the logits (0 = attend, -inf = not); pass it as bool or int"
        )


def _conditions(is_token: Tensor | None, position_ids: Tensor | None, offset: int) -> Conditions | None:
    """Return what can be asked of a mask and of positions; None if they are traced.

    Tables are read at positions only where this is necessary: at indices, all examples share what is read.
    """
    questions = {}
    if is_token is not None:
        questions["no padding"] = is_token.all
        questions["implied as indices"] = lambda: _are_indices(_implied(is_token), 0, is_token)
    if position_ids is not None:
        new = None if is_token is None else is_token[:, offset:]
        questions["given as indices"] = lambda: _are_indices(position_ids, offset, new)
    given = [tensor for tensor in (is_token, position_ids) if tensor is not None]
    if any(map(is_tracing, given)):
        return None
    return Conditions(questions, given[0].device if given else torch.device("cpu"))


def _implied(is_token: Tensor) -> Tensor:
    """Return the positions that a mask implies: 0, 1, ... for its tokens."""
    return (is_token.long().cumsum(-1) - 1).clamp(min=0)


def _are_indices(positions: Tensor, start: int, is_token: Tensor | None) -> Tensor:
    """Return a tensor of True if all tokens except padding are at start, start + 1, ..."""
    as_indices = positions == torch.arange(start, start + positions.shape[-1], device=positions.device)
    return (as_indices if is_token is None else as_indices | ~is_token).all()


def _one_row(positions: Tensor) -> Tensor:
    return positions[0] if positions.dim() == 2 and positions.shape[0] == 1 else positions
