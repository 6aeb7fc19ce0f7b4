"""Saved and loaded: in this process, in a fresh one, under another length; never by pickle."""

import json
import subprocess
import sys

import pytest
import torch
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoModelForSequenceClassification

from model_helpers import (
    DECODING,
    ENCODING,
    KINDS,
    MAX_LENGTH,
    assert_same_numbers,
    assert_same_weights,
    config,
    ids,
    labels_for,
    make,
)
from synthattn.models import (
    SynthesizerConfig,
    SynthesizerForCausalLM,
    SynthesizerForConditionalGeneration,
    SynthesizerForMaskedLM,
    SynthesizerForSequenceClassification,
)

pytestmark = pytest.mark.unchecked

CASES = [("causal-lm", spec) for spec in DECODING]
CASES += [("seq2seq", "random+vanilla"), ("seq2seq", "fixed_random"), ("seq2seq", ["lightconv(kernel=3)", "dense"])]
CASES += [(kind, spec) for kind in ("masked-lm", "classifier") for spec in ENCODING[-4:]]


@pytest.mark.parametrize(("kind", "spec"), CASES, ids=str)
def test_a_model_comes_back_as_it_was(kind, spec, tmp_path):
    model, x = make(KINDS[kind], spec), ids(2, 7)
    model.save_pretrained(tmp_path)
    files = {file.name for file in tmp_path.iterdir()}
    assert "model.safetensors" in files
    assert not any(name.endswith((".bin", ".pt", ".pth", ".pkl")) for name in files)
    torch.manual_seed(99)
    again, report = KINDS[kind].from_pretrained(tmp_path, dtype=torch.float64, output_loading_info=True)
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    labels = labels_for(kind, x)
    assert_same_weights(again, model)
    assert_same_numbers(again(x, labels=labels).logits, model(x, labels=labels).logits)
    trainable = {name for name, p in model.named_parameters() if p.requires_grad}
    assert {name for name, p in again.named_parameters() if p.requires_grad} == trainable
    if kind != "classifier":
        assert again.lm_head.weight is again.get_input_embeddings().weight


def test_untied_weights_come_back_as_well(tmp_path):
    model, x = make(SynthesizerForCausalLM, tie_word_embeddings=False), ids(2, 7)
    model.save_pretrained(tmp_path)
    again = SynthesizerForCausalLM.from_pretrained(tmp_path)
    assert again.lm_head.weight is not again.model.embedding.weight
    assert torch.equal(again.double()(x).logits.float(), model(x).logits.float())


FRESH = """
import json, sys, torch
from transformers import AutoModelForCausalLM, AutoConfig
import synthattn.models
def no_pickle(*a, **k): raise AssertionError("pickle was used")
torch.load = torch.save = no_pickle
x = torch.tensor(json.loads(sys.argv[1]))
for folder in sys.argv[2:]:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64).eval()
    print(json.dumps([type(model).__name__, model(x).logits.tolist(), model.generate(x, max_new_tokens=4).tolist()]))
"""


def test_a_fresh_process_says_the_same(tmp_path):
    specs, x = ["fixed_random", "dense+vanilla", "dynamicconv(kernel=3)"], ids(2, 5)
    models = {tmp_path / str(n): make(SynthesizerForCausalLM, spec) for n, spec in enumerate(specs)}
    for folder, model in models.items():
        model.save_pretrained(folder)
    command = [sys.executable, "-c", FRESH, json.dumps(x.tolist()), *map(str, models)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    for line, model in zip(result.stdout.splitlines(), models.values(), strict=True):
        name, logits, generated = json.loads(line)
        assert name == "SynthesizerForCausalLM"
        assert_same_numbers(torch.tensor(logits, dtype=torch.float64), model(x).logits)
        assert generated == model.generate(x, max_new_tokens=4).tolist()


@pytest.mark.parametrize(
    ("auto", "kind"),
    [
        (AutoModelForSeq2SeqLM, SynthesizerForConditionalGeneration),
        (AutoModelForCausalLM, SynthesizerForCausalLM),
        (AutoModelForSequenceClassification, SynthesizerForSequenceClassification),
    ],
)
def test_the_auto_classes_know_the_models(auto, kind):
    assert type(auto.from_config(config())) is kind
    assert AutoModel.from_config(config()).base_model_prefix == "model"


@pytest.mark.parametrize("kind", [SynthesizerForMaskedLM, SynthesizerForSequenceClassification, SynthesizerForCausalLM])
def test_a_part_of_a_trained_model_starts_another(kind, tmp_path):
    whole = make(SynthesizerForConditionalGeneration, "random+vanilla")
    whole.save_pretrained(tmp_path)
    part, report = kind.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["unexpected_keys"]
    fresh = {"classifier.weight", "classifier.bias"} if kind is SynthesizerForSequenceClassification else set()
    assert set(report["missing_keys"]) == fresh
    stack = "decoder" if kind is SynthesizerForCausalLM else "encoder"
    weights = (getattr(m.model, stack).blocks[0].attention.value.weight for m in (part, whole))
    assert torch.equal(*weights)


@pytest.mark.parametrize("spec", ["random", "dense+vanilla", "factorized_dense", "factorized_random(rank=3)"])
@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
def test_a_longer_model_says_the_same_about_what_fits(spec, positions, tmp_path):
    model, x = make(SynthesizerForConditionalGeneration, spec, positions=positions), ids(2, MAX_LENGTH)
    before = model(x, decoder_input_ids=x).logits
    model.resize_max_length(41)
    torch.testing.assert_close(model(x, decoder_input_ids=x).logits, before, rtol=0, atol=1e-10)
    long = ids(2, 41)
    after = model(long, decoder_input_ids=long).logits
    model.save_pretrained(tmp_path)
    again = SynthesizerForConditionalGeneration.from_pretrained(tmp_path, dtype=torch.float64)
    assert again.config.max_position_embeddings == 41
    assert_same_weights(again, model)
    assert_same_numbers(again(long, decoder_input_ids=long).logits, after)


def test_loading_for_another_length_names_both_and_the_remedy(tmp_path):
    make(SynthesizerForCausalLM, "random").save_pretrained(tmp_path)
    message = r"was saved with max_position_embeddings=23, asked for 64; load it as it is and call model.resize_max_len"
    with pytest.raises(ValueError, match=message):
        SynthesizerForCausalLM.from_pretrained(tmp_path, max_position_embeddings=64)
    with pytest.raises(ValueError, match=message):
        AutoModelForCausalLM.from_pretrained(tmp_path, max_position_embeddings=64)
    changed = SynthesizerConfig.from_pretrained(tmp_path, max_position_embeddings=64)
    with pytest.raises(ValueError, match=message):
        SynthesizerForCausalLM.from_pretrained(tmp_path, config=changed)


def test_where_no_table_has_the_length_it_may_change(tmp_path):
    make(SynthesizerForCausalLM, "vanilla").save_pretrained(tmp_path)
    model = SynthesizerForCausalLM.from_pretrained(tmp_path, max_position_embeddings=64)
    assert model(ids(1, 50)).logits.shape == (1, 50, 53)


def test_the_configuration_of_the_caller_stays_as_it_is():
    given = config()
    model = SynthesizerForCausalLM(given)
    assert given.is_encoder_decoder
    assert not model.config.is_encoder_decoder


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder_attention": ["random"]}, "encoder_attention lists 1 layers, there are 2; give one for each"),
        ({"decoder_attention": "ramdom"}, "unknown attention 'ramdom'; did you mean random"),
        ({"share_layers": True, "decoder_attention": ["random", "vanilla"]}, "share_layers uses one layer at every"),
        ({"halting": True}, "halting needs share_layers=True"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
        ({"d_model": 0}, "d_model must be at least 1, got 0"),
        ({"encoder_attention": "lightconv+vanilla"}, "lightconv is a layer of its own"),
    ],
)
def test_configurations_that_make_no_sense(changes, message):
    with pytest.raises(ValueError, match=message) as caught:
        config(**changes)
    assert "\n" not in str(caught.value)


