"""Synthesizer attention for PyTorch (Tay et al. 2021): attention matrices without dot products, or mixed with them.

>>> import torch
>>> from synthattn import SyntheticAttention
>>> layer = SyntheticAttention(d_model=64, num_heads=4, attention="random+vanilla", max_length=128)
>>> layer(torch.randn(2, 100, 64)).shape
torch.Size([2, 100, 64])
"""

import importlib
from typing import TYPE_CHECKING, Any

from synthattn.auto_classes import serve_auto_classes

if TYPE_CHECKING:
    from synthattn import compare  # a package that can be called
    from synthattn.api import evaluate, export, generate, open_comparison, train
    from synthattn.convert import attention_layers, from_pretrained, replace_attention, restore
    from synthattn.layers import SyntheticAttention
    from synthattn.synthesizers import Spec, parse

__version__ = "0.1.0"

__all__ = [
    "Spec",
    "SyntheticAttention",
    "__version__",
    "attention_layers",
    "compare",  # pyright: ignore[reportUnsupportedDunderAll] (a package)
    "evaluate",
    "export",
    "from_pretrained",
    "generate",
    "open_comparison",
    "parse",
    "replace_attention",
    "restore",
    "train",
]

# Imported on first use: the command must answer --help without waiting for torch.
_MODULES = {
    "Spec": "synthattn.synthesizers",
    "SyntheticAttention": "synthattn.layers",
    "attention_layers": "synthattn.convert",
    "evaluate": "synthattn.api",
    "export": "synthattn.api",
    "from_pretrained": "synthattn.convert",
    "generate": "synthattn.api",
    "open_comparison": "synthattn.api",
    "parse": "synthattn.synthesizers",
    "replace_attention": "synthattn.convert",
    "restore": "synthattn.convert",
    "train": "synthattn.api",
}


def __getattr__(name: str) -> Any:
    if name == "compare":  # a package that can be called
        return importlib.import_module("synthattn.compare")
    if name not in _MODULES:
        raise AttributeError(f"module 'synthattn' has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))


serve_auto_classes()
