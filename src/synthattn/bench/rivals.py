"""Attention layers of other libraries, called like ours."""

import importlib
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from synthattn.bench.record import UnsupportedError
from synthattn.engine.projection import split_heads
from synthattn.layers import SyntheticAttention
from synthattn.layers.mixers import LinformerTerm


class VanillaByTorch(nn.Module):
    """Our ``vanilla`` layer with torch's fused kernel, ``scaled_dot_product_attention``, at every size."""

    def __init__(self, d_model: int = 512, heads: int = 8, max_length: int = 512) -> None:
        super().__init__()
        self.layer, self.heads = SyntheticAttention(d_model, heads, "vanilla"), heads

    def forward(self, x: Tensor, *, key_padding_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        dot_product: Any = self.layer.synthesizer
        projections = dot_product.query, dot_product.key, self.layer.value
        query, key, value = (split_heads(projection(x), self.heads) for projection in projections)
        mask = None if key_padding_mask is None else ~key_padding_mask[:, None, None]
        if mask is not None and is_causal:
            mask = mask & torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).tril()
        heads = F.scaled_dot_product_attention(query, key, value, mask, is_causal=is_causal and mask is None)
        return self.layer.output(heads.transpose(1, 2).flatten(2))


class TorchAttention(nn.Module):
    """``torch.nn.MultiheadAttention``."""

    def __init__(self, d_model: int = 512, heads: int = 8, max_length: int = 512) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(d_model, heads, batch_first=True)

    def forward(self, x: Tensor, *, key_padding_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        length = x.shape[1]
        mask = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1) if is_causal else None
        return self.attention(
            x,
            x,
            x,
            key_padding_mask=key_padding_mask,
            attn_mask=mask,
            is_causal=is_causal,
            need_weights=False,
        )[0]


class HuggingFaceT5(nn.Module):
    """``T5Attention`` to itself, with its relative position bias, as an encoder has it.

    It is taken out of a model: only there is it given the implementation that transformers chooses by default.
    """

    def __init__(self, d_model: int = 512, heads: int = 8, max_length: int = 512) -> None:
        super().__init__()
        from transformers import T5Config, T5EncoderModel

        config = T5Config(
            vocab_size=2, d_model=d_model, d_kv=d_model // heads, num_heads=heads, num_layers=1, dropout_rate=0.0
        )
        model: Any = T5EncoderModel(config)
        self.attention = model.encoder.block[0].layer[0].SelfAttention

    def forward(self, x: Tensor, *, key_padding_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        mask = _huggingface_masks(self.attention.config, x, key_padding_mask, is_causal)
        return self.attention(x, mask=mask.pop("attention_mask"), **mask)[0]


class HuggingFaceBert(nn.Module):
    """``BertSelfAttention`` and the output projection of ``BertSelfOutput``, without its residual and norm."""

    def __init__(self, d_model: int = 512, heads: int = 8, max_length: int = 512) -> None:
        super().__init__()
        from transformers import BertConfig, BertModel

        config = BertConfig(
            vocab_size=2,
            hidden_size=d_model,
            num_attention_heads=heads,
            num_hidden_layers=1,
            attention_probs_dropout_prob=0.0,
        )
        model: Any = BertModel(config, add_pooling_layer=False)
        layer = model.encoder.layer[0].attention
        self.attention, self.output = layer.self, layer.output.dense

    def forward(self, x: Tensor, *, key_padding_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        masks = _huggingface_masks(self.attention.config, x, key_padding_mask, is_causal)
        return self.output(self.attention(x, **masks)[0])


class LinformerPeer(nn.Module):
    """``linformer.LinformerSelfAttention`` with as many mixtures as ours; it knows no masks."""

    def __init__(self, d_model: int = 512, heads: int = 8, max_length: int = 512) -> None:
        super().__init__()
        library = peer("linformer")
        self.attention = library.LinformerSelfAttention(d_model, max_length, k=LinformerTerm().k, heads=heads)

    def forward(self, x: Tensor, *, key_padding_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        if key_padding_mask is not None or is_causal:
            raise UnsupportedError("the linformer package takes no masks")
        return self.attention(x)


class XTransformersPeer(nn.Module):
    """``x_transformers.Attention`` with its option ``flash``, torch's fused kernel.

    A key padding mask, which the library takes for a mask of the tokens, also makes the output of padding zero.
    """

    def __init__(self, d_model: int = 512, heads: int = 8, max_length: int = 512) -> None:
        super().__init__()
        library = peer("x_transformers")
        self.attention = library.Attention(d_model, dim_head=d_model // heads, heads=heads, flash=True)

    def forward(self, x: Tensor, *, key_padding_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        # As the constructor does; the argument causal of the library's forward is lost on the way to the fused kernel.
        self.attention.causal = self.attention.attend.causal = is_causal
        return self.attention(x, mask=None if key_padding_mask is None else ~key_padding_mask)


RIVALS: dict[str, Callable[..., nn.Module]] = {
    "vanilla by torch": VanillaByTorch,
    "nn.MultiheadAttention": TorchAttention,
    "Hugging Face T5": HuggingFaceT5,
    "Hugging Face BERT": HuggingFaceBert,
}
"""What anyone has who has torch and transformers; made with ``d_model``, ``heads`` and ``max_length``."""

PEERS: dict[str, Callable[..., nn.Module]] = {
    "linformer (peer)": LinformerPeer,
    "x-transformers (peer)": XTransformersPeer,
}
"""What must be installed for the comparison."""


def peer(module: str) -> Any:
    """The module of a package that is not among our dependencies."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ValueError(f"{module} is not installed; pip install 'synthattn[peers]'") from error


def _huggingface_masks(config: Any, x: Tensor, padding: Tensor | None, causal: bool) -> dict[str, Any]:
    """Return masks as models of transformers give them to their layers; none where a hint is enough."""
    length = x.shape[1]
    if config._attn_implementation == "sdpa" and padding is None:
        return {"attention_mask": None, "is_causal": causal}
    allowed = torch.ones(1, 1, 1, length, dtype=torch.bool, device=x.device)
    if causal:
        allowed = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()[None, None]
    if padding is not None:
        allowed = allowed & ~padding[:, None, None]
    if config._attn_implementation == "sdpa":
        return {"attention_mask": allowed}
    return {"attention_mask": torch.zeros_like(allowed, dtype=x.dtype).masked_fill(~allowed, torch.finfo(x.dtype).min)}
