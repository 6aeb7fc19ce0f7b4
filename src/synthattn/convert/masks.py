"""Read the masks that a transformers model hands to its attention."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from synthattn.masks import Mask
from synthattn.tracing import Conditions, is_tracing


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
    bias, padding = None if bias is None else bias[..., :k], _leading(allowed)
    known = Conditions(_questions(allowed, bias, padding, q, k), given.device)
    bias = None if bias is None or not known["bias"] else bias
    padding = None if not known["leading"] else padding.expand(batch)
    return ReadMask(_simplified(allowed, known, batch, q, k), bias, padding)


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


def _questions(
    allowed: Tensor, bias: Tensor | None, padding: Tensor, q: int, k: int
) -> dict[str, Callable[[], Tensor]]:
    """Return what is asked of a mask to write it as one of the forms that fast paths take."""
    questions: dict[str, Callable[[], Tensor]] = {"leading": padding.any}
    if bias is not None:
        questions["bias"] = (bias != 0).any
    if allowed.shape[1] == 1:
        rows, keep, past = _rows(allowed, q), _keys(allowed, q), _past(q, k, allowed.device)
        questions |= {
            "no padding": lambda: keep.all(),
            "padding alone": lambda: (rows == keep[:, None]).all(),
            "causal": lambda: (rows == (past() & keep[:, None])).all(),
            "causal alone": lambda: (past().any(0) <= keep).all(),
            "shared": lambda: (rows == (rows.any(0) & keep[:, None])).all(),
        }
    return questions


def _simplified(allowed: Tensor, known: Conditions, batch: int, q: int, k: int) -> Mask:
    """Split a mask into padding and what all examples share, which fast paths need."""
    if allowed.shape[1] != 1:
        return Mask(allowed_pairs=allowed.expand(batch, -1, -1, -1))
    padding = None if known["no padding"] else _keys(allowed, q).expand(batch, -1)
    if q == 1 or known["padding alone"]:
        return Mask(padding)
    if known["causal"]:
        return Mask(None if known["causal alone"] else padding, causal=True)
    if known["shared"]:
        return Mask(padding, allowed_pairs=_rows(allowed, q).any(0))
    return Mask(allowed_pairs=allowed.expand(batch, -1, -1, -1))


def _rows(allowed: Tensor, q: int) -> Tensor:
    return allowed[:, 0].expand(-1, q, -1)


def _keys(allowed: Tensor, q: int) -> Tensor:
    """Return True for keys that some query attends to."""
    return _rows(allowed, q).any(1)


def _past(q: int, k: int, device: torch.device) -> Callable[[], Tensor]:
    return lambda: torch.ones(q, k, dtype=torch.bool, device=device).tril()
