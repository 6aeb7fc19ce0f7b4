"""The baselines as users have them: in a compiled graph, and what they say to mistakes."""

from typing import Any

import pytest
import torch
from test_baselines import CONVOLUTIONS, LENGTH, MAX_LENGTH, make, padding, tokens

from helpers import refused
from synthattn.layers import ProjectedMemory, SyntheticAttention
from synthattn.layers.dynamic_convolution import DynamicConvolution
from synthattn.layers.light_convolution import LightConvolution
from synthattn.layers.linformer import Linformer
from synthattn.layers.mixers import DynamicConv, LightConv, LinformerTerm, build_mixer, parse_mixer
from synthattn.synthesizers import Spec
from synthattn.synthesizers.vanilla import Vanilla

pytestmark = pytest.mark.unchecked


@pytest.mark.parametrize(
    ("spec", "causal", "training", "padded"),
    [
        *((spec, not padded, not padded, padded) for spec in CONVOLUTIONS for padded in (True, False)),
        ("linformer(k=7)", False, True, False),
        ("linformer(k=7, shared_heads=false, shared_kv=true)", False, False, True),
    ],
)
def test_traced_in_one_graph_for_all_lengths(spec, causal, training, padded):
    layer = make(spec, torch.float32).train(training)
    torch._dynamo.reset()
    graphs = 0

    def count(graph, inputs):
        nonlocal graphs
        graphs += 1
        return graph

    compiled = torch.compile(layer, backend=count, fullgraph=True, dynamic=True)
    with torch.set_grad_enabled(training):
        for length in (LENGTH, MAX_LENGTH, MAX_LENGTH - 1, 5, 3):
            x = tokens(length, dtype=torch.float32)
            masks = {"is_causal": causal, "key_padding_mask": padding(length) if padded else None}
            torch.testing.assert_close(compiled(x, **masks), layer(x, **masks))
    assert graphs == 1


CONVOLUTION = {"d_model": 12, "num_heads": 3, "kernel": 5}
LINFORMER: dict[str, Any] = {"d_model": 12, "num_heads": 3, "k": 4, "max_length": 8}


@pytest.mark.parametrize("kind", [LightConvolution, DynamicConvolution])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"d_model": 0}, "d_model must be at least 1, got 0"),
        ({"num_heads": -1}, "num_heads must be at least 1, got -1"),
        ({"num_heads": 5}, "num_heads=5 does not divide d_model=12; choose another number"),
        ({"kernel": 4}, "kernel must be a positive odd number, got 4"),
        ({"kernel": -1}, "kernel must be a positive odd number, got -1"),
        ({"weight_dropout": 1.0}, "weight_dropout must be at least 0 and below 1, got 1.0"),
    ],
)
def test_construction_of_a_convolution(kind, change, message):
    with refused(message, whole=True):
        kind(**(CONVOLUTION | change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": 0}, "k must be at least 1, got 0"),
        ({"max_length": 0}, "max_length must be at least 1, got 0"),
        ({"dropout": -0.1}, "dropout must be at least 0 and below 1, got -0.1"),
        ({"num_heads": 5}, "num_heads=5 does not divide d_model=12; choose another number or give head_dim"),
    ],
)
def test_construction_of_a_linformer(change, message):
    with refused(message, whole=True):
        Linformer(**(LINFORMER | change))


X = torch.zeros(2, 5, 12)
MASK = torch.zeros(5, 5)
KEYS = SyntheticAttention(12, 3, "vanilla").project_memory(X)
VALUES = ProjectedMemory(None, torch.zeros(2, 3, 5, 4))


