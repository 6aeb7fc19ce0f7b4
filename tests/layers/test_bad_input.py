"""A user's mistake gets one line that names what was wrong, the numbers, and the way out."""

from typing import Any

import pytest
import torch

from helpers import make, refused, tokens
from synthattn import SyntheticAttention, parse
from synthattn.layers import ProjectedMemory
from synthattn.layers.light_convolution import LightConvolution

pytestmark = pytest.mark.unchecked

LAYER: dict[str, Any] = {"d_model": 12, "num_heads": 3, "attention": "random", "max_length": 8}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_heads": 5}, "num_heads=5 does not divide d_model=12; choose another number or give head_dim"),
        ({"num_heads": 0}, "num_heads must be at least 1, got 0"),
        ({"d_model": -4}, "d_model must be at least 1, got -4"),
        ({"head_dim": 0}, "head_dim must be at least 1, got 0"),
        ({"max_length": 0}, "max_length must be at least 1, got 0"),
        ({"max_length": None}, "random needs max_length: the longest input that it shall take"),
        ({"attention": "dense", "max_length": None}, "dense needs max_length"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
        ({"mix": "mean"}, "mix must be 'softmax', 'sum' or 'sigmoid', got 'mean'"),
        (
            {"attention": "random+dense+vanilla", "mix": "sigmoid"},
            "mix='sigmoid' weighs exactly two synthesizers",
        ),
        ({"attention": "ramdom"}, "unknown attention 'ramdom'; did you mean random"),
        ({"attention": 3}, "attention must be a text such as 'random+vanilla', got int"),
        (
            {"attention": "dense(shared_query=true)+random"},
            "dense(shared_query=true) takes the queries of the one dot product in its mixture, "
            "dense(shared_query=true)+random has 0; write for example 'dense(shared_query=true)+vanilla'",
        ),
        (
            {"attention": "factorized_random(rank=9)"},
            "factorized_random: rank=9 exceeds max_length=8; a 8 x 8 matrix has at most rank 8, use random instead",
        ),
        (
            {"attention": "factorized_dense(a=2, b=3)"},
            "factorized_dense: a * b = 2 * 3 = 6 is less than max_length=8; choose a * b of at least 8",
        ),
    ],
)
def test_construction(change, message):
    with refused(message):
        SyntheticAttention(**(LAYER | change))


