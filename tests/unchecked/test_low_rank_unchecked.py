"""Low-rank inference as users have it: without checks of types, and in a traced graph."""

import pytest
import torch

from synthattn import SyntheticAttention, compress


def averaging() -> SyntheticAttention:
    """All weights are equal: rank one."""
    layer = SyntheticAttention(12, 3, "random", 31).eval()
    with torch.no_grad():
        layer.synthesizer.get_parameter("matrix").zero_()
    return layer


@pytest.mark.parametrize("error", ["1e-3", True, (1e-3,), 1, 0])
def test_errors_that_are_no_numbers(error):
    with pytest.raises(ValueError, match="error must be") as caught:
        compress(averaging(), error)
    assert str(caught.value) == (
        f"error must be a number between 0 and 1, or None to turn low-rank inference off, got {error!r}"
    )


def test_a_traced_graph_is_exact():
    layer, x = averaging(), torch.randn(2, 31, 12)
    assert compress(layer)[0].ranks == (1, 1, 1)
    with torch.no_grad():
        expected = layer(x, plain=True)
        torch.testing.assert_close(torch.compile(layer, backend="eager", fullgraph=True)(x), expected)
        program = torch.export.export(layer, (x,))
        torch.testing.assert_close(program.module()(x), expected)
