"""Compute the costs of a model without its weights: parameters by part, multiplications, memory for decoding."""

from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from synthattn.messages import suggestion
from synthattn.models.configuration import SynthesizerConfig
from synthattn.models.folder import CONFIGURATION, read_configuration
from synthattn.models.modeling import (
    SynthesizerForCausalLM,
    SynthesizerForConditionalGeneration,
    SynthesizerForMaskedLM,
    SynthesizerForSequenceClassification,
    SynthesizerModel,
    SynthesizerPreTrainedModel,
)
from synthattn.models.presets import PRESETS
from synthattn.models.size import on_meta_device
from synthattn.models.stack import Stack
from synthattn.synthesizers.random import RandomSynthesizer

MODELS: dict[str, type[SynthesizerPreTrainedModel]] = {
    "seq2seq": SynthesizerForConditionalGeneration,
    "causal-lm": SynthesizerForCausalLM,
    "masked-lm": SynthesizerForMaskedLM,
    "classifier": SynthesizerForSequenceClassification,
    "bare": SynthesizerModel,
}


PARTS = ["embedding", "positions", "encoder_attention", "decoder_attention", "cross_attention"]
PARTS += ["feed_forward", "norms", "halting", "output"]
PART_OF = {"embedding": "embedding", "norm": "norms", "positions": "positions", "relative": "positions"}
PART_OF |= {name: name for name in ("feed_forward", "cross_attention", "attention", "halting")}
"""The part that a word in the name of a parameter stands for; of several words, the first one here decides."""


def find_model(name: str, attention: str | None) -> tuple[SynthesizerConfig, str]:
    """Return the configuration of a preset or a saved model, and its kind, a key of ``MODELS``."""
    if name in PRESETS:
        config = PRESETS[name](**({} if attention is None else {"attention": attention}))
        return config, "seq2seq" if config.encoder_layers else "causal-lm"
    folder = Path(name)
    if not folder.is_dir():
        raise ValueError(f"no preset and no folder {name!r}{suggestion(name, PRESETS)}")
    if attention is not None:
        raise ValueError(f"{name} is a saved model, its attention cannot be changed; leave --attention out")
    config = read_configuration(folder)
    made_by = (config.architectures or [SynthesizerModel.__name__])[0]
    kinds = {model.__name__: kind for kind, model in MODELS.items()}
    if made_by not in kinds:
        raise ValueError(f"{folder / CONFIGURATION}: unknown architecture {made_by[:60]!r}{suggestion(made_by, kinds)}")
    return config, kinds[made_by]


def describe(config: SynthesizerConfig, kind: str, length: int | None = None) -> dict[str, Any]:
    """Return all figures of a model, computed from its shapes."""
    if kind not in MODELS:
        raise ValueError(f"unknown kind of model {kind!r}{suggestion(kind, MODELS)}")
    length = config.max_position_embeddings if length is None else length
    with on_meta_device():
        model = MODELS[kind](config)
        flops = _flops(model.eval(), length)
    stacks = {name: stack for name in ("encoder", "decoder") if (stack := _stack(model, name)) is not None}
    attention = {name: config.layer_specs("encoder" if name == "encoder" else "decoder") for name in stacks}
    if model.config.is_encoder_decoder:
        attention["cross"] = config.layer_specs("cross")
    return {
        "model": type(model).__name__,
        "attention": {name: _short(specs) for name, specs in attention.items()},
        "max_length": config.max_position_embeddings,
        "parameters": _parameters(model),
        "length_squared": sum(m.matrix.numel() for m in model.modules() if isinstance(m, RandomSynthesizer)),
        "fixed": sum(buffer.numel() for buffer in model.buffers()),
        "flops": {"length": length, "forward": flops, "per_token": flops / (length * len(stacks))},
        "cache": _cache(stacks.get("decoder"), config),
    }


def _stack(model: SynthesizerPreTrainedModel, name: str) -> Stack | None:
    return getattr(model.base_model, name, None)


def _short(specs: list[str]) -> str | list[str]:
    return specs[0] if len(set(specs)) == 1 else specs


def _parameters(model: nn.Module) -> dict[str, int]:
    """Count parameters by part. Shared parameters count once, in the first part that has them."""
    parts = dict.fromkeys(PARTS, 0)
    for name, parameter in model.named_parameters():
        parts[_part(name)] += parameter.numel()
    return {"total": sum(parts.values())} | {part: count for part, count in parts.items() if count}


def _part(name: str) -> str:
    """Return the part that a parameter belongs to."""
    steps = name.split(".")
    part = next((part for step, part in PART_OF.items() if step in steps), "output")
    return f"{'encoder' if 'encoder' in steps else 'decoder'}_attention" if part == "attention" else part


def _flops(model: SynthesizerPreTrainedModel, length: int) -> int:
    """Count operations of the matrix products in a forward pass over one example, two per multiplication."""
    tokens = torch.zeros(1, length, dtype=torch.long)
    inputs = {"decoder_input_ids": tokens} if model.config.is_encoder_decoder else {}
    caching = {"use_cache": False} if _stack(model, "decoder") is not None else {}
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(input_ids=tokens, **inputs, **caching)
    return counter.get_total_flops()


def _cache(decoder: Stack | None, config: SynthesizerConfig) -> dict[str, Any] | None:
    """Count the bytes that decoding keeps for each token decoded and for each token of the encoder."""
    if decoder is None:
        return None
    dtype = config.dtype if isinstance(config.dtype, torch.dtype) else torch.float32
    token = torch.empty(1, 1, config.d_model, device="meta")

    def size(mixers: list[Any]) -> int:
        tensors = [tensor for mixer in mixers for tensor in mixer.project_memory(token) if tensor is not None]
        return sum(tensor.numel() for tensor in tensors) * dtype.itemsize

    cross = [block.cross_attention for block in decoder.layers if block.cross_attention is not None]
    return {
        "dtype": str(dtype).removeprefix("torch."),
        "bytes_per_token": size([block.attention for block in decoder.layers]),
        "bytes_per_encoder_token": size(cross),
    }
