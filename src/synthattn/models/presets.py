"""Configurations of the paper's runs and smaller ones, each as a function.

Every function takes ``attention`` for both stacks, or ``encoder_attention`` and ``decoder_attention``, and any other
field of ``SynthesizerConfig`` to change: ``presets.tiny(vocab_size=53, attention="random")``.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from synthattn.messages import suggestion
from synthattn.models.configuration import Attention, SynthesizerConfig

KNOWN = {field.name for field in dataclasses.fields(SynthesizerConfig)}
KNOWN |= {"num_labels", "attn_implementation", "output_attentions"}  # which transformers accepts in addition


def _config(attention: Attention, changes: dict[str, Any], **fields: Any) -> SynthesizerConfig:
    for name in changes:
        if name not in KNOWN:
            raise ValueError(f"a configuration has no field {name!r}{suggestion(name, KNOWN)}")
    chosen: dict[str, Any] = {"encoder_attention": attention, "decoder_attention": attention}
    return SynthesizerConfig(**(chosen | fields | changes))


def tiny(attention: Attention = "random+vanilla", **changes: Any) -> SynthesizerConfig:
    """Return a configuration for tests: two narrow layers, no dropout."""
    return _config(
        attention,
        changes,
        vocab_size=64,
        d_model=32,
        num_heads=4,
        d_ff=64,
        encoder_layers=2,
        decoder_layers=2,
        max_position_embeddings=32,
        dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
        classifier_dropout=0.0,
    )


# On a CPU, drawing dropout for weights and inner layers takes a quarter of the time of such small models.
SMALL = {"d_model": 128, "num_heads": 4, "d_ff": 512, "attention_dropout": 0.0, "activation_dropout": 0.0}


def demo(attention: Attention = "random+vanilla", **changes: Any) -> SynthesizerConfig:
    """Return a configuration that two cores train in a minute."""
    return _config(
        attention,
        changes,
        **SMALL,
        vocab_size=4000,
        encoder_layers=2,
        decoder_layers=2,
        max_position_embeddings=64,
    )


def cpu(attention: Attention = "random+vanilla", **changes: Any) -> SynthesizerConfig:
    """Return a configuration that two cores train in minutes."""
    return _config(
        attention,
        changes,
        **SMALL,
        vocab_size=8000,
        encoder_layers=3,
        decoder_layers=3,
        max_position_embeddings=128,
    )


def transformer_base(attention: Attention = "random+vanilla", **changes: Any) -> SynthesizerConfig:
    """Return Tensor2Tensor's base model, as in the paper's translation runs: N = 256, English-German vocabulary."""
    return _config(attention, changes, vocab_size=33_708, max_position_embeddings=256)


def lm1b_base(attention: Attention = "random+vanilla", **changes: Any) -> SynthesizerConfig:
    """Return Tensor2Tensor's ``lmx_base``, a decoder for ``ForCausalLM`` with untied embeddings."""
    return _config(
        attention, changes, vocab_size=32_000, max_position_embeddings=256, encoder_layers=0, tie_word_embeddings=False
    )


T5 = {
    "vocab_size": 32_128,
    "max_position_embeddings": 512,
    "positions": "relative",
    "norm": "rmsnorm",
    "feed_forward_bias": False,
    "scale_embedding": False,
    "scale_logits": True,
    "initializer": "fan_in",
}


def t5_small(attention: Attention = "random+vanilla", **changes: Any) -> SynthesizerConfig:
    """Return the configuration of T5 1.0 small."""
    return _config(attention, changes, **T5)


def t5_base(attention: Attention = "random+vanilla", **changes: Any) -> SynthesizerConfig:
    """Return the configuration of T5 1.0 base."""
    return _config(attention, changes, **T5, d_model=768, num_heads=12, d_ff=3072, encoder_layers=12, decoder_layers=12)


def c4_base(attention: Attention = "random+vanilla", **changes: Any) -> SynthesizerConfig:
    """Return T5 base as in the paper's C4 runs.

    Synthesizer layers have 8 heads of 128 in place of 12 of 64, mixtures are plain sums, and there is no dropout.
    """
    changes = {"synthetic_heads": 8, "synthetic_head_dim": 128, "mix": "sum"} | changes
    return t5_base(attention, **({"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0} | changes))


PRESETS: dict[str, Callable[..., SynthesizerConfig]] = {
    preset.__name__: preset for preset in (tiny, demo, cpu, transformer_base, lm1b_base, t5_small, t5_base, c4_base)
}
