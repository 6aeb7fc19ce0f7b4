"""The kernels of a step of generation equal torch, and are left alone wherever something else is meant."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from helpers import Special, needs_kernels
from synthattn.engine.native import thin
from synthattn.engine.projection import project
from synthattn.layers.rms_norm import RMSNorm

pytestmark = needs_kernels


@pytest.fixture(autouse=True)
def _for_all(monkeypatch):
    """The kernel is for matrices of any size."""
    monkeypatch.setattr(thin, "LEAST_SIZE", 0)


@pytest.fixture
def taken(monkeypatch) -> list[str]:
    """What the kernels computed."""
    calls: list[str] = []

    def watch(name: str) -> None:
        original = getattr(thin, name)

        def watched(*args: Any) -> Tensor | None:
            result = original(*args)
            calls.extend([] if result is None else [name])
            return result

        monkeypatch.setattr(thin, name, watched)

    watch("product")
    watch("norm")
    return calls


def assert_exact(found: Tensor, expected: Tensor, plain: Tensor) -> None:
    """Assert that a result is about as close to float64 as torch's own in float32."""
    scale = expected.abs().max().clamp(min=1.0)
    error, rounding = (float((y.double() - expected).abs().max() / scale) for y in (found, plain))
    assert error <= max(1e-6, 2 * rounding)


@torch.no_grad()
def check_product(rows: int, columns: int, depth: int, bias: bool) -> None:
    projection, x = nn.Linear(depth, columns, bias=bias), torch.randn(rows, depth)
    double = nn.functional.linear(x.double(), projection.weight.double(), projection.bias.double() if bias else None)
    assert_exact(project(projection, x), double, projection(x))


@torch.no_grad()
def check_norm(rows: int, width: int, eps: float | None, weighed: bool) -> None:
    norm, x = RMSNorm(width, eps=eps, elementwise_affine=weighed), 3 * torch.randn(rows, width)
    if weighed:
        norm.weight.normal_()
    plain = nn.functional.rms_norm(x, (width,), norm.weight, norm.eps)
    eps = torch.finfo(torch.float32).eps if eps is None else eps
    double = x.double() / (x.double().square().mean(-1, keepdim=True) + eps).sqrt()
    assert_exact(norm(x), double * norm.weight.double() if weighed else double, plain)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 7, 8, 31, 32])
@pytest.mark.parametrize(("columns", "depth"), [(1, 1), (7, 3), (29, 13), (64, 512), (211, 517), (1013, 129)])
def test_product_equals_torch(taken, rows, columns, depth, bias):
    check_product(rows, columns, depth, bias)
    assert taken == ["product"]


@given(st.integers(1, 32), st.integers(1, 60), st.integers(1, 90), st.booleans())
@settings(max_examples=60, deadline=None)
def test_product_of_any_shape(rows, columns, depth, bias):
    check_product(rows, columns, depth, bias)


@pytest.mark.parametrize("weighed", [True, False])
@pytest.mark.parametrize("eps", [None, 1e-6, 0.3])
@pytest.mark.parametrize(("rows", "width"), [(1, 1), (3, 7), (8, 64), (5, 517), (600, 129)])
def test_norm_equals_torch(taken, rows, width, eps, weighed):
    check_norm(rows, width, eps, weighed)
    assert taken == ["norm"]


def test_no_number_is_lost():
    """NaN and infinity are those of their rows and columns alone."""
    projection, x = nn.Linear(13, 29), torch.randn(5, 13)
    with torch.no_grad():
        x[2, 12], projection.weight[7, 0] = float("nan"), float("inf")
        found, expected = project(projection, x), projection(x)
    assert expected.isnan()[2].all()
    assert torch.equal(found.isnan(), expected.isnan())
    assert torch.equal(found.isinf(), expected.isinf())


