"""``attend``: softmax(logits) @ value, executed in the cheapest way that the logits allow.

=====================  ===========================================================  =======================
path                   runs when                                                    module
=====================  ===========================================================  =======================
batch-free             no logit depends on the input                                :mod:`.engine.batch_free`
banded                 the logits are a local window                                :mod:`.engine.banded`
native                 features x features with a bias, sums of such products:      :mod:`.engine.native`
                       float32 on the CPU, where the kernel was compiled
fused                  features x features, or with a bias that needs no gradient   torch's SDPA
blockwise              what is left on the CPU: bias gradients, sums of products    :mod:`.engine.blockwise`
plain                  weights wanted, dropout, small inputs, torch.compile         here
=====================  ===========================================================  =======================
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from synthattn.engine import banded, batch_free, blockwise, native, second_order
from synthattn.logits import Band, Features, Logits
from synthattn.masks import Mask
from synthattn.shapes import Float
from synthattn.tracing import is_tracing

NO_MASK = Mask()
# On the CPU, with fewer keys than a vector has floats, torch's fused kernel turns a row of NaN into zeros.
FUSED_KEYS = 16


def attend(
    logits: Logits,
    value: Float[Tensor, "batch heads k width"],
    mask: Mask = NO_MASK,
    dropout: float = 0.0,
) -> Float[Tensor, "batch heads q width"]:
    """Softmax over the keys that the mask leaves, applied to the values. A row without keys gives zeros.

    ``dropout`` is the probability of dropping an attention weight; the batch-free path drops for the whole batch.
    """
    if logits.batch_free and not mask.per_example:
        result = batch_free.attend(logits, value, mask, dropout)
        if result is not None:
            return result
    band = _lone_band(logits)
    if band is not None and mask.allowed is None:
        return banded.attend(band.values, value, mask, dropout)

    if dropout == 0.0:
        result = native.attend(logits, value, mask)
        if result is not None:
            return result
    logits = logits.with_shared_features_as_bias().with_one_bias()
    mask, dead = mask.within(logits.windows()).revived(logits.query_length, value.shape[-2])
    result = _attend_live(logits, value, mask, dropout)
    return result if dead is None else result.masked_fill(dead, 0.0)


def attend_plain(
    logits: Logits,
    value: Float[Tensor, "batch heads k width"],
    mask: Mask = NO_MASK,
    dropout: float = 0.0,
) -> Float[Tensor, "batch heads q width"]:
    """Return what ``attend`` returns, in two steps: the weights, then their product with the values."""
    return _apply(attention_weights(logits, mask, value.shape[0]), value, dropout)


def attention_weights(logits: Logits, mask: Mask, batch: int) -> Float[Tensor, "batch heads q k"]:
    """The weights themselves, before dropout. Rows sum to one, or to zero where every key is masked."""
    mask, dead = mask.within(logits.windows()).revived(logits.query_length, logits.key_length)
    weights = _softmax(logits, mask)
    weights = weights if dead is None else weights.masked_fill(dead, 0.0)
    return weights.expand(batch, -1, -1, -1)


def _lone_band(logits: Logits) -> Band | None:
    if len(logits.features) > 0 or logits.bias is not None or len(logits.compact) != 1:
        return None
    (part,) = logits.compact
    return part if isinstance(part, Band) and part.distance is None else None


def _attend_live(logits: Logits, value: Tensor, mask: Mask, dropout: float) -> Tensor:
    if _fused_applies(logits, value):
        return _fused(logits, value, mask, dropout)
    if dropout == 0.0 and blockwise.applies(logits, value):
        return blockwise.attend(logits, value, mask)
    return _apply(_softmax(logits, mask), value, dropout)


def _apply(weights: Tensor, value: Tensor, dropout: float) -> Tensor:
    weights = F.dropout(weights, dropout) if dropout > 0.0 else weights
    return weights.to(value.dtype) @ value


def _softmax(logits: Logits, mask: Mask) -> Float[Tensor, "#batch heads q k"]:
    total = logits.total()
    q, k = total.shape[-2:]
    allowed = mask.full(q, k, total.device)
    if allowed is not None:
        total = total.masked_fill(~allowed, float("-inf"))
    # Half precision has too few digits to sum a long row in.
    return total.softmax(-1, dtype=torch.promote_types(total.dtype, torch.float32)).to(total.dtype)


def _fused_applies(logits: Logits, value: Tensor) -> bool:
    """Return True if scaled_dot_product_attention has a fused kernel for these logits."""
    if len(logits.features) != 1 or len(logits.compact) > 0 or logits.features[0].query.shape[-1] != value.shape[-1]:
        return False
    if value.device.type == "cpu" and not is_tracing(value) and value.shape[-2] < FUSED_KEYS:
        return False
    if logits.bias is None:
        return True
    if is_tracing(value):
        return False
    return not logits.bias_wants_gradient or value.device.type != "cpu"


def _fused(logits: Logits, value: Tensor, mask: Mask, dropout: float) -> Tensor:
    """Return softmax(logits) @ value by torch's fused kernel, with a gradient that can be differentiated."""
    result = _call_fused(logits, value, mask, dropout)
    if dropout > 0.0:  # torch's own business: what was dropped is not known here
        return result
    (features,), scale, weight = logits.features, logits.features[0].scale, logits.weight
    number, learned = (None, weight) if isinstance(weight, Tensor) else (weight, None)

    def attend(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, learned: Tensor | None) -> Tensor:
        terms = Logits((Features(query, key, scale),), bias, weight=number if learned is None else learned)
        return second_order.softmax_times_value(terms, value.to(query.dtype), mask)

    return second_order.twice_differentiable(result, attend, features.query, features.key, value, logits.bias, learned)


def _call_fused(logits: Logits, value: Tensor, mask: Mask, dropout: float) -> Tensor:
    (features,) = logits.features
    batch, heads = value.shape[:2]
    query, key = (_for_every_head(t, batch, heads) for t in (features.query, features.key))
    value = value.to(query.dtype)
    if logits.bias is None:
        causal = mask.causal and mask.keep is None and mask.allowed is None
        allowed = None if causal else mask.full(query.shape[-2], key.shape[-2], query.device)
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask=allowed, dropout_p=dropout, is_causal=causal, scale=features.scale
        )
    # A bias for the whole batch goes to the kernel in blocks, multiplied and masked while they are in the cache. Where
    # there is one row, as in decoding, there is nothing to divide.
    shared = logits.bias.dim() == 3 and not mask.per_example and query.shape[-2] > 1
    if shared and dropout == 0.0 and value.device.type == "cpu":
        return blockwise.attend_fused(query, key, value, logits.bias, logits.weight, mask, features.scale)
    bias = logits.weighed().bias
    assert bias is not None
    bias = bias.to(query.dtype)
    # Even where no gradient is asked for, a bias that could have one would keep torch from its fused kernel.
    bias = bias.detach() if bias.requires_grad and not torch.is_grad_enabled() else bias
    allowed = mask.full(query.shape[-2], key.shape[-2], query.device)
    if allowed is not None:
        bias = bias.masked_fill(~allowed, float("-inf"))
    bias = bias.expand(*query.shape[:-1], key.shape[-2])
    return F.scaled_dot_product_attention(query, key, value, attn_mask=bias, dropout_p=dropout, scale=features.scale)


def _for_every_head(tensor: Tensor, batch: int, heads: int) -> Float[Tensor, "batch heads length width"]:
    complete = tensor.dim() == 4 and tensor.shape[:2] == (batch, heads)
    return tensor if complete else tensor.expand(batch, heads, -1, -1)
