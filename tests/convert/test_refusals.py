"""Mistakes of users give one clear line, and nothing is changed."""

import json

import pytest
import torch
import transformers
from conversion_checks import converted
from model_families import BERT, inputs, logits, original
from torch import nn

import synthattn

pytestmark = pytest.mark.unchecked


def refused(match: str):
    return pytest.raises(ValueError, match=match)


def test_a_model_without_attention_that_can_be_served():
    deberta = transformers.DebertaV2Model(transformers.DebertaV2Config(**BERT))
    before = deberta.state_dict()
    with refused(r"DebertaV2Model has no self-attention on transformers' attention interface .*Disentangled"):
        synthattn.replace_attention(deberta, "random", 11)
    assert deberta.state_dict().keys() == before.keys()
    vision = transformers.SiglipVisionModel(
        transformers.SiglipVisionConfig(
            hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=29, image_size=8, patch_size=2
        )
    )
    before = list(vision.state_dict())
    with refused(
        r"self_attn \(it does not hand its keyword arguments to the attention function\).*nothing was changed"
    ):
        synthattn.replace_attention(vision, "random", 17)
    assert list(vision.state_dict()) == before
    with refused("Linear has no attention of torch or timm to replace"):
        synthattn.replace_attention(nn.Linear(3, 3), "random", 11)
    other = type("SelfAttention", (nn.Module,), {})()  # as in many libraries
    with refused(r"Sequential has no attention of torch or timm to replace; its own attention \(SelfAttention\)"):
        synthattn.replace_attention(nn.Sequential(other), "random", 11)
    x_transformers = pytest.importorskip("x_transformers", reason="pip install -e '.[peers]'")
    layers = x_transformers.Decoder(dim=32, depth=1, heads=4)
    with refused(r"Decoder has no attention of torch or timm to replace; its own attention \(Attention\)"):
        synthattn.replace_attention(layers, "random", 11)


def test_a_model_of_transformers_inside_another_module():
    with refused(r"Sequential contains a model of transformers; call replace_attention\(model.0, ...\)"):
        synthattn.replace_attention(nn.Sequential(original("bert")), "random", 11)


def test_attention_with_terms_that_would_be_lost():
    config = transformers.Gemma2Config(**BERT, num_key_value_heads=2, head_dim=8)
    with refused("its attention has softcap"):
        synthattn.replace_attention(transformers.Gemma2ForCausalLM(config), "random", 11)


def test_layers_that_do_not_exist():
    model = original("bert")
    with refused("there is no layer 2: the model has 2 self-attentions, 0 to 1"):
        synthattn.replace_attention(model, "random", 11, layers=[0, 2])
    with refused("there is no layer -1"):
        synthattn.replace_attention(model, "random", 11, layers=[-1])
    with refused("layers is empty"):
        synthattn.replace_attention(model, "random", 11, layers=[])
    with refused("the filter chose none of bert.encoder.layer.0.attention.self"):
        synthattn.replace_attention(model, "random", 11, layers=lambda path, module: False)
    assert synthattn.attention_layers(model) == [f"bert.encoder.layer.{n}.attention.self" for n in range(2)]
    with refused("has no replaced attention"):
        synthattn.restore(model)


@pytest.mark.parametrize("name", ["bart", "t5"])
def test_cross_attention(name):
    model = original(name)
    with refused("queries and keys are of different tokens; nothing was changed"):
        synthattn.replace_attention(model, "random", 11, layers=lambda path, module: "decoder" in path)
    assert len(synthattn.replace_attention(model, "random", 11)) == 4


def test_swapping_twice():
    model = original("bert")
    synthattn.replace_attention(model, "random", 11, layers=[1])
    with refused(r"bert.encoder.layer.1.attention.self is replaced already; call restore\(model\) first"):
        synthattn.replace_attention(model, "dense", 11)
    synthattn.replace_attention(model, "dense", 11, layers=[0])
    assert len(synthattn.restore(model)) == 2


def test_adapters_before_the_conversion():
    peft = pytest.importorskip("peft", reason="peft is not installed; pip install -e '.[dev]'")
    model = original("bert")
    peft.inject_adapter_in_model(peft.LoraConfig(target_modules=["value"]), model)
    with refused("value is a Linear; replace attention before adapters or quantization"):
        synthattn.replace_attention(model, "random", 11)


