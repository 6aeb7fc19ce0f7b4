"""Whole models equal T5 of transformers, and follow their configuration."""

from typing import Any

import pytest
import torch
from transformers import T5Config, T5ForConditionalGeneration

from model_helpers import DECODING, ENCODING, KINDS, ids, labels_for, make
from synthattn.models import (
    SynthesizerForCausalLM,
    SynthesizerForConditionalGeneration,
    SynthesizerForMaskedLM,
    SynthesizerForSequenceClassification,
    SynthesizerModel,
    presets,
)

every_kind = pytest.mark.parametrize("kind", KINDS)


def copy_from_t5(model, t5):
    """Copy the parameters of a T5 model. T5 does not scale the dot product."""

    def attention(ours, theirs, scale):
        ours.synthesizer.query.weight.copy_(theirs.q.weight * scale)
        ours.synthesizer.key.weight.copy_(theirs.k.weight)
        ours.value.weight.copy_(theirs.v.weight)
        ours.output.weight.copy_(theirs.o.weight)

    model.model.embedding.weight.copy_(t5.shared.weight)
    for ours, theirs in ((model.model.encoder, t5.encoder), (model.model.decoder, t5.decoder)):
        table = theirs.block[0].layer[0].SelfAttention.relative_attention_bias.weight
        (relative,) = ours.relative.values()
        relative.table.copy_(table.T)
        ours.norm.weight.copy_(theirs.final_layer_norm.weight)
        for block, their_block in zip(ours.blocks, theirs.block, strict=True):
            scale = block.attention.head_dim**0.5
            layers = list(their_block.layer)
            attention(block.attention, layers[0].SelfAttention, scale)
            block.attention_residual.norm.weight.copy_(layers[0].layer_norm.weight)
            if len(layers) == 3:
                attention(block.cross_attention, layers[1].EncDecAttention, scale)
                block.cross_residual.norm.weight.copy_(layers[1].layer_norm.weight)
            block.feed_forward.up.weight.copy_(layers[-1].DenseReluDense.wi.weight)
            block.feed_forward.down.weight.copy_(layers[-1].DenseReluDense.wo.weight)
            block.feed_forward_residual.norm.weight.copy_(layers[-1].layer_norm.weight)


def test_a_vanilla_t5_is_t5():
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"vocab_size": 53, "d_model": 24, "num_heads": 3, "d_ff": 37}
    their_sizes: dict[str, Any] = sizes | {"d_kv": 7, "num_layers": 3, "decoder_start_token_id": 0}
    theirs: Any = T5ForConditionalGeneration(T5Config(**their_sizes)).double().eval()
    changes = {"head_dim": 7, "encoder_layers": 3, "decoder_layers": 3, "dropout": 0.0, "attention_dropout": 0.0}
    ours = SynthesizerForConditionalGeneration(presets.t5_small("vanilla", **sizes, **changes)).double().eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
        copy_from_t5(ours, theirs)
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())
    x, y = ids(2, 40), ids(2, 31, seed=3)
    mask = (torch.arange(40) < torch.tensor([[40], [17]])).long()
    expected = theirs(x, attention_mask=mask, labels=y)
    found = ours(x, attention_mask=mask, labels=y)
    # T5 normalises in single precision.
    torch.testing.assert_close(found.logits, expected.logits, rtol=0, atol=1e-5)
    torch.testing.assert_close(found.loss, expected.loss.float(), rtol=0, atol=1e-5)
    steps = {"max_new_tokens": 9, "num_beams": 3, "do_sample": False}
    assert torch.equal(ours.generate(x, attention_mask=mask, **steps), theirs.generate(x, attention_mask=mask, **steps))


@pytest.mark.parametrize("spec", ENCODING, ids=str)
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing_in_an_encoder(spec, side):
    model = make(SynthesizerForMaskedLM, spec)
    x = ids(1, 7)
    nothing, ones = torch.zeros(1, 4, dtype=torch.long), torch.ones(1, 7, dtype=torch.long)
    order = (lambda a, b: (b, a)) if side == "left" else (lambda a, b: (a, b))
    padded = torch.cat(order(x, nothing + 9), 1)
    mask = torch.cat(order(ones, nothing), 1)
    logits = model(padded, attention_mask=mask).logits
    real = logits[:, 4:] if side == "left" else logits[:, :7]
    torch.testing.assert_close(real, model(x).logits, rtol=0, atol=1e-10)


