"""Backend: the compiled kernel, for products and sums of products with a bias in float32 on the CPU.

Unlike torch's fused kernel it has a gradient for the bias, takes several products of any width, and leaves out padding
at both ends. It is there where the package was installed with a C compiler at hand, see :mod:`synthattn.engine.native`.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from synthattn.engine import native, thresholds
from synthattn.engine.call import Call
from synthattn.engine.native.dropout import draw_seed
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
    value = call.values.batch_major()
    if not _takes(terms, value, call.q):
        return None
    return _run(_KernelSum.of(terms, value, call.q), value, call.mask, call.q, call.dropout)


def _is_for_torch(call: Call, lone: LogitTerm | None) -> bool:
    """Return True if torch's fused kernel takes a call with this term alone, and is at least as fast."""
    if not isinstance(lone, Product) or lone.query.shape[-1] != call.values.shape[-1] or call.dropout > 0.0:
        return False
    return call.logits_per_example < thresholds.PRODUCT_LOGITS.get(thresholds.processor(), math.inf)


def attend_shared(
    logits: Logits, columns: Float[Tensor, "heads k columns"], causal: bool
) -> Float[Tensor, "heads q columns"] | None:
    """Return softmax(logits) @ columns for logits that all examples share, whose values are side by side."""
    q, value = logits.query_length, columns.unsqueeze(0)
    if not _takes(logits.terms, value, q):
        return None
    products = [
        Product(term.query.unsqueeze(0), term.key, term.scale) for term in logits.terms if isinstance(term, Product)
    ]
    table, weight = _add_up([term for term in logits.terms if isinstance(term, Bias)])
    result = _run(_KernelSum(products, table, weight, _diagonals(logits.terms)), value, Mask(causal=causal), q)
    return None if result is None else result[0]


class _KernelSum(NamedTuple):
    """A sum in the form that the kernel takes: products, one table with its weight, and logits by distance."""

    products: list[Product]
    table: Tensor | None
    weight: Weight | None
    diagonals: Tensor | None

    @classmethod
    def of(cls, terms: Sequence[LogitTerm], value: Tensor, q: int) -> "_KernelSum":
        """Write wide products that all examples share as a table, and add tables up where that is cheap."""
        batch, heads, k, width = value.shape
        widest = width if heads * q * k >= thresholds.LARGE_TABLE else thresholds.NARROW_FACTORS
        products: list[Product] = []
        biases: list[Bias] = []
        for term in terms:
            if isinstance(term, Bias):
                biases.append(term)
            elif isinstance(term, Product):
                wide = term.input_independent and term.query.shape[-1] > widest
                biases.append(Bias(term.as_tensor())) if wide else products.append(term)
        diagonals = _diagonals(terms)
        table, weight = _add_up([bias for bias in biases if bias.table.shape[-2] > 1])
        row, row_weight = _add_up([bias for bias in biases if bias.table.shape[-2] == 1])
        if row is None:
            return cls(products, table, weight, diagonals)
        if table is None:
            return cls(products, row, row_weight, diagonals)
        row = Bias(row, row_weight).as_tensor()
        if table.numel() < thresholds.LARGE_TABLE:
            return cls(products, Bias(table, weight).as_tensor() + row, None, diagonals)
        # The sum would be another large table: the row of keys is one more product, with ones.
        ones = row.new_ones(1, 1, 1, 1).expand(batch, heads, q, 1)
        return cls([*products, Product(ones, row.mT)], table, weight, diagonals)


def _diagonals(terms: Sequence[LogitTerm]) -> Float[Tensor, "heads diagonals"] | None:
    """Return the sum of the terms by distance, or None if there are none."""
    found = [term.diagonals() for term in terms if isinstance(term, ByDistance)]
    return sum(found[1:], start=found[0]) if found else None


def _add_up(biases: list[Bias]) -> tuple[Tensor | None, Weight | None]:
    """Return the sum of biases as a table and its weight."""
    if len(biases) == 1:
        return biases[0].table, biases[0].weight
    return (Logits(tuple(biases)).as_tensor(), None) if biases else (None, None)


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
    sum_: _KernelSum, value: Float[Tensor, "batch heads k width"], mask: Mask, q: int, dropout: float = 0.0
) -> Float[Tensor, "batch heads q width"] | None:
    """Call the kernel. Returns None where there is padding between keys, which it cannot leave out."""
    products, table, weight, diagonals = sum_
    ends = None
    if mask.unpadded is not None and not mask.per_example:
        ends = _ends(mask.unpadded)
        if ends is None:
            return None
    if table is not None and (mask.allowed_pairs is not None or not _is_weight_per_head(weight, value.shape[1])):
        table, weight = Bias(table, weight).as_tensor(), None
    table = mask.added_to(table, value, q)
    if isinstance(weight, float | int):
        weight = value.new_tensor(weight)
    problem = native.Problem(
        value=value,
        bias=table,
        weight=weight,
        diagonals=diagonals,
        queries=[product.query for product in products],
        keys=[product.key for product in products],
        scales=[product.scale for product in products],
        ends=ends,
        q=q,
        causal=mask.causal and not mask.per_example,
        dropout=dropout,
        seed=draw_seed() if dropout > 0.0 else 0,
    )
    return native.attention(problem)


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
