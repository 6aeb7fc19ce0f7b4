"""The configuration of all models. The class of a model decides which of the two stacks it uses."""

import dataclasses
import math
from typing import Any, Literal, no_type_check

import torch

from synthattn.layers.feed_forward import Activation
from synthattn.layers.mixers import Baseline, parse_mixer
from synthattn.models.compat import PreTrainedConfig, strict
from synthattn.synthesizers import Mix

Positions = Literal["sinusoidal", "learned", "relative", "none"]
Norm = Literal["layernorm", "rmsnorm"]
NormPosition = Literal["pre", "post"]
Initializer = Literal["xavier", "fan_in"]
Pooling = Literal["mean", "first"]
Attention = str | list[str]
Number = float | int

LARGEST = 2**31 - 1
"""Largest whole number in a configuration. Sizes of models are far smaller."""
MOST_CLASSES = 1_000_000
AT_LEAST = dict.fromkeys(("vocab_size", "d_model", "num_heads", "d_ff", "max_position_embeddings"), 1)
AT_LEAST |= dict.fromkeys(("head_dim", "synthetic_heads", "synthetic_head_dim"), 1)
AT_LEAST |= dict.fromkeys(("encoder_layers", "decoder_layers", "ponder_weight", "norm_eps"), 0)
"""The smallest value of each field that has one."""
DTYPES = ("float16", "bfloat16", "float32", "float64")


