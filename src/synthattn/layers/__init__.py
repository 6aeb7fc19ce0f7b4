"""Layers: what a block puts in the place of self-attention."""

from synthattn.layers.synthetic_attention import SyntheticAttention

__all__ = ["SyntheticAttention"]
