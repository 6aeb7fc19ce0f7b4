"""Layers: what a block puts in the place of self-attention."""

from synthattn.layers.dynamic_convolution import DynamicConvolution
from synthattn.layers.light_convolution import LightConvolution
from synthattn.layers.linformer import Linformer
from synthattn.layers.synthetic_attention import Remembered, SyntheticAttention

__all__ = ["DynamicConvolution", "LightConvolution", "Linformer", "Remembered", "SyntheticAttention"]
