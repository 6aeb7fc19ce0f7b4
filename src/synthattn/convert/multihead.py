"""Replace ``torch.nn.MultiheadAttention`` inside a model by synthetic attention."""

from typing import Any

import torch
from torch import Tensor, nn

from synthattn.convert.attention_modules import AttentionModule
from synthattn.convert.plan import Plan
from synthattn.layers import SyntheticAttention
from synthattn.synthesizers.vanilla import VanillaSynthesizer
from synthattn.tracing import is_tracing, is_unreadable


class SyntheticMultiheadAttention(nn.Module):
    """A ``SyntheticAttention`` with the interface of ``torch.nn.MultiheadAttention``."""

    # torch.nn.TransformerEncoderLayer reads these to choose its fast path, which supports only dot products.
    _qkv_same_embed_dim = False
    in_proj_bias = None
    in_proj_weight = None

    original: tuple[type[nn.Module], dict[str, Any]]
    """The class and the state of the attention that was replaced."""

    def __init__(self, attention: SyntheticAttention, batch_first: bool) -> None:
        super().__init__()
        self.attention = attention
        self.batch_first = batch_first
        self.embed_dim, self.num_heads = attention.d_model, attention.num_heads

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend, with the arguments and results of torch's layer. Keys and values must be the same tensor."""
        if not _same(key, value):
            raise ValueError("synthetic attention projects one memory: key and value must be the same tensor")
        if is_causal and attn_mask is None:
            raise ValueError("is_causal=True needs attn_mask, as in torch.nn.MultiheadAttention")
        batched = query.dim() == 3
        memory = None if _same(key, query) else self._batch_first(key, batched)
        x = self._batch_first(query, batched)
        padding, bias = _padding(key_padding_mask, batched)
        mask = None if is_causal else attn_mask
        if bias is not None:
            mask = _add_key_bias(mask, bias, x.shape[0], self.num_heads, x.shape[1])
        y, weights = self._attend(x, memory, padding, mask, is_causal, need_weights)
        if weights is not None:
            weights = weights.mean(1) if average_attn_weights else weights
            weights = weights if batched else weights.squeeze(0)
        if not batched:
            return y.squeeze(0), weights
        return (y if self.batch_first else y.transpose(0, 1)), weights

    def _attend(
        self,
        x: Tensor,
        memory: Tensor | None,
        padding: Tensor | None,
        mask: Tensor | None,
        is_causal: bool,
        need_weights: bool,
    ) -> tuple[Tensor, Tensor | None]:
        if need_weights:
            return self.attention(
                x, memory, key_padding_mask=padding, attn_mask=mask, is_causal=is_causal, need_weights=True
            )
        return self.attention(x, memory, key_padding_mask=padding, attn_mask=mask, is_causal=is_causal), None

    def _batch_first(self, tokens: Tensor, batched: bool) -> Tensor:
        if not batched:
            return tokens.unsqueeze(0)
        return tokens if self.batch_first else tokens.transpose(0, 1)


def _same(a: Tensor, b: Tensor) -> bool:
    """Return True if two tensors are the same object, or equal views of the same memory."""
    if a is b or is_tracing(a):
        return a is b
    same_memory = a.data_ptr() == b.data_ptr() and a.shape == b.shape and a.stride() == b.stride()
    # Two views of one tensor share its gradient; a detached tensor does not.
    return same_memory and a._base is b._base is not None and a.requires_grad == b.requires_grad


def _padding(mask: Tensor | None, batched: bool) -> tuple[Tensor | None, Tensor | None]:
    """Split a padding mask, bool or float, into keys to ignore and a bias for the other keys."""
    if mask is None:
        return None, None
    mask = mask if batched else mask.unsqueeze(0)
    if mask.dtype == torch.bool:
        return mask, None
    ignored = mask == float("-inf")
    rest = mask.masked_fill(ignored, 0.0)
    # torch's layers turn bool masks into zeros and minus infinities, which leave no bias.
    return ignored, rest if mask.requires_grad or is_unreadable(mask) or bool(rest.any()) else None


def _add_key_bias(mask: Tensor | None, bias: Tensor, batch: int, heads: int, q: int) -> Tensor:
    bias = bias[:, None, None, :].expand(batch, heads, q, -1)
    if mask is None:
        return bias
    mask = mask.view(batch, heads, q, -1) if mask.dim() == 3 else mask
    return bias.masked_fill(mask, float("-inf")) if mask.dtype == torch.bool else bias + mask


