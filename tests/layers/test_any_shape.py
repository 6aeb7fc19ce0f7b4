"""Attention equals the equations for any shape, mask and mixture that hypothesis draws."""

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import assert_same, chunks_for_all
from synthattn import SyntheticAttention

TERMS = st.sampled_from(
    [
        "vanilla",
        "dense",
        "dense(shared_keys=true)",
        "dense(bias=false)",
        "dense(window=3)",
        "random",
        "fixed_random",
        "factorized_random(rank=1)",
        "factorized_dense",
        "relative(buckets=8, distance=5)",
    ]
)
SPECS = st.lists(TERMS, min_size=1, max_size=3).map("+".join)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_layer_on_any_input(data):
    heads, width, head_dim = (data.draw(st.integers(1, 3), label=name) for name in ("heads", "width", "head_dim"))
    batch, q = data.draw(st.integers(1, 3), label="batch"), data.draw(st.integers(1, 6), label="q")
    k = data.draw(st.none() | st.integers(1, 7), label="k")
    longest = max(q, k or 0) + data.draw(st.integers(0, 2), label="spare")
    torch.manual_seed(data.draw(st.integers(0, 999), label="seed"))
    layer = SyntheticAttention(
        width,
        heads,
        data.draw(SPECS, label="spec"),
        longest,
        head_dim=head_dim,
        bias=data.draw(st.booleans(), label="bias"),
        mix=data.draw(st.sampled_from(["softmax", "sum"]), label="mix"),
        dtype=torch.float64,
    )
    x = torch.randn(batch, q, width, dtype=torch.float64)
    memory = None if k is None else torch.randn(batch, k, width, dtype=torch.float64)
    keys = k or q
    masks: dict[str, Any] = {"is_causal": data.draw(st.booleans(), label="causal")}
    if data.draw(st.booleans(), label="padded"):
        masks["key_padding_mask"] = torch.rand(batch, keys) < 0.4
    shape = data.draw(st.sampled_from([None, (q, keys), (batch, 1, q, keys), (batch * heads, q, keys)]), label="mask")
    if shape is not None:
        forbidden = torch.rand(shape) < 0.3
        as_float = torch.randn(shape, dtype=torch.float64).masked_fill(forbidden, float("-inf"))
        masks["attn_mask"] = data.draw(st.sampled_from([forbidden, as_float]), label="kind")
    if data.draw(st.booleans(), label="positions"):
        masks["positions"] = torch.randint(longest, data.draw(st.sampled_from([(q,), (batch, q)])))
    block = data.draw(st.sampled_from([1, 30, 100, 10**6]), label="block")
    with chunks_for_all(block):
        assert_same(layer, x, memory, **masks)