@no_type_check  # its constructor takes more than its fields, and @strict has its own checks
@strict
class SynthesizerConfig(PreTrainedConfig):
    """Sizes and parts of a model. :mod:`synthattn.models.presets` has the configurations of the paper.

    Args:
        vocab_size: number of tokens.
        d_model: width of the token vectors.
        num_heads: heads of every attention.
        head_dim: width of a head, ``d_model // num_heads`` unless given.
        synthetic_heads: heads of self-attention layers that are not purely ``vanilla``, ``num_heads`` unless given.
        synthetic_head_dim: width of these heads, ``head_dim`` unless given.
        d_ff: width of the feed-forward layer.
        encoder_layers: number of layers in the encoder.
        decoder_layers: number of layers in the decoder.
        encoder_attention: a spec for all layers, or one for each: ``"random+vanilla"``, ``["dense", "vanilla"]``,
            ``"lightconv(kernel=9)"``.
        decoder_attention: specs of the decoder's attention to itself.
        cross_attention: specs of the decoder's attention to the encoder.
        mix: weights of the terms of mixtures: ``"softmax"``, ``"sum"`` or ``"sigmoid"``.
        max_position_embeddings: the longest input, the paper's N.
        positions: ``"sinusoidal"`` or ``"learned"`` vectors added to the tokens, ``"relative"`` (T5's bias, one table
            for all layers of a stack) or ``"none"``.
        relative_buckets: buckets of the relative bias.
        relative_distance: distance from which all distances share a bucket.
        norm: ``"layernorm"`` or ``"rmsnorm"``.
        norm_position: ``"pre"``, before each part of a layer and after the last, or ``"post"``, after each.
        norm_eps: added to the variance.
        activation: ``"relu"``, ``"gelu"``, ``"silu"``, or gated: ``"gated-relu"``, ``"gated-gelu"``, ``"gated-silu"``.
        attention_bias: biases in the projections of attention.
        feed_forward_bias: biases in the feed-forward layer.
        dropout: dropout after the embedding, after each sublayer, and at the end of a stack, as in T5.
        attention_dropout: dropout of attention weights.
        activation_dropout: dropout inside the feed-forward layer.
        classifier_dropout: dropout before the classifier.
        scale_embedding: multiply token vectors by sqrt(d_model), as Tensor2Tensor does.
        scale_logits: multiply by 1 / sqrt(d_model) before the output matrix, as T5 does if that is the embedding.
        initializer: initial weights of linear maps: ``"xavier"`` (uniform) or ``"fan_in"`` (T5: normal, variance
            1 / inputs).
        share_layers: use one layer at every depth and add a signal for the depth, as the Universal Transformer does.
        halting: with ``share_layers``, let every token decide when it stops (ACT).
        halting_threshold: probability at which a token stops.
        ponder_weight: weight of the number of steps in the loss, in evaluation too.
        classifier_pooling: classify the ``"mean"`` of the token vectors, or the ``"first"`` one.
    """

    model_type = "synthesizer"
    keys_to_ignore_at_inference = ["past_key_values", "ponder_cost"]  # noqa: RUF012 (as transformers has it)
    attribute_map = {  # noqa: RUF012
        "hidden_size": "d_model",
        "num_attention_heads": "num_heads",
    }

    vocab_size: int = 32128
    d_model: int = 512
    num_heads: int = 8
    head_dim: int | None = None
    synthetic_heads: int | None = None
    synthetic_head_dim: int | None = None
    d_ff: int = 2048
    encoder_layers: int = 6
    decoder_layers: int = 6
    encoder_attention: Attention = "random+vanilla"
    decoder_attention: Attention = "random+vanilla"
    cross_attention: Attention = "vanilla"
    mix: Mix = "softmax"
    max_position_embeddings: int = 512
    positions: Positions = "sinusoidal"
    relative_buckets: int = 32
    relative_distance: int = 128
    norm: Norm = "layernorm"
    norm_position: NormPosition = "pre"
    norm_eps: float = 1e-6
    activation: Activation = "relu"
    attention_bias: bool = False
    feed_forward_bias: bool = True
    dropout: Number = 0.1
    attention_dropout: Number = 0.1
    activation_dropout: Number = 0.1
    classifier_dropout: Number = 0.1
    scale_embedding: bool = True
    scale_logits: bool = False
    initializer: Initializer = "xavier"
    tie_word_embeddings: bool = True
    share_layers: bool = False
    halting: bool = False
    halting_threshold: Number = 0.99
    ponder_weight: Number = 0.01
    classifier_pooling: Pooling = "mean"
    is_encoder_decoder: bool = True
    is_decoder: bool = False
    use_cache: bool = True
    pad_token_id: int | None = 0
    eos_token_id: int | list[int] | None = 1
    bos_token_id: int | None = None
    decoder_start_token_id: int | None = 0

    def __post_init__(self, **kwargs: Any) -> None:
        if (layers := kwargs.pop("num_hidden_layers", None)) is not None:
            self.num_hidden_layers = layers
        self._check()
        check_dtype(self.dtype if self.dtype is not None else kwargs.get("torch_dtype"))
        check_classes(self.id2label, kwargs.get("num_labels"))
        super().__post_init__(**kwargs)

    @property
    def num_hidden_layers(self) -> int:
        """Number of layers of the decoder, or of an encoder alone. Setting it changes both stacks."""
        return self.decoder_layers if self.is_decoder or self.is_encoder_decoder else self.encoder_layers

    @num_hidden_layers.setter
    def num_hidden_layers(self, layers: int) -> None:
        self.encoder_layers = self.decoder_layers = layers

    def validate_output_attentions(self) -> None:
        """Accept ``output_attentions`` with every implementation of attention, unlike other models."""

    def layer_specs(self, stack: Literal["encoder", "decoder", "cross"]) -> list[str]:
        """Return the spec of each layer's attention."""
        attention: Attention = getattr(self, f"{stack}_attention")
        layers = self.encoder_layers if stack == "encoder" else self.decoder_layers
        return list(attention) if isinstance(attention, list) else [attention] * layers

    def _check(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"{field.name} must be a finite number, got {value}")
            if isinstance(value, int) and value > LARGEST:
                raise ValueError(f"{field.name} must be at most {LARGEST:,}, got {value}")
        for name, least in AT_LEAST.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}")
        for name in ("pad_token_id", "eos_token_id", "bos_token_id", "decoder_start_token_id"):
            value = getattr(self, name)
            for token in value if isinstance(value, list) else [value]:
                if token is not None and not 0 <= token < self.vocab_size:
                    raise ValueError(f"{name} must be at least 0 and below vocab_size={self.vocab_size}, got {token}")
        if not 0 < self.halting_threshold <= 1:
            raise ValueError(f"halting_threshold must be above 0 and at most 1, got {self.halting_threshold}")
        for name in ("dropout", "attention_dropout", "activation_dropout", "classifier_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 0 and below 1, got {getattr(self, name)}")
        for stack in ("encoder", "decoder", "cross"):
            attention = getattr(self, f"{stack}_attention")
            layers = self.encoder_layers if stack == "encoder" else self.decoder_layers
            if isinstance(attention, list) and len(attention) != layers:
                raise ValueError(
                    f"{stack}_attention lists {len(attention)} layers, there are {layers}; give one for each"
                )
            specs = set(attention) if isinstance(attention, list) else {attention}
            for spec in specs:
                baseline = next((term for term in parse_mixer(spec).terms if isinstance(term, Baseline)), None)
                if stack == "cross" and baseline is not None:
                    raise ValueError(
                        f"cross_attention cannot be {baseline.name}, which mixes the tokens of one text; give vanilla "
                        "or another attention"
                    )
            if self.share_layers and len(specs) > 1:
                raise ValueError(
                    f"share_layers uses one layer at every depth, {stack}_attention lists {len(specs)} different "
                    "ones; give a single spec"
                )
        if self.halting and not self.share_layers:
            raise ValueError("halting needs share_layers=True: only a repeated layer can be repeated less often")


def check_dtype(dtype: Any) -> None:
    """Raise a ValueError unless weights can have this dtype."""
    name = str(dtype).removeprefix("torch.") if isinstance(dtype, torch.dtype) else dtype
    if name is not None and name not in DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype!r}")


def check_classes(names: Any, count: Any) -> None:
    """Raise a ValueError unless ``id2label`` and ``num_labels`` can name classes. ``num_labels`` takes precedence."""
    whole = hasattr(count, "__index__") and not isinstance(count, bool)
    if count is not None and not (whole and 0 <= int(count) <= MOST_CLASSES):
        raise ValueError(f"num_labels must be a whole number from 0 to {MOST_CLASSES:,}, got {count!r}")
    if names is None:
        return
    if not isinstance(names, dict) or {str(key) for key in names} != {str(n) for n in range(len(names))}:
        raise ValueError(
            f"id2label must name the classes 0, 1, 2, ..., such as {{0: 'no', 1: 'yes'}}, got {names!r:.80}"
        )
