"""Parameter counts equal those of the paper, rounded as there."""

from functools import cache
from typing import Any

import pytest
import torch

from synthattn.models import SynthesizerForConditionalGeneration
from synthattn.models.describe import MODELS, describe
from synthattn.models.presets import PRESETS, c4_base, lm1b_base, t5_base, t5_small, tiny, transformer_base


@cache
def parameters(preset: Any, attention: str, kind: str = "seq2seq", **changes: Any) -> int:
    return describe(preset(attention, **changes), kind, length=3)["parameters"]["total"]


@pytest.mark.parametrize(
    ("attention", "millions"),
    [
        ("vanilla", 222.9),
        ("dense(shared_keys=true, bias=false)", 224.5),
        ("dense(shared_keys=true, shared_query=true, bias=false)+vanilla", 243.4),
        ("factorized_random(rank=16)", 207.2),
        ("random", 254.4),
        ("random+vanilla", 292.1),
    ],
)
def test_the_c4_runs(attention, millions):
    assert round(parameters(c4_base, attention) / 1e6, 1) == millions


LAYERS, D, HEADS, N = 12, 512, 8, 256


@pytest.mark.parametrize(
    ("attention", "added"),
    [
        ("random", LAYERS * HEADS * N * N),  # 6.29M
        ("vanilla", LAYERS * 2 * D * D),  # Q and K, 6.29M
        ("factorized_random(rank=8)", LAYERS * HEADS * 2 * N * 8),  # 0.39M
        ("dense(bias=false)", LAYERS * (D * D + D * N)),  # Table 1's reading of dense, 4.72M
        ("dense(shared_keys=true, bias=false)", LAYERS * (D * D + D // HEADS * N)),  # the authors' code, 3.34M
        ("factorized_dense(a=16, b=16)", LAYERS * (D * D + D + (D + HEADS) * 32)),
    ],
)
def test_what_the_variants_add_to_fixed_random(attention, added):
    fixed = parameters(transformer_base, "fixed_random")
    assert parameters(transformer_base, attention) - fixed == added


def test_random_for_the_dot_product_is_an_even_trade_and_mixtures_add_up():
    """The paper has 67M parameters for both, and 73M for their mixture."""
    vanilla, random, both = (parameters(transformer_base, a) for a in ("vanilla", "random", "random+vanilla"))
    assert vanilla == random
    assert both - vanilla == LAYERS * HEADS * N * N + LAYERS * 2 * HEADS
    control = parameters(transformer_base, "vanilla", d_ff=2560)
    assert round((control - vanilla) / 1e6, 2) == 6.30


def test_the_sizes_of_t5():
    assert parameters(t5_small, "vanilla") == 60_506_624
    assert parameters(t5_base, "vanilla") == 222_903_552


def test_lm1b_has_two_matrices_of_the_vocabulary():
    shared = parameters(lm1b_base, "vanilla", "causal-lm", tie_word_embeddings=True)
    assert parameters(lm1b_base, "vanilla", "causal-lm") - shared == 32_000 * 512


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("kind", MODELS)
def test_every_preset_makes_every_model_without_allocating_it(preset, kind):
    if preset == "lm1b_base" and kind != "causal-lm":
        pytest.skip("a decoder alone")
    figures = describe(PRESETS[preset](), kind, length=7)
    assert figures["flops"]["forward"] > 0
    assert sum(v for k, v in figures["parameters"].items() if k != "total") == figures["parameters"]["total"]


def test_the_counts_are_those_of_the_model_itself():
    config = tiny("fixed_random+vanilla")
    model = SynthesizerForConditionalGeneration(config)
    figures = describe(config, "seq2seq")
    assert figures["parameters"]["total"] == sum(p.numel() for p in model.parameters())
    assert figures["fixed"] == 4 * 4 * 32 * 32
    tokens = torch.full((1, 1), 5)
    cache = model.eval()(tokens, decoder_input_ids=tokens, use_cache=True).past_key_values
    kept = [t for layer in cache.self_attention_cache.layers for t in (layer.keys, layer.values) if t is not None]
    assert figures["cache"]["bytes_per_token"] == sum(t.numel() * t.element_size() for t in kept)


def test_operations_are_counted_by_hand():
    """An encoder layer has the products of values, output, mixing and feed-forward."""
    length, d, d_ff, layers, vocabulary = 7, 32, 64, 2, 64
    products = layers * length * (2 * d * d + length * d + 2 * d * d_ff) + length * d * vocabulary
    assert describe(tiny("random"), "masked-lm", length)["flops"]["forward"] == 2 * products


def test_a_preset_takes_any_field():
    config = tiny(vocab_size=53, attention="random", encoder_attention=["dense", "vanilla"], norm="rmsnorm")
    assert (config.vocab_size, config.norm, config.decoder_attention) == (53, "rmsnorm", "random")
    assert config.encoder_attention == ["dense", "vanilla"]
    with pytest.raises(ValueError, match="unknown attention 'ramdom'; did you mean random"):
        tiny("ramdom")
    with pytest.raises(ValueError, match="a configuration has no field 'd_mode'; did you mean d_model"):
        tiny(d_mode=8)