def test_inputs_longer_than_max_length():
    line = r"input has 7 positions, .* was converted with max_length=5; shorten the input, or convert with max_length=7"
    for name in ("bert", "llama", "t5"):
        model = original(name)
        synthattn.replace_attention(model, "random", 5)
        with refused(line):
            logits(model, inputs(name))
    model = original("llama")
    synthattn.replace_attention(model, "dense", 8)
    with refused("input has 9 positions"):
        model.generate(**inputs("llama"), max_new_tokens=4, min_new_tokens=4)
    with refused("random needs max_length"):
        synthattn.replace_attention(original("bert"), "random")
    with refused("has several"):
        synthattn.replace_attention(original("bert"), "vanilla+vanilla")


@pytest.mark.parametrize("spec", ["random", "random+vanilla"])
def test_an_optimizer_made_before_the_swap(spec):
    model = original("bert")
    old = torch.optim.SGD(model.parameters(), lr=0.1)
    unrelated = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)
    synthattn.replace_attention(model, spec, 11)
    logits(model, inputs("bert")).sum().backward()
    unrelated.step()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    number = 8 if spec == "random" else 0
    with refused(f"made before replace_attention: it holds {number} parameters .*make the optimizer after"):
        old.step()
    synthattn.restore(model)
    old.step()


def test_folders_that_cannot_be_loaded(tmp_path):
    original("bert").save_pretrained(tmp_path / "plain")
    with refused("plain holds no model with replaced attention; load it with transformers"):
        synthattn.from_pretrained(tmp_path / "plain")
    converted("bert", "random").save_pretrained(tmp_path / "model")
    file = tmp_path / "model" / "config.json"
    saved = json.loads(file.read_text())
    for damage, line in [
        ({"version": 2, "layers": {}}, "version 2, this program reads 1"),
        ({"version": 1, "layers": {"bert.encoder": {"attention": "random"}}}, "replaces bert.encoder, which"),
        ({"version": 1, "layers": {"a": {"attention": 3}}}, "layers.a.attention must be a text, got 3"),
        ({"version": 1, "layers": {}, "code": "x"}, "has an unknown field"),
        ([], "config.json: synthattn"),
    ]:
        file.write_text(json.dumps(saved | {"synthattn": damage}))
        with refused(line):
            synthattn.from_pretrained(tmp_path / "model")
    plan = saved["synthattn"]["layers"]
    for one in plan.values():
        one["attention"] = "random+dense"
    file.write_text(json.dumps(saved))
    with refused("lacks weights, or has them in another shape"):
        synthattn.from_pretrained(tmp_path / "model")


def test_a_loaded_model_has_no_originals(tmp_path):
    converted("bert", "random").save_pretrained(tmp_path)
    with refused("the original projections of .* are not there, because the model was loaded"):
        synthattn.restore(synthattn.from_pretrained(tmp_path))


def test_another_head_on_a_saved_encoder(tmp_path):
    model = converted("bert", "random+vanilla")
    model.save_pretrained(tmp_path)
    other = synthattn.from_pretrained(
        tmp_path, transformers.BertForSequenceClassification, dtype=torch.float64, num_labels=3
    )
    given = inputs("bert")
    torch.testing.assert_close(other.bert(**given).last_hidden_state, model.bert(**given).last_hidden_state)
    assert other(**given).logits.shape == (3, 3)
    inner = synthattn.from_pretrained(tmp_path, transformers.BertModel, dtype=torch.float64)
    torch.testing.assert_close(inner(**given).last_hidden_state, model.bert(**given).last_hidden_state)
    inner.save_pretrained(tmp_path / "inner")
    assert "encoder.layer.0.attention.self" in (tmp_path / "inner" / "config.json").read_text()


def test_restore_leaves_no_trace(tmp_path):
    model = converted("gpt2", "random")
    model.transformer.h[0].attn.c_attn.weight.data.fill_(0.5)
    synthattn.restore(model)
    assert (model.transformer.h[0].attn.c_attn.weight[:, 64:] == 0.5).all()  # trained values are kept
    model.save_pretrained(tmp_path)
    again = transformers.GPT2LMHeadModel.from_pretrained(tmp_path, dtype=torch.float64)
    torch.testing.assert_close(logits(again, inputs("gpt2")), logits(model, inputs("gpt2")))
