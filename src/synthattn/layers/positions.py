"""Position embeddings: sinusoids and learned vectors."""

import functools
import math

import torch
from torch import Tensor, nn

from synthattn.shapes import Float, Int
from synthattn.synthesizers.base import Resize, check_later, last_position
from synthattn.synthesizers.tables import replace_data, resized
from synthattn.tracing import is_tracing, is_unreadable


def sinusoid(at: Int[Tensor, "*axes"], width: int, dtype: torch.dtype) -> Float[Tensor, "*axes width"]:
    """Return sines, then cosines, of wavelengths from 2 pi to 20,000 pi, in the order of Tensor2Tensor."""
    half = width // 2
    # Half precision has too few digits for the angles of far positions.
    precise = torch.promote_types(dtype, torch.float32)
    compute = _frequencies if torch.is_grad_enabled() or is_tracing(at) else _kept_frequencies
    angles = at.unsqueeze(-1) * compute(half, precise, at.device)
    signal = torch.cat([angles.sin(), angles.cos()], dim=-1).to(dtype)
    return nn.functional.pad(signal, (0, 1)) if width % 2 else signal


def _frequencies(half: int, dtype: torch.dtype, device: torch.device) -> Float[Tensor, " half"]:
    steps = torch.arange(half, dtype=dtype, device=device) / max(half - 1, 1)
    return torch.exp(steps * -math.log(10_000.0))


@functools.lru_cache(maxsize=8)
def _kept_frequencies(half: int, dtype: torch.dtype, device: torch.device) -> Float[Tensor, " half"]:
    """Keep the frequencies, which every step of generation needs."""
    with torch.inference_mode(False):  # a tensor of inference mode could not take part in training later
        return _frequencies(half, dtype, device)


class SinusoidalPositions(nn.Module):
    """Sinusoids, computed in every call: ``from_pretrained`` leaves a buffer that is not saved empty."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.d_model = d_model

    def forward(self, at: Int[Tensor, "*axes"], dtype: torch.dtype) -> Float[Tensor, "*axes d_model"]:
        return sinusoid(at, self.d_model, dtype)


class LearnedPositions(nn.Module):
    """A learned vector for each position."""

    def __init__(self, d_model: int, max_length: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(max_length, d_model))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.table)

    def forward(self, at: Int[Tensor, "*axes"], dtype: torch.dtype) -> Float[Tensor, "*axes d_model"]:
        if is_unreadable(at):
            check_later("learned positions", at, len(self.table))
        elif (last := last_position(at)) >= len(self.table):
            raise ValueError(
                f"input has {last + 1} positions, learned positions were built for {len(self.table)}; "
                f"shorten the input or call resize_max_length({last + 1})"
            )
        return self.table[at].to(dtype)

    def resize_max_length(self, max_length: int, how: Resize = "pad") -> None:
        """Change the number of positions and keep what was learned."""
        new = torch.randn(1, max_length, self.table.shape[1])
        with torch.no_grad():
            self.table = replace_data(self.table, resized(self.table[None], max_length, how, new)[0])
