"""Attention on accelerators by torch's fused kernel, for sums of products and biases.

A sum of products is one product of the factors side by side, and a bias with one row is one more column of them. So
these sums need no mask of floats, and every fused kernel takes them. What is left is written out as such a mask.

Key padding is a column as well where there is another mask or a bias: the key of a padding token has the entry
``PADDED``, which every query multiplies by one. The weight of such a key is exactly zero, since ``PADDED`` absorbs any
logit, and a row that sees nothing but padding stays finite until it is set to zero. Nothing of the size
``(batch, q, k)`` is made for it.

Large masks are written for a few examples at a time, forward and backward: the backward pass computes each chunk again.
"""

from dataclasses import replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from synthattn.engine import second_order, thresholds
from synthattn.engine.call import Call
from synthattn.engine.projection import needs_grad
from synthattn.logits import Bias, ByDistance, Logits, LogitTerm, Product
from synthattn.masks import Mask
from synthattn.shapes import Bool, Float

PADDED = -1e30


def attend(call: Call) -> Float[Tensor, "batch heads q width"] | None:
    """Attend by torch's kernel. Declines sums of other terms than products, biases and logits by distance."""
    terms, mask = call.logits.terms, call.mask
    if not all(isinstance(term, Product | Bias | ByDistance) for term in terms):
        return None
    value = call.values.batch_major()
    others = mask.causal or mask.allowed_pairs is not None or not any(isinstance(term, Product) for term in terms)
    as_column = mask.unpadded is not None and not mask.per_example and _holds_padded(terms, value)
    tables_left = any(not _fits_a_column(term, call.q) for term in terms)
    unpadded = mask.unpadded if as_column and (others or tables_left) else None
    if unpadded is None and not any(isinstance(term, Product) for term in terms):
        return None
    factors, tables = factors_and_rest(terms, value, call.q, unpadded)
    # A kernel of CUDA reads memory that is not its own where the mask alone needs a gradient.
    bias_needs_grad = needs_grad(*second_order.take_apart(tables)[0])
    if bias_needs_grad and not needs_grad(factors.query, factors.key, factors.value):
        return None
    bias = tables.as_tensor().to(factors.query.dtype) if tables.terms else None
    if unpadded is None:
        result = _in_chunks(factors, bias, call, mask)
    else:
        result = _in_chunks(factors, bias, call, replace(mask, unpadded=None))
        result = result.masked_fill(_sees_padding_alone(mask, unpadded, call.q), 0.0)
    return twice_differentiable(result[..., : value.shape[-1]], call, value)


def twice_differentiable(result: Tensor, call: Call, value: Tensor) -> Tensor:
    """Return the result of a kernel with a gradient that has one itself. With dropout, only torch knows its mask."""
    if not result.requires_grad or call.dropout > 0.0:
        return result
    tensors, rebuild = second_order.take_apart(call.logits)
    mask, dtype = call.mask, result.dtype

    def in_torch(value: Tensor, *tensors: Tensor) -> Tensor:
        return second_order.softmax_times_value(rebuild(tensors), value, mask).to(dtype)

    return second_order.twice_differentiable(result, in_torch, value, *tensors)


class Factors(NamedTuple):
    """The arguments of the kernel beside the mask, with an axis for examples and one for heads."""

    query: Tensor
    key: Tensor
    value: Tensor
    scale: float


def _holds_padded(terms: tuple[LogitTerm, ...], value: Tensor) -> bool:
    """Return True if the kernel computes in a type that has the number ``PADDED``, which float16 has not."""
    device = value.device.type
    dtypes = {value.dtype, *(term.query.dtype for term in terms if isinstance(term, Product))}
    if torch.is_autocast_enabled(device):
        dtypes.add(torch.get_autocast_dtype(device))
    return torch.float16 not in dtypes


def _fits_a_column(term: LogitTerm, q: int) -> bool:
    """Return True if a term is a product, or the same row for several queries."""
    return isinstance(term, Product) or (isinstance(term, Bias) and term.table.shape[-2] == 1 and q > 1)


def _sees_padding_alone(mask: Mask, unpadded: Bool[Tensor, "batch k"], q: int) -> Bool[Tensor, "batch 1 #q 1"]:
    """Return True for rows that no key is left for, without a tensor for all pairs of each example."""
    k = unpadded.shape[-1]
    if mask.allowed_pairs is not None:
        shared = mask.shared(q, k, unpadded.device)
        assert shared is not None
        count = unpadded.float() @ shared.float().mT
    elif mask.causal:
        count = unpadded.cumsum(-1)[:, torch.arange(q, device=unpadded.device).clamp(max=k - 1)]
    else:
        count = unpadded.sum(-1, keepdim=True)
    return (count == 0)[:, None, :, None]


