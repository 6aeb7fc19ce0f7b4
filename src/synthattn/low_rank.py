"""Batch-free attention at a cost linear in the length: the weights of a head as a product of two thin matrices.

Where no logit depends on the input, the weights ``P = softmax(B)`` of a head are constants. With ``P ~ L R^T`` of rank
r, the masked softmax ``P (m * V) / (P m)`` becomes ``L (R^T (m * V)) / (L (R^T m))``: r (q + k) products per column in
place of q k.

What that costs in accuracy is bounded with every result. Let ``D = P - L R^T``, ``w_i = (P m)_i`` the weight that row i
gives to the n keys that are kept, and ``w_i' = (L R^T m)_i`` and ``y_i'`` what is computed in place of ``w_i`` and the
result ``y_i``. Then ``w_i (y_i - y_i') = D_i (m * V) - (D_i m) y_i'``, and by Cauchy and Schwarz, whatever the values::

    |y_i - y_i'|  <=  |D_i| (|m * V| + sqrt(n) |y_i'|) / (w_i' - sqrt(n) |D_i|)

All of the right side is known: the norms ``|D_i|`` are measured once, in float64, of whole rows, with the factors as
they are stored; fewer keys can only make them smaller.
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

# Terms that are summed at a time. In float32 the sum of thousands may lose as much as low-rank weights are allowed to,
# and does so where values are equal; a sum of sums loses less.
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
    """

    left: Float[Tensor, "heads q rank"]
    right: Float[Tensor, "heads k rank"]
    deviation: Float[Tensor, "heads q"]

    @property
    def rank(self) -> int:
        return self.left.shape[-1]

    @property
    def distance(self) -> float:
        """The largest of the deviations, in units of the norm of a row that gives all keys the same weight."""
        return float(self.deviation.max()) * math.sqrt(self.right.shape[1])

    def pays(self, q: int, k: int) -> bool:
        """Whether inputs of these lengths are within the factors, and long enough for them to be cheaper."""
        within = q <= self.left.shape[1] and k <= self.right.shape[1]
        return within and self.rank <= highest_rank(q, k)

    def attend(
        self, value: Float[Tensor, "batch heads k width"], keep: Bool[Tensor, "batch k"] | None, q: int
    ) -> tuple[Float[Tensor, "batch heads q width"], Float[Tensor, "batch q"]]:
        """The heads' results, and for every query a bound on the norm of their error, all heads taken together.

        Where too little weight is left on the keys that are kept, the bound is infinite.
        """
        batch, heads, k, width = value.shape
        left, right, deviation = self.left[:, :q], self.right[:, :k].mT, self.deviation[:, :q, None]
        kept = value.new_ones(k, 1) if keep is None else keep.t().to(value.dtype)
        columns = batch_free.heads_first(value, keep)
        count = kept.sum(0)
        weight = _product(left, _product(right, kept.expand(heads, -1, -1)))
        weight = weight.masked_fill(count == 0, 1.0)  # rows without keys: their product is zero
        result = batch_free.examples_first(_product(left, _product(right, columns)), value, weight)

        size = torch.linalg.vector_norm(columns.view(heads, k, batch, width), dim=(1, 3))
        size = size[:, None] + count.sqrt() * torch.linalg.vector_norm(result, dim=-1).permute(1, 2, 0)
        least = weight - count.sqrt() * deviation
        bound = torch.where(least > 0.0, deviation * size / least, float("inf"))
        return result, torch.linalg.vector_norm(bound, dim=0).t()


def _product(
    a: Float[Tensor, "heads rows terms"], b: Float[Tensor, "heads terms columns"]
) -> Float[Tensor, "heads rows columns"]:
    """``a @ b`` as a sum of blocks. (What a product does that adds to its target as it goes, no one promises.)"""
    total = torch.bmm(a[..., :SUM], b[:, :SUM])
    for start in range(SUM, a.shape[-1], SUM):
        total += torch.bmm(a[..., start : start + SUM], b[:, start : start + SUM])
    return total


def highest_rank(q: int, k: int) -> int:
    """The largest rank with which two thin products are worth it in place of one dense product."""
    return int(PAYS * q * k / (q + k))


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
    left, right = left[:, :rank].to(dtype), right[:, :rank].to(dtype)
    return LowRank(left[None], right[None], _deviation(weights, left, right).to(dtype)[None])


def stack(heads: list[LowRank]) -> LowRank:
    """The factors of all heads, with zeros in the place of the columns that some of them do not need."""
    rank = max(head.rank for head in heads)
    left, right = (
        torch.cat([F.pad(factor, (0, rank - factor.shape[-1])) for factor in factors])
        for factors in ([head.left for head in heads], [head.right for head in heads])
    )
    return LowRank(left, right, torch.cat([head.deviation for head in heads]))


def _orthonormal(columns: Tensor, to: Tensor) -> Tensor:
    """An orthonormal basis of the columns, orthogonal to other columns; twice, because once leaves rounding behind."""
    for _ in range(2):
        columns = torch.linalg.qr(columns - to @ (to.mT @ columns)).Q
    return columns


def _deviation(weights: Tensor, left: Tensor, right: Tensor) -> Float[Tensor, "q"]:
    """The norm of every row's error, measured, and the most that rounding can add to it.

    A sum of n products is off by at most n roundings of the sum of their absolute values, whatever the order. Here
    these are sums of blocks, then sums of those, first along the keys and then along the rank.
    """
    left64, right64 = left.double(), right.double()
    # The quotient, the factors 0 and 1 of a mask and the terms of second order are worth a few roundings more.
    roundings = sum(min(n, SUM) + math.ceil(n / SUM) for n in right.shape) + 4
    unit = roundings * torch.finfo(left.dtype).eps / 2
    rows = []
    for start in range(0, len(left), 256):  # a block of rows of the product at a time
        part = left64[start : start + 256]
        missing = torch.linalg.vector_norm(weights[start : start + 256] - part @ right64.mT, dim=-1)
        rounded = torch.linalg.vector_norm(part.abs() @ right64.abs().mT, dim=-1)
        rows.append(missing + unit * rounded)
    return torch.cat(rows)