OTHERS = {
    "hooked": lambda p, x: (p.register_forward_hook(lambda module, inputs, y: y + 1), (p, x))[1],
    "in double": lambda p, x: (p.double(), x.double()),
    "adapted": lambda p, x: (nn.Sequential(p, nn.ReLU()), x),
    "transposed": lambda p, x: (setattr(p, "weight", nn.Parameter(p.weight.detach().mT.contiguous().mT)), (p, x))[1],
    "with gaps": lambda p, x: (p, torch.randn(11, 1, 26)[..., ::2]),
    "many": lambda p, x: (p, torch.randn(33, 1, 13)),
    "none": lambda p, x: (p, torch.randn(0, 1, 13)),
    "special": lambda p, x: (p, x.as_subclass(Special)),
}


@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS)
def test_what_is_no_plain_projection_of_a_few_rows_is_called(taken, change):
    projection, x = change(nn.Linear(13, 29), torch.randn(11, 1, 13))
    with torch.no_grad():
        assert torch.equal(project(projection, x), projection(x))
    assert taken == []


def test_a_wrong_width_is_told_by_torch(taken):
    with torch.no_grad(), pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        project(nn.Linear(13, 29), torch.randn(11, 1, 14))
    with torch.no_grad(), pytest.raises(RuntimeError, match="normalized_shape"):
        RMSNorm(13)(torch.randn(11, 1, 14))
    assert taken == []


def test_precision_that_was_asked_for(taken):
    projection, norm, x = nn.Linear(13, 29), RMSNorm(13), torch.randn(11, 1, 13)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert project(projection, x).dtype == torch.bfloat16
        norm(x)
    with torch.no_grad():
        assert norm.double()(x.double()).dtype == torch.float64
    assert taken == []


def test_gradients_flow(taken):
    projection, norm, x = nn.Linear(13, 29), RMSNorm(13), torch.randn(11, 1, 13, requires_grad=True)
    project(projection, x).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, projection.weight.sum(0).expand(11, 1, -1))
    norm(x).sum().backward()
    assert norm.weight.grad is not None
    assert taken == []


def test_whoever_watches_sees_torchs_operations(taken):
    projection, x = nn.Linear(13, 29), torch.randn(5, 1, 13)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        project(projection, x)
        RMSNorm(13)(x)
    assert counter.get_total_flops() == 2 * 5 * 13 * 29
    assert taken == []


@torch.no_grad()
def test_what_does_not_fit_is_told_by_torch(taken):
    projection = nn.Linear(13, 29)
    projection.bias = nn.Parameter(torch.zeros(3))
    with pytest.raises(RuntimeError, match="size"):
        project(projection, torch.randn(2, 13))
    for x, weight in (
        (torch.randn(3, 5), torch.zeros(7, 6)),
        (torch.randn(()), torch.zeros(7, 6)),
        (torch.randn(3, 5), torch.zeros(5)),
        (torch.randn(3, 5), torch.zeros(7, 5).double()),
        (torch.zeros(6, dtype=torch.complex64).conj().imag.view(2, 3), torch.zeros(7, 3)),
    ):
        assert thin.product(x, nn.Parameter(weight), None) is None
    for x, weight in ((torch.randn(3, 5), torch.zeros(6)), (torch.randn(3, 5), torch.zeros(1, 5))):
        assert thin.norm(x, nn.Parameter(weight), 1e-6) is None
    gone = torch.randn(4, 64)
    gone.untyped_storage().resize_(0)
    assert thin.product(gone, nn.Parameter(torch.zeros(8, 64)), None) is None
    assert thin.norm(gone, None, 1e-6) is None
    assert taken == []


def test_every_product_and_norm_of_a_step_is_the_kernels(taken):
    """A decoder with a dense mixture has value, output, W_1, queries, keys, two in the feed-forward layer, logits."""
    # Imported here, because test_processors imports this file in processes that need no models.
    from synthattn.models import SynthesizerForCausalLM, presets

    config = presets.tiny(
        vocab_size=211,
        attention="dense+vanilla",
        is_encoder_decoder=False,
        is_decoder=True,
        positions="relative",
        norm="rmsnorm",
    )
    model = SynthesizerForCausalLM(config).eval()
    with torch.no_grad():
        model(torch.randint(2, 211, (3, 5)))
    layers = config.decoder_layers
    assert taken.count("product") == 7 * layers + 1
    assert taken.count("norm") == 2 * layers + 1
