"""Backends take the calls that they should, and are exact in the hardest cases."""

from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel

from helpers import BATCH, HEAD_DIM, HEADS, LENGTH, Largest, assert_same, chunks_for_all, make, padding, tokens
from synthattn import SyntheticAttention, attend, reference
from synthattn.engine import input_independent, plain, products, thresholds
from synthattn.engine.native.gemm import Axis
from synthattn.engine.projection import as_feature_major
from synthattn.layers import synthetic_attention
from synthattn.logits import Bias, Logits


@pytest.fixture
def calls(monkeypatch):
    """Record the names of the backends that took a call, and of products that gave up."""
    taken: list[str] = []

    def watch(backend):
        original = backend.attend

        def wrapped(call):
            result = original(call)
            taken.extend([backend.__name__.rsplit(".", 1)[1]] if result is not None else [])
            return result

        monkeypatch.setattr(backend, "attend", wrapped)

    for backend in (*attend.BACKENDS, plain):
        watch(backend)
    original = input_independent.multiply

    def multiply(*args, **kwargs):
        result = original(*args, **kwargs)
        taken.extend(["gave up"] if result is None else [])
        return result

    monkeypatch.setattr(input_independent, "multiply", multiply)
    return taken


def path(calls: list[str], spec: str, training: bool = True, dtype=torch.float64, **arguments) -> str:
    layer = make(spec, dtype, max_length=LENGTH + 2)
    calls.clear()
    if training:
        layer(tokens(dtype=dtype), **arguments)
    else:
        with torch.no_grad():
            layer.eval()(tokens(dtype=dtype), **arguments)
    return ", ".join(calls)


def test_torch_s_fused_kernel_is_not_for_few_keys(calls, monkeypatch):
    """With fewer than 16 keys, the fused kernel loses NaN."""
    monkeypatch.setattr(thresholds, "FUSED_KEYS", LENGTH + 1)
    assert path(calls, "vanilla") == "plain"
    monkeypatch.setattr(thresholds, "FUSED_KEYS", LENGTH)
    assert path(calls, "vanilla") == "sdpa"


def test_each_backend_takes_its_calls(calls):
    assert path(calls, "random") == "input_independent"
    assert path(calls, "random", is_causal=True) == "input_independent"
    assert path(calls, "random", key_padding_mask=padding()) == "input_independent"
    assert path(calls, "random", training=False) == "cached_weights"
    assert path(calls, "fixed_random") == "cached_weights"
    assert path(calls, "random+factorized_random") == "input_independent"
    assert path(calls, "random", attn_mask=torch.zeros(BATCH, HEADS, LENGTH, LENGTH) > 0) == "plain"
    assert path(calls, "toeplitz") == "input_independent"
    assert path(calls, "toeplitz(range=3)", training=False) == "cached_weights"
    assert path(calls, "toeplitz+vanilla", training=False) == "sdpa"
    assert path(calls, "dense(window=5)") == "windowed"
    assert path(calls, "vanilla") == "sdpa"
    assert path(calls, "dense(bias=false)") == "sdpa"
    assert path(calls, "dense", training=False) == "sdpa"
    assert path(calls, "random+vanilla", training=False) == "sdpa"
    assert path(calls, "random+vanilla", training=False, key_padding_mask=padding()) == "sdpa"
    assert path(calls, "dense") == "plain"
    with chunks_for_all():
        for spec in ("dense", "random+vanilla", "dense+vanilla", "factorized_dense", "vanilla+relative"):
            assert path(calls, spec) == "plain"
        assert path(calls, "random+vanilla", training=False, key_padding_mask=padding()) == "plain"


@pytest.mark.parametrize("spec", ["dense", "random+vanilla", "factorized_random+vanilla", "vanilla+relative"])
def test_bias_without_gradient_runs_in_the_flash_kernel(spec):
    layer = make(spec, torch.float32).eval()
    with torch.no_grad(), sdpa_kernel(SDPBackend.FLASH_ATTENTION):  # raises if the kernel does not take it
        cases: list[dict[str, Any]] = [{}, {"is_causal": True}, {"key_padding_mask": padding()}]
        for arguments in cases:
            expected, _ = reference.attention(layer, tokens(dtype=torch.float32), **arguments)
            torch.testing.assert_close(layer(tokens(dtype=torch.float32), **arguments), expected)


