"""Synthesizer attention for PyTorch (Tay et al. 2021): any attention matrix that is not a dot product, or partly.

>>> import torch
>>> from synthattn import SyntheticAttention
>>> layer = SyntheticAttention(d_model=64, num_heads=4, attention="random+vanilla", max_length=128)
>>> layer(torch.randn(2, 100, 64)).shape
torch.Size([2, 100, 64])
"""

from synthattn.adapter import replace_attention
from synthattn.layers import SyntheticAttention
from synthattn.synthesizers import Spec, parse

__version__ = "0.1.0.dev0"

__all__ = ["Spec", "SyntheticAttention", "__version__", "parse", "replace_attention"]
