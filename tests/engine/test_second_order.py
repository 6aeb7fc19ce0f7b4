"""Second derivatives of every backend equal those of the plain equations."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from helpers import HEADS, LENGTH, SPECS, chunks_for_all, make, needs_kernels, padding, tokens
from synthattn.engine import native, sdpa, thresholds
from synthattn.engine.thresholds import processor
from synthattn.layers.linformer import Linformer

FUSED_KEYS = thresholds.FUSED_KEYS  # the value outside of the tests
MASKS = {
    "full": {},
    "causal": {"is_causal": True},
    "padded": {"key_padding_mask": torch.arange(LENGTH).expand(2, -1) >= torch.tensor([[LENGTH - 4], [LENGTH]])},
    "holes": {"key_padding_mask": padding()},
    "bias": {"position_bias": torch.randn(HEADS, 1, LENGTH, generator=torch.Generator().manual_seed(3))},
}

COMPILED = [pytest.param(name, marks=needs_kernels) for name in ("compiled", "products")]
PATHS = ["small", *COMPILED, "chunks"]


@contextmanager
def path(name: str) -> Iterator[None]:
    """Send calls of any size to one kind of backend. ``small`` leaves the thresholds unchanged."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(thresholds, "FUSED_KEYS", FUSED_KEYS)
        if name == "small":
            yield
        elif name == "products":
            patch.setattr(thresholds, "MULTIPLICATIONS", {processor(): 0})
            patch.setattr(thresholds, "SHORTEST_AXIS", 1)
            yield
        elif name == "compiled":
            patch.setattr(thresholds, "COMPILED_LOGITS", 0)
            patch.setattr(thresholds, "UNWRITTEN_WEIGHTS", 0)
            patch.setattr(thresholds, "CAUSAL_ROWS", 3)
            yield
        else:
            patch.setattr(native, "load", lambda: None)
            patch.setattr(thresholds, "CAUSAL_ROWS", 3)
            with chunks_for_all():
                yield


def penalty_gradients(layer: nn.Module, x: Tensor, **options: Any) -> list[Tensor]:
    """Return the gradients of a gradient penalty with respect to the input and every parameter."""
    x = x.clone().requires_grad_()
    sources = [x, *layer.parameters()]
    loss = layer(x, **options).square().sum()
    first = torch.autograd.grad(loss, sources, create_graph=True, allow_unused=True)
    penalty = torch.stack([g.square().sum() for g in first if g is not None]).sum()
    found = torch.autograd.grad(penalty, sources, allow_unused=True)
    return [torch.zeros_like(s) if g is None else g for g, s in zip(found, sources, strict=True)]


@cache
def plain_penalty(spec: str, kind: str) -> list[Tensor]:
    """Compute once what every backend is compared with."""
    return penalty_gradients(make(spec, torch.float32), tokens(dtype=torch.float32), plain=True, **MASKS[kind])


def assert_same_penalty(layer: nn.Module, x: Tensor, tolerance: float, **options: Any) -> None:
    assert_close(penalty_gradients(layer, x, **options), penalty_gradients(layer, x, plain=True, **options), tolerance)


def assert_close(found: list[Tensor], expected: list[Tensor], tolerance: float) -> None:
    largest = max(float(g.abs().max()) for g in expected)
    for ours, plain in zip(found, expected, strict=True):
        # Some gradients are zero as sums of many numbers: the bias of keys does not change a softmax.
        scale = max(float(plain.abs().max()), 1e-3 * largest)
        assert float((ours - plain).abs().max()) <= tolerance * scale


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("kind", MASKS)
def test_gradient_penalty_equals_plain(spec, kind, name):
    layer, x = make(spec, torch.float32), tokens(dtype=torch.float32)
    with path(name):
        assert_close(penalty_gradients(layer, x, **MASKS[kind]), plain_penalty(spec, kind), 1e-3)


@needs_kernels
@pytest.mark.parametrize("spec", ["random+vanilla", "vanilla", "dense"])
def test_gradient_penalty_equals_plain_above_the_real_threshold(spec):
    """From 65,536 logits per example on, the compiled kernel takes a call."""
    layer, x = make(spec, torch.float32, 160), tokens(160, dtype=torch.float32)
    assert_same_penalty(layer, x, 1e-3)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("name", ["small", "chunks"])
def test_second_derivatives_equal_finite_differences(spec, name):
    layer = make(spec, max_length=7 if "a=4" not in spec else 11, d_model=5, num_heads=2, head_dim=3)
    names, parameters = zip(*layer.named_parameters(), strict=True)
    torch.manual_seed(2)
    x = torch.randn(2, 5, 5, dtype=torch.float64, requires_grad=True)

    def attend(x: Tensor, *given: Tensor) -> Tensor:
        return torch.func.functional_call(layer, dict(zip(names, given, strict=True)), (x,))

    with path(name):
        # These inputs are away from the corners of the ReLU of dense attention.
        assert torch.autograd.gradgradcheck(attend, (x, *parameters), eps=1e-6, atol=1e-4, fast_mode=True)


def test_linformer_has_second_derivatives():
    torch.manual_seed(0)
    assert_same_penalty(Linformer(12, 3, k=4, max_length=11), torch.randn(2, 7, 12), 1e-3)


@pytest.mark.parametrize("spec", ["random", "vanilla", "random+vanilla", "dense+vanilla", "factorized_dense"])
@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize("padded", [False, True])
def test_batched_gradients_equal_single_ones(spec, name, padded):
    layer = make(spec, torch.float32)
    x = tokens(dtype=torch.float32).requires_grad_()
    with path(name):
        y = layer(x, key_padding_mask=padding() if padded else None)
        directions = torch.randn(3, *y.shape, generator=torch.Generator().manual_seed(4))
        (batched,) = torch.autograd.grad(y, x, directions, is_grads_batched=True, retain_graph=True)
        single = torch.stack([torch.autograd.grad(y, x, one, retain_graph=True)[0] for one in directions])
    torch.testing.assert_close(batched, single, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("spec", ["random+vanilla", "vanilla+relative", "fixed_random+vanilla"])
def test_a_bias_with_a_gradient_beside_the_fused_kernel(monkeypatch, spec):
    """On other devices than the CPU, the fused kernel takes a bias with a gradient."""
    monkeypatch.setattr(sdpa, "needs_grad", lambda *tensors: False)
    layer, x = make(spec), tokens()
    sources = list(layer.parameters())
    mask = torch.zeros(
        2, 1, LENGTH, LENGTH, dtype=torch.bool
    )  # for each example, as the CPU has its own way for others
    mask[1, 0, 3, 4] = True
    recorded = torch.autograd.grad(layer(x, attn_mask=mask).square().sum(), sources, create_graph=True)
    plain = torch.autograd.grad(layer(x, attn_mask=mask, plain=True).square().sum(), sources)
    for ours, theirs in zip(recorded, plain, strict=True):
        torch.testing.assert_close(ours, theirs)
    assert_same_penalty(layer, x, 1e-6, attn_mask=mask)
