"""Cached weights are never stale after any change of the parameters."""

import copy
import pickle

import pytest
import torch
from torch import nn

from helpers import MAX_LENGTH, make
from helpers import padding as padding_of
from helpers import tokens as tokens_of
from synthattn import SyntheticAttention, reference
from synthattn.engine import input_independent, thresholds

LENGTH = 19  # long enough for weights to be kept


def tokens(length: int = LENGTH, **options):
    return tokens_of(length, **options)


def padding():
    return padding_of(LENGTH)


SPECS = [
    "random",
    "fixed_random",
    "factorized_random(rank=3)",
    "random+factorized_random(rank=2)",
    "random+relative",
]


@pytest.fixture
def computed(monkeypatch):
    """Count how often exponentials are computed."""
    count = [0]
    original = input_independent.exponentials

    def counting(*args):
        count[0] += 1
        return original(*args)

    monkeypatch.setattr(input_independent, "exponentials", counting)
    return count


def run(layer, x, **arguments):
    with torch.no_grad():
        return layer(x, **arguments)


@pytest.mark.parametrize("spec", SPECS)
def test_computed_once_for_all_calls(spec, computed):
    layer = make(spec).eval()
    for _ in range(3):
        run(layer, tokens())
        run(layer, tokens(seed=5), key_padding_mask=padding())
        run(layer, tokens(LENGTH - 1))
    assert computed == [1]
    run(layer, tokens(), is_causal=True)
    run(layer, tokens(), is_causal=True)
    assert computed == [2]
    run(layer, tokens(MAX_LENGTH))
    run(layer, tokens())
    assert computed == [3]


def sources(layer):
    return [*layer.synthesizer.parameters(), *layer.synthesizer.buffers()]


def edit_in_inference_mode(layer, spec):
    with torch.inference_mode():
        sources(layer)[0].mul_(1.5)


CHANGES = {
    "in place": lambda layer, spec: [t.mul_(1.5) for t in sources(layer)],
    "one entry": lambda layer, spec: sources(layer)[0][0, 3, 1].add_(0.01),
    "data": lambda layer, spec: [t.data.mul_(1.5) for t in sources(layer)],
    "data, columns swapped": lambda layer, spec: sources(layer)[0].data.copy_(sources(layer)[0].data.flip(-1)),
    # Not all of them: with both factors negated, the product would be equal.
    "data, negated": lambda layer, spec: sources(layer)[0].data.neg_(),
    "one entry of data": lambda layer, spec: sources(layer)[0].data[0, 3, 1].add_(0.01),
    "in inference mode": edit_in_inference_mode,
    "other data": lambda layer, spec: [setattr(t, "data", t.data * 1.5) for t in sources(layer)],
    "loaded": lambda layer, spec: layer.load_state_dict(make(spec, seed=3).state_dict()),
    "assigned": lambda layer, spec: layer.load_state_dict(make(spec, seed=3).state_dict(), assign=True),
    "resized": lambda layer, spec: layer.resize_max_length(MAX_LENGTH * 2, how="interpolate"),
    "to float32 and back": lambda layer, spec: ([t.data.mul_(1.5) for t in sources(layer.float())], layer.double()),
}


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("large", [0, thresholds.DIGESTED_ENTRIES])
def test_never_stale(monkeypatch, spec, change, causal, large):
    monkeypatch.setattr(thresholds, "DIGESTED_ENTRIES", large)
    layer, x = make(spec).eval(), tokens()
    before = run(layer, x, is_causal=causal)
    with torch.no_grad():
        change(layer, spec)
    after = run(layer, x, is_causal=causal)
    expected, _ = reference.attention(layer, x, is_causal=causal)
    torch.testing.assert_close(after, expected)
    assert not torch.allclose(before, after, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("causal", [False, True])
def test_never_stale_after_a_reload_while_they_are_computed(monkeypatch, spec, causal):
    """Another thread loads parameters before or after the exponentials are computed."""
    layer, other, x = make(spec).eval(), make(spec, seed=5).eval(), tokens()
    original = input_independent.exponentials
    for moment in ("before", "after"):

        def exponential(*args, moment=moment):
            if moment == "before":
                layer.load_state_dict(other.state_dict())
            found = original(*args)
            if moment == "after":
                layer.load_state_dict(other.state_dict())
            return found

        layer.load_state_dict(make(spec, seed=6).state_dict())
        with torch.no_grad():
            with monkeypatch.context() as patch:
                patch.setattr(input_independent, "exponentials", exponential)
                layer(x, is_causal=causal)
            torch.testing.assert_close(layer(x, is_causal=causal), other(x, is_causal=causal))


@pytest.mark.parametrize("fused", [True, False])
def test_never_stale_after_an_optimizer_step(fused):
    """Fused optimizers do not increase the version counters of the parameters that they change."""
    layer, x = make("random", torch.float32), tokens(dtype=torch.float32)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=1e-2, fused=fused)
    for _ in range(3):
        run(layer.eval(), x)
        optimizer.zero_grad()
        layer.train()(x).square().sum().backward()
        optimizer.step()
        expected, _ = reference.attention(layer, x)
        torch.testing.assert_close(run(layer.eval(), x), expected)


