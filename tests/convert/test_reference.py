"""A converted layer computes the equations, written out by hand in float64."""

from typing import Any

import pytest
import torch
from conversion_checks import converted
from model_families import LENGTH, inputs, logits
from torch import Tensor

import synthattn

EXACT: Any = {"rtol": 0, "atol": 3e-15}


def observed(model, path: str, given) -> tuple[Any, Tensor, Tensor]:
    """Return a module, the tokens that it got and what its attention gave, before the output projection."""
    module, seen = model.get_submodule(path), dict[str, Tensor]()

    def keep(part, args, kwargs):
        seen["tokens"] = args[0] if args else kwargs["hidden_states"]

    module.register_forward_pre_hook(keep, with_kwargs=True)
    output = next((p for n, p in module.named_children() if n in ("c_proj", "o_proj")), None)
    if output is None:
        module.register_forward_hook(lambda part, args, result: seen.update(heads=result[0]))
    else:
        output.register_forward_pre_hook(lambda part, args: seen.update(heads=args[0]))
    with torch.no_grad():
        logits(model, given)
    return module, seen["tokens"], seen["heads"]


def attended(weights: Tensor, values: Tensor) -> Tensor:
    return (weights @ values).transpose(1, 2).flatten(2)


def heads_of(vectors: Tensor, heads: int) -> Tensor:
    return vectors.unflatten(-1, (heads, -1)).transpose(1, 2)


def test_random_in_bert_ignores_the_tokens_and_padding():
    given = inputs("bert")
    given["attention_mask"][1, 4:] = 0
    module, x, heads = observed(converted("bert", "random"), "bert.encoder.layer.1.attention.self", given)
    table = module.synthesizer.matrix[:, :LENGTH, :LENGTH].expand(3, -1, -1, -1).clone()
    table[1, :, :, 4:] = float("-inf")
    values = heads_of(x @ module.value.weight.T + module.value.bias, 4)
    torch.testing.assert_close(heads, attended(table.softmax(-1), values), **EXACT)


def test_random_in_gpt2_is_causal_and_keeps_a_third_of_the_fused_projection():
    module, x, heads = observed(converted("gpt2", "random"), "transformer.h.1.attn", inputs("gpt2"))
    assert module.c_attn.weight.shape == (32, 32)
    future = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    table = module.synthesizer.matrix[:, :LENGTH, :LENGTH].masked_fill(future, float("-inf"))
    values = heads_of(x @ module.c_attn.weight + module.c_attn.bias, 4)
    torch.testing.assert_close(heads, attended(table.softmax(-1), values), **EXACT)


def test_dense_in_llama_reads_its_own_tokens_and_shares_values_between_heads():
    module, x, heads = observed(converted("llama", "dense"), "model.layers.1.self_attn", inputs("llama"))
    dense = module.synthesizer
    hidden = heads_of((x @ dense.hidden.weight.T + dense.hidden.bias).relu(), 4)
    scores = hidden @ dense.keys[:, :LENGTH].mT + dense.key_bias[:, None, :LENGTH]
    scores = scores.masked_fill(torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1), float("-inf"))
    values = heads_of(x @ module.v_proj.weight.T, 2).repeat_interleave(2, dim=1)
    torch.testing.assert_close(heads, attended(scores.softmax(-1), values), rtol=1e-13, atol=1e-13)


def test_mixture_in_t5_adds_the_position_bias_once_and_does_not_scale():
    model = converted("t5", "random+vanilla")
    module, x, heads = observed(model, "encoder.block.1.layer.0.SelfAttention", inputs("t5"))
    first = model.get_submodule("encoder.block.0.layer.0.SelfAttention")
    weights = module.synthesizer.weights().__iter__()
    table = next(weights) * module.synthesizer.terms[0].matrix[:, :LENGTH, :LENGTH]
    product = heads_of(x @ module.q.weight.T, 4) @ heads_of(x @ module.k.weight.T, 4).mT
    scores = table + next(weights) * product + first.compute_bias(LENGTH, LENGTH)
    found = module.o(attended(scores.softmax(-1), heads_of(x @ module.v.weight.T, 4)))
    torch.testing.assert_close(heads, found, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("spec", ["fixed_random", "factorized_random(rank=3)", "factorized_dense", "relative+vanilla"])
def test_other_synthesizers_with_the_engine_and_without(spec, monkeypatch):
    from synthattn.convert import interface
    from synthattn.engine.plain import attend_whole

    given = inputs("modernbert")
    given["attention_mask"][0, 5:] = 0
    model = converted("modernbert", spec)
    fast = logits(model, given)
    monkeypatch.setattr(interface, "run", attend_whole)
    torch.testing.assert_close(logits(model, given), fast, rtol=1e-10, atol=1e-10)


def test_only_the_chosen_layers_change():
    model = converted("bert", "random")
    synthattn.restore(model)
    assert synthattn.replace_attention(model, "random", 11, layers=[1]) == ["bert.encoder.layer.1.attention.self"]
    assert hasattr(model.bert.encoder.layer[0].attention.self.query, "bias")
    synthattn.restore(model)
    chosen = synthattn.replace_attention(model, "random", 11, layers=lambda path, module: ".0." in path)
    assert chosen == ["bert.encoder.layer.0.attention.self"]
