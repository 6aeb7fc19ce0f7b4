"""torch's own models work after ``replace_attention``."""

import copy

import pytest
import torch
from torch import nn

from helpers import HEADS, SPECS
from synthattn import SyntheticAttention, replace_attention
from synthattn.convert.multihead import SyntheticMultiheadAttention

D, LENGTH, BATCH = 15, 7, 2


def attention(**options) -> nn.MultiheadAttention:
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(D, HEADS, batch_first=True, dtype=torch.float64, **options)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.3)
    return layer


def encoder(batch_first: bool = True) -> nn.TransformerEncoder:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(D, HEADS, 11, dropout=0.0, batch_first=batch_first, dtype=torch.float64)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def tokens(length: int = LENGTH) -> torch.Tensor:
    return torch.randn(BATCH, length, D, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


def padding() -> torch.Tensor:
    mask = torch.zeros(BATCH, LENGTH, dtype=torch.bool)
    mask[1, 4:] = True
    return mask


CAUSAL = nn.Transformer.generate_square_subsequent_mask(LENGTH, dtype=torch.float64)


@pytest.mark.parametrize("bias", [True, False])
def test_vanilla_in_place_of_the_original_changes_nothing(bias):
    original = attention(bias=bias)
    replaced = copy.deepcopy(original)
    assert replace_attention(replaced, "vanilla") == [""]
    assert isinstance(replaced, SyntheticMultiheadAttention)
    x, memory = tokens(), tokens(5)
    cases = [
        ((x, x, x), {}),
        ((x, x, x), {"average_attn_weights": False}),
        ((x, x, x), {"need_weights": False}),
        ((x, x, x), {"attn_mask": CAUSAL, "is_causal": True, "need_weights": False}),
        ((x, x, x), {"attn_mask": CAUSAL}),
        ((x, x, x), {"attn_mask": float("-inf") == CAUSAL, "key_padding_mask": padding()}),
        ((x, x, x), {"key_padding_mask": torch.randn(BATCH, LENGTH, dtype=torch.float64), "attn_mask": CAUSAL}),
        ((x, x, x), {"attn_mask": torch.randn(BATCH * HEADS, LENGTH, LENGTH, dtype=torch.float64)}),
        ((x, memory, memory), {}),
        ((x[0], x[0], x[0]), {}),
        ((x[0], x[0], x[0]), {"key_padding_mask": padding()[1]}),
    ]
    for arguments, options in cases:
        expected, expected_weights = original(*arguments, **options)
        found, weights = replaced(*arguments, **options)
        torch.testing.assert_close(found, expected)
        assert (weights is None) == (expected_weights is None)
        if weights is not None and expected_weights is not None:
            torch.testing.assert_close(weights, expected_weights)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_vanilla_in_an_encoder_changes_nothing(batch_first, training):
    original = encoder(batch_first).train(training)
    replaced = copy.deepcopy(original)
    names = replace_attention(replaced, "vanilla")
    assert names == ["layers.0.self_attn", "layers.1.self_attn"]
    x = tokens() if batch_first else tokens().transpose(0, 1)
    for options in ({}, {"src_key_padding_mask": padding()}, {"mask": CAUSAL, "is_causal": True}, {"mask": CAUSAL}):
        with torch.set_grad_enabled(training):
            # torch's fast path for evaluation gives padded positions zeros; their values have no meaning elsewhere.
            kept = ~padding() if "src_key_padding_mask" in options else torch.ones(BATCH, LENGTH, dtype=torch.bool)
            kept = kept if batch_first else kept.t()
            torch.testing.assert_close(replaced(x, **options)[kept], original(x, **options)[kept])


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("training", [True, False])
def test_every_spec_in_an_encoder(spec, training):
    model = encoder().train(training)
    value = model.get_parameter("layers.0.self_attn.in_proj_weight").detach().chunk(3)[2]
    replace_attention(model, spec, max_length=LENGTH)
    layer = model.get_submodule("layers.0.self_attn.attention")
    assert isinstance(layer, SyntheticAttention)
    assert torch.equal(layer.value.weight, value)
    assert layer.training == training
    with torch.set_grad_enabled(training):
        y = model(tokens(), src_key_padding_mask=padding())
        shorter = model(tokens()[1:, :4])
    torch.testing.assert_close(y[1:, :4], shorter)
    if training:
        y[~padding()].square().sum().backward()
        assert all(p.grad is not None for p in model.parameters())


def test_decoder_keeps_its_attention_to_the_encoder():
    torch.manual_seed(0)
    layer = nn.TransformerDecoderLayer(D, HEADS, 11, dropout=0.0, batch_first=True, dtype=torch.float64)
    model = nn.TransformerDecoder(layer, 2)
    names = replace_attention(model, "random+vanilla", max_length=LENGTH)
    assert names == ["layers.0.self_attn", "layers.1.self_attn"]
    assert isinstance(model.layers[1].multihead_attn, nn.MultiheadAttention)
    whole = model(tokens(), tokens(5), tgt_mask=CAUSAL, tgt_is_causal=True)
    part = model(tokens()[:, :3], tokens(5), tgt_mask=CAUSAL[:3, :3], tgt_is_causal=True)
    torch.testing.assert_close(whole[:, :3], part)


def test_a_layer_shared_by_two_parents_is_swapped_once_for_both():
    shared = attention()
    model = nn.ModuleList([nn.ModuleDict({"a": shared}), nn.ModuleDict({"b": shared})])
    assert replace_attention(model, "random", max_length=LENGTH) == ["0.a"]
    assert model[0]["a"] is model[1]["b"] is shared  # pyright: ignore
    assert sum(p.numel() for p in model.parameters()) == 2 * (D * D + D) + HEADS * LENGTH * LENGTH


def test_models_with_nested_tensors():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 11, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).eval()
    replace_attention(model, "random", max_length=LENGTH)
    with torch.no_grad():
        assert model(torch.randn(2, LENGTH, 16), src_key_padding_mask=padding()).shape == (2, LENGTH, 16)


