"""The paper's equations in plain code. Every backend must equal them, gradients included.

This module reads the parameters of a layer and shares no code with the layer. Axes have the letters of the paper's
equations: b example, h head, i query, j key, n position in a table, d width of a token, e width of a head, k rank.
``at_i`` and ``at_j`` are the positions of queries and keys, with the axes ``(b, i)`` and ``(b, j)``.
"""

import math
from typing import Any

import torch
from torch import Tensor

from synthattn.shapes import Bool, Float, Int


def attention(
    layer: Any,
    x: Float[Tensor, "b i d"],
    memory: Float[Tensor, "b j d"] | None = None,
    *,
    key_padding_mask: Bool[Tensor, "b j"] | None = None,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    positions: Tensor | None = None,
    memory_positions: Tensor | None = None,
) -> tuple[Float[Tensor, "b i d"], Float[Tensor, "b h i j"]]:
    """Return ``Y = softmax(B) G(X)`` of a ``SyntheticAttention`` and its attention weights, without dropout."""
    at_i = _positions(x, positions)
    at_j = at_i if memory is None else _positions(memory, memory_positions)
    memory = x if memory is None else memory
    logits = _logits(layer.synthesizer, x, memory, at_i, at_j)
    logits = logits.expand(len(x), layer.num_heads, x.shape[1], memory.shape[1])

    allowed = torch.ones_like(logits, dtype=torch.bool)
    if key_padding_mask is not None:
        allowed = allowed & ~key_padding_mask[:, None, None, :]
    if is_causal:
        allowed = allowed & torch.ones_like(logits[0, 0], dtype=torch.bool).tril()
    if attn_mask is not None:
        attn_mask = attn_mask.reshape(logits.shape) if attn_mask.dim() == 3 else attn_mask
        if attn_mask.dtype == torch.bool:
            allowed = allowed & ~attn_mask
        else:
            allowed = allowed & (attn_mask != float("-inf"))
            logits = logits + attn_mask.clamp(min=torch.finfo(logits.dtype).min)

    allowed = allowed & (logits != float("-inf"))  # outside a local window
    logits = torch.where(allowed, logits, 0.0)
    has_keys = allowed.any(-1, keepdim=True)
    weights = torch.where(allowed | ~has_keys, logits, float("-inf")).softmax(-1) * has_keys
    values = _per_head(layer.value, memory, layer.num_heads)
    heads = torch.einsum("bhij,bhje->bihe", weights, values)
    return layer.output(heads.flatten(2)), weights


def vanilla(s: Any, x: Tensor, memory: Tensor, at_i: Tensor, at_j: Tensor) -> Tensor:
    q, k = _per_head(s.query, x, s.num_heads), _per_head(s.key, memory, s.num_heads)
    return torch.einsum("bhie,bhje->bhij", q, k) / math.sqrt(q.shape[-1])


def dense(s: Any, x: Tensor, memory: Tensor, at_i: Tensor, at_j: Tensor) -> Tensor:
    return dense_from(s, _per_head(s.hidden, x, s.num_heads), at_i, at_j)


def dense_from(s: Any, projected: Tensor, at_i: Tensor, at_j: Tensor) -> Tensor:
    hidden = torch.relu(projected)
    w_2 = s.keys.expand(s.num_heads, -1, -1)
    rows = torch.einsum("bhie,hne->bhin", hidden, w_2)
    if s.key_bias is not None:
        rows = rows + s.key_bias.expand(s.num_heads, -1)[None, :, None, :]
    if s.max_length is None:
        return _window(rows, at_i, at_j)
    return rows.gather(-1, at_j[:, None, None, :].expand(*rows.shape[:3], -1))


def _window(rows: Tensor, at_i: Tensor, at_j: Tensor) -> Tensor:
    width = rows.shape[-1]
    c = at_j[:, None, None, :] - at_i[:, None, :, None] + width // 2
    inside = (c >= 0) & (c < width)
    entries = rows.gather(-1, c.clamp(0, width - 1).expand(*rows.shape[:3], -1))
    return torch.where(inside, entries, float("-inf"))


def random(s: Any, x: Tensor, memory: Tensor, at_i: Tensor, at_j: Tensor) -> Tensor:
    return s.matrix[:, at_i[:, :, None], at_j[:, None, :]].transpose(0, 1)


def factorized_random(s: Any, x: Tensor, memory: Tensor, at_i: Tensor, at_j: Tensor) -> Tensor:
    r = torch.einsum("hik,hjk->hij", s.left, s.right)
    return r[:, at_i[:, :, None], at_j[:, None, :]].transpose(0, 1)