def test_other_parameters_by_functional_call():
    layer, x = make("random").eval(), tokens()
    for seed in range(4):
        parameters = {"synthesizer.matrix": make("random", seed=seed).state_dict()["synthesizer.matrix"]}
        with torch.no_grad():
            y = torch.func.functional_call(layer, parameters, (x,))
        layer.load_state_dict(layer.state_dict() | parameters)
        torch.testing.assert_close(y, reference.attention(layer, x)[0])
        del parameters


def test_half_precision_and_back():
    layer, x = make("random", torch.float32).eval(), tokens(dtype=torch.float32)
    run(layer, x)
    y = run(layer.bfloat16(), x.bfloat16())
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(run(layer.float(), x), y.float(), atol=0.05, rtol=0.05)


def test_gradients_still_flow_in_eval_mode():
    layer, x = make("random").eval(), tokens()
    run(layer, x)
    layer(x).sum().backward()
    assert layer.synthesizer.get_parameter("matrix").grad.abs().sum() > 0  # pyright: ignore


def test_short_inputs_to_a_long_layer_are_not_kept(computed):
    run(make("random").eval(), tokens(5))
    assert computed == [0]


def test_rows_of_minus_infinity_do_not_hide_a_change():
    layer, x = make("fixed_random").eval(), tokens()
    matrix = layer.synthesizer.get_buffer("matrix")
    matrix[:, :, 0] = float("-inf")
    run(layer, x)
    matrix[0, 3, 1] += 5.0
    torch.testing.assert_close(run(layer, x), reference.attention(layer, x)[0])


@pytest.mark.parametrize("causal", [True, False])
def test_training_after_a_call_in_inference_mode(causal):
    """Training reads a frozen matrix from the cache, so the cache must not hold inference tensors."""
    layer, x = make("fixed_random"), tokens()
    with torch.inference_mode():
        layer(x, is_causal=causal)
    layer(x, is_causal=causal).sum().backward()
    assert layer.value.weight.grad is not None


def test_transforms_do_not_see_kept_exponentials():
    layer, x = make("random").eval(), tokens()
    matrix = layer.synthesizer.get_parameter("matrix").detach()

    def of_matrix(m):
        return torch.func.functional_call(layer, {"synthesizer.matrix": m}, (x,))

    with torch.no_grad():
        layer(x)
    tangent = torch.func.jvp(of_matrix, (matrix,), (torch.ones_like(matrix).tril(),))[1]
    assert tangent.abs().max() > 0


def test_not_saved_and_not_copied():
    layer, x = make("random").eval(), tokens()
    names = set(layer.state_dict())
    y = run(layer, x)
    assert set(layer.state_dict()) == names
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert other._weight_cache._entries == {}
        torch.testing.assert_close(run(other, x), y)


def test_layers_created_in_inference_mode():
    with torch.inference_mode():
        layer = make("random").eval()
        y = layer(tokens())
        layer.synthesizer.get_parameter("matrix").mul_(2.0)
        assert not torch.allclose(layer(tokens()), y)


def with_a_hook(synthesizer):
    return synthesizer.terms[0].register_forward_hook(lambda module, inputs, output: output.times(0.0))


def with_another_forward(synthesizer):
    before = synthesizer.forward
    synthesizer.forward = lambda *args: before(*args).times(0.5)


def with_a_hook_on_everything(synthesizer):
    return nn.modules.module.register_module_forward_hook(
        lambda module, inputs, output: output.times(0.0) if module is synthesizer else None
    )


@pytest.mark.parametrize("change", [with_a_hook, with_another_forward, with_a_hook_on_everything])
def test_hooked_logits_are_computed_anew(change):
    layer = SyntheticAttention(16, 4, "random+factorized_random", max_length=16, mix="sum").eval()
    x = torch.randn(2, 16, 16)
    with torch.no_grad():
        for parameter in layer.synthesizer.parameters():
            parameter.normal_()
        before = layer(x)
        handle = change(layer.synthesizer)
        try:
            found, expected = layer(x), layer(x, plain=True)
        finally:
            if handle is not None:
                handle.remove()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert (found - before).abs().max() > 1e-3
