"""Backend: a local window, in time linear in the length.

The weights of 64 neighbouring queries form a band that touches ``64 + width - 1`` keys. Padding each row with zeros
and reading the same memory with rows one entry shorter shifts every row by one place, which turns the window into
that band without a scatter; the rest is one small dense product per block.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from synthattn.engine import thresholds
from synthattn.engine.call import Call
from synthattn.logits import Window
from synthattn.shapes import Float
from synthattn.tracing import is_tracing


def attend(call: Call) -> Float[Tensor, "batch heads q width"] | None:
    """Softmax within each window, over the keys that exist and are not masked.

    Declines where the logits are anything but one window around each query.
    """
    (term, *others), mask = call.logits.terms, call.mask
    if others or not isinstance(term, Window) or term.distance is not None or mask.allowed_pairs is not None:
        return None
    logits, value = term.values, call.values.batch_major()
    length, width = logits.shape[-2:]
    offsets = torch.arange(width, device=logits.device) - width // 2
    keys = torch.arange(length, device=logits.device)[:, None] + offsets
    allowed = (keys >= 0) & (keys < length)
    if mask.causal:
        allowed = allowed & (offsets <= 0)
    if mask.unpadded is not None:
        allowed = allowed & mask.unpadded[:, None, keys.clamp(0, length - 1)]
    # The centre stands in where no key is left; the row is zeroed below.
    logits = logits.masked_fill(~allowed, float("-inf"))
    empty = ~allowed.any(-1, keepdim=True)
    logits = logits.masked_fill(empty & (offsets == 0), 0.0)
    weights = logits.softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32)).masked_fill(empty, 0.0)
    weights = F.dropout(weights, call.dropout) if call.dropout > 0.0 else weights
    return multiply(weights.to(value.dtype), value)


def multiply(
    weights: Float[Tensor, "batch heads length width"], value: Float[Tensor, "batch heads length features"]
) -> Float[Tensor, "batch heads length features"]:
    """Return ``y[i] = sum over c of weights[i, c] * value[i + c - width // 2]``, with zeros for values outside."""
    batch, heads, length, width = weights.shape
    left = width // 2
    if is_tracing(value):  # the number of blocks would be baked into the graph
        keys = torch.arange(length, device=value.device)[:, None] + torch.arange(width, device=value.device) - left
        inside = (keys >= 0) & (keys < length)
        windows = value[:, :, keys.clamp(0, length - 1)]
        return ((weights * inside).unsqueeze(-1) * windows).sum(-2)
    block = thresholds.WINDOW_ROWS
    missing = -length % block
    span = block + width - 1
    rows = F.pad(weights, (0, block, 0, missing)).view(batch, heads, -1, block * (block + width))
    bands = rows[..., : block * span].view(batch, heads, -1, block, span)
    padded = F.pad(value, (0, 0, left, width - 1 - left + missing))
    windows = padded.unfold(-2, span, block).transpose(-1, -2)
    return (bands @ windows).flatten(2, 3)[:, :, :length]
