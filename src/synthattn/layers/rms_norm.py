"""T5's norm, ``x / sqrt(mean(x^2) + eps) * weight``, in one operation where torch takes eight."""

import torch
from torch import Tensor, nn

from synthattn.native import thin
from synthattn.shapes import Float


class RMSNorm(nn.RMSNorm):
    """``torch.nn.RMSNorm`` over the last axis; without gradients on the CPU by a kernel, where that was compiled."""

    def forward(self, x: Float[Tensor, "*axes width"]) -> Float[Tensor, "*axes width"]:
        weight = self._parameters["weight"]
        if not thin.takes(x, weight) or x.shape[-1:] != self.normalized_shape:
            return super().forward(x)
        eps = torch.finfo(x.dtype).eps if self.eps is None else self.eps
        return (thin.RMS_NORM if thin.watched() else thin.rms_norm)(x, weight, eps)
