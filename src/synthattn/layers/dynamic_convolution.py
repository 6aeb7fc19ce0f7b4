"""Dynamic convolution: every token computes the kernels for its own window."""

import torch.nn.functional as F
from torch import Tensor, nn

from synthattn.engine import windowed
from synthattn.engine.projection import project, split_heads
from synthattn.layers.convolution import Convolution, convolve
from synthattn.shapes import Float


class DynamicConvolution(Convolution):
    """``query`` is the paper's W^Q. It maps ``GLU(X W_I)`` of a token to the logits of one kernel per head."""

    name = "dynamicconv"

    def __init__(
        self, d_model: int, num_heads: int, kernel: int, weight_dropout: float = 0.0, *, bias: bool = True
    ) -> None:
        super().__init__(d_model, num_heads, kernel, weight_dropout, bias=bias)
        self.query = nn.Linear(d_model, num_heads * kernel, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        nn.init.xavier_uniform_(self.query.weight)

    def logits(self, queries: Float[Tensor, "batch heads q width"]) -> Float[Tensor, "batch heads q kernel"]:
        return split_heads(project(self.query, queries.transpose(1, 2).flatten(2)), self.num_heads)

    def convolve(
        self, weights: Float[Tensor, "batch heads q kernel"], padded: Float[Tensor, "batch heads padded width"]
    ) -> Float[Tensor, "batch heads q width"]:
        """Multiply by a band matrix of weights, or directly for the single token of a decoding step."""
        q, half = weights.shape[2], self.kernel // 2
        if q == 1:
            return convolve(weights, padded)
        # The band is as long as its values, so rows without a window get weights of zero.
        return windowed.multiply(F.pad(weights, (0, 0, half, half)), padded)[:, :, half : half + q]
