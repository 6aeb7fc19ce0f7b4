"""Decoding with a cache, in beams, in batches with padding: always what the model says without any of these."""

import copy
from typing import Any

import pytest
import torch
from transformers import DynamicCache, EncoderDecoderCache

from model_helpers import DECODING, ids, make
from synthattn.models import SynthesizerForCausalLM, SynthesizerForConditionalGeneration
from synthattn.models.cache import BeamSearchCache, GrowableTensor, ValuesOnlyLayer
from synthattn.models.generation import GnmtPenalty

pytestmark = pytest.mark.unchecked

every_spec = pytest.mark.parametrize("spec", DECODING, ids=str)
both_decoders = pytest.mark.parametrize(
    "kind", [SynthesizerForCausalLM, SynthesizerForConditionalGeneration], ids=["decoder", "encoder-decoder"]
)
STEPS = {"max_new_tokens": 6, "do_sample": False}
# One of every kind of cache, for ways of decoding that other tests try with every spec.
FEW: list[Any] = ["random", "dense(window=5)", "vanilla+relative", ["lightconv(kernel=3)", "dense+vanilla"]]


@pytest.mark.parametrize(("spec", "beams"), [*((spec, 4) for spec in DECODING), *((spec, 1) for spec in FEW)], ids=str)
@both_decoders
def test_cached_equals_uncached(spec, kind, beams):
    model, x = make(kind, spec), ids(3, 5)
    cached = model.generate(x, num_beams=beams, **STEPS)
    assert torch.equal(cached, model.generate(x, num_beams=beams, use_cache=False, **STEPS))
    assert cached.shape[1] > (6 if kind is SynthesizerForCausalLM else 2), "nothing was decoded"


@pytest.mark.parametrize(("spec", "beams"), [*((spec, 1) for spec in DECODING), *((spec, 4) for spec in FEW)], ids=str)
@both_decoders
def test_a_left_padded_batch_equals_one_by_one(spec, kind, beams):
    model = make(kind, spec)
    lengths = [3, 7, 5]
    sentences = [ids(1, length, seed=length) for length in lengths]
    x, mask = torch.zeros(3, 7, dtype=torch.long), torch.zeros(3, 7, dtype=torch.long)
    for n, sentence in enumerate(sentences):
        x[n, 7 - lengths[n] :], mask[n, 7 - lengths[n] :] = sentence[0], 1
    # Scores, not only tokens: a position that is off by one need not change the best token of a small model.
    options = STEPS | {"num_beams": beams, "output_logits": True, "return_dict_in_generate": True, "eos_token_id": -1}
    together = model.generate(x, attention_mask=mask, **options)
    for n, sentence in enumerate(sentences):
        alone = model.generate(sentence, **options)
        new = STEPS["max_new_tokens"]
        assert torch.equal(together.sequences[n, -new:], alone.sequences[0, -new:])
        for ours, theirs in zip(together.logits, alone.logits, strict=True):
            rows = slice(n * beams, (n + 1) * beams)
            torch.testing.assert_close(ours[rows], theirs, rtol=0, atol=1e-10)


def cache_bytes(cache: Any) -> int:
    tensors = [t for layer in cache.layers for t in (layer.keys, layer.values) if t is not None]
    return sum(t.numel() * t.element_size() for t in tensors)


@every_spec
@both_decoders
def test_only_dot_products_keep_keys(spec, kind):
    def kept(attention):
        x = ids(2, 5)
        inputs = {"decoder_input_ids": x} if kind is SynthesizerForConditionalGeneration else {}
        cache = make(kind, attention)(x, use_cache=True, **inputs).past_key_values
        assert cache.get_seq_length() == 5
        return cache_bytes(cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache) / 10

    both = kept("vanilla")
    layers = [spec] * 2 if isinstance(spec, str) else spec
    assert kept(spec) == sum(both / 2 if "vanilla" in layer else both / 4 for layer in layers)


def test_one_model_may_have_layers_with_and_without_keys():
    model = make(SynthesizerForCausalLM, ["random", "vanilla"])
    kinds = [type(layer).__name__ for layer in model(ids(2, 5), use_cache=True).past_key_values.layers]
    assert kinds == ["ValuesOnlyLayer", "KeysAndValuesLayer"]


@both_decoders
def test_sampling_is_the_same_with_a_cache(kind):
    model, x = make(kind, "dense"), ids(3, 5)
    results = []
    for use_cache in (True, False):
        torch.manual_seed(3)
        results.append(model.generate(x, do_sample=True, top_k=0, max_new_tokens=9, use_cache=use_cache))
    assert torch.equal(*results)


