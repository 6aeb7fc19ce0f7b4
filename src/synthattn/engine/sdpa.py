"""Backend: torch's fused kernel, ``scaled_dot_product_attention``, for one product, or one with a bias."""

import torch
import torch.nn.functional as F
from torch import Tensor

from synthattn.engine import sdpa_sums, second_order, thresholds
from synthattn.engine.call import Call
from synthattn.engine.projection import needs_grad
from synthattn.logits import Bias, ByDistance, Logits, Product
from synthattn.masks import Mask
from synthattn.shapes import Float


def attend(call: Call) -> Float[Tensor, "batch heads q width"] | None:
    """Attend by torch's kernel. Declines where torch would write all weights out, or compute them otherwise."""
    if not call.is_tracing and call.values.device.type != "cpu":
        return sdpa_sums.attend(call)
    batch, _, k, width = call.values.shape
    terms = call.logits.terms
    products = [term for term in terms if isinstance(term, Product) and not term.input_independent]
    if len(products) != 1:
        return None
    (product,) = products
    others = Logits(tuple(term for term in terms if term is not product))
    if product.query.shape[-1] != width or not all(isinstance(t, Product | Bias | ByDistance) for t in others.terms):
        return None
    if not call.is_tracing and k < thresholds.FUSED_KEYS:
        return None
    if others.terms:
        tensors = second_order.take_apart(others)[0] if torch.is_grad_enabled() else []
        if call.is_tracing or needs_grad(*tensors):
            return None
        by_example = call.mask.unpadded is not None or call.mask.per_example
        if by_example and batch * call.logits_per_example >= thresholds.CHUNKED_LOGITS:
            return None  # the bias would be written for every example
    value = call.values.batch_major().to(product.query.dtype)
    mask, empty = call.mask.fill_empty_rows(call.q, k)
    bias = others.as_tensor() if others.terms else None
    result = _call_torch(product, bias, value, mask, call.dropout)
    if call.dropout == 0.0:  # with dropout, only torch knows what was dropped
        result = second_order.twice_differentiable_sum(result, call.logits, value, mask)
    return result if empty is None else result.masked_fill(empty, 0.0)


def _call_torch(product: Product, bias: Tensor | None, value: Tensor, mask: Mask, dropout: float) -> Tensor:
    batch, heads = value.shape[:2]
    query, key = _for_every_head(product.query, batch, heads), _for_every_head(product.key, batch, heads)
    causal = bias is None and mask.causal and mask.unpadded is None and mask.allowed_pairs is None
    attn_mask = None if causal else mask.full(query.shape[-2], key.shape[-2], query.device)
    if bias is not None:
        # Even where no gradient is asked for, a bias that could have one would keep torch from its fused kernel.
        bias = bias if torch.is_grad_enabled() else bias.detach()
        bias = bias.to(query.dtype)
        bias = bias if attn_mask is None else bias.masked_fill(~attn_mask, float("-inf"))
        attn_mask = bias.expand(*query.shape[:-1], key.shape[-2])
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=attn_mask, dropout_p=dropout, is_causal=causal, scale=product.scale
    )


def _for_every_head(tensor: Tensor, batch: int, heads: int) -> Float[Tensor, "batch heads length width"]:
    complete = tensor.dim() == 4 and tensor.shape[:2] == (batch, heads)
    return tensor if complete else tensor.expand(batch, heads, -1, -1)