MASKS = {"none": None, "ones": torch.ones(2, 9), "padded": (torch.arange(9) < torch.tensor([[9], [8]])).long()}
CAUSAL = [(spec, "sdpa", "none") for spec in DECODING]
CAUSAL += [("random", implementation, mask) for implementation in ("sdpa", "eager") for mask in MASKS]


@pytest.mark.parametrize(("spec", "implementation", "mask"), CAUSAL, ids=str)
def test_a_decoder_does_not_see_later_tokens(spec, implementation, mask):
    """Under sdpa, transformers makes no mask for a causal decoder, so the layers must be causal themselves."""
    model, x = make(SynthesizerForCausalLM, spec), ids(2, 9)
    model.set_attn_implementation(implementation)
    changed = x.clone()
    changed[:, 6:] = 3
    before, after = (model(t, attention_mask=MASKS[mask]).logits for t in (x, changed))
    torch.testing.assert_close(before[:, :6], after[:, :6], rtol=0, atol=1e-12)
    assert not torch.allclose(before[:, 6:8], after[:, 6:8])


PARTS = [
    {"norm": "rmsnorm"},
    {"norm_position": "post"},
    {"norm": "rmsnorm", "norm_position": "post"},
    {"positions": "learned"},
    {"positions": "relative"},
    {"positions": "none"},
    {"activation": "gelu"},
    {"activation": "gated-gelu"},
    {"activation": "gated-silu", "feed_forward_bias": False},
    {"tie_word_embeddings": False},
    {"attention_bias": True},
    {"head_dim": 5},
    {"synthetic_heads": 2, "synthetic_head_dim": 7, "positions": "relative", "encoder_attention": ["vanilla", "dense"]},
    {"mix": "sum"},
    {"mix": "sigmoid"},
    {"cross_attention": "random+vanilla"},
    {"cross_attention": ["dense", "vanilla"]},
    {"initializer": "fan_in", "scale_embedding": False, "scale_logits": True},
    {"share_layers": True},
    {"share_layers": True, "halting": True},
    {"classifier_pooling": "first"},
]


@pytest.mark.parametrize("changes", PARTS, ids=str)
@every_kind
def test_every_part_trains_and_decodes(kind, changes):
    model = make(KINDS[kind], **changes).train()
    x = ids(3, 9)
    mask = (torch.arange(9) < torch.tensor([[9], [6], [4]])).long()
    labels = labels_for(kind, x)
    model(x, attention_mask=mask, labels=labels).loss.backward()
    without = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert without == [], "parameters that nothing depends on"
    if kind in ("seq2seq", "causal-lm"):
        model.eval()
        steps = {"max_new_tokens": 4, "do_sample": False, "num_beams": 3}
        assert torch.equal(model.generate(x, **steps), model.generate(x, use_cache=False, **steps))


@every_kind
@pytest.mark.parametrize("spec", ["random", "dense+vanilla", "lightconv(kernel=3)"])
def test_the_implementations_agree(kind, spec):
    model, x = make(KINDS[kind], spec), ids(2, 9)
    options = {"labels": labels_for(kind, x)}
    expected = model(x, **options)
    model.set_attn_implementation("eager")
    found = model(x, **options)
    torch.testing.assert_close(found.logits, expected.logits, rtol=0, atol=1e-10)
    with pytest.raises(ValueError, match="Flash Attention 2"):
        model.set_attn_implementation("flash_attention_2")


