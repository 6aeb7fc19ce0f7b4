"""The compiled kernel: that it is there and taken, and equals the equations in every gradient, whatever the shape."""

import copy
import math
import shutil
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from helpers import (
    Largest,
    Special,
    call_of,
    chunks_for_all,
    make,
    needs_kernels,
    padding,
    threads,
    tokens,
    with_gradients,
)
from synthattn import reference
from synthattn.bench.products import products
from synthattn.engine import compiled, input_independent, native, plain, thresholds
from synthattn.engine.native import kernel, library
from synthattn.engine.native.library import FOLDER, load
from synthattn.engine.thresholds import processor
from synthattn.layers.synthetic_attention import SyntheticAttention
from synthattn.logits import Bias, Logits, LogitTerm, Product
from synthattn.masks import Mask

pytestmark = needs_kernels

SPECS = [
    "dense",
    "random+vanilla",
    "dense+vanilla",
    "random+dense",
    "toeplitz(range=5)+vanilla",
    "vanilla+relative",
    "dense+vanilla+alibi",
    "factorized_random(rank=3)+vanilla",
    "dense(shared_keys=true, bias=false)+vanilla",
    "random+dense+vanilla",
]
every_spec = pytest.mark.parametrize("spec", SPECS)


@pytest.fixture(autouse=True)
def _for_all(monkeypatch):
    """The kernel is for inputs of any size."""
    monkeypatch.setattr(thresholds, "COMPILED_LOGITS", 0)


@pytest.fixture
def taken(monkeypatch) -> list[bool]:
    """For each call of the path, whether the kernel did it."""
    calls: list[bool] = []
    original = compiled.attend

    def watched(*args):
        result = original(*args)
        calls.append(result is not None)
        return result

    monkeypatch.setattr(compiled, "attend", watched)
    return calls


@pytest.fixture
def widths(monkeypatch) -> list[list[int]]:
    """For each call of the kernel, the widths of its products."""
    calls: list[list[int]] = []
    original = kernel.ATTEND

    def watched(*args):
        calls.append([query.shape[-1] for query in args[4]])
        return original(*args)

    monkeypatch.setattr(kernel, "ATTEND", watched)
    return calls


def layer_and_exact(spec: str, **options: Any) -> tuple[SyntheticAttention, SyntheticAttention]:
    layer = make(spec, torch.float32, **options)
    return layer, copy.deepcopy(layer).double()


def equations(layer: SyntheticAttention, x: Tensor, **masks: Any) -> dict[str, Tensor]:
    x = x.requires_grad_()
    found = with_gradients(reference.attention(layer, x, **masks)[0], layer, [x])
    return found | {"output in eval": found["output"]}