X = torch.zeros(2, 5, 12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": torch.zeros(5, 12)}, "x must have shape (batch, length, 12), got (5, 12)"),
        ({"x": torch.zeros(2, 0, 12)}, "x holds no tokens: its shape is (2, 0, 12)"),
        ({"x": torch.zeros(0, 5, 12)}, "x holds no tokens: its shape is (0, 5, 12)"),
        ({"x": torch.zeros(2, 5, 11)}, "x has width 11, the layer was built for d_model=12"),
        ({"x": torch.zeros(2, 5, 12, dtype=torch.long)}, "x must hold floats, got int64"),
        (
            {"x": torch.zeros(2, 9, 12)},
            "input has 9 positions, random was built for max_length=8; shorten the input or call resize_max_length(9)",
        ),
        ({"memory": torch.zeros(2, 9, 12)}, "input has 9 positions, random was built for max_length=8"),
        ({"memory": torch.zeros(3, 5, 12)}, "x has 2 examples, memory has 3"),
        ({"offset": 2}, "offset=2 was given without the memory of the tokens before x"),
        (
            {"memory": ProjectedMemory(torch.zeros(2, 3, 5, 4), torch.zeros(2, 3, 5, 4))},
            "memory was projected with keys, by another layer",
        ),
        ({"memory": ProjectedMemory(None, torch.zeros(1, 3, 5, 4))}, "x has 2 examples, memory has 1"),
        ({"memory": torch.zeros(5, 12)}, "memory must have shape (batch, length, 12), got (5, 12)"),
        (
            {"key_padding_mask": torch.zeros(2, 6, dtype=torch.bool)},
            "key_padding_mask must have shape (batch, keys) = (2, 5), got (2, 6)",
        ),
        (
            {"key_padding_mask": torch.zeros(2, 5)},
            "key_padding_mask must be bool (True = ignore this key), got float32",
        ),
        (
            {"attn_mask": torch.zeros(5, 6, dtype=torch.bool)},
            "attn_mask must have shape (queries, keys) = (5, 5), (batch * heads, queries, keys) = (6, 5, 5) or "
            "(batch, 1 or heads, queries, keys), got (5, 6)",
        ),
        (
            {"attn_mask": torch.zeros(5, 5, dtype=torch.long)},
            "attn_mask must be bool (True = may not attend) or float (added to the logits), got int64",
        ),
        (
            {"positions": torch.arange(4)},
            "positions must have shape (batch, length) = (2, 5) or (length,) = (5,)",
        ),
        ({"positions": torch.zeros(5)}, "positions must be whole numbers, got float32"),
        ({"positions": torch.arange(5) - 1}, "positions start at 0, got -1"),
        (
            {"positions": torch.arange(5) + 4},
            "positions go up to 8, random was built for max_length=8 (positions 0 to 7); call resize_max_length(9)",
        ),
        ({"memory_positions": torch.arange(5)}, "memory_positions was given without memory; use positions"),
        ({"offset": -1}, "offset is the number of tokens before x, which is at least 0, got -1"),
        ({"offset": -2, "is_causal": True, "memory": X}, "which is at least 0, got -2"),
        ({"x": X.to_sparse()}, "x must be a dense tensor, got sparse_coo"),
        ({"position_bias": torch.zeros(1, 5, 5).to_sparse()}, "position_bias must be a dense tensor, got sparse_coo"),
        ({"positions": torch.arange(5).to_sparse()}, "positions must be a dense tensor, got sparse_coo"),
        ({"attn_mask": torch.ones(5, 5).bool().to_sparse()}, "attn_mask must be a dense tensor, got sparse_coo"),
        ({"x": [1.0]}, "x must be a tensor, got list"),
        ({"x": X.to("meta"), "memory": X}, "x is on meta, memory is on cpu"),
        ({"positions": [0, 1, 2, 3, 4]}, "positions must be a tensor, got list"),
        ({"attn_mask": [[True]]}, "attn_mask must be a tensor, got list"),
        ({"offset": "2"}, "offset must be a whole number, got str"),
        ({"memory": ProjectedMemory(None, "x")}, "values of memory must be a tensor, got str"),  # pyright: ignore
        (
            {"position_bias": torch.zeros(3, 5, 2)},
            "position_bias must have shape (1 or heads, 1 or queries, keys) = (1 or 3, 1 or 5, 5), or that with a "
            "first axis of 1 or batch = 2, got (3, 5, 2)",
        ),
        ({"position_bias": torch.zeros(3, 2, 5)}, "got (3, 2, 5)"),
        ({"position_bias": torch.zeros(2, 3, 5, 2)}, "got (2, 3, 5, 2)"),
        ({"position_bias": torch.zeros(3, 3, 5, 5)}, "got (3, 3, 5, 5)"),
        ({"position_bias": torch.zeros(5, 5)}, "got (5, 5)"),
        ({"position_bias": torch.zeros(3, 5, 1)}, "got (3, 5, 1)"),
        ({"position_bias": torch.zeros(3, 5, 5).long()}, "position_bias must hold floats, got int64"),
        (
            {"memory": ProjectedMemory(None, torch.zeros(2, 3, 5, 6))},
            "memory has values of shape (2, 3, 5, 6), this layer needs (batch, heads, tokens, width) = (2, 3, 5, 4); "
            "it was projected by another layer",
        ),
        ({"memory": ProjectedMemory(None, torch.zeros(2, 2, 5, 4))}, "memory has values of shape (2, 2, 5, 4)"),
        ({"memory": ProjectedMemory(None, torch.zeros(2, 3, 0, 4))}, "memory has values of shape (2, 3, 0, 4)"),
        ({"memory": ProjectedMemory(None, torch.zeros(3, 5, 4))}, "memory has values of shape (3, 5, 4)"),
        (
            {"memory": ProjectedMemory(None, torch.zeros(2, 3, 5, 4).long())},
            "values of memory must hold floats, got int64",
        ),
    ],
)
@pytest.mark.parametrize("training", [True, False])
def test_call(arguments, message, training):
    layer = SyntheticAttention(**LAYER).train(training)
    with refused(message), torch.set_grad_enabled(training):
        layer(**({"x": X} | arguments))


KEYS, VALUES = torch.zeros(2, 3, 5, 4), torch.zeros(2, 3, 5, 4)


@pytest.mark.parametrize(
    ("keys", "values", "message"),
    [
        (None, VALUES, "memory was projected without keys, by another layer"),
        (KEYS[:, :, :4], VALUES, "memory has keys of shape (2, 3, 4, 4)"),
        (KEYS[..., :3], VALUES, "memory has keys of shape (2, 3, 5, 3)"),
        (KEYS[:, :2], VALUES, "memory has keys of shape (2, 2, 5, 4)"),
        (KEYS[:1], VALUES, "memory has keys of shape (1, 3, 5, 4)"),
        (KEYS, VALUES[:1], "x has 2 examples, memory has 1"),
        (torch.cat([KEYS, KEYS], -1), VALUES, "memory has keys of shape (2, 3, 5, 8)"),
    ],
)
@pytest.mark.parametrize("spec", ["vanilla", "random+vanilla"])
def test_projected_memory_of_another_layer(spec, keys, values, message):
    layer = SyntheticAttention(**{**LAYER, "attention": spec})
    with refused(message):
        layer(X, ProjectedMemory(keys, values))


