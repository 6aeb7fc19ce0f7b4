"""The logits of a few tokens, as in every step of decoding: a few rows times the largest matrix of the model."""

import torch
from torch import Tensor, nn

from synthattn.shapes import Float
from synthattn.synthesizers.base import is_plain_linear
from synthattn.tracing import traced

# For so few rows of such a width, and a matrix for some thousands of tokens, MKL is faster with the matrix as the left
# factor: the more rows, the more, up to twice as fast. With other sizes it is not, or it is slower.
ROWS, LEAST_WIDTH, LEAST_SIZE = range(8, 16), 512, 2**21
MEASURED_FOR = torch.backends.mkl.is_available() and torch.backends.cpu.get_cpu_capability() == "AVX512"


def project(projection: nn.Module, x: Float[Tensor, "batch length width"]) -> Float[Tensor, "batch length features"]:
    """``projection(x)``, by way of the transposed product where that is faster."""
    if torch.is_grad_enabled() or x.shape[0] * x.shape[1] not in ROWS or not _applies(projection, x):
        return projection(x)
    assert isinstance(projection, nn.Linear)
    y = (projection.weight @ x.reshape(-1, x.shape[-1]).t()).t().contiguous()
    y = y if projection.bias is None else y.add_(projection.bias)
    return y.view(*x.shape[:-1], -1)


def _applies(projection: nn.Module, x: Tensor) -> bool:
    return (
        MEASURED_FOR
        and is_plain_linear(projection)
        and type(projection.weight) is nn.Parameter
        and projection.weight.numel() >= LEAST_SIZE
        and x.shape[-1] >= LEAST_WIDTH
        and projection.weight.dtype == x.dtype == torch.float32
        and projection.weight.device.type == x.device.type == "cpu"
        and not torch.is_autocast_enabled("cpu")
        and not traced(x)
    )