def factorized_dense(s: Any, x: Tensor, memory: Tensor, at_i: Tensor, at_j: Tensor) -> Tensor:
    hidden = torch.relu(_per_head(s.hidden, x, s.num_heads))
    a = torch.einsum("bhie,hpe->bhip", hidden, s.a) + s.a_bias[None, :, None, :]
    b = torch.einsum("bhie,hqe->bhiq", hidden, s.b) + s.b_bias[None, :, None, :]
    c = torch.repeat_interleave(a, b.shape[-1], dim=-1) * torch.tile(b, (a.shape[-1],))
    return c.gather(-1, at_j[:, None, None, :].expand(*c.shape[:3], -1))


def toeplitz(s: Any, x: Tensor, memory: Tensor, at_i: Tensor, at_j: Tensor) -> Tensor:
    distance = at_j[:, None, :] - at_i[:, :, None]
    return s.table[:, distance.clamp(-s.range, s.range) + s.range].transpose(0, 1)


def alibi(s: Any, x: Tensor, memory: Tensor, at_i: Tensor, at_j: Tensor) -> Tensor:
    distance = at_j[:, None, :] - at_i[:, :, None]
    return -torch.einsum("h,bij->bhij", s.slopes, distance.abs().to(s.slopes.dtype))


def relative(s: Any, x: Tensor, memory: Tensor, at_i: Tensor, at_j: Tensor) -> Tensor:
    distance = at_j[:, None, :] - at_i[:, :, None]
    values, inverse = distance.unique(return_inverse=True)
    buckets = [t5_bucket(value, s.buckets, s.max_distance, s.bidirectional) for value in values.tolist()]
    return s.table[:, torch.tensor(buckets, device=x.device)[inverse]].transpose(0, 1)


def t5_bucket(distance: int, buckets: int, max_distance: int, bidirectional: bool) -> int:
    """Return the bucket of one distance (key minus query), as in the code of the T5 paper."""
    first = 0
    if bidirectional:
        buckets //= 2
        first = buckets if distance > 0 else 0
        distance = abs(distance)
    else:
        distance = max(-distance, 0)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    growth = math.log(distance / exact) / math.log(max_distance / exact)
    return first + min(exact + int(growth * (buckets - exact)), buckets - 1)


def mixture(s: Any, x: Tensor, memory: Tensor, at_i: Tensor, at_j: Tensor) -> Tensor:
    parts = []
    for term in s.terms:
        if getattr(term, "shares_query", False):  # dense, on the queries of the dot product before scaling
            (dot_product,) = [other for other in s.terms if other.name == "vanilla"]
            queries = _per_head(dot_product.query, x, dot_product.num_heads)
            parts.append((term.weighted, dense_from(term, queries, at_i, at_j)))
        else:
            parts.append((term.weighted, _logits(term, x, memory, at_i, at_j)))
    weighted = [part for counts, part in parts if counts]
    added = [part for counts, part in parts if not counts]
    if s.weights is None:
        weights = [1.0] * len(weighted)
    elif s.weights.alpha.dim() == 0:
        gate = torch.sigmoid(s.weights.alpha)
        weights = [gate, 1 - gate]
    else:
        alpha = s.weights.alpha.exp() / s.weights.alpha.exp().sum(0)
        weights = [alpha[n, :, None, None] for n in range(len(weighted))]
    total = sum(w * torch.where(part.isneginf(), 0.0, part) for w, part in zip(weights, weighted, strict=True))
    total = torch.as_tensor(total + sum(added))
    for part in weighted:  # the mixture attends to keys inside all local windows
        total = torch.where(part.isneginf(), float("-inf"), total)
    return total


LOGITS = {
    "vanilla": vanilla,
    "dense": dense,
    "random": random,
    "fixed_random": random,
    "factorized_random": factorized_random,
    "factorized_dense": factorized_dense,
    "toeplitz": toeplitz,
    "relative": relative,
    "alibi": alibi,
    "mixture": mixture,
}


def _logits(s: Any, x: Tensor, memory: Tensor, at_i: Tensor, at_j: Tensor) -> Tensor:
    return LOGITS[s.name](s, x, memory, at_i, at_j)


def _per_head(projection: Any, x: Tensor, heads: int) -> Float[Tensor, "b h i e"]:
    weight = projection.weight.view(heads, -1, x.shape[-1])
    result = torch.einsum("bid,hed->bhie", x, weight)
    return result if projection.bias is None else result + projection.bias.view(heads, 1, -1)


def _positions(tokens: Tensor, positions: Tensor | None) -> Int[Tensor, "b i"]:
    positions = torch.arange(tokens.shape[1], device=tokens.device) if positions is None else positions
    return positions.expand(tokens.shape[:2])