@pytest.mark.parametrize("spec", ["random", "dense+vanilla", ["random", "vanilla"]], ids=str)
def test_the_cache_can_be_cut_back(spec):
    """Prompt lookup drafts several tokens and takes back those that were wrong."""
    model = make(SynthesizerForCausalLM, spec)
    x = ids(1, 4).repeat(1, 3)
    plain = model.generate(x, **STEPS)
    assert torch.equal(model.generate(x, prompt_lookup_num_tokens=3, **STEPS), plain)


@both_decoders
def test_a_user_s_own_cache_is_filled(kind):
    model, x = make(kind, ["random", "vanilla"]), ids(2, 5)
    decoder_only = kind is SynthesizerForCausalLM
    cache = DynamicCache() if decoder_only else EncoderDecoderCache(DynamicCache(), DynamicCache())
    result = model.generate(x, past_key_values=cache, **STEPS)
    assert torch.equal(result, model.generate(x, **STEPS))
    assert cache.get_seq_length() == result.shape[1] - 1


def test_chunks_of_a_prompt_equal_the_whole():
    model, x = make(SynthesizerForCausalLM, "random+vanilla"), ids(2, 11)
    cache, parts = None, []
    for start, end in [(0, 4), (4, 5), (5, 11)]:
        output = model(x[:, start:end], past_key_values=cache, use_cache=True)
        cache = output.past_key_values
        parts.append(output.logits)
    torch.testing.assert_close(torch.cat(parts, 1), model(x).logits, rtol=0, atol=1e-10)


def test_every_operation_of_the_values_only_layer():
    layer: Any = ValuesOnlyLayer()
    first, second = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 1, 7)
    assert layer.get_seq_length() == 0
    assert layer.update(None, first) == (None, first)
    keys, values = layer.update(None, second)
    assert keys is None
    assert torch.equal(values, torch.cat([first, second], -2))
    assert layer.get_mask_sizes(2) == (8, 0)
    layer.reorder_cache(torch.tensor([1, 0]))
    assert torch.equal(layer.values, values.flip(0))
    layer.batch_repeat_interleave(2)
    assert torch.equal(layer.values, values.flip(0).repeat_interleave(2, 0))
    layer.batch_select_indices(torch.tensor([0, 2]))
    layer.crop(-1)
    assert torch.equal(layer.values, first.flip(0))
    layer.offload()
    layer.prefetch()
    assert torch.equal(layer.values, first.flip(0))
    layer.reset()
    assert layer.get_seq_length() == 0
    with pytest.raises(ValueError, match="crop takes minus the number of tokens to remove, got 3"):
        layer.crop(3)


def gnmt(length: int, alpha: float) -> float:
    return ((5.0 + length) / 6.0) ** alpha


def test_the_gnmt_penalty_as_a_number():
    assert 7 ** GnmtPenalty(0.6) == pytest.approx(gnmt(7, 0.6))
    assert GnmtPenalty(0.6) == 0.6


@both_decoders
@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
def test_the_gnmt_length_penalty(kind, alpha):
    """The score of every returned beam is its log-probability divided as in GNMT."""
    model, x = make(kind, "random"), ids(2, 5)
    with torch.no_grad():
        model.lm_head.weight[1] *= 3.0  # ends come now and then
    options = {"num_beams": 4, "num_return_sequences": 4, "length_penalty": alpha, "length_penalty_form": "gnmt"}
    found = model.generate(x, output_scores=True, return_dict_in_generate=True, **options, **STEPS)
    prompt = x.shape[1] if kind is SynthesizerForCausalLM else 1
    steps = model.compute_transition_scores(found.sequences, found.scores, found.beam_indices)
    lengths = (found.beam_indices >= 0).sum(-1)
    for score, log_probabilities, length in zip(found.sequences_scores, steps, lengths, strict=True):
        expected = log_probabilities.sum() / gnmt(int(length), alpha)
        torch.testing.assert_close(score, expected.to(score.dtype), rtol=1e-5, atol=1e-6)
    assert found.sequences.shape[1] > prompt


