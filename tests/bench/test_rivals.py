"""The layers of other libraries mean by our masks what ours do, and compute what their libraries say."""

import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from synthattn import reference
from synthattn.bench.record import UnsupportedError
from synthattn.bench.rivals import PEERS, RIVALS

D_MODEL, HEADS, BATCH, LENGTH = 21, 3, 2, 11
MODULES = {"linformer (peer)": "linformer", "x-transformers (peer)": "x_transformers"}
MASKED = [name for name in (*RIVALS, *PEERS) if not name.startswith("linformer")]
PADDING = torch.arange(LENGTH) >= torch.tensor([[LENGTH], [7]])


def make(name: str, **changes: Any) -> Any:
    if name in MODULES:
        pytest.importorskip(MODULES[name])
    torch.manual_seed(0)
    return (RIVALS | PEERS)[name](**({"d_model": D_MODEL, "heads": HEADS, "max_length": LENGTH} | changes)).eval()


def tokens() -> Tensor:
    return torch.randn(BATCH, LENGTH, D_MODEL, generator=torch.Generator().manual_seed(1))


def additive(padding: Tensor | None, causal: bool) -> Tensor:
    """The mask that unfused implementations of transformers add to the logits."""
    allowed = torch.ones(BATCH, 1, LENGTH, LENGTH, dtype=torch.bool)
    allowed = allowed.tril() if causal else allowed
    allowed = allowed if padding is None else allowed & ~padding[:, None, None]
    return torch.zeros(allowed.shape).masked_fill(~allowed, torch.finfo(torch.float32).min)


def like(theirs: nn.Module, wrapped: nn.Module) -> Any:
    theirs.load_state_dict(wrapped.state_dict())
    return theirs.eval()


def torch_directly(layer: Any, x: Tensor, padding: Tensor | None, causal: bool) -> Tensor:
    mask = additive(padding, causal).expand(-1, HEADS, -1, -1).flatten(0, 1)
    return layer.attention(x, x, x, attn_mask=mask, need_weights=True)[0]


def t5_directly(layer: Any, x: Tensor, padding: Tensor | None, causal: bool) -> Tensor:
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    sizes: dict[str, Any] = {"d_model": D_MODEL, "d_kv": 7, "num_heads": HEADS}
    theirs = like(T5Attention(T5Config(**sizes), has_relative_attention_bias=True), layer.attention)
    return theirs(x, mask=additive(padding, causal))[0]


def bert_directly(layer: Any, x: Tensor, padding: Tensor | None, causal: bool) -> Tensor:
    from transformers import BertConfig
    from transformers.models.bert.modeling_bert import BertSelfAttention

    sizes: dict[str, Any] = {"hidden_size": D_MODEL, "num_attention_heads": HEADS}
    theirs = like(BertSelfAttention(BertConfig(**sizes)), layer.attention)
    return layer.output(theirs(x, attention_mask=additive(padding, causal))[0])


def linformer_directly(layer: Any, x: Tensor, padding: Tensor | None, causal: bool) -> Tensor:
    from linformer import LinformerSelfAttention

    return like(LinformerSelfAttention(D_MODEL, LENGTH, k=64, heads=HEADS), layer.attention)(x)


def x_transformers_directly(layer: Any, x: Tensor, padding: Tensor | None, causal: bool) -> Tensor:
    from x_transformers import Attention

    theirs = like(Attention(D_MODEL, dim_head=7, heads=HEADS, causal=causal), layer.attention)
    return theirs(x, mask=None if padding is None else ~padding)


def vanilla_directly(layer: Any, x: Tensor, padding: Tensor | None, causal: bool) -> Tensor:
    return reference.attention(layer.layer, x, key_padding_mask=padding, is_causal=causal)[0]


DIRECTLY = {
    "vanilla by torch": vanilla_directly,
    "nn.MultiheadAttention": torch_directly,
    "Hugging Face T5": t5_directly,
    "Hugging Face BERT": bert_directly,
    "linformer (peer)": linformer_directly,
    "x-transformers (peer)": x_transformers_directly,
}


def test_all_are_tested():
    assert list(DIRECTLY) == [*RIVALS, *PEERS]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padding", [None, PADDING], ids=["full", "padded"])
@pytest.mark.parametrize("name", DIRECTLY)
def test_it_computes_what_the_library_computes_unfused(name, padding, causal):
    layer, x = make(name), tokens()
    if name not in MASKED and (causal or padding is not None):
        with pytest.raises(UnsupportedError, match="the linformer package takes no masks"):
            layer(x, key_padding_mask=padding, is_causal=causal)
        return
    expected = DIRECTLY[name](layer, x, padding, causal)
    torch.testing.assert_close(layer(x, key_padding_mask=padding, is_causal=causal), expected, rtol=0, atol=1e-5)
    with torch.no_grad():  # some have another way then
        found = layer(x, key_padding_mask=padding, is_causal=causal)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", MASKED)
def test_nobody_looks_at_padding(name, causal):
    layer, x = make(name), tokens()
    changed = x + PADDING[..., None]
    before, after = (layer(t, key_padding_mask=PADDING, is_causal=causal) for t in (x, changed))
    torch.testing.assert_close(before[~PADDING], after[~PADDING], rtol=0, atol=1e-6)
    without = layer(changed, is_causal=causal)
    assert torch.allclose(without[~PADDING], after[~PADDING], atol=1e-6) == causal  # padding comes last


@pytest.mark.parametrize("padding", [None, PADDING], ids=["full", "padded"])
@pytest.mark.parametrize("name", MASKED)
def test_nobody_looks_ahead(name, padding):
    layer, x = make(name), tokens()
    changed = x.clone()
    changed[:, 6:] += 1.0
    before, after = (layer(t, key_padding_mask=padding, is_causal=True) for t in (x, changed))
    torch.testing.assert_close(before[:, :6], after[:, :6], rtol=0, atol=1e-6)
    ahead = layer(changed, key_padding_mask=padding)
    assert not torch.allclose(ahead[:, :6], after[:, :6], atol=1e-3)


@pytest.mark.parametrize("name", ["Hugging Face T5", "Hugging Face BERT"])
def test_the_implementation_is_the_one_that_users_get(name):
    layer, x = make(name), tokens()
    config = layer.attention.config
    assert config._attn_implementation == "sdpa"
    fused = layer(x, key_padding_mask=PADDING, is_causal=True)
    config._attn_implementation = "eager"
    torch.testing.assert_close(layer(x, key_padding_mask=PADDING, is_causal=True), fused, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", DIRECTLY)
def test_it_trains(name):
    layer, x = make(name).train(), tokens().requires_grad_()
    layer(x).square().mean().backward()
    assert x.grad is not None
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in layer.parameters())


@pytest.mark.parametrize(("name", "module"), MODULES.items())
def test_a_missing_package_is_named(name, module, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ValueError, match=rf"^{module} is not installed; pip install 'synthattn\[peers\]'$"):
        PEERS[name](D_MODEL, HEADS, LENGTH)