def factors_and_rest(
    terms: tuple[LogitTerm, ...], value: Tensor, q: int, unpadded: Bool[Tensor, "batch k"] | None
) -> tuple[Factors, Logits]:
    """Return the factors of the terms that one product can compute, and the other terms."""
    batch, heads, k, _ = value.shape
    products = [term for term in terms if isinstance(term, Product)]
    products.sort(key=lambda product: product.input_independent)  # stable: products of the input come first
    dtype = products[0].query.dtype if products and not products[0].input_independent else value.dtype
    rows = [term for term in terms if isinstance(term, Bias) and _fits_a_column(term, q)]
    room = thresholds.WIDEST_HEAD - len(rows) - (unpadded is not None)
    joined = products[:1]
    for product in products[1:]:
        if sum(p.query.shape[-1] for p in joined) + product.query.shape[-1] <= room:
            joined.append(product)
    chosen = [*joined, *rows]
    rest = Logits(tuple(term for term in terms if all(term is not other for other in chosen)))
    value = value.to(dtype)
    if len(chosen) == 1 and joined and unpadded is None and joined[0].query.shape[-1] == value.shape[-1]:
        query, key = (t.to(dtype).expand(batch, heads, -1, -1) for t in (joined[0].query, joined[0].key))
        return Factors(query, key, value, joined[0].scale), rest
    queries = [product.query if product.scale == 1.0 else product.query * product.scale for product in joined]
    keys = [product.key for product in joined]
    for row in rows:
        queries.append(value.new_ones(1, 1, q, 1))
        keys.append(row.as_tensor().mT)
    if unpadded is not None:
        queries.append(value.new_ones(1, 1, q, 1))
        keys.append(value.new_zeros(1, 1, k, 1).masked_fill(~unpadded[:, None, :, None], PADDED))
    query = _side_by_side(queries, (batch, heads, q), dtype)
    key = _side_by_side(keys, (batch, heads, k), dtype)
    # Kernels take widths that are a multiple of eight, and the fastest ones the same width for values.
    width = -(-max(query.shape[-1], value.shape[-1]) // 8) * 8
    query, key, value = (F.pad(t, (0, width - t.shape[-1])) for t in (query, key, value))
    return Factors(query, key, value, 1.0), rest


def _side_by_side(factors: list[Tensor], shape: tuple[int, int, int], dtype: torch.dtype) -> Tensor:
    return torch.cat([factor.to(dtype).expand(*shape, -1) for factor in factors], dim=-1)


def _in_chunks(factors: Factors, bias: Tensor | None, call: Call, mask: Mask) -> Float[Tensor, "batch heads q width"]:
    """Call the kernel, for a few examples at a time where a mask would otherwise be large."""
    query, key, value, scale = factors
    dropout, batch = call.dropout, len(query)
    of_examples = mask.unpadded is not None or mask.per_example
    entries = 0
    if bias is not None and (of_examples or needs_grad(bias)):
        entries = call.logits_per_example
    elif of_examples and (mask.causal or mask.allowed_pairs is not None):
        entries = call.logits_per_example // (1 if mask.per_example else query.shape[1])
    size = max(1, thresholds.FUSED_MASK // entries) if entries else batch
    if size >= batch:
        return _call_torch(query, key, value, bias, mask, dropout, scale)
    found = []
    for start in range(0, batch, size):
        some = slice(start, min(start + size, batch))
        part = bias[some] if bias is not None and bias.dim() == 4 and len(bias) > 1 else bias
        arguments = query[some], key[some], value[some], part, mask.of_examples(some), dropout, scale
        if needs_grad(query, key, value, bias):
            found.append(checkpoint(_call_torch, *arguments, use_reentrant=False, preserve_rng_state=dropout > 0.0))
        else:
            found.append(_call_torch(*arguments))
    return torch.cat(found)


def _call_torch(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, mask: Mask, dropout: float, scale: float
) -> Float[Tensor, "batch heads q width"]:
    q, k = query.shape[-2], key.shape[-2]
    causal = bias is None and mask.causal and mask.unpadded is None and mask.allowed_pairs is None
    mask, empty = mask.fill_empty_rows(q, k)
    attn_mask = None if causal else mask.full(q, k, query.device)
    if bias is not None:
        # Even where no gradient is asked for, a bias that could have one would keep torch from its fused kernel.
        bias = bias if torch.is_grad_enabled() else bias.detach()
        bias = bias if attn_mask is None else bias.masked_fill(~attn_mask, float("-inf"))
        attn_mask = bias.expand(*query.shape[:-1], k)
    result = F.scaled_dot_product_attention(
        query, key, value, attn_mask=attn_mask, dropout_p=dropout, is_causal=causal, scale=scale
    )
    return result if empty is None else result.masked_fill(empty, 0.0)
