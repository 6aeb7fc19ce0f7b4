"""The compiled matrix product equals that in float64, with its gradients, and declines what is meant for torch."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_native import assert_exact, ends, layer_and_exact
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from helpers import SPECS, Special, needs_kernels, threads, tokens
from synthattn import SyntheticAttention
from synthattn.bench.products import products as executed
from synthattn.engine import native, products, thresholds
from synthattn.engine.native import gemm
from synthattn.engine.native.gemm import Axis, Triangle
from synthattn.engine.projection import merge_heads, project, project_scaled
from synthattn.engine.thresholds import processor

pytestmark = needs_kernels

SIZES = [
    (1, 1, 1),
    (7, 3, 5),
    (8, 48, 256),
    (9, 49, 257),
    (96, 33, 16),
    (97, 517, 31),
    (521, 129, 600),
    (1030, 17, 300),
]
ORDERS = list(itertools.product(["rows", "columns", "gaps"], repeat=2))


@pytest.fixture(autouse=True)
def _for_all(monkeypatch):
    """The kernel is for products of any size, on any processor."""
    monkeypatch.setattr(thresholds, "MULTIPLICATIONS", {processor(): 0})
    monkeypatch.setattr(thresholds, "SHORTEST_AXIS", 1)


@pytest.fixture
def taken(monkeypatch) -> list[tuple[int, ...]]:
    """The shapes of what the kernel computed."""
    shapes: list[tuple[int, ...]] = []
    original = gemm.multiply

    def watched(*args, **options):
        result = original(*args, **options)
        shapes.append(tuple(result.shape))
        return result

    monkeypatch.setattr(gemm, "multiply", watched)
    return shapes


def in_order(order: str, *shape: int) -> Tensor:
    """Random numbers that lie row by row, with gaps between the rows, or column by column."""
    if order == "columns":
        return torch.randn(*shape).mT.contiguous().mT
    return torch.randn(*shape) if order == "rows" else torch.randn(*shape[:-1], 2 * shape[-1])[..., : shape[-1]]


def assert_near(found: Tensor, a: Tensor, b: Tensor, bias: Tensor | float = 0.0) -> None:
    """Each number is as exact as a sum of so many products in float32 can be."""
    expected = a.double() @ b.double() + (bias.double() if isinstance(bias, Tensor) else bias)
    bound = 2e-7 * (a.double().abs() @ b.double().abs() + 1.0)
    assert found.shape == expected.shape
    assert ((found.double() - expected).abs() <= bound * a.shape[-1] ** 0.5).all()


@pytest.mark.parametrize(("rows", "columns", "depth"), SIZES)
@pytest.mark.parametrize(("left", "right"), ORDERS)
def test_equals_float64(rows, columns, depth, left, right):
    a, b = in_order(left, rows, depth), in_order(right, depth, columns)
    assert_near(gemm.multiply(a, b), a, b)
    for bias in (torch.randn(columns), torch.randn(rows, 1)):
        assert_near(gemm.multiply(a, b, bias), a, b, bias)


@given(st.integers(1, 3), st.integers(1, 140), st.integers(1, 140), st.integers(1, 300), st.sampled_from(ORDERS))
@settings(max_examples=60, deadline=None)
def test_batches_of_any_shape(batch, rows, columns, depth, orders):
    a, b = in_order(orders[0], batch, rows, depth), in_order(orders[1], batch, depth, columns)
    assert_near(gemm.multiply(a, b), a, b)
    assert_near(gemm.multiply(a[:1].expand(batch, -1, -1), b), a[:1], b)
    # Each number is the same in any batch, and beside any other rows.
    assert torch.equal(gemm.multiply(a, b)[-1], gemm.multiply(a[-1], b[-1]))
    assert torch.equal(gemm.multiply(a[0], b[0])[rows // 2 :], gemm.multiply(a[0, rows // 2 :], b[0]))


@pytest.mark.parametrize("number", [1, 2, 3, 5])
def test_threads_share_the_work(number):
    a, b = torch.randn(3, 613, 300), torch.randn(3, 300, 411)
    expected = gemm.multiply(a, b)
    with threads(number):
        assert torch.equal(gemm.multiply(a, b), expected)


TRIANGLES = list(itertools.permutations(Axis, 2))


def triangular(axes: tuple[Axis, Axis], matrix: Tensor, triangle: Triangle | None) -> Tensor:
    """Set to zero what a triangle leaves out of a matrix with these axes."""
    if triangle == axes:
        return matrix.triu()
    return matrix.tril() if triangle == axes[::-1] else matrix


@pytest.mark.parametrize("triangle", TRIANGLES)
@pytest.mark.parametrize(("rows", "columns", "depth"), [(5, 5, 5), (700, 611, 653), (40, 900, 300), (900, 40, 300)])
def test_triangles(triangle, rows, columns, depth):
    a = triangular((Axis.ROW, Axis.DEPTH), torch.randn(2, rows, depth), triangle)
    b = triangular((Axis.DEPTH, Axis.COLUMN), torch.randn(2, depth, columns), triangle)
    bias, place = torch.randn(columns), (Axis.ROW, Axis.COLUMN)
    found = gemm.multiply(a, b, bias, triangle)
    assert found.isfinite().all()
    if set(triangle) == set(place):
        expected = triangular(place, a @ b + bias, triangle)
        torch.testing.assert_close(triangular(place, found, triangle), expected, rtol=1e-4, atol=1e-4)
    else:
        assert_near(found, a, b, bias)


def test_what_a_triangle_leaves_out_is_skipped():
    """NaN that is far outside stays unseen."""
    a = torch.ones(1000, 1000).tril()
    a[:300, 600:] = torch.nan
    assert gemm.multiply(a, torch.ones(1000, 7), None, (Axis.DEPTH, Axis.ROW))[:300].isfinite().all()


def test_no_number_is_lost():
    """NaN and infinity are those of their rows and columns alone."""
    a, b = torch.randn(101, 270), torch.randn(270, 75)
    a[3, 269], a[100, 0], b[0, 74], b[269, 5] = torch.nan, torch.inf, torch.inf, torch.nan
    found, expected = gemm.multiply(a, b), a @ b
    assert torch.equal(found.isnan(), expected.isnan())
    assert torch.equal(found.isposinf(), expected.isposinf())
    assert torch.equal(found.isneginf(), expected.isneginf())


@pytest.mark.parametrize("triangle", [None, *TRIANGLES])
@pytest.mark.parametrize(("left", "right"), [("rows", "columns"), ("columns", "rows")])
@pytest.mark.parametrize("by_kernel", [True, False])
def test_gradients_equal_torch(monkeypatch, taken, triangle, left, right, by_kernel):
    if not by_kernel:
        monkeypatch.setattr(thresholds, "MULTIPLICATIONS", {})
        monkeypatch.setattr(thresholds, "CAUSAL_ROWS", 16)
    a = triangular((Axis.ROW, Axis.DEPTH), in_order(left, 2, 37, 41), triangle).requires_grad_()
    b = triangular((Axis.DEPTH, Axis.COLUMN), in_order(right, 2, 41, 29), triangle).requires_grad_()
    bias, place = torch.randn(29, requires_grad=True), (Axis.ROW, Axis.COLUMN)
    inputs, probe = [a, b, bias], triangular(place, torch.randn(2, 37, 29), triangle)

    def gradients(y: Tensor, *, twice: bool) -> list[Tensor]:
        found = torch.autograd.grad((y.square() * probe).sum(), inputs, create_graph=twice)
        if twice:
            found += torch.autograd.grad(torch.stack([g.square().sum() for g in masked(found)]).sum(), inputs)
        return list(masked(found[:3])) + list(masked(found[3:]))

    def masked(found):
        """Where an input has to be zero, its gradient is arbitrary."""
        axes = [(Axis.ROW, Axis.DEPTH), (Axis.DEPTH, Axis.COLUMN), (Axis.COLUMN, Axis.COLUMN)]
        return [triangular(one, g, triangle) for one, g in zip(axes, found, strict=False)]

    for twice in (False, True):
        y = products.multiply(a, b, bias, triangle)
        for ours, plain in zip(gradients(y, twice=twice), gradients(a @ b + bias, twice=twice), strict=True):
            torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-3 * float(plain.detach().abs().max()))
    wanted = 6 if by_kernel else 0  # two results with two gradients each; those that are differentiable are torch's
    assert len(taken) == wanted
    for tensor in (a, b):  # gradients lie in memory as their tensors do
        y = products.multiply(a, b)
        (found,) = torch.autograd.grad(y, tensor, torch.randn(y.shape))
        assert found.stride() == tensor.stride()


@pytest.mark.parametrize("frozen", [0, 1, 2])
def test_only_the_gradients_that_are_wanted(taken, frozen):
    a, b, bias = inputs = [torch.randn(5, 7), torch.randn(7, 3), torch.randn(3)]
    for n, t in enumerate(inputs):
        t.requires_grad_(n != frozen)
    y = products.multiply(a, b, bias)
    y.backward(torch.randn(5, 3))
    assert [t.grad is None for t in inputs] == [n == frozen for n in range(3)]
    assert len(taken) == (3 if frozen == 2 else 2)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("kind", ["full", "causal", "padded", "causal left"])
def test_layers_equal_the_equations(taken, spec, kind):
    layer, exact = layer_and_exact(spec)
    assert_exact(layer, exact, tokens(), **ends(11, kind))
    assert taken


@pytest.mark.parametrize("spec", ["random", "random+vanilla"])
@pytest.mark.parametrize("kind", ["full", "causal", "padded", "causal left"])
def test_layers_equal_the_equations_across_blocks(taken, monkeypatch, spec, kind):
    monkeypatch.setattr(thresholds, "UNWRITTEN_WEIGHTS", 2**62)
    layer, exact = layer_and_exact(spec, max_length=600)
    assert_exact(layer, exact, tokens(599), **ends(599, kind))
    assert taken


def test_projections_of_a_layer(taken):
    """Values, queries, keys and the output of eval."""
    layer = SyntheticAttention(24, 3, "vanilla", max_length=11)
    with torch.no_grad():
        layer(torch.randn(5, 11, 24))
    assert taken == [(55, 24)] * 4


def test_projections_are_linear(taken):
    projection, x = nn.Linear(24, 12), torch.randn(5, 11, 24)
    torch.testing.assert_close(project(projection, x), nn.functional.linear(x, projection.weight, projection.bias))
    factors = torch.tensor([2.0, 3.0, 4.0])[:, None, None]
    scaled = project_scaled(projection, x, factors, 3)
    assert scaled is not None
    torch.testing.assert_close(scaled, projection(x) * factors.flatten().repeat_interleave(4))
    heads, output = torch.randn(2, 4, 5, 11).permute(2, 0, 3, 1), nn.Linear(8, 3)  # feature by feature
    torch.testing.assert_close(merge_heads(heads, output), output(heads.transpose(1, 2).flatten(2)))
    assert len(taken) == 3


def test_other_products_are_torchs(monkeypatch):
    kernels = native.load

    def is_torchs(a: Tensor, b: Tensor, bias: Tensor | None = None) -> bool:
        """Nothing is called here: torch would refuse some of these."""
        return not products.is_for_kernel(a, b, bias)

    a, b = torch.randn(5, 7), torch.randn(7, 3)
    assert not is_torchs(a, b)
    assert is_torchs(a.double(), b.double())
    assert is_torchs(a, b.half())
    assert is_torchs(a.as_subclass(Special), b)
    assert is_torchs(a, b.to("meta"))
    assert is_torchs(a, torch.randn(6, 3)), "torch says what is wrong"
    assert is_torchs(a, b, torch.randn(4))
    assert is_torchs(a, b, torch.randn(3).double())
    assert is_torchs(a, b, torch.randn(6)[::2])
    assert is_torchs(torch.randn(2, 5, 7), torch.randn(3, 7, 3))
    assert is_torchs(torch.randn(0, 7), b)
    assert is_torchs(torch.randn(5, 14)[:, ::2], b), "a copy would be needed"
    assert is_torchs(torch.zeros(5, 7, dtype=torch.complex64).conj().imag, b), "memory has the other sign"
    for size in (0, 16):
        gone = torch.randn(5, 7)
        gone.untyped_storage().resize_(size)
        assert is_torchs(gone, b), "its memory is gone"
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert is_torchs(a, b)
    torch.set_float32_matmul_precision("medium")
    try:
        assert is_torchs(a, b)
    finally:
        torch.set_float32_matmul_precision("highest")
    for name, value in (
        ("SHORTEST_AXIS", 4),
        ("MULTIPLICATIONS", {}),
        ("MULTIPLICATIONS", {processor(): 5 * 7 * 3 + 1}),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(thresholds, name, value)
            assert is_torchs(a, b)
    monkeypatch.setattr(native, "load", lambda: None)
    assert is_torchs(a, b)
    monkeypatch.setattr(native, "load", kernels)
    assert not is_torchs(a, b)


def test_hooks_and_adapters_are_called(taken):
    projection, x = nn.Linear(7, 3), torch.randn(5, 11, 7)
    plain = projection(x)
    projection.register_forward_hook(lambda module, inputs, output: output.neg())
    assert torch.equal(project(projection, x), -plain)
    assert torch.equal(project(nn.Sequential(nn.Linear(7, 3), nn.ReLU()), x) < 0, torch.zeros(5, 11, 3).bool())
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        project(nn.Linear(8, 3), x)
    assert taken == []


def test_transforms_see_torchs_product(taken):
    projection, x = nn.Linear(7, 3).requires_grad_(False), torch.randn(5, 11, 7)
    expected = projection(x)
    torch.testing.assert_close(torch.func.vmap(lambda one: project(projection, one))(x), expected)
    tangent = torch.func.jvp(lambda one: project(projection, one), (x,), (x,))[1]
    torch.testing.assert_close(tangent, expected - projection.bias)
    assert taken == []


@pytest.mark.parametrize("triangle", [None, *TRIANGLES])
def test_whoever_watches_sees_torchs_products(taken, triangle):
    """Their results are those of the kernel, and so is the number of operations."""
    projection, x = nn.Linear(7, 3), torch.randn(5, 11, 7, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        project(projection, x).sum().backward()
    assert counter.get_total_flops() == 3 * 2 * 5 * 11 * 7 * 3
    assert executed(lambda: project(projection, x).sum().backward()).gigaflop == pytest.approx(6 * 5 * 11 * 7 * 3 / 1e9)
    assert taken == []
    a = triangular((Axis.ROW, Axis.DEPTH), torch.randn(2, 300, 300), triangle)
    b = triangular((Axis.DEPTH, Axis.COLUMN), torch.randn(2, 300, 300), triangle)
    ours = products.multiply(a, b, None, triangle)
    assert len(taken) == 1
    with FlopCounterMode(display=False) as counter:
        theirs = products.multiply(a, b, None, triangle)
    whole = 2 * 2 * 300**3
    assert counter.get_total_flops() == whole if triangle is None else whole / 2 < counter.get_total_flops() < whole
    place = (Axis.ROW, Axis.COLUMN)
    ours, theirs = (triangular(place, y, triangle) for y in (ours, theirs))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
