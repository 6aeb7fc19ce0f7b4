"""Backend: the compiled kernel, for products and sums of products with a bias in float32 on the CPU.

Unlike torch's fused kernel it has a gradient for the bias, takes several products of any width, and leaves out padding
at both ends. It is there where the package was installed with a C compiler at hand, see :mod:`synthattn.engine.native`.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from synthattn.engine import native, second_order, thresholds
from synthattn.engine.call import Call
from synthattn.engine.native.dropout import draw_seed, undropped
from synthattn.logits import Bias, ByDistance, Logits, LogitTerm, Product, Weight
from synthattn.masks import Mask
from synthattn.shapes import Float, Int


def attend(call: Call) -> Float[Tensor, "batch heads q width"] | None:
    """Attend by the kernel. Declines where it is not there, cannot do it, or torch's kernels are faster."""
    if call.is_tracing or call.logits_per_example < thresholds.COMPILED_LOGITS:
        return None
    terms = call.logits.terms
    if all(term.input_independent for term in terms if isinstance(term, Product)):
        return None
    if _is_for_torch(call, terms[0] if len(terms) == 1 else None):
        return None
    return _run(terms, call.values.batch_major(), call.mask, call.q, call.dropout)


def _is_for_torch(call: Call, lone: LogitTerm | None) -> bool:
    """Return True if torch's fused kernel takes a call with this term alone, and is at least as fast."""
    if not isinstance(lone, Product) or lone.query.shape[-1] != call.values.shape[-1] or call.dropout > 0.0:
        return False
    return call.logits_per_example < thresholds.PRODUCT_LOGITS.get(thresholds.processor(), math.inf)


def attend_shared(
    logits: Logits, columns: Float[Tensor, "heads k columns"], causal: bool
) -> Float[Tensor, "heads q columns"] | None:
    """Return softmax(logits) @ columns for logits that all examples share, whose values are side by side."""
    result = _run(logits.terms, columns.unsqueeze(0), Mask(causal=causal), logits.query_length)
    return None if result is None else result[0]


def _takes(terms: Sequence[LogitTerm], value: Float[Tensor, "batch heads k width"], q: int) -> bool:
    """Return True if the kernel was compiled, and is for tensors like these."""
    if torch.is_autocast_enabled("cpu") or q == 1 or value.numel() == 0 or native.load() is None:
        return False
    tensors = [value]
    for term in terms:
        if isinstance(term, Product):
            if term.query.shape[-3] != value.shape[1] or (term.query.dim() == 4 and len(term.query) != len(value)):
                return False
            tensors += [term.query, term.key]
        elif isinstance(term, Bias | ByDistance):
            tensors.append(term.table if isinstance(term, Bias) else term.values)
        else:
            return False
    # Only what is a piece of memory and nothing else.
    return all(
        type(t) in (Tensor, nn.Parameter) and t.dtype == torch.float32 and t.device.type == "cpu" for t in tensors
    )


def _run(
    terms: Sequence[LogitTerm], value: Float[Tensor, "batch heads k width"], mask: Mask, q: int, dropout: float = 0.0
) -> Float[Tensor, "batch heads q width"] | None:
    """Call the kernel. Returns None where it is not for such tensors, or there is padding between keys."""
    if not _takes(terms, value, q):
        return None
    ends = None
    if mask.unpadded is not None and not mask.per_example:
        ends = _ends(mask.unpadded)
        if ends is None:
            return None
    products, bias = _products_and_bias(terms, value, q)
    table, weight = _masked(bias, mask, value, q)
    by_distance = [term.diagonals() for term in terms if isinstance(term, ByDistance)]
    problem = native.Problem(
        value=value,
        bias=table,
        weight=weight,
        diagonals=sum(by_distance[1:], start=by_distance[0]) if by_distance else None,
        queries=[product.query for product in products],
        keys=[product.key for product in products],
        scales=[product.scale for product in products],
        ends=ends,
        q=q,
        causal=mask.causal and not mask.per_example,
        dropout=dropout,
        seed=draw_seed() if dropout > 0.0 else 0,
    )

    def factors() -> Tensor:
        batch, heads, k, _ = value.shape
        return undropped(dropout, problem.seed, (batch, heads, q, k)) / (1.0 - dropout)

    result, logits = native.attention(problem), Logits(tuple(terms))
    return second_order.twice_differentiable_sum(result, logits, value, mask, factors if dropout > 0.0 else None)


def _products_and_bias(terms: Sequence[LogitTerm], value: Tensor, q: int) -> tuple[list[Product], Bias | None]:
    """Write wide products that all examples share as a table, and add tables up where that is cheap."""
    batch, heads, k, width = value.shape
    widest = width if heads * q * k >= thresholds.LARGE_TABLE else thresholds.NARROW_FACTORS
    products: list[Product] = []
    biases = [term for term in terms if isinstance(term, Bias)]
    for term in terms:
        if isinstance(term, Product):
            wide = term.input_independent and term.query.shape[-1] > widest
            biases.append(Bias(term.as_tensor())) if wide else products.append(term)
    table = _add_up([bias for bias in biases if bias.table.shape[-2] > 1])
    row = _add_up([bias for bias in biases if bias.table.shape[-2] == 1])
    if table is None or row is None:
        return products, table or row
    if table.table.numel() < thresholds.LARGE_TABLE:
        return products, Bias(table.as_tensor() + row.as_tensor())
    # The sum would be another large table: the row of keys is one more product, with ones.
    ones = value.new_ones(1, 1, 1, 1).expand(batch, heads, q, 1)
    return [*products, Product(ones, row.as_tensor().mT)], table


def _add_up(biases: list[Bias]) -> Bias | None:
    return biases[0] if len(biases) == 1 else Bias(Logits(tuple(biases)).as_tensor()) if biases else None


def _masked(
    bias: Bias | None, mask: Mask, value: Float[Tensor, "batch heads k width"], q: int
) -> tuple[Tensor | None, Tensor | None]:
    """Return the table and its weight, with minus infinity in the table for pairs that are not allowed.

    The kernel applies causal masks and padding itself, unless the mask differs between examples.
    """
    _, heads, k, _ = value.shape
    allowed = mask.full(q, k, value.device) if mask.per_example else mask.allowed_pairs
    table, weight = (None, None) if bias is None else (bias.table, bias.weight)
    if bias is not None and (allowed is not None or not _is_weight_per_head(weight, heads)):
        table, weight = bias.as_tensor(), None
    if allowed is not None:
        table = (value.new_zeros(1, 1, k) if table is None else table).masked_fill(~allowed, float("-inf"))
    return table, value.new_tensor(weight) if isinstance(weight, float | int) else weight


def _ends(unpadded: Tensor) -> Int[Tensor, "2 batch"] | None:
    """Return the first key of each example and the one after its last; None where there is padding between them."""
    marks = unpadded.to(torch.uint8)
    first, count = marks.argmax(1), marks.sum(1)
    last = torch.where(count == 0, first, unpadded.shape[1] - marks.flip(1).argmax(1))
    return torch.stack([first, last]) if torch.equal(last - first, count) else None


def _is_weight_per_head(weight: Weight | None, heads: int) -> bool:
    if not isinstance(weight, Tensor):
        return True
    return weight.dtype == torch.float32 and weight.shape in ((), (1, 1, 1), (heads, 1, 1))