def self_attentions(model: nn.Module) -> list[AttentionModule]:
    """Return every ``torch.nn.MultiheadAttention`` that is not a decoder's attention to the encoder, in order."""
    cross = {id(part) for _, part in cross_attentions(model)}
    return [
        AttentionModule(path, part, _obstacle(part))
        for path, part in model.named_modules()
        if isinstance(part, nn.MultiheadAttention | SyntheticMultiheadAttention) and id(part) not in cross
    ]


def cross_attentions(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return the attention to the encoder of every ``torch.nn.TransformerDecoderLayer``."""
    cross = {id(part.multihead_attn) for part in model.modules() if isinstance(part, nn.TransformerDecoderLayer)}
    return [(path, part) for path, part in model.named_modules() if id(part) in cross]


def install(old: nn.Module, new: SyntheticMultiheadAttention) -> None:
    """Turn an attention into its replacement. The object stays, so that every module that holds it sees the change."""
    original = (type(old), dict(old.__dict__))
    object.__setattr__(old, "__class__", SyntheticMultiheadAttention)
    old.__dict__.clear()
    old.__dict__.update(new.__dict__, original=original)


def uninstall(layer: nn.Module) -> None:
    """Turn a replaced attention into the original again, with the weights that it had."""
    assert isinstance(layer, SyntheticMultiheadAttention)
    kind, state = layer.original
    weight, training = layer.attention.value.weight, layer.training
    object.__setattr__(layer, "__class__", kind)
    layer.__dict__.clear()
    layer.__dict__.update(state)
    layer.to(weight.device, weight.dtype).train(training)


def is_installed(module: nn.Module) -> bool:
    """Return True if the module replaces a ``torch.nn.MultiheadAttention``."""
    return isinstance(module, SyntheticMultiheadAttention)


def disable_fast_path(model: nn.Module) -> None:
    """Keep ``torch.nn.TransformerEncoder`` from making nested tensors, which only dot products take."""
    for part in model.modules():
        if isinstance(part, nn.TransformerEncoder):
            part.use_nested_tensor = False


def _obstacle(layer: nn.Module) -> str | None:
    if isinstance(layer, SyntheticMultiheadAttention):
        return "replaced already"
    assert isinstance(layer, nn.MultiheadAttention)
    if type(layer) is not nn.MultiheadAttention:
        return f"a {type(layer).__name__}, which may compute something else"
    if not layer._qkv_same_embed_dim:
        return f"keys of width {layer.kdim} and values of width {layer.vdim}"
    if layer.bias_k is not None:
        return "add_bias_kv=True"
    if layer.add_zero_attn:
        return "add_zero_attn=True"
    return None


def build(old: nn.MultiheadAttention, plan: Plan) -> SyntheticMultiheadAttention:
    """Build the replacement of an attention, with its weights."""
    weight = old.in_proj_weight
    layer = SyntheticAttention(
        old.embed_dim,
        old.num_heads,
        plan.attention,
        plan.max_length,
        old.dropout,
        bias=old.in_proj_bias is not None,
        mix=plan.mix,
        device=weight.device,
        dtype=weight.dtype,
    )
    w_q, w_k, w_v = weight.detach().chunk(3)
    b_q, b_k, b_v = (None,) * 3 if old.in_proj_bias is None else old.in_proj_bias.detach().chunk(3)
    trainable = weight.requires_grad
    _copy(layer.value, w_v, b_v, trainable)
    out = old.out_proj
    out_bias = None if out.bias is None else out.bias.detach()
    _copy(layer.output, out.weight.detach(), out_bias, out.weight.requires_grad)
    for part in layer.synthesizer.modules():
        if isinstance(part, VanillaSynthesizer):
            _copy(part.query, w_q, b_q, trainable)
            _copy(part.key, w_k, b_k, trainable)
    return SyntheticMultiheadAttention(layer, old.batch_first).train(old.training)


def _copy(projection: nn.Linear, weight: Tensor, bias: Tensor | None, trainable: bool) -> None:
    with torch.no_grad():
        projection.weight.copy_(weight)
        if bias is not None:
            projection.bias.copy_(bias)
    projection.requires_grad_(trainable)