def test_projected_memory_of_two_dot_products_is_twice_as_wide():
    layer = SyntheticAttention(**{**LAYER, "attention": "vanilla+vanilla"})
    x = torch.randn(2, 5, 12)
    memory = layer.project_memory(x)
    assert memory.keys is not None
    assert memory.keys.shape == (2, 3, 5, 8)
    torch.testing.assert_close(layer(x, memory), layer(x))


@pytest.mark.parametrize(
    "shape", [(1, 1, 5), (3, 1, 5), (1, 5, 5), (3, 5, 5), (1, 3, 1, 5), (2, 1, 5, 5), (2, 3, 5, 5)]
)
@pytest.mark.parametrize("spec", ["random", "vanilla", "random+vanilla"])
def test_a_position_bias_broadcasts(spec, shape):
    layer, x = SyntheticAttention(**{**LAYER, "attention": spec}), torch.randn(2, 5, 12)
    bias = torch.randn(shape)
    whole = bias.expand(2, 3, 5, 5)
    torch.testing.assert_close(layer(x, position_bias=bias), layer(x, attn_mask=whole.reshape(6, 5, 5)))


@pytest.mark.parametrize("memory", ["keys", "heads", "width", "batch", "offset"])
def test_projected_memory_of_another_convolution(memory):
    layer, x = LightConvolution(12, 3, 3), torch.randn(2, 5, 12)
    values = torch.zeros(2, 3, 5, 4)
    wrong = {
        "keys": ProjectedMemory(values, values),
        "heads": ProjectedMemory(None, values[:, :2]),
        "width": ProjectedMemory(None, values[..., :3]),
        "batch": ProjectedMemory(None, values[:1]),
        "offset": ProjectedMemory(None, values),
    }
    with pytest.raises(ValueError, match=r"memory|offset"):
        layer(x, wrong[memory], is_causal=True, offset=-1 if memory == "offset" else 0)


@pytest.mark.parametrize("spec", ["dense", "factorized_random", "factorized_dense", "random+vanilla", "fixed_random"])
def test_every_length_bound_synthesizer_names_both_numbers(spec):
    layer = make(spec, max_length=13)
    name = spec.split("+")[0]
    with pytest.raises(ValueError, match=f"input has 14 positions, {name} was built for max_length=13"):
        layer(tokens(14))
    layer.resize_max_length(14)
    assert layer(tokens(14)).isfinite().all()


@pytest.mark.parametrize(
    "spec", ["vanilla", "dense(window=5)", "relative", "toeplitz(range=3)", "alibi", "vanilla+relative"]
)
def test_others_take_any_length_and_need_none(spec):
    layer = make(spec, max_length=None)
    assert layer.max_length is None
    assert layer(tokens(50)).isfinite().all()


def test_resize():
    layer = SyntheticAttention(**LAYER)
    with pytest.raises(ValueError, match="how must be 'pad' or 'interpolate', got 'stretch'"):
        layer.resize_max_length(9, how="stretch")  # pyright: ignore
    with pytest.raises(ValueError, match="max_length must be at least 1, got 0"):
        layer.resize_max_length(0)


def test_not_a_text():
    with pytest.raises(ValueError, match="attention must be a text such as 'random\\+vanilla', got NoneType"):
        parse(None)  # pyright: ignore


@pytest.mark.parametrize("spec", ["random", "fixed_random", "dense", "factorized_random"])
def test_loading_tables_of_another_length(spec):
    old, new = make(spec, max_length=16), make(spec, max_length=23)
    with pytest.raises(RuntimeError, match=r"was saved with max_length=16, \w+ was built for max_length=23") as caught:
        new.load_state_dict(old.state_dict())
    assert "resize_max_length(16), load, and resize again" in str(caught.value)
    assert "size mismatch" not in str(caught.value)
    new.resize_max_length(16)
    new.load_state_dict(old.state_dict())
    new.resize_max_length(23)
    x = tokens()
    torch.testing.assert_close(new(x), old(x))


def test_loading_a_table_of_another_range():
    old, new = make("toeplitz(range=4)+vanilla"), make("toeplitz(range=7)+vanilla")
    with pytest.raises(RuntimeError, match="saved with range=4, toeplitz was built with range=7; ") as caught:
        new.load_state_dict(old.state_dict())
    assert "build it as 'toeplitz(range=4)'" in str(caught.value)
    assert "size mismatch" not in str(caught.value)
