"""Attention on an accelerator equals the equations, reads no value, and mixes no devices."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from accelerator import (
    CUDA,
    DeviceMismatchError,
    OnAccelerator,
    ValueReadError,
    accelerator,
    move_module,
    moved,
    values,
)
from helpers import (
    BATCH,
    HEAD_DIM,
    HEADS,
    LENGTH,
    SPECS,
    call_of,
    make,
    padding,
    tokens,
)
from synthattn import attend, reference
from synthattn.engine import plain, sdpa_sums, thresholds
from synthattn.logits import Bias, Logits, Product
from synthattn.masks import Mask
from synthattn.synthesizers import Tokens

PAIRS = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(3)
PAIRS[4] = True  # a row without keys
MASKS: dict[str, dict[str, Any]] = {
    "none": {},
    "causal": {"is_causal": True},
    "padding": {"key_padding_mask": padding()},
    "pairs": {"attn_mask": PAIRS},
    "floats": {"attn_mask": torch.linspace(-1, 1, LENGTH**2).view(LENGTH, LENGTH).masked_fill(PAIRS, float("-inf"))},
    "padding and causal": {"is_causal": True, "key_padding_mask": padding()},
    "padding and pairs": {"attn_mask": PAIRS, "key_padding_mask": padding()},
    "pairs of examples": {"attn_mask": PAIRS.expand(BATCH, 1, -1, -1), "key_padding_mask": padding()},
}
PROBE = torch.linspace(-1, 2, BATCH * LENGTH * 17, dtype=torch.float64).view(BATCH, LENGTH, 17)


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    with accelerator():
        yield


@pytest.fixture
def kernel(monkeypatch) -> list[dict[str, Any]]:
    """Record the arguments of torch's fused kernel."""
    calls: list[dict[str, Any]] = []
    original = F.scaled_dot_product_attention

    def recorded(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
        calls.append({"query": query, "key": key, "value": value} | options)
        return original(query, key, value, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", recorded)
    return calls


def small_chunks(monkeypatch) -> None:
    for name in ("FUSED_MASK", "ACCELERATOR_CHUNK_LOGITS", "CHUNK_ROWS"):
        monkeypatch.setattr(thresholds, name, 1)
    monkeypatch.setattr(thresholds, "ACCELERATOR_CAUSAL_ROWS", 4)


def converted(masks: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    floats = {name: m.to(dtype) for name, m in masks.items() if isinstance(m, Tensor) and m.is_floating_point()}
    return masks | floats


def moved_masks(masks: dict[str, Any]) -> dict[str, Any]:
    return {name: moved(mask) if isinstance(mask, Tensor) else mask for name, mask in masks.items()}


def expected(spec: str, dtype: torch.dtype, masks: dict[str, Any]) -> dict[str, Tensor]:
    """Return the output of the equations, and the gradients of a weighted sum of it, in double precision."""
    layer, x = make(spec, dtype).double(), tokens(dtype=dtype).double().requires_grad_()
    y = reference.attention(layer, x, None, **converted(masks, torch.float64))[0]
    return {"output": y.detach()} | gradients(y, layer, x)


def gradients(y: Tensor, layer: torch.nn.Module, x: Tensor) -> dict[str, Tensor]:
    probe = PROBE.to(y.dtype)
    (y * (moved(probe) if isinstance(y, OnAccelerator) else probe)).sum().backward()
    found = {"x": x.grad} | {name: parameter.grad for name, parameter in layer.named_parameters()}
    return {name: values(gradient) for name, gradient in found.items() if gradient is not None}


def check(found: dict[str, Tensor], wanted: dict[str, Tensor], tolerance: float) -> None:
    assert found.keys() <= wanted.keys()
    for name, tensor in found.items():
        scale = float(wanted[name].abs().max().clamp(min=1.0))
        error = float((tensor.double() - wanted[name]).abs().max()) / scale
        assert error <= tolerance, f"{name} differs by {error:.2g}"


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("chunked", [False, True], ids=["whole", "chunked"])
def test_every_spec_equals_the_equations_without_reading_a_value(spec, chunked, monkeypatch):
    """All masks, in single and half precision, with and without gradients."""
    if chunked:
        small_chunks(monkeypatch)
    for masks in MASKS.values():
        for dtype, tolerance in ((torch.float32, 2e-5), (torch.bfloat16, 0.15)):
            wanted = expected(spec, dtype, masks)
            layer = move_module(make(spec, dtype))
            x, given = moved(tokens(dtype=dtype)).requires_grad_(), moved_masks(converted(masks, dtype))
            y = layer(x, **given)
            found = {"output": values(y.detach())} | gradients(y, layer, x)
            assert found.keys() == wanted.keys()
            check(found, wanted, tolerance)
            assert all(tensor.isfinite().all() for tensor in found.values())
            with torch.no_grad():
                check({"output": values(layer.eval()(x, **given))}, wanted, tolerance)


@pytest.mark.parametrize("spec", ["random+vanilla", "random", "factorized_dense+vanilla", "dense"])
def test_float16_does_not_overflow(spec):
    for masks in MASKS.values():
        wanted = expected(spec, torch.float16, masks)
        layer = move_module(make(spec, torch.float16))
        x = moved(tokens(dtype=torch.float16)).requires_grad_()
        y = layer(x, **moved_masks(converted(masks, torch.float16)))
        check({"output": values(y.detach())} | gradients(y, layer, x), wanted, 0.02)


def test_autocast_to_float16_keeps_padding_in_the_mask(kernel, monkeypatch):
    """The kernel would turn the number that stands for padding into minus infinity."""
    layer = move_module(make("vanilla", torch.float32))
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: device == "cuda")
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda device: torch.float16)
    layer(moved(tokens(dtype=torch.float32)), **moved_masks(MASKS["padding and causal"]))
    assert kernel[0]["attn_mask"].dtype == torch.bool


@pytest.mark.parametrize("spec", ["random", "factorized_random(rank=3)", "random+vanilla", "toeplitz(range=3)"])
def test_keys_far_below_those_that_are_padding(spec):
    """The quotient of two sums would underflow here: the keys that remain have logits 1000 below the highest."""
    masks = {"key_padding_mask": padding()}
    layer = make(spec, torch.float32)
    value = tokens(dtype=torch.float32)[..., : HEADS * HEAD_DIM].unflatten(-1, (HEADS, HEAD_DIM)).transpose(1, 2)
    drop = (1000.0 * torch.arange(LENGTH) / LENGTH).expand(HEADS, LENGTH, LENGTH).clone()
    drop[..., 0] = 2e4
    logits = Logits((Bias(drop),)) + layer.synthesizer(*[Tokens(tokens(dtype=torch.float32))] * 2)
    wanted = attend.attend(logits, value, Mask(~masks["key_padding_mask"]))
    on = Logits(
        tuple(
            type(t)(**{n: moved(f) if isinstance(f, Tensor) else f for n, f in vars(t).items()}) for t in logits.terms
        )
    )
    found = attend.attend(on, moved(value), Mask(moved(~masks["key_padding_mask"])))
    assert torch.allclose(values(found), wanted, atol=1e-4)


@pytest.mark.parametrize("spec", ["vanilla", "dense", "dense+vanilla", "factorized_random(rank=3)+vanilla"])
def test_sums_of_products_reach_the_kernel_without_a_mask_of_floats(spec, kernel):
    layer = move_module(make(spec, torch.bfloat16))
    for name in ("none", "causal", "padding and causal"):
        layer(moved(tokens(dtype=torch.bfloat16)), **moved_masks(MASKS[name]))
        call = kernel.pop()
        assert call["attn_mask"] is None
        assert call["is_causal"] == ("causal" in name)
    assert not kernel


@pytest.mark.parametrize("spec", ["random+vanilla", "random", "toeplitz(range=5)+vanilla"])
def test_padding_does_not_write_a_table_out_for_every_example(spec, kernel):
    layer = move_module(make(spec, torch.float32)).eval()
    with torch.no_grad():
        layer(moved(tokens(dtype=torch.float32)), **moved_masks(MASKS["padding and causal"]))
    assert [call["attn_mask"].stride(0) for call in kernel] == [0]


def test_a_large_bias_is_written_for_one_example_at_a_time(kernel, monkeypatch):
    small_chunks(monkeypatch)
    layer = move_module(make("random+vanilla", torch.float32))
    layer(moved(tokens(dtype=torch.float32))).sum().backward()
    assert [len(call["query"]) for call in kernel] == [1] * 2 * BATCH  # forward, and again in the backward pass


def test_a_mask_that_alone_needs_a_gradient_does_not_reach_the_kernel(kernel):
    """A kernel of CUDA reads memory that is not its own then."""
    layer = move_module(make("vanilla", torch.float32)).requires_grad_(False)
    mask = moved(torch.linspace(-1, 1, LENGTH**2).view(LENGTH, LENGTH)).requires_grad_()
    layer(moved(tokens(dtype=torch.float32)), attn_mask=mask).sum().backward()
    assert mask.grad is not None
    assert not kernel


def test_what_a_chunk_dropped_is_dropped_again_in_the_backward_pass(monkeypatch):
    """The result is linear in the values: its sum is the product of the values with their gradient."""
    small_chunks(monkeypatch)
    query, key, value = (torch.randn(BATCH, HEADS, LENGTH, HEAD_DIM, requires_grad=True) for _ in range(3))
    table = torch.randn(HEADS, LENGTH, LENGTH, requires_grad=True)
    y = sdpa_sums.attend(call_of(Logits((Product(query, key), Bias(table))), value, dropout=0.5))
    assert y is not None
    y.sum().backward()
    assert value.grad is not None
    assert torch.allclose((value * value.grad).sum(), y.sum(), atol=1e-4)


@pytest.mark.parametrize("mask", [Mask(), Mask(~padding(), causal=True)], ids=["full", "padding and causal"])
def test_gradients_of_gradients_are_those_of_the_plain_way(mask, monkeypatch):
    small_chunks(monkeypatch)
    shapes = (BATCH, HEADS, LENGTH, HEAD_DIM), (BATCH, HEADS, LENGTH, HEAD_DIM), (HEADS, LENGTH, LENGTH)
    query, value, table = inputs = [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in shapes]
    found = []
    for way in (sdpa_sums.attend, plain.attend_whole):
        y = way(call_of(Logits((Product(query, query.detach()), Bias(table))), value, mask))
        assert y is not None
        first = torch.autograd.grad(y.square().sum(), inputs, create_graph=True)
        found.append([y, *first, *torch.autograd.grad(torch.stack([g.square().sum() for g in first]).sum(), inputs)])
    for ours, theirs in zip(*found, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-9)


def test_reading_a_value_is_noticed():
    """Or the other tests could not fail."""
    x = moved(torch.ones(3))
    for read in (lambda: bool(x.any()), x.tolist, x.sum().item, lambda: x[x > 0], lambda: torch.equal(x, x)):
        with pytest.raises(ValueReadError):
            read()
    with pytest.raises(ValueReadError):
        x.to(torch.device("cpu"))


def test_tensors_of_two_devices_are_noticed():
    x = moved(torch.ones(3))
    with pytest.raises(DeviceMismatchError):
        x.add(torch.ones(3))
    assert (x + torch.ones(3, device=CUDA)).device == CUDA
