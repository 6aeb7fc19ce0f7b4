"""From Hugging Face's masks (1 = a token, 0 = padding) to what the layers take: keys to ignore, and positions."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from synthattn.shapes import Bool, Int
from synthattn.tracing import is_tracing


@dataclass(frozen=True)
class Places:
    """What one call tells every layer of a stack about the tokens of an attention.

    Attributes:
        padding: True = ignore this key; None where nothing is padding.
        mask: True = may not attend, or a bias; given where the user made the whole mask, causality included.
        queries: positions of the queries, None where they are offset, offset + 1, ...
        keys: positions of the keys, None where they are 0, 1, ...
        offset: how many tokens were decoded before.
        beams: how many examples in a row attend to the same keys, which are there once for them.
    """

    padding: Bool[Tensor, "batch k"] | None = None
    mask: Tensor | None = None
    queries: Int[Tensor, "*batch q"] | None = None
    keys: Int[Tensor, "*batch k"] | None = None
    offset: int = 0
    beams: int = 1

    def to(self, device: torch.device, non_blocking: bool = False) -> "Places":
        """The same on another device, as accelerate asks for where a model's layers are on several."""
        tensors = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        moved = {name: value.to(device, non_blocking=non_blocking) for name, value in tensors.items()}
        return replace(self, **moved)

    def at(self, length: int, device: torch.device) -> Int[Tensor, "*batch q"]:
        """The positions of the queries, written out."""
        if self.queries is not None:
            return self.queries
        return torch.arange(self.offset, self.offset + length, device=device)

    def apart(self) -> "Places":
        """The same, without positions where distances between tokens are those of their places.

        So it is after padding on the left: all positions are smaller than the places, by as much.
        """
        if self.keys is None or is_tracing(self.keys):
            return self
        shift = torch.arange(self.keys.shape[-1], device=self.keys.device) - self.keys
        least, most = shift, shift
        if self.padding is not None:
            least, most = (
                shift.masked_fill(self.padding, shift.numel()),
                shift.masked_fill(self.padding, -shift.numel()),
            )
        even = bool((least.amin(-1) >= most.amax(-1)).all())
        return replace(self, queries=None, keys=None) if even else self

    def across(self, source: "Places", length: int, beams: int, device: torch.device) -> "Places":
        """Of attention from these tokens to those of a source."""
        queries = self.queries
        if beams > 1:  # beams of the same source are to it as many queries
            queries = self.at(length, device)
            queries = queries.repeat(beams) if queries.dim() == 1 else queries.reshape(-1, beams * length)
        return Places(source.padding, source.mask, queries, source.keys, self.offset, beams)


def places(
    attention_mask: Tensor | None,
    position_ids: Tensor | None,
    batch: int,
    length: int,
    offset: int,
    before: Tensor | None = None,
    what: str = "",
    longest: int | None = None,
) -> Places:
    """Read a mask and positions.

    Padding does not count: the first token after padding on the left is at position 0, as in ``generate``. ``before``
    are the positions of the tokens that were decoded earlier, where they are not those that the mask implies; ``what``
    is a prefix of the arguments' names in messages. Padding may reach beyond the ``longest`` input.
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
        return Places(padding, mask, None if where is None else where[..., offset:], where, offset)
    if position_ids is None:
        queries = None if where is None else where[..., offset:]
    else:
        queries = _shared(position_ids, offset, None if kept is None else kept[:, offset:])
    if queries is None and before is None:
        return Places(padding, mask, None, where if position_ids is None else None, offset)
    device = next(t.device for t in (position_ids, before, attention_mask) if t is not None)
    plain = torch.arange(offset + length, device=device)
    past = before[..., :offset] if before is not None else (plain if where is None else where)[..., :offset]
    new = plain[offset:] if queries is None else queries
    if past.dim() != new.dim():
        past, new = (t.expand(batch, -1) for t in (past, new))
    return Places(padding, mask, queries, torch.cat([past, new], dim=-1), offset)


def _check_added(mask: Tensor, what: str) -> None:
    """Added as they are, ones for tokens and zeros for padding would mask nothing, not even the future."""
    if not is_tracing(mask) and bool(((mask == 0) | (mask == 1)).all()) and bool(mask.any()):
        raise ValueError(
            f"{what}attention_mask of four axes is {str(mask.dtype).removeprefix('torch.')} with ones and zeros, but "
            "floats are added to the logits (0 = attend, -inf = not); pass it as bool or int"
        )


def _shared(positions: Tensor | None, start: int, kept: Tensor | None) -> Tensor | None:
    """None where every token that counts stands at start, start + 1, ...: the layers have faster ways then."""
    if positions is None:
        return None
    positions = positions[0] if positions.dim() == 2 and positions.shape[0] == 1 else positions
    if is_tracing(positions):
        return positions
    plain = positions == torch.arange(start, start + positions.shape[-1], device=positions.device)
    return None if bool((plain if kept is None else plain | ~kept).all()) else positions
