"""Logits by distance in linear time equal the equations, whatever the logits, masks and lengths."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from helpers import assert_same, chunks_for_all, make, tokens
from synthattn import SyntheticAttention, reference
from synthattn.engine import by_distance, thresholds
from synthattn.logits import ByDistance

ROWS = 16


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(thresholds, "LINEAR_ROWS", ROWS)
    monkeypatch.setattr(thresholds, "LINEAR_SPANS", 0)


@pytest.fixture
def taken(monkeypatch) -> list[bool]:
    """Record for each call whether the backend took it."""
    calls: list[bool] = []
    original = by_distance.attend

    def watched(call):
        result = original(call)
        calls.append(result is not None)
        return result

    monkeypatch.setattr(by_distance, "attend", watched)
    return calls


def masks(kind: str, length: int) -> dict[str, Any]:
    """Return masks by name. Padding has holes, and is at both ends of the examples."""
    found: dict[str, Any] = {"is_causal": True} if "causal" in kind else {}
    if "padded" in kind:
        pad = torch.zeros(2, length, dtype=torch.bool)
        pad[0, length - length // 3 :] = True
        pad[1, : length // 4] = True
        pad[1, length // 2 :: 3] = True
        found["key_padding_mask"] = pad
    return found


KINDS = ["full", "causal", "padded", "causal padded"]
SHAPES = {
    "near": lambda distance: -distance.abs(),
    "far": lambda distance: distance.abs(),
    "behind": lambda distance: -distance,
    "ahead": lambda distance: distance,
    "one": lambda distance: (distance == 2) * 1.0,
    "ends": lambda distance: (distance.abs() == distance.abs().amax()) * 1.0,
    "waves": lambda distance: distance.sin(),
}


def layer_of(shape: str, spread: float, dtype: torch.dtype, reach: int = 13) -> SyntheticAttention:
    """Return a layer whose logits have a shape and so large a difference between the highest and the lowest."""
    layer = make(f"toeplitz(range={reach})", dtype)
    values = SHAPES[shape](torch.arange(-reach, reach + 1).to(dtype))
    with torch.no_grad():
        scaled = (values - values.amin()) / (values.amax() - values.amin()) * spread
        layer.synthesizer.get_parameter("table").copy_(scaled * torch.tensor([[1.0], [0.5], [0.9]]))
    return layer


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [61, 64])
def test_a_range_of_sixty_is_exact_in_float32(taken, shape, kind, length):
    """The errors are those of a plain softmax in float32."""
    layer, x = layer_of(shape, 60.0, torch.float32), tokens(length, dtype=torch.float32)
    assert_same(layer, x, tolerance=2e-6, **masks(kind, length))
    assert taken == [True]


@pytest.mark.parametrize("spec", ["toeplitz(range=1)", "toeplitz(range=13)", "toeplitz(range=5)+relative", "alibi"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 33, 97])
def test_equals_the_equations(taken, spec, kind, length):
    assert_same(make(spec), tokens(length), **masks(kind, length))
    assert taken == [True]


@pytest.mark.parametrize("causal", [False, True])
def test_a_memory_of_another_length(taken, causal):
    layer = make("toeplitz(range=6)")
    for q, k in ((3, 90), (90, 3), (53, 71), (71, 53)):
        assert_same(layer, tokens(q), tokens(k, seed=2), is_causal=causal)
    assert taken == [True] * 4


def test_a_range_beyond_the_input(taken):
    assert_same(make("toeplitz(range=500)"), tokens(37), is_causal=True)
    assert taken == [True]


@pytest.mark.parametrize("kind", KINDS)
def test_logits_too_far_apart_are_left_to_an_exact_softmax(taken, kind):
    layer, x = layer_of("behind", 300.0, torch.float32), tokens(61, dtype=torch.float32)
    assert_same(layer, x, tolerance=2e-6, **masks(kind, 61))
    assert taken == [False]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_distance_without_a_number_spoils_only_the_rows_that_have_it(taken, bad):
    layer, x = make("toeplitz(range=40)"), tokens(61)
    with torch.no_grad():
        layer.synthesizer.get_parameter("table")[:, 40 - 30] = bad  # 30 keys before the query
        y = layer(x, is_causal=True)
    assert taken == [False]
    assert y[:, 30:].isnan().all()
    assert y[:, :30].isfinite().all()


@pytest.mark.parametrize("kind", ["causal padded", "padded"])
def test_rows_without_keys_give_zeros(taken, kind):
    layer, x = make("toeplitz(range=4)"), tokens(50)
    arguments = masks(kind, 50)
    arguments["key_padding_mask"][1, :] = True
    arguments["key_padding_mask"][0, :9] = True
    assert_same(layer, x, **arguments)
    y = layer(x, **arguments)
    torch.testing.assert_close(y[1], layer.output.bias.expand(50, -1))
    assert taken == [True, True]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_single(taken, dtype):
    layer = make("toeplitz(range=9)", torch.float32)
    x = tokens(300, dtype=torch.float32)
    expected, _ = reference.attention(layer, x, is_causal=True)
    y = layer.to(dtype)(x.to(dtype), is_causal=True)
    assert taken == [True]
    assert y.dtype == dtype
    torch.testing.assert_close(y.float(), expected, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("frozen", ["synthesizer", "value", "all but the input"])
def test_frozen_parts(taken, frozen):
    layer, x = make("toeplitz(range=5)"), tokens(40).requires_grad_()
    (layer if frozen.startswith("all") else layer.get_submodule(frozen)).requires_grad_(False)
    inputs = [x, *(p for p in layer.parameters() if p.requires_grad)]
    ours = torch.autograd.grad(layer(x).square().sum(), inputs)
    expected = torch.autograd.grad(reference.attention(layer, x)[0].square().sum(), inputs)
    for a, b in zip(ours, expected, strict=True):
        torch.testing.assert_close(a, b)
    assert taken == [True]


@pytest.mark.parametrize("kind", KINDS)
def test_second_derivatives(taken, kind):
    layer, x = make("toeplitz(range=3)+relative", d_model=5, num_heads=2, head_dim=3), torch.randn(2, 9, 5).double()
    tables = [p for n, p in layer.named_parameters() if n.endswith("table")]

    def run(x: Tensor, *given: Tensor) -> Tensor:
        names = [n for n, _ in layer.named_parameters() if n.endswith("table")]
        return torch.func.functional_call(layer, dict(zip(names, given, strict=True)), (x,), masks(kind, 9))

    inputs = (x.requires_grad_(), *(t.detach().requires_grad_() for t in tables))
    assert torch.autograd.gradcheck(run, inputs)
    assert torch.autograd.gradgradcheck(run, inputs)
    assert all(taken)


def test_what_it_does_not_take(taken):
    """Dropout, other masks, other terms, a start behind the first key, autocast and tracing are for others."""
    x, layer = tokens(60), make("toeplitz(range=3)")
    make("toeplitz(range=3)", dropout=0.1)(x)
    make("toeplitz(range=3)+random", max_length=60)(x)
    make("toeplitz(range=3)+vanilla")(x)
    layer(x, attn_mask=torch.zeros(60, 60, dtype=torch.bool))
    layer(x, positions=torch.arange(60))
    layer(x[:, 30:], layer.project_memory(x), is_causal=True, offset=30)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        make("toeplitz(range=3)", torch.float32)(x.float())
    torch.func.vmap(layer)(x.unsqueeze(0))
    assert taken == [False] * 8


def test_the_threshold(taken, monkeypatch):
    """Four times as many keys as a block of rows sees: 16 + 2 * 8 of them, half of the rest under a causal mask."""
    monkeypatch.setattr(thresholds, "LINEAR_SPANS", 4)
    layer = make("toeplitz(range=7)")
    for length, causal, takes in ((128, False, True), (127, False, False), (96, True, True), (95, True, False)):
        layer(tokens(length), is_causal=causal)
        assert taken.pop() == takes
    layer(tokens(50), tokens(200))
    assert not taken.pop()


def test_no_tensor_grows_with_the_square_of_the_length():
    class Largest(TorchDispatchMode):
        seen = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            self.seen = max(self.seen, *(t.numel() for t in tree_leaves(result) if isinstance(t, Tensor)), 0)
            return result

    length = 600
    layer = make("toeplitz(range=5)", d_model=4, num_heads=2, head_dim=2)
    x = torch.randn(2, length, 4).double()
    for kind in KINDS:
        with Largest() as largest:
            layer(x, **masks(kind, length)).sum().backward()
        assert 0 < largest.seen < length**2 / 10


def test_rows_of_the_term_are_rows_of_its_table():
    term = ByDistance(torch.randn(2, 1, 9), 11, 13, start=2)
    table = term.as_tensor()
    for i, j in ((0, 0), (10, 12), (3, 5), (0, 12), (10, 0)):
        distance = min(max(j - i - 2, -4), 4)
        assert torch.equal(table[:, i, j], term.values[:, 0, distance + 4])
    assert torch.equal(term.rows(slice(0, 1), slice(3, 7), 6).as_tensor(), table[:, 3:7, :6])
    assert torch.equal(term.times(2.0).as_tensor(), 2.0 * table)
    for low, high in ((-20, -9), (9, 20), (-4, 4), (-9, 0), (0, 9), (-9, 9), (2, 2)):
        expected = torch.stack([term.values[:, 0, min(max(d, -4), 4) + 4] for d in range(low, high + 1)], dim=-1)
        assert torch.equal(term.between(low, high), expected)


def test_chunks_and_blocks_agree():
    layer, x = make("toeplitz(range=11)"), tokens(45)
    expected = layer(x, is_causal=True)
    with chunks_for_all():
        torch.testing.assert_close(layer(x, is_causal=True), expected)