@pytest.mark.parametrize(("kind", "name"), [(LightConvolution, "lightconv"), (DynamicConvolution, "dynamicconv")])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": torch.zeros(5, 12)}, "x must have shape (batch, length, 12), got (5, 12)"),
        ({"x": torch.zeros(2, 5, 11)}, "x has width 11, the layer was built for d_model=12"),
        ({"memory": X}, "{name} convolves x itself, it cannot attend to a memory; use vanilla for that"),
        ({"attn_mask": MASK}, "{name} takes no attn_mask; use key_padding_mask or is_causal"),
        ({"position_bias": MASK}, "{name} has no logits to add position_bias to; leave it out"),
        ({"offset": 3}, "offset=3 was given without the memory of the tokens before x"),
        ({"memory": KEYS}, "memory was projected with keys, by another layer"),
        ({"x": X[:1], "memory": VALUES}, "x has 1 examples, memory has 2"),
        (
            {"memory": VALUES, "offset": 3},
            "memory has 5 tokens, offset=3 and the 5 tokens of x need 8; project x too",
        ),
        (
            {"key_padding_mask": torch.zeros(2, 6, dtype=torch.bool)},
            "key_padding_mask must have shape (batch, keys) = (2, 5), got (2, 6)",
        ),
    ],
)
def test_call_of_a_convolution(kind, name, arguments, message):
    with refused(message.replace("{name}", name), whole=True):
        kind(**CONVOLUTION)(**({"x": X} | arguments))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"is_causal": True},
            "linformer cannot be causal: its mixtures hold tokens from the whole input; use vanilla",
        ),
        ({"offset": 3, "memory": X}, "linformer cannot decode, but offset=3 was given; use vanilla for that"),
        ({"attn_mask": MASK}, "linformer takes no attn_mask: queries attend to mixtures; use key_padding_mask"),
        ({"position_bias": MASK}, "linformer takes no position_bias: queries attend to mixtures; leave it out"),
        ({"memory": KEYS}, "linformer takes tokens as memory, this was projected by another layer"),
        ({"memory": torch.zeros(3, 5, 12)}, "x has 2 examples, memory has 3"),
        ({"memory": torch.zeros(2, 5, 11)}, "memory has width 11, the layer was built for d_model=12"),
        ({"memory_positions": torch.arange(5)}, "memory_positions was given without memory; use positions"),
        ({"positions": torch.zeros(5)}, "positions must be whole numbers, got float32"),
        (
            {"positions": torch.arange(5) - 1},
            "positions start at 0, got -1; give padding any valid position, such as 0",
        ),
        (
            {"positions": torch.arange(5) + 4},
            "positions go up to 8, linformer was built for max_length=8 (positions 0 to 7); call resize_max_length(9)",
        ),
        (
            {"x": torch.zeros(2, 9, 12)},
            "input has 9 positions, linformer was built for max_length=8; "
            "shorten the input or call resize_max_length(9)",
        ),
        (
            {"key_padding_mask": torch.zeros(2, 5)},
            "key_padding_mask must be bool (True = ignore this key), got float32",
        ),
    ],
)
def test_call_of_a_linformer(arguments, message):
    with refused(message, whole=True):
        Linformer(**LINFORMER)(**({"x": X} | arguments))


def test_linformer_remembers_nothing_and_resizes_within_reason():
    layer = Linformer(**LINFORMER)
    with pytest.raises(ValueError, match=r"^linformer cannot decode: its mixtures hold tokens from the whole input"):
        layer.project_memory(X)
    with pytest.raises(ValueError, match=r"^how must be 'pad' or 'interpolate', got 'stretch'$"):
        layer.resize_max_length(9, how="stretch")  # pyright: ignore
    with pytest.raises(ValueError, match=r"^max_length must be at least 1, got 0$"):
        layer.resize_max_length(0)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("lightconv+vanilla", "lightconv is a layer of its own, it cannot be mixed with vanilla"),
        ("random+vanilla+linformer", "linformer is a layer of its own, it cannot be mixed with random"),
        ("dynamicconv+lightconv", "dynamicconv is a layer of its own, it cannot be mixed with lightconv"),
        (Spec((Vanilla(), LightConv())), "lightconv is a layer of its own, it cannot be mixed with vanilla"),
        ("lightcnov", "unknown attention 'lightcnov'; did you mean lightconv?"),
        ("lightconv(kernal=3)", "lightconv has no option 'kernal'; did you mean kernel?"),
        ("lightconv(kernel=4)", "lightconv: kernel must be a positive odd number, got 4"),
        ("dynamicconv(kernel=-3)", "dynamicconv: kernel must be a positive odd number, got -3"),
        ("dynamicconv(dropout=1)", "dynamicconv: dropout must be at least 0 and below 1, got 1.0"),
        ("linformer(k=0)", "linformer: k must be at least 1, got 0"),
        ("linformer(shared_kv=1)", "linformer: shared_kv must be true or false, got '1'"),
        (3, "attention must be a text such as 'random+vanilla', got int"),
    ],
)
def test_specs(spec, message):
    with refused(message, whole=True):
        parse_mixer(spec)


@pytest.mark.parametrize(
    ("term", "change", "message"),
    [
        (LightConv(), {"num_heads": 5}, "num_heads=5 does not divide d_model=12; choose another number"),
        (LinformerTerm(), {"num_heads": 0}, "num_heads must be at least 1, got 0"),
        (LinformerTerm(), {"max_length": None}, "linformer needs max_length: the longest input that it shall take"),
        (
            DynamicConv(),
            {"head_dim": 5},
            "dynamicconv splits d_model=12 channels over its heads, but num_heads=3 times head_dim=5 is 15; "
            "leave head_dim out",
        ),
    ],
)
def test_building(term, change, message):
    arguments = {"d_model": 12, "num_heads": 3, "max_length": 8, "dropout": 0.0} | change
    with refused(message, whole=True):
        build_mixer(term, **arguments)