@pytest.mark.parametrize("spec", ["random", "factorized_random", "random+relative"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("causal", [True, False])
def test_underflow_of_all_unmasked_keys_falls_back_to_the_exact_softmax(calls, spec, dtype, train, causal):
    layer = make(spec, dtype).train(train)
    matrix = next(p for n, p in layer.named_parameters() if n.endswith(("matrix", "left")))
    with torch.no_grad():  # the exponentials of differences are far below the smallest float
        matrix.mul_(600.0 if dtype == torch.float64 else 100.0)
    x, tolerance = tokens(dtype=dtype), 1e-12 if dtype == torch.float64 else 1e-6
    if spec == "factorized_random":
        # Products of large numbers have large rounding errors, which depend on the order of the sum.
        largest = float(layer.logits(x).detach().abs().max())
        tolerance = max(tolerance, 2 * torch.finfo(dtype).eps * largest)
    calls.clear()
    with torch.set_grad_enabled(train):
        y = layer(x, key_padding_mask=padding(), is_causal=causal)
    assert "gave up" in calls
    expected, _ = reference.attention(layer, x, key_padding_mask=padding(), is_causal=causal)
    torch.testing.assert_close(y, expected, rtol=tolerance, atol=tolerance)
    if train:
        assert_same(layer, x, tolerance=tolerance * 100, key_padding_mask=padding(), is_causal=causal)


@pytest.mark.parametrize("gap", [0.0, 20.0, 60.0, 80.0, 100.0, 1000.0])
def test_masked_peaks_leave_exact_weights_at_any_distance(gap):
    """A masked key may exceed its row by any factor without an effect on the other weights."""
    layer = SyntheticAttention(6, 1, "random", max_length=4)
    with torch.no_grad():
        layer.synthesizer.matrix.copy_(torch.tensor([[0.0, 1.0, gap, 2.0]] * 4))  # pyright: ignore
    x, pad = torch.randn(1, 4, 6), torch.tensor([[False, False, True, False]])
    expected, _ = reference.attention(layer, x, key_padding_mask=pad)
    torch.testing.assert_close(layer(x, key_padding_mask=pad), expected)
    with torch.no_grad():
        torch.testing.assert_close(layer.eval()(x, key_padding_mask=pad), expected)


@pytest.mark.parametrize("length", [300, 128, 129])
@pytest.mark.parametrize("spec", ["random", "fixed_random"])
def test_causal_blocks_are_exact(spec, length):
    layer = make(spec, max_length=300)
    assert_same(layer, tokens(length), is_causal=True)
    assert_same(layer, tokens(length), is_causal=True, key_padding_mask=padding(length))
    assert_same(layer, tokens(length), tokens(170), is_causal=True)
    assert_same(layer, tokens(170), tokens(length), is_causal=True)


@pytest.mark.parametrize("length", [63, 64, 65, 130])
@pytest.mark.parametrize("window", [1, 5, 15, 201])
def test_band_is_exact_across_blocks_and_for_any_window(length, window):
    layer = make(f"dense(window={window})")
    assert_same(layer, tokens(length))
    assert_same(layer, tokens(length), key_padding_mask=padding(length), is_causal=True)


def test_keys_outside_a_window_have_no_effect():
    layer, x = make("dense(window=5)"), tokens(130)
    _, weights = layer(x, need_weights=True)
    distance = (torch.arange(130)[:, None] - torch.arange(130)).abs()
    assert not weights[..., distance > 2].any()
    assert (weights[..., distance <= 2] > 0).all()


@pytest.mark.parametrize(
    "spec", ["dense", "random+vanilla", "dense+vanilla", "factorized_dense", "dense(window=5)+vanilla"]
)
@pytest.mark.parametrize("size", [1, 100, HEADS * LENGTH * LENGTH, 10**6])
def test_chunks_of_any_size_agree(spec, size):
    with chunks_for_all(size):
        assert_same(make(spec), tokens(), key_padding_mask=padding(), is_causal=True)
        assert_same(make(spec), tokens())
        mask = torch.rand(BATCH, HEADS, LENGTH, LENGTH) < 0.3
        assert_same(make(spec), tokens(), attn_mask=mask)


@pytest.mark.parametrize("spec", ["random+vanilla", "factorized_dense"])
def test_chunks_drop_weights_as_torch_does(spec):
    """The backward pass drops the weights of the forward pass, the mean is kept, and a seed repeats a run."""
    layer, x = make(spec, dropout=0.4), tokens(batch=1)
    parameter = layer.value.weight
    with chunks_for_all(100):
        torch.manual_seed(3)
        y = layer(x)
        (grad,) = torch.autograd.grad(y.sum(), parameter)
        torch.manual_seed(3)
        assert torch.equal(layer(x), y)
        assert not torch.equal(layer(x), y)
        # The result is linear in the values: its derivative in one direction is the result with that direction.
        direction = torch.randn_like(parameter)
        parameter.data.add_(direction)
        torch.manual_seed(3)
        change = (layer(x) - y).sum()
        parameter.data.sub_(direction)
        torch.testing.assert_close(change, (grad * direction).sum())
    with chunks_for_all(100 * HEADS * LENGTH * LENGTH), torch.no_grad():
        mean = layer(x.expand(2000, -1, -1)).mean(0)
    expected = layer.eval()(x)
    assert (mean - expected).abs().max() < 0.1 * expected.abs().max()


@pytest.mark.parametrize(
    ("spec", "frozen"),
    [
        ("random+vanilla", "value"),
        ("random+vanilla", "synthesizer"),
        ("random+vanilla", "x"),
        ("dense+vanilla", "synthesizer"),
        ("dense+vanilla", "synthesizer.terms.0"),
        ("dense+vanilla", "synthesizer.terms.1"),
    ],
)
def test_chunks_give_the_right_gradients_where_something_is_frozen(spec, frozen):
    layer, x = make(spec), tokens()
    if frozen == "x":
        inputs = list(layer.parameters())
    else:
        layer.get_submodule(frozen).requires_grad_(False)
        inputs = [p for p in layer.parameters() if p.requires_grad] + [x.requires_grad_()]
    with chunks_for_all():
        ours = torch.autograd.grad(layer(x).square().sum(), inputs)
    expected = torch.autograd.grad(reference.attention(layer, x)[0].square().sum(), inputs)
    for a, b in zip(ours, expected, strict=True):
        torch.testing.assert_close(a, b)


def test_gradients_can_be_taken_twice_and_while_others_wait():
    """Tensors saved for a backward pass keep their values while other results are computed."""
    layer, other, x = make("dense+vanilla"), make("dense+vanilla", seed=5), tokens()
    expected = torch.autograd.grad(reference.attention(layer, x)[0].square().sum(), list(layer.parameters()))
    with chunks_for_all():
        loss = layer(x).square().sum()
        other(x).square().sum().backward()
        for last in (False, True):
            found = torch.autograd.grad(loss, list(layer.parameters()), retain_graph=not last)
            for a, b in zip(found, expected, strict=True):
                torch.testing.assert_close(a, b)
            other(x).square().sum().backward()


def test_chunks_hold_few_logits_at_a_time():
    length, batch = 67, 3
    layer = make("factorized_dense", max_length=length)
    x = tokens(length, batch)
    with chunks_for_all(HEADS * length * 5), Largest() as largest:
        layer(x).sum().backward()
    assert largest.seen < HEADS * length * length


def test_fake_tensors_are_not_computed_in_chunks():
    with FakeTensorMode(), chunks_for_all():
        layer = SyntheticAttention(12, 2, attention="dense+vanilla", max_length=16)
        x = torch.randn(2, 16, 12, requires_grad=True)
        layer(x).sum().backward()
        assert x.grad is not None
        assert x.grad.shape == x.shape


def test_gradcheck_of_the_chunks():
    # Every entry, because random directions would not detect an error of some per cent.
    # Small, because every entry is changed twice.
    layer = make("random+dense+vanilla", max_length=4, d_model=5, num_heads=2, head_dim=3)
    x = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    matrix = layer.synthesizer.get_parameter("terms.0.matrix")

    def run(x, matrix):
        return torch.func.functional_call(layer, {"synthesizer.terms.0.matrix": matrix}, (x,))

    with chunks_for_all(12):
        assert torch.autograd.gradcheck(run, (x, matrix.detach().requires_grad_()))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("transposed", [True, False])
def test_gradcheck_of_the_product(monkeypatch, causal, transposed):
    monkeypatch.setattr(thresholds, "CAUSAL_ROWS", 2)
    weights = torch.randn(2, 5, 5, dtype=torch.float64, requires_grad=True)
    columns = torch.randn(2, 5, 3, dtype=torch.float64)
    columns = (columns.mT.contiguous().mT if transposed else columns).requires_grad_()

    def product(weights, columns):
        if causal:
            return products.multiply(weights.tril(), columns, triangle=(Axis.DEPTH, Axis.ROW))
        return products.multiply(weights, columns)

    assert torch.autograd.gradcheck(product, (weights, columns))
    assert torch.autograd.gradgradcheck(product, (weights, columns))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("arguments", [{}, {"is_causal": True}, {"key_padding_mask": padding()}])
def test_input_independent_attention_copies_nothing_between_its_projections(monkeypatch, arguments, bias):
    """The output projection reads the heads in the memory order in which they were written, forward and backward."""
    layer, x = make("random", torch.float32, bias=bias), tokens(dtype=torch.float32)
    seen = []
    original = synthetic_attention.merge_heads
    monkeypatch.setattr(synthetic_attention, "merge_heads", lambda *args: seen.append(args[0]) or original(*args))
    for train in (True, False):
        with torch.set_grad_enabled(train):
            y = layer.train(train)(x, **arguments)
        assert as_feature_major(seen.pop()) is not None
        assert y.is_contiguous()
    # Hooks and replaced modules get tokens in their usual order.
    layer.value.register_forward_hook(lambda module, args, result: seen.append(result))
    layer(x, **arguments)
    assert seen[0].shape == (BATCH, LENGTH, HEADS * HEAD_DIM)


def test_second_derivatives_of_input_independent_attention():
    layer = make("random", max_length=5, d_model=5, num_heads=2, head_dim=3)
    x = torch.randn(2, 4, 5, dtype=torch.float64, requires_grad=True)
    for causal in (False, True):
        assert torch.autograd.gradgradcheck(lambda x, c=causal: layer(x, is_causal=c), x)


def test_memory_of_input_independent_attention_does_not_grow_with_the_batch_squared_lengths():
    """There is no tensor of batch x heads x length^2 entries, in evaluation or in training."""
    batch, length = 8, 64
    limit = batch * HEADS * length * length

    for spec in ("random", "fixed_random", "factorized_random", "random+relative"):
        layer = make(spec, torch.float32, max_length=length, head_dim=5)
        x = tokens(length, batch=batch, dtype=torch.float32)
        for arguments in ({}, {"is_causal": True}, {"key_padding_mask": padding(length, batch)}):
            with Largest() as largest:
                layer.train()(x, **arguments).sum().backward()
                with torch.no_grad():
                    layer.eval()(x, **arguments)
            assert 0 < largest.seen < limit / 2


@pytest.mark.parametrize("dropout", [-0.1, 1.0, float("nan")])
def test_attend_refuses_an_impossible_dropout(dropout):
    with pytest.raises(ValueError, match=r"^dropout must be at least 0 and below 1, got "):
        attend.attend(Logits((Bias(torch.zeros(1, 2, 2)),)), torch.zeros(1, 1, 2, 3), dropout=dropout)


@pytest.mark.parametrize("spec", ["random", "random+vanilla"])
def test_the_default_device_does_not_matter(monkeypatch, spec):
    """Helper tensors are on the CPU with the others, where C code reads and writes them."""
    monkeypatch.setattr(thresholds, "DIGESTED_ENTRIES", 0)
    monkeypatch.setattr(thresholds, "COMPILED_LOGITS", 0)
    layer, x = make(spec, torch.float32, max_length=24, dropout=0.1), tokens(19, dtype=torch.float32)
    for training in (False, True):
        layer.train(training)
        with torch.device("meta"), torch.set_grad_enabled(training):
            y = layer(x)
            if training:
                torch.autograd.grad(y.square().sum(), list(layer.parameters()))
        assert y.device.type == "cpu"
