"""Layers that mix tokens, such as self-attention."""

from synthattn.layers.dynamic_convolution import DynamicConvolution
from synthattn.layers.light_convolution import LightConvolution
from synthattn.layers.linformer import Linformer
from synthattn.layers.synthetic_attention import SyntheticAttention
from synthattn.layers.token_mixer import ProjectedMemory, TokenLayout, TokenMixer

__all__ = [
    "DynamicConvolution",
    "LightConvolution",
    "Linformer",
    "ProjectedMemory",
    "SyntheticAttention",
    "TokenLayout",
    "TokenMixer",
]
