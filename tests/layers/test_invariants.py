"""Properties that hold for every spec and every backend."""

import copy
import io
from typing import Any

import pytest
import torch
from torch import nn

from helpers import (
    BATCH,
    HEADS,
    LENGTH,
    MAX_LENGTH,
    MEMORY,
    SPECS,
    assert_same,
    chunks_for_all,
    make,
    padding,
    tokens,
)
from synthattn import reference
from synthattn.synthesizers import parse

every_spec = pytest.mark.parametrize("spec", SPECS)
TOKEN_FREE = [s for s in SPECS if make(s).synthesizer.input_independent]
PURE_DENSE = [
    "dense",
    "dense(shared_keys=true, bias=false)",
    "factorized_dense",
    "dense(window=5)",
    "random+dense",
]
UNWEIGHTED = ("relative", "alibi")
MIXTURES = [s for s in SPECS if sum(t.name not in UNWEIGHTED for t in parse(s).terms) > 1]
LENGTH_BOUND = [s for s in SPECS if make(s).max_length is not None]


def all_masks(q: int, k: int) -> dict[str, dict[str, Any]]:
    generator = torch.Generator().manual_seed(5)
    forbidden = torch.rand(q, k, generator=generator) < 0.3
    per_example = torch.rand(BATCH, HEADS, q, k, generator=generator) < 0.3
    return {
        "none": {},
        "causal": {"is_causal": True},
        "padded": {"key_padding_mask": padding(k)},
        "causal and padded": {"is_causal": True, "key_padding_mask": padding(k)},
        "shared bool": {"attn_mask": forbidden},
        "shared bool and padded": {"attn_mask": forbidden, "key_padding_mask": padding(k)},
        "shared float": {"attn_mask": torch.randn(q, k, generator=generator).double()},
        "float with -inf": {"attn_mask": torch.randn(q, k).double().masked_fill(forbidden, float("-inf"))},
        "per example": {"attn_mask": per_example},
        "per head": {"attn_mask": per_example.flatten(0, 1)},
        "per example and all": {"attn_mask": per_example, "key_padding_mask": padding(k), "is_causal": True},
    }


def masks(kind: str, q: int, k: int) -> dict[str, Any]:
    return all_masks(q, k)[kind]


KINDS = list(all_masks(LENGTH, LENGTH))


@every_spec
@pytest.mark.parametrize("kind", KINDS)
def test_equals_the_equations_in_float64(spec, kind):
    assert_same(make(spec), tokens(), **masks(kind, LENGTH, LENGTH))


@every_spec
@pytest.mark.parametrize("kind", KINDS)
def test_blocks_equal_the_equations(spec, kind):
    with chunks_for_all():
        assert_same(make(spec), tokens(), **masks(kind, LENGTH, LENGTH))


@every_spec
@pytest.mark.parametrize("kind", ["none", "causal", "padded"])
def test_equals_the_equations_in_float32(spec, kind):
    layer = make(spec, torch.float32)
    assert_same(layer, tokens(dtype=torch.float32), tolerance=1e-6, **masks(kind, LENGTH, LENGTH))


@every_spec
@pytest.mark.parametrize("length", [1, 2, MAX_LENGTH])
def test_shortest_and_longest_input(spec, length):
    assert_same(make(spec), tokens(length))
    assert_same(make(spec), tokens(length), is_causal=True)


@every_spec
@pytest.mark.parametrize("kind", ["none", "causal", "padded", "per example"])
def test_memory_of_another_length(spec, kind):
    assert_same(make(spec), tokens(), tokens(MEMORY, seed=2), **masks(kind, LENGTH, MEMORY))


@every_spec
@pytest.mark.parametrize("kind", ["none", "causal", "padded"])
@pytest.mark.parametrize("shared", [True, False])
def test_positions(spec, kind, shared):
    per_example = torch.stack([torch.arange(LENGTH) + 3, torch.arange(LENGTH).flip(0)])
    at = per_example[0] if shared else per_example
    assert_same(make(spec), tokens(), positions=at, **masks(kind, LENGTH, LENGTH))
    memory_at = torch.randint(MAX_LENGTH, (MEMORY,) if shared else (BATCH, MEMORY))
    assert_same(make(spec), tokens(), tokens(MEMORY), positions=at, memory_positions=memory_at)
    assert_same(make(spec), tokens(), tokens(MEMORY), positions=at)
    assert_same(make(spec), tokens(), tokens(MEMORY), memory_positions=memory_at)


