"""Read the masks that a transformers model hands to its attention."""

from dataclasses import dataclass

import torch
from torch import Tensor

from synthattn.masks import Mask
from synthattn.tracing import is_tracing


@dataclass(frozen=True)
class ReadMask:
    """A mask in the form of this package.

    Attributes:
        mask: the keys that each query may attend to.
        bias: finite numbers of a float mask, added to the logits.
        padding: the number of padding tokens before the first token of each example, ``(batch,)``; None if there are
            none.
    """

    mask: Mask
    bias: Tensor | None = None
    padding: Tensor | None = None


def read_mask(given: Tensor | None, causal: bool, batch: int, q: int, k: int) -> ReadMask:
    """Convert a mask of ``sdpa`` (bool, True = attend) or ``eager`` (float, added to the logits).

    Without a mask, ``causal`` says that each of several queries attends to the keys before it, as with ``sdpa``.
    All layers get the same tensor, so what was read is kept with it.
    """
    if given is None:
        return ReadMask(Mask(causal=causal and q > 1))
    if given.dim() != 4:
        raise ValueError(
            f"the model made a mask of {given.dim()} axes, synthetic attention needs the masks of sdpa or eager; call "
            "model.set_attn_implementation('sdpa')"
        )
    if is_tracing(given):
        allowed, bias = _split(given)
        allowed = allowed[..., :k]
        return ReadMask(Mask(allowed_pairs=allowed), None if bias is None else bias[..., :k], _leading(allowed))
    state = (batch, q, k, None if given.is_inference() else given._version)
    known = getattr(given, "_synthattn_read", None)
    if known is None or known[0] != state:
        known = (state, _read(given, batch, q, k))
        given._synthattn_read = known  # pyright: ignore[reportAttributeAccessIssue]
    return known[1]


def _read(given: Tensor, batch: int, q: int, k: int) -> ReadMask:
    allowed, bias = _split(given)
    allowed = allowed[..., :k]
    bias = None if bias is None or not bool((bias[..., :k] != 0).any()) else bias[..., :k]
    padding = _leading(allowed)
    padding = None if not bool(padding.any()) else padding.expand(batch)
    return ReadMask(_simplified(allowed, batch, q, k), bias, padding)


def _split(given: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return the condition in a mask, and the rest of a float mask."""
    if given.dtype == torch.bool:
        return given, None
    # The lowest number stands for minus infinity; a sum of two masks may hold half of it.
    allowed = given > torch.finfo(given.dtype).min / 4
    return allowed, given.masked_fill(~allowed, 0.0)


def _leading(allowed: Tensor) -> Tensor:
    """Count the keys of each example before the first that any query attends to."""
    seen = allowed[:, 0].any(-2) if allowed.shape[1] == 1 else allowed.any(1).any(-2)
    return (seen.cumsum(-1) == 0).sum(-1).clamp(max=allowed.shape[-1] - 1)


def _simplified(allowed: Tensor, batch: int, q: int, k: int) -> Mask:
    """Split a mask into padding and what all examples share, which fast paths need."""
    if allowed.shape[1] != 1:
        return Mask(allowed_pairs=allowed.expand(batch, -1, -1, -1))
    rows = allowed[:, 0].expand(-1, q, -1)
    keep = rows.any(1)
    whole = keep[:, None]
    padding = None if bool(keep.all()) else keep.expand(batch, -1)
    if q == 1 or bool((rows == whole).all()):
        return Mask(padding)
    past = torch.ones(q, k, dtype=torch.bool, device=allowed.device).tril()
    if bool((rows == (past & whole)).all()):
        return Mask(None if bool((past.any(0) <= keep).all()) else padding, causal=True)
    shared = rows.any(0)
    if bool((rows == (shared & whole)).all()):
        return Mask(padding, allowed_pairs=shared)
    return Mask(allowed_pairs=allowed.expand(batch, -1, -1, -1))