def test_the_forms_of_the_length_penalty_differ():
    model, x = make(SynthesizerForConditionalGeneration, "random"), ids(2, 5)
    options = {"num_beams": 4, "length_penalty": 1.5, "output_scores": True, "return_dict_in_generate": True}
    usual = model.generate(x, **options, **STEPS).sequences_scores
    other = model.generate(x, length_penalty_form="gnmt", **options, **STEPS).sequences_scores
    assert not torch.allclose(usual, other)
    length = STEPS["max_new_tokens"]
    torch.testing.assert_close(usual * length**1.5, other * gnmt(length, 1.5))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cache_implementation": "static"}, "cache_implementation='static' is not supported"),
        ({"max_new_tokens": 40}, "positions go up to 23, random was built for max_length=23"),
    ],
)
def test_what_cannot_be_generated(options, message):
    model = make(SynthesizerForCausalLM, "random")
    with pytest.raises(ValueError, match=message):
        model.generate(ids(2, 5), eos_token_id=-1, **(STEPS | options))


@pytest.mark.parametrize("spec", ["random", "dense", "relative+vanilla", "random+vanilla", "vanilla"])
def test_positions_of_the_user_are_kept_with_the_cache(spec):
    model, x = make(SynthesizerForCausalLM, spec), ids(2, 9)
    positions = torch.arange(5, 14).expand(2, -1)
    expected = model(x, position_ids=positions, use_cache=False).logits
    start = model(x[:, :6], position_ids=positions[:, :6], use_cache=True)
    rest = model(x[:, 6:], position_ids=positions[:, 6:], past_key_values=start.past_key_values)
    torch.testing.assert_close(torch.cat([start.logits, rest.logits], 1), expected, rtol=0, atol=1e-10)
    steps = {"max_new_tokens": 5, "do_sample": False, "num_beams": 3}
    found = [model.generate(x[:, :5], position_ids=positions[:, :5], use_cache=c, **steps) for c in (True, False)]
    assert torch.equal(*found)


def test_the_gnmt_penalty_takes_the_exponent_from_wherever_it_is_given():
    model, x = make(SynthesizerForCausalLM, "random"), ids(1, 5)
    shown = {"output_scores": True, "return_dict_in_generate": True, "length_penalty_form": "gnmt"}
    config = copy.deepcopy(model.generation_config)
    config.update(num_beams=4, length_penalty=2.0, max_new_tokens=9, do_sample=False, eos_token_id=-1)
    options = {"num_beams": 4, "max_new_tokens": 9, "do_sample": False, "eos_token_id": -1}
    expected = model.generate(x, length_penalty=2.0, **options, **shown).sequences_scores
    assert torch.equal(model.generate(x, config, **shown).sequences_scores, expected)
    assert torch.equal(model.generate(x, generation_config=config, **shown).sequences_scores, expected)
    model.generation_config.length_penalty = 2.0
    assert torch.equal(model.generate(x, **options, **shown).sequences_scores, expected)


def test_generating_leaves_the_modes_of_parts_alone():
    """Dropout that a user keeps on, or an encoder that is frozen in evaluation mode."""
    model = make(SynthesizerForConditionalGeneration)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.train()
    before = [module.training for module in model.modules()]
    model.generate(ids(1, 5), **STEPS)
    assert [module.training for module in model.modules()] == before


def test_what_an_encoder_returned_in_any_form():
    model, x = make(SynthesizerForConditionalGeneration), ids(2, 7)
    encoder = model.get_encoder()
    shown = {"output_hidden_states": True, "output_attentions": True}
    expected = model(x, decoder_input_ids=x, **shown)
    as_tuple, as_output = encoder(x, return_dict=False, **shown), encoder(x, **shown)
    for given in (as_tuple, as_output, dict(as_output)):
        found = model(encoder_outputs=given, decoder_input_ids=x, **shown)
        torch.testing.assert_close(found.logits, expected.logits)
        for ours, theirs in zip(found.encoder_hidden_states, expected.encoder_hidden_states, strict=True):
            assert torch.equal(ours, theirs)
        assert found.encoder_attentions[0].shape == (2, 3, 7, 7)


def test_growable_tensor_is_concatenation_without_copies():
    growable, expected = GrowableTensor(), torch.randn(2, 3, 1, 4)
    found, moves, place = growable.append(None, expected), 0, None
    with torch.no_grad():
        for _ in range(200):
            new = torch.randn(2, 3, 1, 4)
            expected, found = torch.cat([expected, new], -2), growable.append(found, new)
            moves, place = moves + (found.data_ptr() != place), found.data_ptr()
            assert torch.equal(found, expected)
    assert moves <= 4, "everything is copied only when the memory is full"


def test_what_others_hold_is_never_overwritten():
    """Assisted generation cuts a cache back and goes on differently; somebody may still hold what was cut off."""
    growable = GrowableTensor()
    with torch.no_grad():
        long = growable.append(
            growable.append(torch.randn(1, 1, 5, 2), torch.randn(1, 1, 1, 2)), torch.randn(1, 1, 1, 2)
        )
        before = long.clone()
        other = growable.append(long[..., :-1, :], torch.randn(1, 1, 1, 2))
    assert torch.equal(long, before)
    assert torch.equal(other[..., :-1, :], before[..., :-1, :])