@cache
def exact_equations(spec: str, length: int, kind: str) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Compute once, in float32 and float64, what several ways of the kernel are compared with."""
    layer, exact = layer_and_exact(spec, max_length=length)
    x, masks = tokens(length), ends(length, kind)
    return equations(layer, x.float(), **masks), equations(exact, x, **masks)


def assert_exact(
    layer: SyntheticAttention,
    exact: SyntheticAttention,
    x: Tensor,
    known: tuple[dict[str, Tensor], dict[str, Tensor]] | None = None,
    **masks: Any,
) -> None:
    """Output and gradients are those of the equations in float64, up to rounding: nowhere much further from them than
    the equations themselves are in float32."""
    single = x.float().requires_grad_()
    ours = with_gradients(layer(single, **masks), layer, [single])
    with torch.no_grad():
        ours["output in eval"] = layer.eval()(single, **masks)
    layer.train()
    plain, expected = known or (equations(layer, single, **masks), equations(exact, x.double(), **masks))
    for name in ours:
        scale = expected[name].abs().max().clamp(min=1.0)
        error, rounding = (float((found[name] - expected[name]).abs().max() / scale) for found in (ours, plain))
        bound = max(1e-6 if "output" in name else 1e-5, 4 * rounding)
        assert error <= bound, f"{name} differs by {error:.2g} (rounding: {rounding:.2g})"


def ends(length: int, kind: str) -> dict[str, Any]:
    """Masks by name; padding is at the end of example 0 and, if it is "left", at the beginning of example 1."""
    masks: dict[str, Any] = {"is_causal": True} if "causal" in kind else {}
    if "padded" in kind or "left" in kind:
        pad = torch.zeros(2, length, dtype=torch.bool)
        pad[0, length - length // 3 :] = True
        if "left" in kind:
            pad[1, : length // 4] = True
        masks["key_padding_mask"] = pad
    return masks


def test_logits_by_distance_are_never_written_as_a_table(monkeypatch):
    """There is no tensor of length^2 entries, in evaluation or in training."""
    monkeypatch.setattr(kernel, "KEPT_BYTES", 0)

    length = 401
    for spec in ("toeplitz+vanilla", "relative+vanilla", "vanilla+alibi", "toeplitz+dense+vanilla+relative"):
        layer, x = make(spec, torch.float32, max_length=length), tokens(length, dtype=torch.float32)
        with Largest() as largest:
            layer(x).sum().backward()
            with torch.no_grad():
                layer.eval()(x, is_causal=True)
        assert 0 < largest.seen < length**2


def test_the_kernel_is_there():
    assert load() is not None


@every_spec
@pytest.mark.parametrize("kind", ["full", "causal", "padded", "left", "causal padded", "causal left"])
@pytest.mark.parametrize("length", [2, 71])
def test_equals_the_equations(taken, spec, kind, length):
    layer, exact = layer_and_exact(spec, max_length=73)
    assert_exact(layer, exact, tokens(length), **ends(length, kind))
    assert taken == [True, True]


@pytest.mark.parametrize("kept", [0, 2**28])
@pytest.mark.parametrize("spec", ["random+vanilla", "dense+vanilla", "toeplitz+vanilla", "random+vanilla+relative"])
@pytest.mark.parametrize("kind", ["full", "causal left"])
def test_equals_the_equations_across_blocks(taken, monkeypatch, spec, kind, kept):
    monkeypatch.setattr(kernel, "KEPT_BYTES", kept)
    layer, exact = layer_and_exact(spec, max_length=1091)
    assert_exact(layer, exact, tokens(1091), exact_equations(spec, 1091, kind), **ends(1091, kind))
    assert taken == [True, True]


@pytest.mark.parametrize(
    "spec", ["random", "factorized_random(rank=3)", "random+factorized_random(rank=2)", "relative"]
)
@pytest.mark.parametrize("kind", ["full", "causal", "padded", "causal left", "holes", "causal holes"])
@pytest.mark.parametrize("length", [2, 71, 571])
def test_large_tables_of_batch_free_weights_are_not_written_down(monkeypatch, spec, kind, length):
    calls = []
    original = compiled.attend_shared

    def watched(*args):
        calls.append(original(*args))
        return calls[-1]

    monkeypatch.setattr(compiled, "attend_shared", watched)
    monkeypatch.setattr(thresholds, "UNWRITTEN_WEIGHTS", 0)
    layer, exact = layer_and_exact(spec, max_length=577)
    masks = ends(length, kind)
    if "holes" in kind:
        masks["key_padding_mask"] = padding(length) if length > 4 else torch.eye(2).bool()
    assert_exact(layer, exact, tokens(length), **masks)
    assert len(calls) > 0
    assert all(call is not None for call in calls)


@pytest.mark.parametrize("spec", ["random+dense", "random+dense+vanilla", "random+dense(shared_keys=true)"])
@pytest.mark.parametrize("kind", ["full", "causal left"])
def test_the_bias_of_keys_is_not_added_to_a_large_table(monkeypatch, taken, widths, spec, kind):
    """It is one more product, of width one."""
    monkeypatch.setattr(thresholds, "LARGE_TABLE", 0)
    layer, exact = layer_and_exact(spec)
    assert_exact(layer, exact, tokens(), **ends(11, kind))
    assert all(taken)
    assert {each[-1] for each in widths} == {1}


@pytest.mark.parametrize(("rank", "large"), [(3, False), (4, False), (5, True), (6, True)])
@pytest.mark.parametrize("order", ["factorized_random(rank={})+random+vanilla", "vanilla+factorized_random(rank={})"])
@pytest.mark.parametrize("kind", ["full", "causal left"])
def test_thin_features_of_the_batch_are_no_table(monkeypatch, taken, widths, rank, large, order, kind):
    """They are one more product, unless they are wide, or wider than values where the table would be large."""
    monkeypatch.setattr(thresholds, "NARROW_FACTORS", 0 if large else 3)
    monkeypatch.setattr(thresholds, "LARGE_TABLE", 0 if large else 2**22)
    layer, exact = layer_and_exact(order.format(rank))
    assert_exact(layer, exact, tokens(), **ends(11, kind))
    assert taken == [True, True]
    expected = [5] if rank in (4, 6) else [rank, 5]
    assert [sorted(call) for call in widths] == [expected, expected]


def test_large_tables_fall_back_where_all_kept_keys_underflow(monkeypatch):
    monkeypatch.setattr(thresholds, "UNWRITTEN_WEIGHTS", 0)
    layer, exact = layer_and_exact("random")
    with torch.no_grad():
        for one in (layer, exact):
            one.synthesizer.get_parameter("matrix").mul_(100.0)
    assert_exact(layer, exact, tokens(), key_padding_mask=padding())
    kept = torch.zeros(1, 2, 3, requires_grad=True)  # the peak is masked, at a distance that is just not enough
    for gap, taken in ((10.0, True), (80.0, False)):
        bias = kept + torch.tensor([gap, 0.0, 0.0])
        unpadded = torch.tensor([[False, True, True]])
        result = input_independent._attend_unwritten(Logits((Bias(bias),)), torch.randn(1, 1, 3, 5), Mask(unpadded))
        assert (result is not None) == taken


@pytest.mark.parametrize("joined", [False, True])
def test_gradients_of_masked_features(joined):
    features = torch.randn(3, 14, 5, dtype=torch.float64, requires_grad=True)  # 7 of each of two examples
    unpadded = torch.rand(2, 5) < 0.6
    assert torch.autograd.gradcheck(lambda f: input_independent.MaskedFeatures.apply(f, unpadded, joined), features)
    found = input_independent.MaskedFeatures.apply(features, unpadded, joined)
    torch.testing.assert_close(found[:, :14].view(3, 7, 2, 5), features.view(3, 7, 2, 5) * unpadded)
    assert torch.equal(found[1, 14:], unpadded.double() if joined else torch.empty(0, 5).double())


def test_a_digest_sees_every_change():
    table = torch.randn(3, 601, 607)
    first = library.digest(table)
    assert first is not None

    def same(other: Tensor) -> bool:
        found = library.digest(other)
        return found is not None and torch.equal(first, found)

    assert same(table.clone())
    generator = torch.Generator().manual_seed(0)
    places = [0, table.numel() - 1, *torch.randint(table.numel(), (20,), generator=generator).tolist()]
    for place in places:
        changed = table.clone()
        changed.view(torch.int32).flatten()[place] ^= 1  # the last digit, in binary
        assert not same(changed)
    swapped = table.clone()
    swapped[0, 0, 0], swapped[0, 1, 33] = table[0, 1, 33], table[0, 0, 0]
    assert not same(swapped)
    assert not same(-table)
    assert not same(table * 2)
    assert library.digest(table.mT) is None
    with threads(3):
        assert same(table)


@pytest.mark.parametrize("number", [2, 3, 5])
@pytest.mark.parametrize("spec", ["dense", "random+vanilla", "dense+vanilla"])
def test_equals_the_equations_with_threads(taken, spec, number):
    """Rows of a head are divided where there are more threads than heads, or none that share them evenly."""
    layer, exact = layer_and_exact(spec, max_length=293)
    known = {kind: exact_equations(spec, 293, kind) for kind in ("causal padded", "full")}
    with threads(number):
        assert (kernel._splits(3, number) > 1) == (number != 3)
        for kind, equal in known.items():
            assert_exact(layer, exact, tokens(293), equal, **ends(293, kind))
    assert all(taken)


@given(st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_shape(data):
    batch, heads, q, k, width, n = (
        data.draw(st.integers(low, high), label=name)
        for name, low, high in [
            ("batch", 1, 4),
            ("heads", 1, 4),
            ("q", 2, 150),
            ("k", 1, 150),
            ("width", 1, 70),
            ("products", 1, 3),
        ]
    )
    torch.manual_seed(data.draw(st.integers(0, 10**6), label="seed"))
    features = []
    for _ in range(n):
        inner = data.draw(st.integers(1, 80), label="features")
        shared = data.draw(st.booleans(), label="learned keys")
        key = (data.draw(st.sampled_from([1, heads])), k, inner) if shared else (batch, heads, k, inner)
        query = torch.randn(batch, q, heads, inner).transpose(1, 2)
        features.append(Product(query, torch.randn(key), data.draw(st.sampled_from([1.0, 0.3]))))
    shapes = [None, (heads, q, k), (heads, 1, k), (1, q, k), (batch, heads, q, k), (batch, 1, q, k)]
    shape = data.draw(st.sampled_from(shapes if n > 1 else shapes[1:]), label="bias")
    bias = None if shape is None else torch.randn(shape)
    weights = [None, torch.randn(()), torch.randn(heads, 1, 1), 0.7]
    weight = None if shape is None else data.draw(st.sampled_from(weights), label="weight")
    value = torch.randn(batch, heads, k, width)
    unpadded = allowed = None
    if data.draw(st.booleans(), label="padded"):
        first, last = (torch.randint(0, k + 1, (batch, 1)) for _ in range(2))
        unpadded = (torch.arange(k) >= first) & (torch.arange(k) < last)
    if data.draw(st.booleans(), label="mask"):
        example = (batch, data.draw(st.sampled_from([1, heads]))) if data.draw(st.booleans()) else ()
        allowed = torch.rand(*example, q, k) < 0.7
    mask = Mask(unpadded, data.draw(st.booleans(), label="causal"), allowed)

    def run(dtype: torch.dtype) -> list[Tensor]:
        leaves: list[Tensor] = []

        def leaf(tensor: Tensor) -> Tensor:
            leaves.append(tensor.to(dtype).requires_grad_())
            return leaves[-1]

        terms: list[LogitTerm] = [Product(leaf(f.query), leaf(f.key), f.scale) for f in features]
        if bias is not None:
            terms.append(Bias(leaf(bias), leaf(weight) if isinstance(weight, Tensor) else weight))
        call = call_of(Logits(tuple(terms)), leaf(value), mask)
        result = compiled.attend(call) if dtype == torch.float32 else plain.attend_whole(call)
        assert result is not None
        probe = torch.randn(result.shape, generator=torch.Generator().manual_seed(3)).to(dtype)
        return [result.detach(), *torch.autograd.grad((result * probe).sum(), leaves)]

    for ours, expected in zip(run(torch.float32), run(torch.float64), strict=True):
        assert ours.shape == expected.shape
        scale = expected.abs().max().clamp(min=1.0)
        # Looser than elsewhere: gradients may be zero as sums of many that are not.
        assert float((ours - expected).abs().max() / scale) < 1e-4


@pytest.mark.parametrize("kept", [0, 2**28])
@pytest.mark.parametrize("frozen", ["value", "bias", "weight", "queries", "keys", "all but value", "all but keys"])
def test_only_the_gradients_that_are_wanted(monkeypatch, frozen, kept):
    monkeypatch.setattr(kernel, "KEPT_BYTES", kept)
    torch.manual_seed(0)
    parts = {
        "value": [torch.randn(2, 3, 11, 5)],
        "bias": [torch.randn(3, 7, 11)],
        "weight": [torch.randn(3, 1, 1)],
        "queries": [torch.randn(2, 3, 7, 13), torch.randn(2, 3, 7, 2)],
        "keys": [torch.randn(2, 3, 11, 13), torch.randn(3, 11, 2)],
    }
    free = [n for n in parts if n == frozen.removeprefix("all but ")] if "but" in frozen else set(parts) - {frozen}

    def run(dtype: torch.dtype) -> list[Tensor]:
        made = {n: [t.to(dtype).requires_grad_(n in free) for t in some] for n, some in parts.items()}
        products = [Product(q, k) for q, k in zip(made["queries"], made["keys"], strict=True)]
        call = call_of(Logits((*products, Bias(made["bias"][0], made["weight"][0]))), made["value"][0])
        result = (compiled.attend if dtype == torch.float32 else plain.attend_whole)(call)
        assert result is not None
        return list(torch.autograd.grad(result.square().sum(), [t for n in free for t in made[n]]))

    for ours, expected in zip(run(torch.float32), run(torch.float64), strict=True):
        torch.testing.assert_close(ours.double(), expected, rtol=1e-4, atol=1e-4)


def test_gradients_can_be_taken_twice_and_while_others_wait():
    layer, exact = layer_and_exact("dense+vanilla", max_length=150)
    x = tokens(149)
    expected = torch.autograd.grad(reference.attention(exact, x)[0].square().sum(), list(exact.parameters()))
    loss, other = layer(x.float()).square().sum(), make("dense+vanilla", torch.float32, 150, seed=5)
    for last in (False, True):
        other(x.float()).square().sum().backward()
        found = torch.autograd.grad(loss, list(layer.parameters()), retain_graph=not last)
        for a, b in zip(found, expected, strict=True):
            assert float((a - b).abs().max() / b.abs().max().clamp(min=1.0)) < 1e-4


def simple(bias: Tensor, value: Tensor) -> Tensor:
    """Attention by the kernel with no logits but the bias."""
    q, k = bias.shape[-2:]
    nothing = Product(torch.zeros(1, 1, q, 1), torch.zeros(1, k, 1))
    result = compiled.attend(call_of(Logits((nothing, Bias(bias))), value))
    assert result is not None
    return result


@pytest.mark.parametrize("gap", [0.0, 1.0, 30.0, 80.0, 86.0, 88.0, 1e4, 1e30])
def test_exponentials_are_exact_at_any_distance(gap):
    """The second key has exp(-gap) of the weight, nothing where that is below the smallest numbers."""
    bias = torch.tensor([[[0.0, -gap], [gap, 0.0]]])
    expected = torch.softmax(bias.double(), -1)
    found = simple(bias, torch.eye(2)[None, None])
    torch.testing.assert_close(found.double(), expected[None], rtol=1e-6, atol=3e-38)


def test_exponentials_are_exact_everywhere():
    bias = -torch.linspace(0, 80, 10007).reshape(1, 1, -1).expand(1, 2, -1)
    found = simple(bias, torch.eye(10007)[None, None])[0, 0, 0]
    torch.testing.assert_close(found.double(), torch.softmax(bias[0, 0].double(), -1), rtol=1e-6, atol=0.0)


def test_a_peak_in_any_block_of_keys_counts():
    for place in (0, 511, 512, 1300):
        bias = torch.zeros(1, 2, 1301)
        bias[..., place] = 200.0
        value = torch.arange(1301.0).reshape(1, 1, -1, 1)
        assert (simple(bias, value) == place).all()


def test_what_is_not_a_number_stays_so_in_its_row():
    bias = torch.zeros(1, 3, 700)
    bias[0, 1, 650] = math.nan
    bias[0, 2, 3] = math.inf
    found = simple(bias, torch.ones(1, 1, 700, 5))
    assert (found[0, 0, 0] - 1).abs().max() < 1e-6
    assert found[0, 0, 1:].isnan().all()


def test_rows_without_keys_give_zeros_and_zero_gradients():
    bias = torch.zeros(1, 2, 600)
    bias[0, 0] = -math.inf
    bias.requires_grad_()
    value = torch.ones(1, 1, 600, 3, requires_grad=True)
    found = simple(bias, value)
    assert not found[0, 0, 0].any()
    assert (found[0, 0, 1] - 1).abs().max() < 1e-6
    to_bias, to_value = torch.autograd.grad(found.sum(), [bias, value])
    assert to_bias.isfinite().all()
    assert not to_bias[0, 0].any()
    torch.testing.assert_close(to_value, torch.full_like(to_value, 1 / 600))


def test_padding_is_never_read():
    layer, x = make("random+vanilla", torch.float32), tokens(dtype=torch.float32)
    pad = torch.zeros(2, 11, dtype=torch.bool)
    pad[1, 6:] = True
    expected = layer(x, key_padding_mask=pad)
    x[1, 6:] = math.nan
    found = layer(x, key_padding_mask=pad)
    torch.testing.assert_close(found[0], expected[0])
    torch.testing.assert_close(found[1, :6], expected[1, :6])


def test_what_the_kernel_cannot_do_goes_another_way(taken, monkeypatch):
    def run(spec: str = "random+vanilla", dtype=torch.float32, **arguments: Any) -> bool:
        taken.clear()
        make(spec, dtype)(tokens(dtype=dtype), **arguments)
        return any(taken)

    assert run()
    monkeypatch.setattr(thresholds, "COMPILED_LOGITS", 2**16)
    assert not run()
    monkeypatch.setattr(thresholds, "COMPILED_LOGITS", 0)
    assert not run(dtype=torch.float64)
    assert not run("factorized_dense")
    assert not run("dense(window=5)+vanilla")
    assert not run("random")
    holes = torch.zeros(2, 11, dtype=torch.bool)
    holes[0, 3] = True
    assert not run(key_padding_mask=holes)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not run()

    product = Product(torch.randn(1, 1, 2, 3).as_subclass(Special), torch.randn(1, 2, 3))
    assert compiled.attend(call_of(Logits((product, Bias(torch.zeros(1, 2, 2)))), torch.randn(1, 1, 2, 3))) is None


@pytest.mark.parametrize("spec", ["vanilla", "dense(bias=false)"])
@pytest.mark.parametrize("kind", ["full", "causal", "padded", "causal left"])
def test_a_lone_product_equals_the_equations(taken, monkeypatch, spec, kind):
    monkeypatch.setattr(thresholds, "PRODUCT_LOGITS", {processor(): 0})
    layer, exact = layer_and_exact(spec, max_length=73)
    assert_exact(layer, exact, tokens(71), **ends(71, kind))
    assert taken == [True, True]


def test_a_lone_product_goes_where_it_is_faster(taken, monkeypatch):
    def run(spec: str, **arguments: Any) -> bool:
        taken.clear()
        make(spec, torch.float32, **arguments)(tokens(dtype=torch.float32))
        return any(taken)

    for limits, expected in (({}, False), ({processor(): 363}, True), ({processor(): 364}, False)):
        monkeypatch.setattr(thresholds, "PRODUCT_LOGITS", limits)  # there are 3 * 11 * 11 = 363 logits
        assert run("vanilla") == expected
        assert run("dense(bias=false)") == expected
        # Torch's kernel has no dropout on the CPU, and needs queries as wide as values.
        assert run("vanilla", dropout=0.1)
        wide = Logits((Product(torch.randn(1, 3, 2, 13), torch.randn(1, 3, 7, 13)),))
        assert compiled.attend(call_of(wide, torch.randn(1, 3, 7, 5))) is not None


def test_without_the_kernel_torch_does_it(monkeypatch):
    monkeypatch.setattr(native, "load", lambda: None)
    for spec in SPECS:
        layer, exact = layer_and_exact(spec)
        with chunks_for_all():
            assert_exact(layer, exact, tokens(), **ends(11, "causal padded"))


def test_a_kernel_of_another_source_is_not_used(monkeypatch, tmp_path):
    for path in (*FOLDER.glob("*.[ch]"), *FOLDER.glob("*.so")):
        shutil.copy(path, tmp_path)
    monkeypatch.setattr("synthattn.engine.native.library.FOLDER", tmp_path)
    assert load.__wrapped__() is not None
    (tmp_path / "vectors.h").write_text((tmp_path / "vectors.h").read_text() + "\n")
    with pytest.warns(UserWarning, match="was compiled from other sources and is not used; install"):
        assert load.__wrapped__() is None
    monkeypatch.setattr("synthattn.engine.native.library.FOLDER", FOLDER)
    assert load.__wrapped__() is not None
    monkeypatch.setenv("SYNTHATTN_NATIVE", "0")
    assert load.__wrapped__() is None


@pytest.mark.parametrize("kept", [0, 2**28])
def test_operations_are_counted(monkeypatch, kept):
    """Torch's counter and ours count what torch's own operations would have."""
    monkeypatch.setattr(kernel, "KEPT_BYTES", kept)
    layer = make("dense+vanilla", torch.float32)
    x = tokens(dtype=torch.float32)

    def run() -> None:
        layer(x).sum().backward()

    def count() -> int:
        with FlopCounterMode(display=False) as counter:
            run()
        assert counter.get_total_flops() == pytest.approx(products(run).gigaflop * 1e9)
        return counter.get_total_flops()

    ours = count()
    monkeypatch.setattr(native, "load", lambda: None)
    again = 0 if kept else 2 * 2 * 3 * 11 * 11 * 2 * 5  # products for both kinds of logits, computed twice
    assert ours == count() + again


def test_memory_does_not_grow_with_the_number_of_logits():
    """The spec is random+vanilla, which keeps nothing."""
    batch, length = 8, 512

    layer, x = make("random+vanilla", torch.float32, length), tokens(length, batch, dtype=torch.float32)
    with Largest() as largest:
        layer(x).sum().backward()
    assert 0 < largest.seen <= 3 * length * length  # the table of the three heads, whatever the batch