@every_kind
@pytest.mark.parametrize("spec", ["random", "dense+vanilla", "lightconv(kernel=3)", "linformer(k=7)"])
def test_hidden_states_and_attentions_are_returned(kind, spec):
    cross: dict[str, Any] = {"decoder_attention": "vanilla"} if spec.startswith("linformer") else {}
    model, x = make(KINDS[kind], spec, **cross), ids(2, 9)
    plain = model(x, labels=labels_for(kind, x))
    shown = model(x, labels=labels_for(kind, x), output_attentions=True, output_hidden_states=True)
    torch.testing.assert_close(shown.logits, plain.logits, rtol=0, atol=1e-10)
    if kind == "seq2seq":
        pairs = [(shown.encoder_attentions, shown.encoder_hidden_states, 9)]
        pairs.append((shown.decoder_attentions, shown.decoder_hidden_states, 7))
        assert [w.shape for w in shown.cross_attentions] == [(2, 3, 7, 9)] * 2
        assert torch.equal(shown.encoder_hidden_states[-1], shown.encoder_last_hidden_state)
    else:
        pairs = [(shown.attentions, shown.hidden_states, 9)]
    for attentions, hidden_states, length in pairs:
        assert [h.shape for h in hidden_states] == [(2, length, 24)] * 3
        keys = 7 if spec.startswith("linformer") and (kind != "seq2seq" or length == 9) else length
        if not (kind == "causal-lm" and spec.startswith("linformer")):
            assert [w.shape[:3] for w in attentions] == [(2, 3, length)] * 2
            assert attentions[0].shape[-1] == keys
        if not spec.startswith("lightconv"):
            torch.testing.assert_close(attentions[0].sum(-1), torch.ones(2, 3, length).double())
    as_tuple = model(x, labels=labels_for(kind, x), return_dict=False)
    assert torch.equal(as_tuple[0], plain.loss)


@every_kind
@pytest.mark.parametrize("reentrant", [True, False])
def test_gradient_checkpointing_changes_nothing(kind, reentrant):
    x = ids(2, 9)

    def gradients(checkpointing):
        model = make(KINDS[kind], "random+vanilla", positions="relative").train()
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": reentrant})
            model.enable_input_require_grads()
        model(x, labels=labels_for(kind, x)).loss.backward()
        return {name: p.grad for name, p in model.named_parameters()}

    plain, checkpointed = gradients(False), gradients(True)
    for name, gradient in plain.items():
        torch.testing.assert_close(checkpointed[name], gradient, rtol=0, atol=1e-12)


def test_vectors_in_place_of_tokens():
    model, x = make(SynthesizerForConditionalGeneration), ids(2, 9)
    vectors = model.get_input_embeddings()(x)
    expected = model(x, decoder_input_ids=x).logits
    torch.testing.assert_close(model(inputs_embeds=vectors, decoder_inputs_embeds=vectors).logits, expected)


def test_a_complete_mask_and_positions_pack_two_sentences():
    model = make(SynthesizerForCausalLM, "random+vanilla")
    a, b = ids(1, 4, seed=3), ids(1, 5, seed=4)
    mask = torch.block_diag(torch.ones(4, 4).tril(), torch.ones(5, 5).tril()).bool()[None, None]
    positions = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4]])
    packed = model(torch.cat([a, b], 1), attention_mask=mask, position_ids=positions).logits
    torch.testing.assert_close(packed[:, :4], model(a).logits, rtol=0, atol=1e-10)
    torch.testing.assert_close(packed[:, 4:], model(b).logits, rtol=0, atol=1e-10)
    floats = torch.zeros(1, 1, 9, 9).double().masked_fill(~mask, float("-inf"))
    again = model(torch.cat([a, b], 1), attention_mask=floats, position_ids=positions).logits
    torch.testing.assert_close(again, packed, rtol=0, atol=1e-10)


def test_the_bare_model_has_the_stacks_that_its_configuration_names():
    def stacks(**flags):
        model = make(SynthesizerModel, **flags)
        return model.encoder is not None, model.decoder is not None

    assert stacks() == (True, True)
    assert stacks(is_encoder_decoder=False) == (True, False)
    assert stacks(is_encoder_decoder=False, is_decoder=True) == (False, True)


def test_regression_and_several_labels():
    x = ids(4, 9)
    regression = make(SynthesizerForSequenceClassification, num_labels=1)
    target = torch.randn(4).double()
    output = regression(x, labels=target)
    torch.testing.assert_close(output.loss, (output.logits[:, 0] - target).square().mean())
    several = make(SynthesizerForSequenceClassification, num_labels=3, problem_type="multi_label_classification")
    targets = (torch.rand(4, 3) > 0.5).double()
    output = several(x, labels=targets)
    expected = torch.nn.functional.binary_cross_entropy_with_logits(output.logits, targets)
    torch.testing.assert_close(output.loss, expected)


def test_the_vocabulary_can_grow():
    model, x = make(SynthesizerForCausalLM), ids(2, 5)
    before = model(x).logits
    model.resize_token_embeddings(60, mean_resizing=False)
    assert model.lm_head.weight is model.model.embedding.weight
    torch.testing.assert_close(model(x).logits[..., :53], before)
