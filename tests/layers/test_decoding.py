"""Decoding with projected memory equals the full causal pass."""

from typing import Any

import pytest
import torch
from torch import Tensor

from helpers import BATCH, HEAD_DIM, HEADS, LENGTH, MEMORY, SPECS, assert_same, make, padding, tokens
from synthattn.layers import ProjectedMemory, SyntheticAttention
from synthattn.synthesizers import parse

every_spec = pytest.mark.parametrize("spec", [*SPECS, "vanilla+vanilla"])


def extend(past: ProjectedMemory | None, new: ProjectedMemory) -> ProjectedMemory:
    if past is None:
        return new
    keys = None if past.keys is None or new.keys is None else torch.cat([past.keys, new.keys], dim=-2)
    return ProjectedMemory(keys, torch.cat([past.values, new.values], dim=-2))


def decode(layer: SyntheticAttention, x: Tensor, steps: list[int], pad: Tensor | None, at: Tensor | None) -> Tensor:
    """Feed x in pieces of the given lengths."""
    past, done, parts = None, 0, []
    for step in steps:
        piece, end = x[:, done : done + step], done + step
        past = extend(past, layer.project_memory(piece))
        parts.append(
            layer(
                piece,
                past,
                is_causal=True,
                key_padding_mask=None if pad is None else pad[:, :end],
                positions=None if at is None else at[:, done:end],
                memory_positions=None if at is None else at[:, :end],
                offset=done,
            )
        )
        done = end
    return torch.cat(parts, dim=1)


@every_spec
@pytest.mark.parametrize("steps", [[1] * LENGTH, [4, 1, 1, 5], [LENGTH]], ids=["one by one", "pieces", "at once"])
def test_decoding_equals_the_full_pass(spec, steps):
    layer = make(spec).eval()
    x = tokens()
    torch.testing.assert_close(decode(layer, x, steps, None, None), layer(x, is_causal=True), rtol=0, atol=1e-12)


@every_spec
def test_left_padding_equals_the_sentence_alone(spec):
    layer = make(spec).eval()
    x, pads = tokens(), torch.tensor([4, 0])
    pad = torch.arange(LENGTH) < pads[:, None]
    at = (torch.arange(LENGTH) - pads[:, None]).clamp(min=0)
    padded = decode(layer, x, [6, 1, 1, 1, 2], pad, at)
    for n, count in enumerate(pads.tolist()):
        alone = layer(x[n : n + 1, count:], is_causal=True)
        torch.testing.assert_close(padded[n : n + 1, count:], alone, rtol=0, atol=1e-12)


@every_spec
def test_keys_are_kept_only_for_the_dot_product(spec):
    layer = make(spec)
    dot_products = sum(term.name == "vanilla" for term in parse(spec).terms)
    kept = layer.project_memory(tokens())
    assert kept.values.shape == (BATCH, HEADS, LENGTH, HEAD_DIM)
    assert layer.reads_memory == (dot_products > 0)
    if dot_products == 0:
        assert kept.keys is None
    else:
        assert kept.keys is not None
        assert kept.keys.shape == (BATCH, HEADS, LENGTH, dot_products * HEAD_DIM)


@every_spec
def test_a_projected_memory_is_as_good_as_the_memory(spec):
    layer, x, memory = make(spec), tokens(), tokens(MEMORY, seed=2)
    pad = padding(MEMORY)
    from_tokens = layer(x, memory, key_padding_mask=pad)
    torch.testing.assert_close(
        layer(x, layer.project_memory(memory), key_padding_mask=pad), from_tokens, rtol=0, atol=1e-12
    )


@every_spec
@pytest.mark.parametrize("shared", [True, False], ids=["for all", "per example"])
def test_a_position_bias_is_a_float_mask(spec, shared):
    layer, x = make(spec), tokens()
    bias = torch.randn(*(() if shared else (BATCH,)), HEADS, LENGTH, LENGTH, dtype=torch.float64, requires_grad=True)
    y = layer(x, position_bias=bias, is_causal=True)
    expected = layer(x, attn_mask=bias.expand(BATCH, -1, -1, -1), is_causal=True)
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-12)
    (ours,), (theirs,) = (torch.autograd.grad(out.square().sum(), bias) for out in (y, expected))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-11)


@every_spec
def test_plain_gives_the_same_result(spec):
    layer, x = make(spec), tokens()
    options = {"is_causal": True, "key_padding_mask": padding()}
    assert_same(layer, x, **options)
    torch.testing.assert_close(layer(x, plain=True, **options), layer(x, **options), rtol=0, atol=1e-12)


def test_dense_takes_the_queries_of_the_dot_product():
    layer = make("dense(shared_query=true)+vanilla", mix="sum", bias=False)
    synthesizer: Any = layer.synthesizer
    dense, vanilla = synthesizer.synthesizers
    x = tokens()
    q = (x @ vanilla.query.weight.T).unflatten(-1, (HEADS, HEAD_DIM)).transpose(1, 2)
    k = (x @ vanilla.key.weight.T).unflatten(-1, (HEADS, HEAD_DIM)).transpose(1, 2)
    rows = q.relu() @ dense.keys.mT[:, :, :LENGTH] + dense.key_bias[:, None, :LENGTH]
    expected = rows + q @ k.mT / HEAD_DIM**0.5
    torch.testing.assert_close(layer.logits(x), expected, rtol=0, atol=1e-12)
    assert not any(name.endswith("hidden.weight") for name in layer.state_dict())


def test_in_half_precision_decoding_runs():
    layer, x = make("random+vanilla", torch.bfloat16), tokens(dtype=torch.bfloat16)
    y = decode(layer, x, [1] * LENGTH, None, None)
    torch.testing.assert_close(y, layer(x, is_causal=True), rtol=0.1, atol=0.1)
