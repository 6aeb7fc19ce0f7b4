"""The base class of lightweight and dynamic convolutions."""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from synthattn.engine.projection import merge_heads, project, split_heads
from synthattn.layers.checks import check_tokens
from synthattn.layers.token_mixer import ProjectedMemory, TokenLayout, TokenMixer
from synthattn.masks import from_torch
from synthattn.shapes import Bool, Float
from synthattn.synthesizers.base import Resize, reset_linear


class Convolution(TokenMixer):
    """``Y = conv(GLU(X W_I)) W_O``: each head has one kernel, a softmax over its width, shared by its channels.

    Wu et al. 2019, "Pay Less Attention with Lightweight and Dynamic Convolutions". The window is centred on the
    token, or ends at it if the layer is causal. Tokens outside of the sequence and padding count as zeros and keep
    their weights, as in the paper; the weights of the other tokens then sum to less than one. A window counts tokens,
    so positions have no effect. ``attn_mask`` and ``position_bias`` are refused: there are no logits for each key.

    Args:
        d_model: width of the input and the output.
        num_heads: number of kernels; each serves ``d_model / num_heads`` channels.
        kernel: number of tokens in a window, odd.
        weight_dropout: probability of dropping an entry of the normalised kernel while training (DropConnect).
        bias: whether the input and output projections have biases.
    """

    name: ClassVar[str]
    max_length: int | None = None

    def __init__(
        self, d_model: int, num_heads: int, kernel: int, weight_dropout: float = 0.0, *, bias: bool = True
    ) -> None:
        super().__init__()
        for name, number in (("d_model", d_model), ("num_heads", num_heads)):
            if number < 1:
                raise ValueError(f"{name} must be at least 1, got {number}")
        if d_model % num_heads:
            raise ValueError(f"num_heads={num_heads} does not divide d_model={d_model}; choose another number")
        if kernel < 1 or kernel % 2 == 0:
            raise ValueError(f"kernel must be a positive odd number, got {kernel}")
        if not 0.0 <= weight_dropout < 1.0:
            raise ValueError(f"weight_dropout must be at least 0 and below 1, got {weight_dropout}")
        self.d_model, self.num_heads, self.kernel, self.weight_dropout = d_model, num_heads, kernel, weight_dropout
        self.value_width = d_model // num_heads
        self.input = nn.Linear(d_model, 2 * d_model, bias=bias)
        self.output = nn.Linear(d_model, d_model, bias=bias)

    def reset_parameters(self) -> None:
        reset_linear(self.input, self.output)

    def logits(self, queries: Float[Tensor, "batch heads q width"]) -> Float[Tensor, "#batch heads #q kernel"]:
        """Return the kernels before the softmax. Their first entry is for the earliest token."""
        raise NotImplementedError

    def convolve(
        self, weights: Float[Tensor, "#batch heads #q kernel"], padded: Float[Tensor, "batch heads padded width"]
    ) -> Float[Tensor, "batch heads q width"]:
        """Return ``y[i] = sum over c of weights[i, c] * padded[i + c]``."""
        raise NotImplementedError

    def mix_tokens(
        self,
        x: Tensor,
        memory: Tensor | ProjectedMemory | None,
        layout: TokenLayout,
        position_bias: Tensor | None,
        plain: bool,
        need_weights: bool,
    ) -> Any:
        """Convolve ``x``. In decoding, ``memory`` is ``project_memory`` of all tokens so far, including ``x``."""
        if layout.attn_mask is not None:
            raise ValueError(f"{self.name} takes no attn_mask; use key_padding_mask or is_causal")
        if position_bias is not None:
            raise ValueError(f"{self.name} has no logits to add position_bias to; leave it out")
        offset, values = layout.offset, self._values(x, memory, layout.offset)
        batch, q, k = x.shape[0], x.shape[1], values.shape[2]
        mask, _ = from_torch(layout.key_padding_mask, None, False, (batch, self.num_heads, q, k))
        before = self.kernel - 1 if layout.is_causal else self.kernel // 2

        padded = self._padded_values(values, mask.unpadded, offset - before, q)
        logits = self.logits(padded[:, :, before : before + q])
        # In half precision, the sum of a softmax is too inaccurate.
        weights = logits.softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32)).to(padded.dtype)
        dropped = F.dropout(weights, self.weight_dropout, self.training)
        heads = convolve(dropped, padded) if plain else self.convolve(dropped, padded)
        y = merge_heads(heads, self.output)
        return (
            (y, self._matrix(weights.expand(batch, -1, q, -1), mask.unpadded, offset - before, k))
            if need_weights
            else y
        )

    def project_memory(self, memory: Float[Tensor, "batch k d_model"]) -> ProjectedMemory:
        """Return ``GLU(X W_I)``. In decoding, ``forward`` takes it as its ``memory``."""
        check_tokens("memory", memory, self.d_model)
        return ProjectedMemory(None, split_heads(F.glu(project(self.input, memory)), self.num_heads))

    def resize_max_length(self, max_length: int, how: Resize = "pad") -> None:
        """Do nothing, because the layer takes inputs of any length."""

    def _values(
        self, x: Tensor, memory: Tensor | ProjectedMemory | None, offset: int
    ) -> Float[Tensor, "batch heads k width"]:
        if memory is None:
            return self.project_memory(x).values
        if isinstance(memory, Tensor):
            raise ValueError(f"{self.name} convolves x itself, it cannot attend to a memory; use vanilla for that")
        if offset + x.shape[1] > memory.values.shape[2]:
            raise ValueError(
                f"memory has {memory.values.shape[2]} tokens, offset={offset} and the {x.shape[1]} tokens of x need "
                f"{offset + x.shape[1]}; project x too"
            )
        return memory.values

    def _padded_values(
        self, values: Float[Tensor, "batch heads k width"], unpadded: Bool[Tensor, "batch k"] | None, start: int, q: int
    ) -> Float[Tensor, "batch heads padded width"]:
        """Return the values in the windows of q tokens, from ``start`` on, with zeros outside of the sequence.

        Earlier values are left out, so that every step of decoding takes the same time.
        """
        first = max(start, 0)
        padded = values[:, :, first:]
        if unpadded is not None:
            padded = padded.masked_fill(~unpadded[:, None, first:, None], 0.0)
        # A negative number cuts off the values after the last window. With the heads of a token side by side in
        # memory, merging them is free.
        missing = (first - start, start + q + self.kernel - 1 - values.shape[2])
        return F.pad(padded.transpose(1, 2), (0, 0, 0, 0, *missing)).transpose(1, 2)

    def _matrix(
        self,
        weights: Float[Tensor, "batch heads q kernel"],
        unpadded: Bool[Tensor, "batch k"] | None,
        start: int,
        k: int,
    ) -> Float[Tensor, "batch heads q k"]:
        """Return the kernels as rows of a matrix, with zeros outside of the window and on padding."""
        q, kernel = weights.shape[-2:]
        taps = torch.arange(q, device=weights.device)[:, None] + torch.arange(kernel, device=weights.device) + start
        inside = weights * ((taps >= 0) & (taps < k))
        matrix = weights.new_zeros(*weights.shape[:3], k)
        matrix = matrix.scatter_add(-1, taps.clamp(0, k - 1).expand(inside.shape), inside)
        return matrix if unpadded is None else matrix * unpadded[:, None, None]

    def extra_repr(self) -> str:
        return f"d_model={self.d_model}, num_heads={self.num_heads}, kernel={self.kernel}"


def convolve(
    weights: Float[Tensor, "#batch heads #q kernel"], padded: Float[Tensor, "batch heads padded width"]
) -> Float[Tensor, "batch heads q width"]:
    """Return ``y[i] = sum over c of weights[i, c] * padded[i + c]``."""
    windows = padded.unfold(-2, weights.shape[-1], 1)
    return (weights.unsqueeze(-2) * windows).sum(-1)
