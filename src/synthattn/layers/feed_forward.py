"""The feed-forward part of a Transformer layer, plain or gated."""

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from synthattn.engine.projection import project
from synthattn.shapes import Float

Activation = Literal["relu", "gelu", "silu", "gated-relu", "gated-gelu", "gated-silu"]

FUNCTIONS = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}


def drop(dropout: nn.Dropout, x: Tensor) -> Tensor:
    """Return ``dropout(x)``; in evaluation without a call, of which a step of generation would make a dozen."""
    return dropout(x) if dropout.training else x


class FeedForward(nn.Module):
    """The layer ``W_2 f(W_1 x)``, or gated ``W_2 (f(W_1 x) * W_g x)`` (Shazeer 2020)."""

    def __init__(self, d_model: int, d_ff: int, activation: Activation, dropout: float, bias: bool) -> None:
        super().__init__()
        self.up = nn.Linear(d_model, d_ff, bias=bias)
        self.gate = nn.Linear(d_model, d_ff, bias=bias) if activation.startswith("gated-") else None
        self.down = nn.Linear(d_ff, d_model, bias=bias)
        self.function = FUNCTIONS[activation.removeprefix("gated-")]
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "batch length d_model"]) -> Float[Tensor, "batch length d_model"]:
        hidden = self.function(project(self.up, x))
        if self.gate is not None:
            hidden = hidden * project(self.gate, x)
        return project(self.down, drop(self.dropout, hidden))
