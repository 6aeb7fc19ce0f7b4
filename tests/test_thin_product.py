"""The transposed product is the product, and is left alone wherever something else is meant by the projection."""

import pytest
import torch
from synthattn.layers.thin_product import project
from torch import nn

from synthattn.layers import thin_product


@pytest.fixture(autouse=True)
def everywhere(monkeypatch):
    """On any machine, and for small matrices."""
    monkeypatch.setattr(thin_product, "MEASURED_FOR", True)
    monkeypatch.setattr(thin_product, "LEAST_SIZE", 1)
    monkeypatch.setattr(thin_product, "LEAST_WIDTH", 1)


def transposed(y: torch.Tensor, projection: nn.Linear, x: torch.Tensor) -> bool:
    """Whether nobody called the projection itself."""
    calls = []
    handle = nn.modules.module.register_module_forward_hook(lambda *args: calls.append(args[0]))
    try:
        assert torch.equal(project(projection, x), y)
    finally:
        handle.remove()
    return not calls


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("batch", "length"), [(7, 1), (8, 1), (3, 5), (15, 1), (2, 8)])
def test_equals_the_projection(bias, batch, length):
    projection, x = nn.Linear(13, 29, bias=bias), torch.randn(batch, length, 13)
    with torch.no_grad():
        y = project(projection, x)
        torch.testing.assert_close(y, projection(x), rtol=0, atol=1e-6)
        assert transposed(y, projection, x) == (8 <= batch * length <= 15)
    assert y.is_contiguous()


def hooked(projection, x):
    projection.register_forward_hook(lambda module, inputs, output: output + 1)
    return projection, x


def in_double(projection, x):
    return projection.double(), x.double()


def adapted(projection, x):
    return nn.Sequential(projection, nn.ReLU()), x


@pytest.mark.parametrize("change", [hooked, in_double, adapted])
def test_what_is_no_plain_projection_is_called(change):
    projection, x = change(nn.Linear(13, 29), torch.randn(11, 1, 13))
    with torch.no_grad():
        y = project(projection, x)
        assert torch.equal(y, projection(x))
        assert not transposed(y, projection, x)


def test_gradients_flow():
    projection, x = nn.Linear(13, 29), torch.randn(11, 1, 13, requires_grad=True)
    project(projection, x).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, projection.weight.sum(0).expand(11, 1, -1))
