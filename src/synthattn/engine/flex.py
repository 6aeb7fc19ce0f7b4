"""Backend by choice: torch's ``flex_attention`` on accelerators, for products with tables beside them.

``SYNTHATTN_FLEX=1`` asks for it. It takes the sums for which torch's other kernels need a mask of floats: a table is
read where it is, by all examples, and never written out for each of them. What it cannot compute goes to the other
backends.

The weights of a mixture are multiplied into the table outside of the kernel. Inside, the gradient of a weight would be
a sum over all pairs, each added to the same address by an atomic operation. Logits by distance are captured as a vector
with an entry for each diagonal, for the same reason. Both are in float32: sums in half precision stop growing.
"""

import functools
import os
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._triton import has_triton

from synthattn.engine import sdpa_sums
from synthattn.engine.call import Call
from synthattn.logits import Bias, ByDistance, Logits, Product
from synthattn.masks import Mask
from synthattn.shapes import Float

Function = Callable[..., Any]
NARROWEST = 16  # the narrowest heads that the kernel takes
ENTRIES = 2**31  # the kernel counts the entries of a table in 32 bits


def attend(call: Call) -> Float[Tensor, "batch heads q width"] | None:
    """Attend by torch's compiled kernel, if it was asked for. Declines traced calls, float64 and dropout."""
    if call.values.device.type == "cpu" or not _is_asked_for():
        return None
    if call.is_tracing or call.dropout > 0.0 or call.values.dtype == torch.float64:
        return None
    if not has_triton():
        raise ValueError("SYNTHATTN_FLEX=1 needs a GPU that Triton supports, and Triton; leave SYNTHATTN_FLEX out")
    return attend_by(_compiled(), call)


def attend_by(kernel: Function, call: Call) -> Float[Tensor, "batch heads q width"] | None:
    """Attend by ``flex_attention``, compiled or not. Declines sums without a product or without a table beside it."""
    terms, mask = call.logits.terms, call.mask
    if mask.per_example or not any(isinstance(term, Product) for term in terms):
        return None
    if not all(isinstance(term, Product | Bias | ByDistance) for term in terms):
        return None
    value = call.values.batch_major()
    factors, rest = sdpa_sums.factors_and_rest(terms, value, call.q, None)
    tables = [term for term in rest.terms if not isinstance(term, ByDistance)]
    distances = [term for term in rest.terms if isinstance(term, ByDistance)]
    table = _in_single(Logits(tuple(tables)).as_tensor()) if tables else None
    if not rest.terms or (table is not None and table.numel() >= ENTRIES):
        return None
    diagonals = _in_single(sum(term.diagonals() for term in distances)) if distances else None
    (batch, heads, q, width), k = factors.query.shape, factors.key.shape[-2]
    if table is not None:
        table = table.squeeze(0) if table.dim() == 4 and len(table) == 1 else table
        table = table.expand(*table.shape[:-3], heads, q, k)
    padding = (0, max(0, NARROWEST - width))
    query, key, values = (F.pad(t, padding).contiguous() for t in (factors.query, factors.key, factors.value))
    modify = _score_function(table, diagonals, q)
    seen = _block_mask(mask, batch, q, k, value.device)
    result = kernel(query, key, values, score_mod=modify, block_mask=seen, scale=factors.scale)
    return sdpa_sums.twice_differentiable(result[..., : value.shape[-1]], call, value)


def _is_asked_for() -> bool:
    asked = os.environ.get("SYNTHATTN_FLEX", "0")
    if asked not in ("0", "1"):
        raise ValueError(f"SYNTHATTN_FLEX must be 0 or 1, got {asked!r}")
    return asked == "1"


@functools.cache
def _compiled() -> Function:
    from torch._dynamo.exc import TorchDynamoException
    from torch.nn.attention.flex_attention import flex_attention

    compiled: Function = torch.compile(flex_attention)

    def kernel(*args: Tensor, **options: Any) -> Tensor:
        try:
            return compiled(*args, **options)
        except TorchDynamoException as error:
            why = (str(error).splitlines() or [""])[0]
            raise ValueError(f"torch cannot compile flex_attention: {why}; leave SYNTHATTN_FLEX out") from error

    return kernel


def _in_single(table: Any) -> Tensor:
    return table.to(torch.promote_types(table.dtype, torch.float32))


def _score_function(table: Tensor | None, diagonals: Tensor | None, q: int) -> Function:
    """Return a function that adds the entries of a table and of diagonals to a logit."""
    tensor = diagonals if table is None else table
    assert tensor is not None
    first = torch.full((), q - 1, device=tensor.device)  # as a number, each length would be compiled anew

    def add(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        if table is not None:
            score = score + (table[h, i, j] if table.dim() == 3 else table[b, h, i, j])
        return score if diagonals is None else score + diagonals[h, j - i + first]

    return add


def _block_mask(mask: Mask, batch: int, q: int, k: int, device: torch.device) -> Any:
    """Return the blocks of a mask, of which the kernel skips those that are empty, or None for no mask."""
    from torch.nn.attention.flex_attention import create_block_mask

    causal, unpadded, pairs = mask.causal, mask.unpadded, mask.allowed_pairs
    if not causal and unpadded is None and pairs is None:
        return None

    def allowed(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        found = j <= i if causal else j >= 0
        found = found if unpadded is None else found & unpadded[b, j]
        return found if pairs is None else found & pairs[i, j]

    return create_block_mask(allowed, None if unpadded is None else batch, None, q, k, device=device)