@every_spec
def test_explicit_default_positions_change_nothing(spec):
    layer, x = make(spec), tokens()
    torch.testing.assert_close(layer(x, positions=torch.arange(LENGTH)), layer(x))
    torch.testing.assert_close(layer(x, positions=torch.arange(LENGTH).expand(BATCH, -1)), layer(x))


@pytest.mark.parametrize("spec", MIXTURES)
@pytest.mark.parametrize("mix", ["softmax", "sum", "sigmoid"])
def test_mixing_rules_equal_the_equations(spec, mix):
    weighted = [t for t in parse(spec).terms if t.name not in UNWEIGHTED]
    if mix == "sigmoid" and len(weighted) != 2:
        with pytest.raises(ValueError, match=rf"weighs exactly two synthesizers, .* has {len(weighted)}"):
            make(spec, mix=mix)
        return
    assert_same(make(spec, mix=mix), tokens(), key_padding_mask=padding())


@every_spec
@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_those_used_and_sum_to_one(spec, kind):
    layer, x = make(spec), tokens()
    arguments = masks(kind, LENGTH, LENGTH)
    y, weights = layer(x, need_weights=True, **arguments)
    expected_y, expected = reference.attention(layer, x, **arguments)
    assert weights.shape == (BATCH, HEADS, LENGTH, LENGTH)
    torch.testing.assert_close(y, expected_y)
    torch.testing.assert_close(weights, expected)
    alive = expected.sum(-1) > 0.5
    assert alive.any()
    torch.testing.assert_close(weights.sum(-1), alive.double())
    torch.testing.assert_close(layer(x, **arguments), y)


@every_spec
def test_logits_are_those_of_the_weights(spec):
    layer, x = make(spec), tokens()
    logits = layer.logits(x)
    assert logits.shape == (1 if spec in TOKEN_FREE else BATCH, HEADS, LENGTH, LENGTH)
    _, weights = layer(x, need_weights=True)
    torch.testing.assert_close(logits.softmax(-1).expand_as(weights), weights)


def changed_rows(spec: str) -> torch.Tensor:
    """Return True for the rows of the logits that change when token 4 of example 0 changes."""
    layer, x = make(spec), tokens()
    other = x.clone()
    other[0, 4] += 1.0
    before, after = (layer.logits(t).expand(BATCH, -1, -1, -1) for t in (x, other))
    assert torch.equal(before[1], after[1]), "another example's logits changed"
    return (before[0] != after[0]).any(-1).any(0)


@pytest.mark.parametrize("spec", TOKEN_FREE)
def test_random_logits_ignore_the_input(spec):
    assert not changed_rows(spec).any()


@pytest.mark.parametrize("spec", PURE_DENSE)
def test_dense_rows_depend_on_their_own_token_alone(spec):
    assert changed_rows(spec).nonzero().flatten().tolist() == [4]


@pytest.mark.parametrize("spec", ["vanilla", "random+vanilla", "dense+vanilla", "vanilla+relative"])
def test_vanilla_rows_depend_on_every_token(spec):
    assert changed_rows(spec).all()


@every_spec
def test_prefix_property_under_a_causal_mask(spec):
    layer, x = make(spec), tokens()
    whole = layer(x, is_causal=True)
    for length in (1, 4, LENGTH - 1):
        torch.testing.assert_close(layer(x[:, :length], is_causal=True), whole[:, :length])


@every_spec
def test_padding_and_slot_do_not_change_a_sentence(spec):
    layer, sentence = make(spec), tokens(7, batch=1)
    alone = layer(sentence)
    batch = torch.randn(5, LENGTH, sentence.shape[-1], dtype=sentence.dtype)
    batch[3, :7] = sentence[0]
    pad = torch.zeros(5, LENGTH, dtype=torch.bool)
    pad[3, 7:] = True
    torch.testing.assert_close(layer(batch, key_padding_mask=pad)[3, :7], alone[0])


@every_spec
def test_left_padding_with_positions_equals_the_sentence_alone(spec):
    layer, sentence = make(spec), tokens(7, batch=1)
    batch = torch.randn(2, LENGTH, sentence.shape[-1], dtype=sentence.dtype)
    batch[1, -7:] = sentence[0]
    pad = torch.zeros(2, LENGTH, dtype=torch.bool)
    pad[1, :-7] = True
    at = ((~pad).cumsum(1) - 1).clamp(min=0)
    for causal in (False, True):
        y = layer(batch, key_padding_mask=pad, positions=at, is_causal=causal)
        torch.testing.assert_close(y[1, -7:], layer(sentence, is_causal=causal)[0])
        assert y.isfinite().all()