def test_growable_tensor_follows_the_order_of_beams():
    growable, generator = GrowableTensor(), torch.Generator().manual_seed(0)
    with torch.no_grad():
        found = growable.append(torch.randn(6, 2, 3, 4), torch.randn(6, 2, 1, 4))
        for _ in range(100):
            order = torch.randint(6, (6,), generator=generator)
            expected = found.clone()[order]
            found = growable.select(found, order)
            assert torch.equal(found, expected)
            new = torch.randn(6, 2, 1, 4)
            found = growable.append(found, new)
            assert torch.equal(found, torch.cat([expected, new], -2))


def test_growable_tensor_keeps_gradients_and_leaves_inference_mode():
    growable = GrowableTensor()
    new = torch.randn(1, 1, 1, 2, requires_grad=True)
    growable.append(growable.append(torch.zeros(1, 1, 1, 2), new), new).sum().backward()
    assert new.grad is not None
    assert torch.equal(new.grad, torch.full_like(new, 2.0))
    with torch.inference_mode():
        inside = growable.append(torch.zeros(1, 1, 1, 2), torch.ones(1, 1, 1, 2))
        inside = growable.append(inside, torch.ones(1, 1, 1, 2))
    with torch.no_grad():
        assert growable.append(inside, torch.ones(1, 1, 1, 2)).sum() == 6


def test_beams_share_what_is_kept_of_the_source():
    """The order of beams changes with every token; their source stays the same, and is not copied."""
    model, x = make(SynthesizerForConditionalGeneration, "random"), ids(2, 5)
    result = model.generate(x, num_beams=3, return_dict_in_generate=True, **STEPS)
    layers = result.past_key_values.cross_attention_cache.layers
    assert {(layer.shared_by_beams, layer.keys.shape[0]) for layer in layers} == {(True, 2)}
    assert torch.equal(result.sequences, model.generate(x, num_beams=3, use_cache=False, **STEPS))


@pytest.mark.parametrize(
    "cross", ["vanilla", "random", "dense", "factorized_dense", "random+vanilla", "dense(window=3)+relative"]
)
@pytest.mark.parametrize("padded", [True, False], ids=["padded", "full"])
def test_beams_attend_to_their_source_as_if_each_had_its_own(cross, padded):
    model = make(SynthesizerForConditionalGeneration, "random", cross_attention=cross)
    x, mask = ids(3, 5), torch.ones(3, 5, dtype=torch.long)
    if padded:
        mask[0, :2] = mask[2, 4:] = 0
    options = {"num_beams": 4, "output_logits": True, "output_attentions": True, "return_dict_in_generate": True}
    found, expected = (
        model.generate(x, attention_mask=mask, use_cache=cache, **options, **STEPS) for cache in (True, False)
    )
    assert torch.equal(found.sequences, expected.sequences)
    for ours, theirs in zip(found.logits, expected.logits, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)
    for ours, theirs in zip(found.cross_attentions, expected.cross_attentions, strict=True):
        for one, all_rows in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, all_rows[:, :, -1:], rtol=0, atol=1e-10)


def test_a_prompt_of_several_tokens_in_beams():
    model, x, prompt = (
        make(SynthesizerForConditionalGeneration, "random", cross_attention="random"),
        ids(3, 5),
        ids(3, 4),
    )
    found, expected = (
        model.generate(x, decoder_input_ids=prompt, num_beams=2, use_cache=cache, **STEPS) for cache in (True, False)
    )
    assert torch.equal(found, expected)


def test_some_beams_of_a_cache():
    """Tensors that all beams of an example share follow the choice."""
    model, x = make(SynthesizerForConditionalGeneration, "vanilla"), ids(2, 5)
    cache = BeamSearchCache([True, True], [True, True], beams=3)
    with torch.no_grad():
        source, chosen = model.get_encoder()(x).last_hidden_state.repeat_interleave(3, 0), torch.tensor([4, 1, 5])
        y = ids(6, 4)
        model(encoder_outputs=(source,), decoder_input_ids=y[:, :3], past_key_values=cache)
        cache.batch_select_indices(chosen)
        found = model(encoder_outputs=(source[chosen],), decoder_input_ids=y[chosen, 3:], past_key_values=cache).logits
        expected = model(encoder_outputs=(source[chosen],), decoder_input_ids=y[chosen]).logits[:, 3:]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