def test_what_cannot_be_swapped_is_named_and_nothing_changes():
    model = nn.ModuleDict({"good": attention(), "bad": attention(add_zero_attn=True), "odd": attention(kdim=3, vdim=4)})
    with pytest.raises(
        ValueError, match=r"cannot replace bad \(add_zero_attn=True\), odd \(keys of width 3 and .* 4\)"
    ):
        replace_attention(model, "random", max_length=LENGTH)
    assert type(model["good"]) is nn.MultiheadAttention
    with pytest.raises(ValueError, match="cannot replace MultiheadAttention \\(add_bias_kv=True\\)"):
        replace_attention(attention(add_bias_kv=True), "random", max_length=LENGTH)

    class Mine(nn.MultiheadAttention):
        pass

    with pytest.raises(ValueError, match="a Mine, which may compute something else"):
        replace_attention(nn.ModuleDict({"x": Mine(D, HEADS)}), "random", max_length=LENGTH)
    with pytest.raises(ValueError, match=r"Linear has no attention of torch or timm to replace"):
        replace_attention(nn.Linear(2, 2), "random", max_length=LENGTH)
    with pytest.raises(ValueError, match="random needs max_length"):
        replace_attention(model["good"], "random")
    assert type(model["good"]) is nn.MultiheadAttention


def test_frozen_weights_stay_frozen():
    model = encoder()
    model.requires_grad_(False)
    replace_attention(model, "random+vanilla", max_length=LENGTH)
    trainable = {name.split("attention.")[1] for name, p in model.named_parameters() if p.requires_grad}
    assert trainable == {"synthesizer.terms.0.matrix", "synthesizer.weights.alpha"}


def test_gradients_equal_the_originals_and_stop_where_detached():
    original = attention()
    replaced = copy.deepcopy(original)
    replace_attention(replaced, "vanilla")
    x = tokens().requires_grad_()
    # The last shares the values, but its gradient is separate.
    for memory in (x, x.detach(), x.detach().requires_grad_()):
        arguments = (x, memory, memory)
        expected = torch.autograd.grad(original(*arguments)[0].square().sum(), x)[0]
        found = torch.autograd.grad(replaced(*arguments)[0].square().sum(), x)[0]
        torch.testing.assert_close(found, expected)


def test_wrong_calls_are_refused():
    layer = attention()
    replace_attention(layer, "random", max_length=LENGTH)
    x = tokens()
    with pytest.raises(ValueError, match="key and value must be the same tensor"):
        layer(x, x, x.clone())
    with pytest.raises(ValueError, match="is_causal=True needs attn_mask"):
        layer(x, x, x, is_causal=True)
