"""Find the self-attention of a transformers model, and say which of it can be replaced."""

import ast
import inspect
import re
import textwrap
from dataclasses import dataclass
from functools import cache
from typing import Any

from torch import nn

INTERFACE = "ALL_ATTENTION_FUNCTIONS"
"""The name by which an attention class of transformers finds the function that computes attention."""

HEAD_WIDTHS = ("head_dim", "attention_head_size", "key_value_proj_dim")
"""Names of the attribute that holds the width of a head."""

NORMS = ("q_norm", "k_norm", "q_layernorm", "k_layernorm")
"""Names of modules that only queries and keys pass through."""

UNDERSTOOD = {"dropout", "scaling", "is_causal", "sliding_window", "deterministic", "position_bias", "attention_mask"}
UNDERSTOOD |= {"position_ids", "output_attentions"}
"""Arguments with which an attention class may call its function."""

_CROSS = re.compile(r"cross|encoder_attn|encdec|encoder_decoder")


@dataclass(frozen=True)
class Projections:
    """Names of the projections of an attention class. A fused one makes queries, keys and values in this order."""

    value: str
    query: str | None = None
    key: str | None = None

    @property
    def fused(self) -> bool:
        return self.query is None


SEPARATE = (
    Projections("v_proj", "q_proj", "k_proj"),  # BART, Llama, Qwen, ViT and most others
    Projections("value", "query", "key"),  # BERT, RoBERTa, ALBERT, ELECTRA
    Projections("v_lin", "q_lin", "k_lin"),  # DistilBERT
    Projections("v", "q", "k"),  # T5
)
FUSED = {"GPT2Attention": Projections("c_attn"), "ModernBertAttention": Projections("Wqkv")}
"""Fused projections by attention class, because their order differs between classes."""

TIMM = ("timm.layers.attention", "synthattn.convert.timm_attention")
"""Where the class of timm's attention is from, and that of a replaced one."""


@dataclass(frozen=True)
class AttentionModule:
    """A self-attention inside a model.

    Attributes:
        path: the name of the module in the model.
        module: the module.
        obstacle: the reason why it cannot be replaced; None if it can.
    """

    path: str
    module: nn.Module
    obstacle: str | None


def is_timm_attention(module: nn.Module) -> bool:
    """Return True for timm's ``Attention``, replaced or not, but not for its relatives. This does not import timm."""
    return type(module).__module__ in TIMM and type(module).__name__ in ("Attention", "TimmAttention")


def is_transformers_model(model: nn.Module) -> bool:
    """Return True for a model of transformers. This does not import transformers."""
    return any(kind.__module__ == "transformers.modeling_utils" for kind in type(model).__mro__)


def self_attentions(model: nn.Module) -> list[AttentionModule]:
    """Return every self-attention on transformers' attention interface, in the order of the model."""
    return [
        AttentionModule(path, module, _obstacle(module))
        for path, module in model.named_modules()
        if _is_on_interface(type(module)) and not is_cross_attention(path, module)
    ]


def cross_attentions(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return every attention on the interface whose queries and keys come from different tokens."""
    return [
        (path, module)
        for path, module in model.named_modules()
        if _is_on_interface(type(module)) and is_cross_attention(path, module)
    ]


def is_cross_attention(path: str, module: nn.Module) -> bool:
    """Return True if queries and keys of an attention come from different tokens, by its name and class."""
    last = path.rpartition(".")[2] if path.count(".") < 2 else ".".join(path.split(".")[-2:])
    name = f"{last} {type(module).__name__}".lower()
    return bool(_CROSS.search(name)) or getattr(module, "is_cross_attention", False) is True


def off_interface(model: nn.Module) -> list[str]:
    """Return the classes in a model that are named like an attention but are not on the interface."""
    kinds = {type(m).__name__ for m in model.modules() if "attention" in type(m).__name__.lower()}
    return sorted(kinds - {type(m).__name__ for m in model.modules() if _is_on_interface(type(m))})


def projections_of(module: nn.Module) -> Projections | None:
    """Return the names of the projections of an attention; None if they are not known."""
    fused = Projections("qkv") if is_timm_attention(module) else FUSED.get(type(module).__name__)
    if fused is not None:
        return fused
    for names in SEPARATE:
        if all(isinstance(getattr(module, str(name), None), nn.Module) for name in vars(names).values()):
            return names
    return None


def head_width(module: nn.Module) -> int | None:
    """Return the width of a head."""
    return next((w for name in HEAD_WIDTHS if isinstance(w := getattr(module, name, None), int)), None)


def _obstacle(module: nn.Module) -> str | None:
    """Return the reason why an attention cannot be replaced, or None."""
    call = _interface_call(type(module))
    if call is None:
        return "its call of the attention function cannot be read"
    if not any(keyword.arg is None for keyword in call.keywords):
        return "it does not hand its keyword arguments to the attention function"
    for keyword in call.keywords:
        if keyword.arg is not None and keyword.arg not in UNDERSTOOD and not _is_none(module, keyword.value):
            return f"its attention has {keyword.arg}"
    names = projections_of(module)
    if names is None:
        return "the names of its projections are not known"
    if head_width(module) is None:
        return "the width of its heads is not known"
    return projection_obstacle(module, *(name for name in vars(names).values() if name is not None))


def projection_obstacle(module: nn.Module, *names: str) -> str | None:
    """Return the reason why a projection of an attention cannot be replaced, or None."""
    for name in names:
        projection: Any = getattr(module, name)
        # Conv1D is transformers' linear layer with a transposed weight.
        if type(projection) is not nn.Linear and type(projection).__name__ != "Conv1D":
            return f"{name} is a {type(projection).__name__}; replace attention before adapters or quantization"
        if not projection.weight.is_floating_point():
            return f"{name} is quantized; replace attention first"
    return None


@cache
def _is_on_interface(kind: type[nn.Module]) -> bool:
    code = getattr(inspect.unwrap(kind.forward), "__code__", None)
    return code is not None and INTERFACE in code.co_names


@cache
def _interface_call(kind: type[nn.Module]) -> ast.Call | None:
    """Return the call ``attention_interface(self, query, key, value, mask, ...)`` in the forward of a class."""
    try:
        source = textwrap.dedent(inspect.getsource(inspect.unwrap(kind.forward)))
    except (OSError, TypeError):
        return None
    found = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and len(node.args) >= 4
        and isinstance(node.args[0], ast.Name)
        and node.args[0].id == "self"
    ]
    return found[0] if len(found) == 1 else None


def _is_none(module: nn.Module, value: ast.expr) -> bool:
    """Return True for an argument ``self.name`` that is None in this module."""
    if not isinstance(value, ast.Attribute) or not isinstance(value.value, ast.Name):
        return False
    return value.value.id == "self" and getattr(module, value.attr, 0) is None
