"""Build the parts of a model from its configuration."""

from functools import partial

from torch import nn

from synthattn.layers.feed_forward import FeedForward
from synthattn.layers.mixers import ConvolutionTerm, TokenMixer, build_mixer, parse_mixer
from synthattn.layers.positions import LearnedPositions, SinusoidalPositions
from synthattn.layers.rms_norm import RMSNorm
from synthattn.layers.synthetic_attention import SyntheticAttention
from synthattn.models.block import Block, PostNorm, PreNorm
from synthattn.models.configuration import SynthesizerConfig
from synthattn.models.stack import Stack
from synthattn.models.universal import Halting, UniversalStack
from synthattn.synthesizers import SYNTHESIZERS, Sizes
from synthattn.synthesizers.relative import Relative, RelativeSynthesizer

NORMS = {"layernorm": nn.LayerNorm, "rmsnorm": RMSNorm}
RESIDUALS = {"pre": PreNorm, "post": PostNorm}


def encoder(config: SynthesizerConfig) -> Stack:
    """Build an encoder."""
    return _stack(config, config.layer_specs("encoder"), None, causal=False)


def decoder(config: SynthesizerConfig) -> Stack:
    """Build a decoder, which attends to an encoder if the model has one."""
    cross = config.layer_specs("cross") if config.is_encoder_decoder else None
    return _stack(config, config.layer_specs("decoder"), cross, causal=True)


def _stack(config: SynthesizerConfig, specs: list[str], cross: list[str] | None, causal: bool) -> Stack:
    depths = 1 if config.share_layers else len(specs)
    blocks = [_block(config, specs[n], None if cross is None else cross[n], causal) for n in range(depths)]
    parts = {
        "positions": _positions(config),
        "relative": _relative(config, blocks, causal),
        "norm": _norm(config) if config.norm_position == "pre" else nn.Identity(),
        "dropout": config.dropout,
    }
    if not config.share_layers:
        return Stack(blocks, **parts)
    halting = Halting(config.d_model, config.halting_threshold) if config.halting else None
    return UniversalStack(blocks[0], len(specs), halting, **parts)


def _block(config: SynthesizerConfig, spec: str, cross: str | None, causal: bool) -> Block:
    return Block(
        _mixer(config, spec, causal),
        None if cross is None else _cross_attention(config, cross),
        FeedForward(
            config.d_model, config.d_ff, config.activation, config.activation_dropout, config.feed_forward_bias
        ),
        lambda: RESIDUALS[config.norm_position](_norm(config), config.dropout),
        causal,
    )


def _mixer(config: SynthesizerConfig, spec: str, causal: bool) -> TokenMixer:
    heads, head_dim = config.num_heads, config.head_dim
    terms = parse_mixer(spec).terms
    if isinstance(terms[0], ConvolutionTerm):
        head_dim = None  # a convolution has as many channels as the tokens
    elif any(term.name in SYNTHESIZERS and term.name not in ("vanilla", "relative", "alibi") for term in terms):
        heads = config.synthetic_heads or heads
        head_dim = config.synthetic_head_dim or head_dim
    mixer = build_mixer(
        spec,
        config.d_model,
        heads,
        config.max_position_embeddings,
        config.attention_dropout,
        head_dim=head_dim,
        bias=config.attention_bias,
        mix=config.mix,
    )
    if causal and not mixer.can_be_causal:
        raise ValueError(f"{spec} looks at all positions at once and cannot decode; use it in encoder_attention only")
    return mixer


def _cross_attention(config: SynthesizerConfig, spec: str) -> SyntheticAttention:
    sizes = config.d_model, config.num_heads, spec, config.max_position_embeddings, config.attention_dropout
    return SyntheticAttention(*sizes, head_dim=config.head_dim, bias=config.attention_bias, mix=config.mix)


def _norm(config: SynthesizerConfig) -> nn.Module:
    return NORMS[config.norm](config.d_model, eps=config.norm_eps)


def _positions(config: SynthesizerConfig) -> SinusoidalPositions | LearnedPositions | None:
    kinds = {
        "sinusoidal": partial(SinusoidalPositions, config.d_model),
        "learned": partial(LearnedPositions, config.d_model, config.max_position_embeddings),
    }
    return kinds[config.positions]() if config.positions in kinds else None


def _relative(config: SynthesizerConfig, blocks: list[Block], causal: bool) -> dict[int, RelativeSynthesizer]:
    """Build one table of position biases for each number of heads among the layers that read it."""
    if config.positions != "relative":
        return {}
    term = Relative(config.relative_buckets, config.relative_distance, bidirectional=not causal)  # checks the sizes
    options = vars(term).values()
    readers = {block.attention.num_heads for block in blocks if block.attention.takes_position_bias}
    return {heads: RelativeSynthesizer(Sizes(config.d_model, heads, 1, None), *options) for heads in sorted(readers)}
