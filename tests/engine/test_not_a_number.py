"""NaN reaches the same outputs and gradients on every backend as in the plain equations."""

import math
from functools import cache
from typing import Any

import pytest
import torch
from test_second_order import path
from torch import Tensor

from helpers import LENGTH, SPECS, make, needs_kernels, tokens
from synthattn import SyntheticAttention

PATHS = ["small", pytest.param("compiled", marks=needs_kernels), "chunks"]


def results(layer: SyntheticAttention, x: Tensor, **options: Any) -> dict[str, Tensor]:
    """Return the output in training and in evaluation, and the gradients of two sums of it."""
    x = x.clone().requires_grad_()
    y = layer(x, **options)
    named = {"x": x, **dict(layer.named_parameters())}
    found = {"output": y.detach()}
    for rows in (slice(None), slice(0, 3)):
        gradients = torch.autograd.grad(y[:, rows].sum(), list(named.values()), retain_graph=True, allow_unused=True)
        found |= {f"{n}, {rows}": g for n, g in zip(named, gradients, strict=True) if g is not None}
    with torch.no_grad():
        for attempt in range(2):  # the second one reads what the first one kept
            found[f"evaluation {attempt}"] = layer.eval()(x, **options)
    layer.train()
    return found


def nan_in(spec: str, place: str) -> tuple[SyntheticAttention, Tensor, dict[str, Any]]:
    """Return a layer, tokens and options with NaN in one place."""
    layer, x = make(spec, torch.float32), tokens(dtype=torch.float32)
    if place == "token":
        x[1, 4, 2] = math.nan
    elif place == "parameter":
        tables = [*layer.synthesizer.parameters(), *layer.synthesizer.buffers()]
        with torch.no_grad():
            max(tables, key=Tensor.numel).flatten()[1] = math.nan
    else:
        bias = torch.zeros(1, LENGTH, LENGTH)
        bias[0, 5] = math.nan
        return layer, x, {"position_bias": bias, "is_causal": place == "causal bias"}
    return layer, x, {}


@cache
def plain_results(spec: str, place: str) -> dict[str, Tensor]:
    """Compute once what every backend is compared with."""
    layer, x, options = nan_in(spec, place)
    return results(layer, x, plain=True, **options)


def assert_same_nan(spec: str, place: str) -> dict[str, Tensor]:
    """Compare with the plain equations: NaN in the same places, equal numbers elsewhere.

    In the gradients of windows and under a causal mask, NaN may be in other places: beside a row of NaN, what is masked
    in it is multiplied by zero on some paths, which leaves NaN, and is left out on others.
    """
    layer, x, options = nan_in(spec, place)
    ours, plain = results(layer, x, **options), plain_results(spec, place)
    exact = place != "causal bias" and "window" not in spec
    assert ours.keys() == plain.keys()
    assert any(part.isnan().any() for part in plain.values())
    for name, expected in plain.items():
        found, wanted = ours[name].isnan(), expected.isnan()
        assert found.any() == wanted.any(), name
        assert torch.equal(found, wanted) or not (exact or "output" in name or "evaluation" in name), name
        both = ~(found | wanted)
        torch.testing.assert_close(ours[name][both], expected[both], rtol=1e-3, atol=1e-3)
    return ours


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("place", ["bias", "causal bias"])
def test_a_row_of_nan_logits_is_nan_and_no_other_is(spec, name, place):
    with path(name):
        ours = assert_same_nan(spec, place)
    rows = torch.zeros(LENGTH, dtype=torch.bool)
    rows[5] = True
    for output in ("output", "evaluation 0", "evaluation 1"):
        assert torch.equal(ours[output].isnan(), rows[:, None].expand_as(ours[output]))


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("place", ["token", "parameter"])
def test_nan_in_a_token_or_a_parameter(spec, name, place):
    with path(name):
        assert_same_nan(spec, place)


@needs_kernels
def test_a_diverged_model_does_not_look_healthy():
    """The compiled kernel takes calls of this size. It once gave zeros for a row of NaN logits."""
    layer, x = make("random+vanilla", torch.float32, 160), tokens(160, dtype=torch.float32)
    with torch.no_grad():
        layer.synthesizer.get_parameter("terms.0.matrix")[:, 7] = math.nan
        assert layer.eval()(x)[:, 7].isnan().all()
        assert layer(x)[:, [6, 8]].isfinite().all()
