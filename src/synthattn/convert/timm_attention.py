"""Replace the ``Attention`` of timm's vision transformers. timm itself is never imported."""

import inspect
from typing import Any

from torch import Tensor, nn

from synthattn.convert.attention_modules import AttentionModule, is_timm_attention, projection_obstacle
from synthattn.convert.interface import attention


class TimmAttention(nn.Module):
    """The ``forward`` of timm's ``Attention`` with other logits: the class of a replaced one.

    Modules and parameters are timm's, with the names that they had.
    """

    def forward(self: Any, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        if is_causal and attn_mask is not None:
            raise ValueError("give attn_mask or is_causal=True, not both, as in timm's Attention")
        q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, self.head_dim)).permute(2, 0, 3, 1, 4)
        mask = None if attn_mask is None else attn_mask[(None,) * (4 - attn_mask.dim())]
        dropout = self.attn_drop.p if self.training else 0.0
        given = self.q_norm(q), self.k_norm(k), v, mask, dropout, self.scale, is_causal
        y = attention(self, *given, synthattn_tokens=x)[0].flatten(2)
        y = self.norm(y)
        y = y if self.gate is None else y * self.gate(x).sigmoid()
        return self.proj_drop(self.proj(y))


def self_attentions(model: nn.Module) -> list[AttentionModule]:
    """Return every ``Attention`` of timm in a model, in order."""
    drops = any(type(part).__name__.startswith("PatchDropout") for part in model.modules())
    return [
        AttentionModule(path, part, "replaced already" if type(part) is TimmAttention else _obstacle(part, drops))
        for path, part in model.named_modules()
        if is_timm_attention(part)
    ]


def _obstacle(module: nn.Module, drops: bool) -> str | None:
    if drops:
        return "patch_drop_rate leaves out tokens, so that the others change their places"
    arguments = list(inspect.signature(module.forward).parameters)
    if arguments != ["x", "attn_mask", "is_causal"] or not hasattr(module, "gate"):
        return f"its forward takes {', '.join(arguments)}, which is that of another release of timm"
    return projection_obstacle(module, "qkv")
