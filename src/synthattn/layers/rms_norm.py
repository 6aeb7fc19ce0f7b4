"""T5's norm, ``x / sqrt(mean(x^2) + eps) * weight``, in one operation where torch takes eight."""

import torch
from torch import Tensor, nn

from synthattn.engine.native import thin
from synthattn.shapes import Float


class RMSNorm(nn.RMSNorm):
    """``torch.nn.RMSNorm`` over the last axis; without gradients on the CPU by a kernel, where that was compiled."""

    def forward(self, x: Float[Tensor, "*axes width"]) -> Float[Tensor, "*axes width"]:
        eps = torch.finfo(torch.float32).eps if self.eps is None else self.eps
        made = thin.norm(x, self._parameters["weight"], eps) if x.shape[-1:] == self.normalized_shape else None
        return super().forward(x) if made is None else made