@every_spec
def test_decoding_step_by_step_equals_the_full_pass(spec):
    layer, x = make(spec).eval(), tokens()
    with torch.no_grad():
        whole = layer(x, is_causal=True)
        for step in range(LENGTH):
            y = layer(x[:, step : step + 1], x[:, : step + 1], positions=torch.tensor([step]))
            torch.testing.assert_close(y[:, 0], whole[:, step])


@every_spec
def test_every_parameter_gets_a_gradient(spec):
    layer = make(spec)
    layer(tokens(MAX_LENGTH)).square().sum().backward()
    silent = [name for name, p in layer.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    # All keys share their bias, which adds a constant to a row of logits and does not change the softmax.
    assert [name for name in silent if not name.endswith("key.bias")] == []


@every_spec
def test_no_parameters_beyond_the_equations(spec):
    names = {name.split(".")[-2] for name, _ in make(spec).named_parameters() if "query" in name or "key." in name}
    assert names == ({"query", "key"} if "vanilla" in spec else set())


@every_spec
def test_state_dict_round_trip(spec):
    layer, x = make(spec), tokens()
    stream = io.BytesIO()
    torch.save(layer.state_dict(), stream)
    stream.seek(0)
    other = make(spec, seed=7)
    assert not torch.allclose(other(x), layer(x))
    other.load_state_dict(torch.load(stream, weights_only=True))
    assert torch.equal(other(x), layer(x))


@every_spec
@pytest.mark.parametrize("kind", ["causal and padded", "shared bool and padded", "per example and all"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_fully_masked_rows_give_zeros_and_no_gradient(spec, kind, dtype):
    layer = make(spec, torch.float32).to(dtype)
    x = tokens(dtype=dtype).requires_grad_()
    arguments = dict(masks(kind, LENGTH, LENGTH))
    pad = torch.zeros(BATCH, LENGTH, dtype=torch.bool)
    pad[0] = True  # no key at all
    pad[1, :3] = True  # with a causal mask, none for the first three queries
    arguments["key_padding_mask"] = pad
    y, weights = layer(x, need_weights=True, **arguments)
    fast = layer(x, **arguments)
    assert y.isfinite().all()
    assert fast.isfinite().all()
    empty = layer.output.bias.expand_as(fast[0])
    torch.testing.assert_close(fast[0], empty)
    torch.testing.assert_close(y[0], empty)
    assert not weights[0].any()
    fast[0].float().sum().backward()
    assert x.grad is not None
    assert not x.grad[0].any()
    gradients = [p.grad for n, p in layer.named_parameters() if p.grad is not None and n != "output.bias"]
    assert all(g.isfinite().all() and not g.any() for g in gradients)


@every_spec
@pytest.mark.parametrize("kind", ["none", "causal", "padded"])
def test_bfloat16_autocast_runs_and_stays_close(spec, kind):
    layer, x = make(spec, torch.float32), tokens(dtype=torch.float32)
    arguments = masks(kind, LENGTH, LENGTH)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x, **arguments)
        y.float().sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in layer.parameters())
    torch.testing.assert_close(y.float(), layer(x, **arguments), atol=0.15, rtol=0.1)


@every_spec
def test_large_logits_do_not_overflow_half_precision(spec):
    layer = make(spec, torch.float32)
    with torch.no_grad():
        for parameter in layer.synthesizer.parameters():
            parameter.mul_(4.0 if "factorized_dense" in spec else 20.0)  # logits are cubic in these parameters
    y = layer.half()(tokens(dtype=torch.float16), key_padding_mask=padding())
    assert y.isfinite().all()


@every_spec
def test_resize_keeps_what_was_learned(spec):
    layer, x = make(spec), tokens(MAX_LENGTH)
    before = layer.logits(x)
    layer.resize_max_length(MAX_LENGTH + 6, how="pad")
    torch.testing.assert_close(layer.logits(x), before)
    layer(tokens(MAX_LENGTH + 6)).sum().backward()
    layer.resize_max_length(LENGTH, how="pad")
    torch.testing.assert_close(layer.logits(x[:, :LENGTH]), before[:, :, :LENGTH, :LENGTH])


@pytest.mark.parametrize("spec", LENGTH_BOUND)
def test_interpolation_stretches(spec):
    layer = make(spec)
    layer.resize_max_length(2 * MAX_LENGTH - 1, how="interpolate")
    assert layer.max_length == 2 * MAX_LENGTH - 1
    assert_same(layer, tokens(2 * MAX_LENGTH - 1))


@pytest.mark.parametrize("spec", ["random", "fixed_random", "factorized_random(rank=3)", "dense", "random+dense"])
def test_interpolation_hits_the_old_values_at_the_old_places(spec):
    layer, x = make(spec), tokens(2 * MAX_LENGTH - 1)
    before = layer.logits(x[:, ::2])
    layer.resize_max_length(2 * MAX_LENGTH - 1, how="interpolate")
    torch.testing.assert_close(layer.logits(x)[:, :, ::2, ::2], before)


@pytest.mark.parametrize("spec", LENGTH_BOUND)
def test_a_resized_layer_is_rebuilt_by_its_spec(spec):
    layer, x = make(spec), tokens(41)
    layer.resize_max_length(41)
    other = make(str(layer.spec), max_length=41, seed=5)
    other.load_state_dict(layer.state_dict())
    torch.testing.assert_close(other(x), layer(x))


@pytest.mark.parametrize("spec", TOKEN_FREE)
@pytest.mark.parametrize("kind", ["none", "causal", "padded"])
def test_dropout_of_input_independent_weights_is_shared_by_the_batch(spec, kind):
    layer = make(spec, dropout=0.5)
    x = tokens(batch=1).expand(BATCH, -1, -1)
    arguments = masks(kind, LENGTH, LENGTH)
    if kind == "padded":
        arguments = {"key_padding_mask": padding()[1:].expand(BATCH, -1)}
    y = layer(x, **arguments)
    torch.testing.assert_close(y[0], y[1])


@every_spec
def test_reads_memory_tells_whether_keys_must_be_kept(spec):
    """``reads_memory`` is True exactly if the logits of a query change with the tokens it attends to."""
    layer, x = make(spec), tokens()
    before, after = (layer.logits(x[:, :1], m, positions=torch.tensor([3])) for m in (x, x + 1.0))
    assert layer.synthesizer.reads_memory == (not torch.equal(before, after))


@every_spec
def test_copies_are_independent(spec):
    layer, x = make(spec).eval(), tokens()
    with torch.no_grad():
        before = layer(x)
        other = copy.deepcopy(layer)
        for parameter in other.parameters():
            parameter.add_(1.0)
        assert not torch.allclose(other(x), before)
        assert torch.equal(layer(x), before)


@every_spec
def test_attention_dropout_drops_and_keeps_the_mean(spec):
    layer = make(spec, dropout=0.3)
    x = tokens()
    expected = layer.eval()(x)
    torch.testing.assert_close(expected, reference.attention(layer, x)[0])
    pad, drawn = padding(), 400
    with torch.no_grad():
        target = layer(x, key_padding_mask=pad)
        layer.train()
        assert not torch.allclose(layer(x), expected)
        if spec in TOKEN_FREE:  # a batch shares what it drops
            samples = torch.stack([layer(x, key_padding_mask=pad) for _ in range(drawn)])
        else:
            samples = layer(x.repeat(drawn, 1, 1), key_padding_mask=pad.repeat(drawn, 1)).unflatten(0, (drawn, BATCH))
    error = (samples.mean(0) - target).abs() / (samples.std(0) / drawn**0.5 + 1e-9)
    assert float(error.max()) < 6.0


# Synthesizers return logits, which are no tensor, and mixture weights have no input.
@pytest.mark.filterwarnings("ignore:.*ackward hook")
@every_spec
@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize("kind", ["forward_pre", "forward", "full_backward_pre", "full_backward"])
def test_global_hooks_see_every_projection(spec, gradients, kind):
    """Profilers register such hooks. They see the value and output projections too."""
    if "backward" in kind and not gradients:
        pytest.skip("there is no backward pass")
    layer, x = make(spec, torch.float32), tokens(dtype=torch.float32).requires_grad_()
    seen: list[nn.Module] = []
    handle = getattr(nn.modules.module, f"register_module_{kind}_hook")(lambda module, *_: seen.append(module))
    try:
        with torch.set_grad_enabled(gradients):
            y = layer(x)
            if "backward" in kind:
                y.sum().backward()
    finally:
        handle.remove()
    projections = [module for module in layer.modules() if isinstance(module, nn.Linear)]
    assert [module for module in projections if not any(module is one for one in seen)] == []
