"""Lightweight convolution: one learned kernel per head for all tokens."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from synthattn.layers.convolution import Convolution
from synthattn.shapes import Float


class LightConvolution(Convolution):
    """``weight`` is the paper's W, the logits of one kernel per head."""

    name = "lightconv"

    def __init__(
        self, d_model: int, num_heads: int, kernel: int, weight_dropout: float = 0.0, *, bias: bool = True
    ) -> None:
        super().__init__(d_model, num_heads, kernel, weight_dropout, bias=bias)
        self.weight = nn.Parameter(torch.empty(num_heads, kernel))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        nn.init.xavier_uniform_(self.weight)

    def logits(self, queries: Float[Tensor, "batch heads q width"]) -> Float[Tensor, "1 heads 1 kernel"]:
        return self.weight[None, :, None]

    def convolve(
        self, weights: Float[Tensor, "1 heads 1 kernel"], padded: Float[Tensor, "batch heads padded width"]
    ) -> Float[Tensor, "batch heads q width"]:
        """Convolve by a depthwise conv2d of an image one pixel wide, channels last.

        Forward and backward on a CPU, this takes a third to half of the time of conv1d.
        """
        image = padded.transpose(1, 2).flatten(2).mT.unsqueeze(-1)
        kernels = weights.view(self.num_heads, 1, -1, 1).repeat_interleave(padded.shape[-1], 0)
        mixed = F.conv2d(image, kernels, groups=self.d_model)
        return mixed.squeeze(-1).unflatten(1, (self.num_heads, -1)).mT
