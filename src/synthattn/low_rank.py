"""Batch-free attention at a cost linear in the length: the weights of a head as a product of two thin matrices.

Where no logit depends on the input, the weights ``P = softmax(B)`` of a head are constants. With ``P ~ L R^T`` of rank
r, the masked softmax ``P (m * V) / (P m)`` becomes ``L (R^T (m * V)) / (L (R^T m))``: r (q + k) products per column in
place of q k.

What that costs in accuracy is bounded with every result. Let ``D = P - L R^T``, ``w_i = (P m)_i`` the weight that row i
gives to the n keys that are kept, and ``w_i' = (L R^T m)_i`` and ``y_i'`` what is computed in place of ``w_i`` and the
result ``y_i``. Then ``w_i (y_i - y_i') = D_i (m * V) - (D_i m) y_i'``, and by Cauchy and Schwarz, whatever the values::

    |y_i - y_i'|  <=  |D_i| (|m * V| + sqrt(n) |y_i'|) / (w_i' - sqrt(n) |D_i|)

where ``|m * V|`` is the most that the matrix makes a vector longer. All of the right side is known: the norms ``|D_i|``
are measured once, in float64, of whole rows, with the factors as they are stored; fewer keys can only make them
smaller.

Rounding adds to that. A sum of n products is off by at most n roundings of the sum of their absolute values, whatever
the order; less is likely, and nobody promises it. So ``D`` grows by that many roundings of ``|L| |R|^T``, and because
signs no longer cancel, it meets the root of the sum of all squares of V in place of its norm. In float32 that may be
more than all that is missing in the factors. Factors in float64, for values in float32, have next to none of it, at
twice the time.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from synthattn import batch_free
from synthattn.shapes import Bool, Float

# The share of the dense product's multiplications that two thin products may have. They read and write more for each.
PAYS = 0.5

# What a multiplication in float64 costs in units of one in float32, the conversion of values and results included. Near
# this rank, layers of 2048 and 4096 keys were as fast as exact ones or faster, with batches of 1 to 16.
WIDE = 3.0

# Terms that are summed at a time in float32. There the sum of thousands may lose as much as low-rank weights are
# allowed to, and does so where values are equal; a sum of sums loses less.
SUM = 128

# Columns of the first random block. Every further block is as wide as all before it.
BLOCK = 32


@dataclass(frozen=True)
class LowRank:
    """The weights of some heads as ``left @ right.T``.

    Attributes:
        left: one row per query.
        right: one row per key.
        deviation: for every row the norm of what is missing, ``|D_i|`` above, and of what rounding may add.
        rounding: that part of it which is due to rounding.
    """

    left: Float[Tensor, "heads q rank"]
    right: Float[Tensor, "heads k rank"]
    deviation: Float[Tensor, "heads q"]
    rounding: Float[Tensor, "heads q"]

    @property
    def rank(self) -> int:
        return self.left.shape[-1]

    @property
    def distance(self) -> float:
        """The largest of the deviations, in units of the norm of a row that gives all keys the same weight."""
        return float(self.deviation.max()) * math.sqrt(self.right.shape[1])

    def stored(self, weights: Float[Tensor, "q k"], dtype: torch.dtype) -> "LowRank":
        """The factors of one head in another type, with the deviation from its weights that they have there."""
        return _measured(weights, self.left[0], self.right[0], dtype)

    def pays(self, q: int, k: int, dtype: torch.dtype) -> bool:
        """Whether inputs of these lengths are within the factors, and long enough for them to be cheaper."""
        within = q <= self.left.shape[1] and k <= self.right.shape[1]
        return within and self.rank <= highest_rank(q, k, wide=self.left.dtype != dtype)

    def attend(
        self, value: Float[Tensor, "batch heads k width"], keep: Bool[Tensor, "batch k"] | None, q: int
    ) -> tuple[Float[Tensor, "batch heads q width"], Float[Tensor, "batch q"]]:
        """The heads' results, and for every query a bound on the norm of their error, all heads taken together.

        Where too little weight is left on the keys that are kept, the bound is infinite.
        """
        asked, value = value.dtype, value.to(self.left.dtype)
        batch, heads, k, width = value.shape
        left, right = self.left[:, :q], self.right[:, :k].mT
        deviation, rounding = self.deviation[:, :q, None], self.rounding[:, :q, None]
        kept = value.new_ones(k, 1) if keep is None else keep.t().to(value.dtype)
        columns = batch_free.heads_first(value, keep)
        count = kept.sum(0)
        weight = _product(left, _product(right, kept.expand(heads, -1, -1)))
        weight = weight.masked_fill(count == 0, 1.0)  # rows without keys: their product is zero
        result = batch_free.examples_first(_product(left, _product(right, columns)), value, weight)

        size, stretch = (norms[:, None] for norms in _norms(columns.view(heads, k, batch, width).transpose(1, 2)))
        length = torch.linalg.vector_norm(result, dim=-1).permute(1, 2, 0)
        least = weight - count.sqrt() * deviation
        bound = (deviation - rounding) * stretch + rounding * size + deviation * count.sqrt() * length
        bound = torch.where(least > 0.0, bound / least, float("inf"))
        if asked != value.dtype:
            bound = bound + torch.finfo(asked).eps / 2 * length
        return result.to(asked), torch.linalg.vector_norm(bound, dim=0).t()


def _norms(
    values: Float[Tensor, "heads batch k width"],
) -> tuple[Float[Tensor, "heads batch"], Float[Tensor, "heads batch"]]:
    """Of every matrix the root of the sum of squares, and no more than that, but at least its largest singular value.

    The sum of the eighth powers of all singular values is that of the squares of ``(V^T V)^2``: close to the eighth
    power of the largest where not many are as large, and far cheaper.
    """
    heads, batch, k, width = values.shape
    size = torch.linalg.vector_norm(values, dim=(-2, -1))
    unit = (values / size.clamp(min=torch.finfo(values.dtype).tiny)[..., None, None]).reshape(-1, k, width)
    gram = _product(unit.mT, unit)
    eighth = torch.linalg.vector_norm(_product(gram, gram), dim=(-2, -1)).view(heads, batch)
    lost = (_roundings(k, values.dtype) + _roundings(width, values.dtype) + 4) * torch.finfo(
        values.dtype
    ).eps  # of matrices of size 1, squared
    return size, size * (eighth + lost).pow(0.25).clamp(max=1.0)


def _product(
    a: Float[Tensor, "heads rows terms"], b: Float[Tensor, "heads terms columns"]
) -> Float[Tensor, "heads rows columns"]:
    """``a @ b``, in float32 as a sum of blocks. (What a product does that adds to its target, no one promises.)"""
    if a.dtype == torch.float64:
        return torch.bmm(a, b)
    total = torch.bmm(a[..., :SUM], b[:, :SUM])
    for start in range(SUM, a.shape[-1], SUM):
        total += torch.bmm(a[..., start : start + SUM], b[:, start : start + SUM])
    return total


def _roundings(terms: int, dtype: torch.dtype) -> int:
    """How often a term of such a product is rounded at most, on its own and in sums."""
    return terms if dtype == torch.float64 else min(terms, SUM) + math.ceil(terms / SUM)


def highest_rank(q: int, k: int, wide: bool = False) -> int:
    """The largest rank with which two thin products are worth it in place of one dense product.

    ``wide`` says that they are computed in float64, and the dense one is not.
    """
    return int(PAYS * q * k / (q + k) / (WIDE if wide else 1.0))


def factorize(weights: Float[Tensor, "q k"], deviation: float, limit: int, dtype: torch.dtype) -> LowRank | None:
    """One head's factors, of the smallest rank with which no row is off by more than ``deviation``.

    None if that rank is above ``limit``.

    ``right`` spans what random combinations of the rows span after a step of power iteration, block after block until
    the rows are met, then turned to the singular vectors and cut. Far cheaper than a singular value decomposition where
    the rank is low, and as good up to a few columns.
    """
    weights = weights.double()
    q, k = weights.shape
    # Its own generator, always the same one: the same weights give the same factors, and no one else's numbers change.
    generator = torch.Generator().manual_seed(0)
    left, right = weights.new_empty(q, 0), weights.new_empty(k, 0)
    missing = weights.square().sum(-1)
    while (missing > deviation**2).any():
        found = right.shape[1]
        block = min(max(found, BLOCK), limit - found)
        if block == 0:
            return None
        probe = torch.randn(q, block, dtype=torch.float64, generator=generator)
        sketch = _orthonormal(weights.mT @ probe, right)
        sketch = _orthonormal(weights.mT @ (weights @ sketch), right)
        gained = weights @ sketch
        left, right = torch.cat((left, gained), 1), torch.cat((right, sketch), 1)
        missing = (missing - gained.square().sum(-1)).clamp(min=0.0)
        # A later column brings less than those of this block did: where even as much would not do, none of them will.
        if float(missing.sum()) - q * deviation**2 > (limit - found - block) * float(gained.square().sum()) / block:
            return None
    vectors = torch.linalg.svd(left, full_matrices=False).Vh.mT
    left, right = left @ vectors, right @ vectors
    # Row i without the columns from c on is off by what was missing already and all that they hold.
    tails = left.square().flip(-1).cumsum(-1).flip(-1) + missing[:, None]
    rank = max(1, int((tails > deviation**2).any(0).sum()))
    return _measured(weights, left[:, :rank], right[:, :rank], dtype)


def stack(heads: list[LowRank]) -> LowRank:
    """The factors of all heads, with zeros in the place of the columns that some of them do not need."""
    rank = max(head.rank for head in heads)
    left, right = (
        torch.cat([F.pad(factor, (0, rank - factor.shape[-1])) for factor in factors])
        for factors in ([head.left for head in heads], [head.right for head in heads])
    )
    deviation, rounding = (torch.cat(norms) for norms in zip(*((h.deviation, h.rounding) for h in heads), strict=True))
    return LowRank(left, right, deviation, rounding)


def _orthonormal(columns: Tensor, to: Tensor) -> Tensor:
    """An orthonormal basis of the columns, orthogonal to other columns; twice, because once leaves rounding behind."""
    for _ in range(2):
        columns = torch.linalg.qr(columns - to @ (to.mT @ columns)).Q
    return columns


def _measured(weights: Tensor, left: Tensor, right: Tensor, dtype: torch.dtype) -> LowRank:
    """One head's factors as they are stored, with the norm of every row's error and the most that rounding adds."""
    left, right = left.to(dtype), right.to(dtype)
    # The quotient, the factors 0 and 1 of a mask and the terms of second order are worth a few roundings more.
    unit = (sum(_roundings(terms, dtype) for terms in right.shape) + 4) * torch.finfo(dtype).eps / 2
    wide, keys = left.double(), right.double().mT
    missing, rounding = [], []
    for start in range(0, len(left), 256):  # a block of rows of the product at a time
        part, rows = wide[start : start + 256], weights[start : start + 256].double()
        missing.append(torch.linalg.vector_norm(rows - part @ keys, dim=-1))
        rounding.append(unit * torch.linalg.vector_norm(part.abs() @ keys.abs(), dim=-1))
    added = torch.cat(rounding)
    return LowRank(left[None], right[None], (torch.cat(missing) + added).to(dtype)[None], added.to(dtype)[None])
