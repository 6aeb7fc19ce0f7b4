"""Layers: what a block puts in the place of self-attention."""

from synthattn.layers.synthetic_attention import Remembered, SyntheticAttention

__all__ = ["Remembered", "SyntheticAttention"]
