"""The common base of lightweight and dynamic convolutions."""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from synthattn.engine.projection import merge_heads, project, split_heads
from synthattn.layers.checks import check_tokens
from synthattn.layers.token_mixer import ProjectedMemory, TokenLayout, TokenMixer
from synthattn.masks import from_torch
from synthattn.shapes import Bool, Float
from synthattn.synthesizers.base import Resize


class Convolution(TokenMixer):
    """``Y = conv(GLU(X W_I)) W_O``: each head has one kernel, a softmax over its width, shared by its channels.

    Wu et al. 2019, "Pay Less Attention with Lightweight and Dynamic Convolutions". The window is centred on the
    token, or ends at it where the layer is causal. What lies outside of the sequence or on padding is zero and keeps
    its share of the kernel, as in the paper. A window counts tokens, so positions have no effect. There are no logits
    to mask or to add to: ``attn_mask`` and ``position_bias`` are refused. The rows of the weights sum to less than one
    where a window reaches outside of the sequence or into padding.

    Args:
        d_model: width of the input and the output.
        num_heads: number of kernels; each serves ``d_model / num_heads`` channels.
        kernel: how many tokens a window holds, an odd number.
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
        for projection in (self.input, self.output):
            nn.init.xavier_uniform_(projection.weight)
            if projection.bias is not None:
                nn.init.zeros_(projection.bias)

    def logits(self, queries: Float[Tensor, "batch heads q dim"]) -> Float[Tensor, "#batch heads #q kernel"]:
        """Return the kernels before the softmax, the tap furthest back first."""
        raise NotImplementedError

    def convolve(
        self, weights: Float[Tensor, "#batch heads #q kernel"], reach: Float[Tensor, "batch heads n dim"]
    ) -> Float[Tensor, "batch heads q dim"]:
        """Return what ``convolve`` of this module returns, faster."""
        raise NotImplementedError

    def mix_tokens(
        self,
        x: Float[Tensor, "batch q d_model"],
        memory: Float[Tensor, "batch k d_model"] | ProjectedMemory | None,
        layout: TokenLayout,
        position_bias: Tensor | None,
        plain: bool,
        need_weights: bool,
    ) -> Any:
        """Convolve ``x``. The arguments are those of ``forward``.

        For decoding, ``memory`` is the result of ``project_memory`` for all tokens so far, those of ``x`` included.
        """
        if layout.attn_mask is not None:
            raise ValueError(f"{self.name} takes no attn_mask; use key_padding_mask or is_causal")
        if position_bias is not None:
            raise ValueError(f"{self.name} has no logits to add position_bias to; leave it out")
        offset, values = layout.offset, self._values(x, memory, layout.offset)
        batch, q, k = x.shape[0], x.shape[1], values.shape[2]
        mask, _ = from_torch(layout.key_padding_mask, None, False, batch, self.num_heads, q, k)
        before = self.kernel - 1 if layout.is_causal else self.kernel // 2

        reach = self._reach(values, mask.keep, offset - before, q)
        logits = self.logits(reach[:, :, before : before + q])
        # Half precision has too few digits for a softmax.
        weights = logits.softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32)).to(reach.dtype)
        dropped = F.dropout(weights, self.weight_dropout, self.training)
        heads = convolve(dropped, reach) if plain else self.convolve(dropped, reach)
        y = merge_heads(heads, self.output)
        return (y, self._matrix(weights.expand(batch, -1, q, -1), mask.keep, offset - before, k)) if need_weights else y

    def project_memory(self, memory: Float[Tensor, "batch k d_model"]) -> ProjectedMemory:
        """Return ``GLU(X W_I)``, all that later windows need of the tokens; ``forward`` takes it as its ``memory``."""
        check_tokens("memory", memory, self.d_model)
        return ProjectedMemory(None, split_heads(F.glu(project(self.input, memory)), self.num_heads))

    def resize_max_length(self, max_length: int, how: Resize = "pad") -> None:
        """Do nothing: the layer takes inputs of any length."""

    def _values(
        self, x: Tensor, memory: Tensor | ProjectedMemory | None, offset: int
    ) -> Float[Tensor, "batch heads k dim"]:
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

    def _reach(
        self, values: Float[Tensor, "batch heads k dim"], keep: Bool[Tensor, "batch k"] | None, start: int, q: int
    ) -> Float[Tensor, "batch heads n dim"]:
        """Return the values that the windows of q neighbouring tokens touch, from ``start`` on; zero where nothing is.

        Earlier values are left out, so that a step of decoding does not take longer the more was decoded.
        """
        low = max(start, 0)
        reach = values[:, :, low:]
        if keep is not None:
            reach = reach.masked_fill(~keep[:, None, low:, None], 0.0)
        # A negative number cuts off what comes after the last window. Heads stay side by side in memory, where
        # merging them is free.
        missing = (low - start, start + q + self.kernel - 1 - values.shape[2])
        return F.pad(reach.transpose(1, 2), (0, 0, 0, 0, *missing)).transpose(1, 2)

    def _matrix(
        self,
        weights: Float[Tensor, "batch heads q kernel"],
        keep: Bool[Tensor, "batch k"] | None,
        start: int,
        k: int,
    ) -> Float[Tensor, "batch heads q k"]:
        """Return the kernels as rows of a matrix, zero outside of the window and on padding."""
        q, kernel = weights.shape[-2:]
        taps = torch.arange(q, device=weights.device)[:, None] + torch.arange(kernel, device=weights.device) + start
        inside = weights * ((taps >= 0) & (taps < k))
        matrix = weights.new_zeros(*weights.shape[:3], k)
        matrix = matrix.scatter_add(-1, taps.clamp(0, k - 1).expand(inside.shape), inside)
        return matrix if keep is None else matrix * keep[:, None, None]

    def extra_repr(self) -> str:
        return f"d_model={self.d_model}, num_heads={self.num_heads}, kernel={self.kernel}"


def convolve(
    weights: Float[Tensor, "#batch heads #q kernel"], reach: Float[Tensor, "batch heads n dim"]
) -> Float[Tensor, "batch heads q dim"]:
    """Return ``y[i] = sum over c of weights[i, c] * reach[i + c]``."""
    windows = reach.unfold(-2, weights.shape[-1], 1)
    return (weights.unsqueeze(-2) * windows).sum(-1)