def test_a_linformer_cannot_decode():
    with pytest.raises(ValueError, match=r"linformer\(k=7\) looks at all positions at once and cannot decode"):
        SynthesizerForCausalLM(config("linformer(k=7)"))


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "give input_ids or inputs_embeds, got neither"),
        ({"input_ids": ids(2, 5), "inputs_embeds": torch.zeros(2, 5, 24)}, "give input_ids or inputs_embeds, not both"),
        ({"input_ids": ids(2, 5)[0]}, r"input_ids must have shape \(batch, length\), got \(5,\)"),
        (
            {"input_ids": ids(2, 5), "attention_mask": torch.ones(2, 6)},
            r"attention_mask must have shape \(batch, tokens so far\) = \(2, 5\)",
        ),
        (
            {"input_ids": ids(2, 5), "position_ids": torch.arange(4)[None]},
            "position_ids must have one whole number for each of 5 tokens",
        ),
        ({"input_ids": ids(2, 24)}, "input has 24 positions, random was built for max_length=23"),
    ],
)
def test_inputs_that_make_no_sense(inputs, message):
    model = make(SynthesizerForCausalLM, "random").float()
    with pytest.raises(ValueError, match=message):
        model(**inputs)


def test_a_mistyped_argument_is_named():
    model = make(SynthesizerForCausalLM)
    with pytest.raises(TypeError, match="unexpected argument 'attention_maks'; did you mean attention_mask"):
        model(ids(2, 5), attention_maks=torch.ones(2, 5))


def test_a_longer_input_than_learned_positions():
    model = make(SynthesizerForCausalLM, "vanilla", positions="learned")
    with pytest.raises(ValueError, match="input has 24 positions, learned positions were built for 23"):
        model(ids(2, 24))


def test_the_form_of_the_length_penalty():
    model = make(SynthesizerForCausalLM)
    with pytest.raises(ValueError, match="length_penalty_form must be 'huggingface' or 'gnmt', got 'wu'"):
        model.generate(ids(2, 5), length_penalty_form="wu")


@pytest.mark.parametrize(
    ("spec", "length", "message"),
    [
        ("factorized_random(rank=8)", 4, "rank=8 exceeds max_length=4"),
        ("lightconv(kernel=3)", -5, "max_length must be at least 1, got -5"),
    ],
)
def test_a_length_that_no_such_model_has(spec, length, message):
    model = make(SynthesizerForCausalLM, ["random", spec])
    with pytest.raises(ValueError, match=message):
        model.resize_max_length(length)
    assert model.config.max_position_embeddings == MAX_LENGTH
    assert model.model.decoder.blocks[0].attention.max_length == MAX_LENGTH, "nothing was changed"


def test_a_resized_part_starts_a_whole_model(tmp_path):
    model = make(SynthesizerForCausalLM, "factorized_dense(a=4, b=6)")
    model.resize_max_length(41)
    model.save_pretrained(tmp_path)
    assert SynthesizerForConditionalGeneration.from_pretrained(tmp_path).config.max_position_embeddings == 41


def test_an_encoder_decoder_needs_to_know_the_tokens_of_the_encoder():
    model = make(SynthesizerForConditionalGeneration).float()
    with pytest.raises(ValueError, match=r"needs an attention_mask of shape \(batch, length\)"):
        model(ids(2, 5), attention_mask=torch.ones(2, 1, 5, 5), decoder_input_ids=ids(2, 5))
