"""The weights that the kernel drops: the random numbers of ``attention.c`` in torch's own operations.

The number of a weight is a hash of the seed and of its place, so that it can be computed anywhere, in any order.
"""

import torch
from torch import Tensor

from synthattn.shapes import Bool, Int

_LOW = 2**32 - 1


def draw_seed() -> int:
    """Draw a seed from torch's generator, so that ``torch.manual_seed`` makes a run repeatable."""
    return int(torch.randint(2**62, (), device="cpu"))


def highest_kept(dropout: float) -> int:
    """Return the signed number of 32 bits up to which a weight is kept."""
    return min(max(round((1.0 - dropout) * 2**32) - 1, 0), _LOW) - 2**31


def undropped(dropout: float, seed: int, sizes: tuple[int, int, int, int]) -> Bool[Tensor, "batch heads q k"]:
    """Return the weights that are not dropped, for sizes (batch, heads, queries, keys)."""
    *axes, k = sizes
    rows = torch.arange(1, torch.Size(axes).numel() + 1, device="cpu").view(*axes, 1)
    hashes = _mixed(rows * _signed(0x9E3779B97F4A7C15) + seed)
    x = (torch.arange(k, device="cpu") + (hashes & _LOW)) & _LOW
    x = ((x ^ x >> 16) * 0x21F0AAAD + (hashes >> 32)) & _LOW
    x = ((x ^ x >> 15) * 0x735A2D97) & _LOW
    return (x ^ 2**31) <= highest_kept(dropout) + 2**31


def _mixed(x: Int[Tensor, "*axes"]) -> Int[Tensor, "*axes"]:
    """Return the finalizer of SplitMix64."""
    x = (x ^ _shifted(x, 30)) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ _shifted(x, 27)) * _signed(0x94D049BB133111EB)
    return x ^ _shifted(x, 31)


def _shifted(x: Int[Tensor, "*axes"], number: int) -> Int[Tensor, "*axes"]:
    """Shift to the right as unsigned numbers are, which torch does not have."""
    return x >> number & 2 ** (64 - number) - 1


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number
