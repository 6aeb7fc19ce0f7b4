"""Replace ``torch.nn.MultiheadAttention`` inside a model by synthetic attention."""

import torch
from torch import Tensor, nn

from synthattn.layers import SyntheticAttention
from synthattn.synthesizers import Mix, Spec, Term, parse
from synthattn.synthesizers.vanilla import VanillaSynthesizer
from synthattn.tracing import is_tracing


class SyntheticMultiheadAttention(nn.Module):
    """A ``SyntheticAttention`` with the interface of ``torch.nn.MultiheadAttention``."""

    # torch.nn.TransformerEncoderLayer reads these to choose its fast path, which supports only dot products.
    _qkv_same_embed_dim = False
    in_proj_bias = None
    in_proj_weight = None

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
    return ignored, rest if mask.requires_grad or is_tracing(mask) or bool(rest.any()) else None


def _add_key_bias(mask: Tensor | None, bias: Tensor, batch: int, heads: int, q: int) -> Tensor:
    bias = bias[:, None, None, :].expand(batch, heads, q, -1)
    if mask is None:
        return bias
    mask = mask.view(batch, heads, q, -1) if mask.dim() == 3 else mask
    return bias.masked_fill(mask, float("-inf")) if mask.dtype == torch.bool else bias + mask


def replace_attention(
    module: nn.Module,
    attention: str | Spec | Term,
    max_length: int | None = None,
    *,
    mix: Mix = "softmax",
) -> list[str]:
    """Replace every self-attention inside ``module`` by synthetic attention, in place.

    This changes the self-attention of ``torch.nn.TransformerEncoderLayer`` and ``TransformerDecoderLayer`` (not the
    decoder's attention to the encoder) and every other ``torch.nn.MultiheadAttention``. The value and output
    projections keep their weights, and with ``vanilla`` in the spec so do the query and key projections. Hooks on the
    replaced modules are dropped. Call it on the whole model, and make the optimizer afterwards: parameters are new.

    Returns:
        The names of the modules that were changed; "" is ``module`` itself.
    """
    spec = parse(attention)
    cross = {id(part.multihead_attn) for part in module.modules() if isinstance(part, nn.TransformerDecoderLayer)}
    found = {
        path: part
        for path, part in module.named_modules()
        if isinstance(part, nn.MultiheadAttention) and id(part) not in cross
    }
    if not found:
        raise ValueError(f"{type(module).__name__} has no torch.nn.MultiheadAttention to replace")
    problems = [
        f"{path or type(module).__name__} ({problem})"
        for path, part in found.items()
        if (problem := _obstacle(part)) is not None
    ]
    if problems:
        raise ValueError(f"cannot replace {', '.join(problems)}; nothing was changed")
    # All layers are built before the first is replaced, so that an error leaves the model unchanged.
    built = [_synthetic(part, spec, max_length, mix) for part in found.values()]
    for old, new in zip(found.values(), built, strict=True):
        # The object stays and becomes the new layer, so that every module that holds it sees the change.
        object.__setattr__(old, "__class__", SyntheticMultiheadAttention)
        old.__dict__.clear()
        old.__dict__.update(new.__dict__)
    for part in module.modules():
        if isinstance(part, nn.TransformerEncoder):
            part.use_nested_tensor = False
    return list(found)


def _obstacle(layer: nn.MultiheadAttention) -> str | None:
    if type(layer) is not nn.MultiheadAttention:
        return f"a {type(layer).__name__}, which may compute something else"
    if not layer._qkv_same_embed_dim:
        return f"keys of width {layer.kdim} and values of width {layer.vdim}"
    if layer.bias_k is not None:
        return "add_bias_kv=True"
    if layer.add_zero_attn:
        return "add_zero_attn=True"
    return None


def _synthetic(old: nn.MultiheadAttention, spec: Spec, max_length: int | None, mix: Mix) -> SyntheticMultiheadAttention:
    weight = old.in_proj_weight
    layer = SyntheticAttention(
        old.embed_dim,
        old.num_heads,
        spec,
        max_length,
        old.dropout,
        bias=old.in_proj_bias is not None,
        mix=mix,
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
