"""The models follow the conventions of transformers for masks, positions, caches and parts of a model."""

from typing import Any

import pytest
import torch
from torch import nn

from synthattn.models import (
    SynthesizerConfig,
    SynthesizerForCausalLM,
    SynthesizerForConditionalGeneration,
    SynthesizerForMaskedLM,
    presets,
)
from synthattn.models.layout import relative_layout, token_layout

SPECS = ["random", "vanilla", "dense", "random+vanilla"]
POSITIONS = ["sinusoidal", "learned", "relative"]


def tokens(batch: int = 2, length: int = 6) -> torch.Tensor:
    return torch.randint(2, 64, (batch, length), generator=torch.Generator().manual_seed(1))


def make(kind: Any, spec: str = "random", **fields: Any) -> Any:
    torch.manual_seed(0)
    return kind(presets.tiny(spec, **({"vocab_size": 64} | fields))).eval()


def test_freezing_the_encoder_leaves_the_decoder_alone():
    model = make(SynthesizerForConditionalGeneration, tie_word_embeddings=False)
    encoder = model.get_encoder()
    encoder.requires_grad_(False)
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    assert {name.split(".")[1] for name in frozen} == {"encoder", "embedding"}
    assert any(name.startswith("model.decoder.") for name, p in model.named_parameters() if p.requires_grad)
    model.train()
    encoder.eval()
    assert model.model.decoder.training
    assert not model.model.encoder.training


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("spec", SPECS)
def test_a_cache_changes_its_positions_like_its_batch(spec, positions):
    """After padding on the left, the positions of examples differ."""
    model = make(SynthesizerForCausalLM, spec, positions=positions)
    x, kept = tokens(), torch.tensor([[0, 0, 1, 1, 1, 1], [1] * 6])
    new, after = torch.tensor([[9], [8]]), torch.cat([kept, torch.ones(2, 1, dtype=torch.long)], 1)
    swapped, twice = torch.tensor([1, 0]), torch.tensor([0, 0, 1, 1])
    with torch.no_grad():
        wanted = model(torch.cat([x, new], 1), attention_mask=after).logits[:, -1:]
        for change, order in (
            (lambda cache: cache.batch_select_indices(swapped), swapped),
            (lambda cache: cache.reorder_cache(swapped), swapped),
            (lambda cache: cache.batch_repeat_interleave(2), twice),
        ):
            cache = model(x, attention_mask=kept, use_cache=True).past_key_values
            change(cache)
            found = model(new[order], attention_mask=after[order], past_key_values=cache).logits
            torch.testing.assert_close(found, wanted[order], rtol=1e-4, atol=1e-5)


def test_a_cache_that_is_reset_forgets_positions():
    model = make(SynthesizerForCausalLM)
    x = tokens()
    with torch.no_grad():
        cache = model(x, position_ids=torch.arange(7, 13)[None], use_cache=True).past_key_values
        cache.reset()
        model(x[:, :3], past_key_values=cache)
        found = model(x[:, 3:], past_key_values=cache).logits
        torch.testing.assert_close(found, model(x).logits[:, 3:], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("kind", [SynthesizerForCausalLM, SynthesizerForConditionalGeneration])
def test_generation_in_the_middle_of_checkpointed_training(kind, beams):
    model = make(kind, tie_word_embeddings=False, dropout=0.0, attention_dropout=0.0, activation_dropout=0.0)
    with torch.no_grad():  # so that answers depend on earlier tokens
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(3)
    options: dict[str, Any] = {"max_new_tokens": 6, "min_new_tokens": 6, "num_beams": beams, "do_sample": False}
    wanted = model.generate(tokens(), **options)
    model.train()
    model.gradient_checkpointing_enable()
    assert torch.equal(model.generate(tokens(), **options), wanted)
    assert len(set(wanted[0, -6:].tolist())) > 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_float_masks_of_ones_and_zeros_are_refused(dtype):
    """Ones and zeros of a float type would be added to the logits and mask nothing."""
    model = make(SynthesizerForCausalLM)
    x, mask = tokens(), torch.ones(2, 1, 6, 6).tril()
    with pytest.raises(ValueError, match=r"with ones and zeros, but floats are added .*; pass it as bool or int$"):
        model(x, attention_mask=mask.to(dtype))
    with torch.no_grad():
        wanted = model(x).logits
        for right in (mask.bool(), mask.long(), torch.zeros(2, 1, 6, 6).masked_fill(mask == 0, float("-inf"))):
            torch.testing.assert_close(model(x, attention_mask=right).logits, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("spec", SPECS)
def test_padding_in_the_middle_changes_nothing(spec, positions):
    model = make(SynthesizerForCausalLM, spec, positions=positions)
    x, holes = torch.tensor([[5, 6, 7, 8]]), torch.tensor([[5, 6, 0, 7, 8]])
    kept = torch.tensor([[1, 1, 0, 1, 1]])
    with torch.no_grad():
        wanted = model(x).logits
        found = model(holes, attention_mask=kept).logits[:, [0, 1, 3, 4]]
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
        cache = model(holes[:, :3], attention_mask=kept[:, :3], use_cache=True).past_key_values
        found = model(holes[:, 3:], attention_mask=kept, past_key_values=cache).logits
        torch.testing.assert_close(found, wanted[:, 2:], rtol=1e-4, atol=1e-5)
        if spec != "vanilla" or positions != "relative":
            return
        # Only distances have an effect, not the start of a text.
        torch.testing.assert_close(model(x, position_ids=torch.arange(3, 7)[None]).logits, wanted)
        far = model(x, position_ids=torch.tensor([[0, 1, 9, 20]])).logits
        assert (far - wanted).abs().max() > 0.01


def test_a_shared_bias_is_read_once_per_diagonal_after_padding_on_the_left():
    def positions(*mask: list[int]) -> torch.Tensor | None:
        return relative_layout(token_layout(torch.tensor(mask), None, 2, 4, 0)).memory_positions

    assert token_layout(torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]]), None, 2, 4, 0).memory_positions is not None
    assert positions([0, 0, 1, 1], [1, 1, 1, 1]) is None
    assert positions([1, 0, 1, 1], [1, 1, 1, 1]) is not None
    assert positions([0, 0, 0, 0], [0, 1, 1, 1]) is None


def test_layouts_move_to_a_device():
    found = token_layout(torch.tensor([[0, 1, 1]]), None, 1, 3, 0).to(torch.device("meta"))
    assert found.key_padding_mask is not None
    assert found.memory_positions is not None
    assert {found.key_padding_mask.device.type, found.memory_positions.device.type} == {"meta"}
    assert found.offset == 0


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("spec", SPECS)
def test_padding_may_reach_beyond_the_longest_input(spec, positions):
    model = make(SynthesizerForMaskedLM, spec, positions=positions, max_position_embeddings=32)
    x = tokens(2, 40)
    with torch.no_grad():
        wanted = model(x[:, :30]).logits
        right = torch.tensor([[1] * 30 + [0] * 10])
        found = model(x, attention_mask=right.expand(2, -1)).logits[:, :30]
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
        left = torch.cat([x[:, 30:], x[:, :30]], 1)
        found = model(left, attention_mask=right.flip(1).expand(2, -1)).logits[:, 10:]
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    if spec != "vanilla" or positions == "learned":
        with pytest.raises(ValueError, match="40"):
            model(x, attention_mask=torch.ones(2, 40))


def test_logits_of_chosen_tokens():
    model = make(SynthesizerForCausalLM)
    x = tokens()
    with torch.no_grad():
        logits = model(x).logits
        chosen = model(x, logits_to_keep=torch.tensor([1, 3])).logits
        torch.testing.assert_close(chosen, logits[:, [1, 3]], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(model(x, logits_to_keep=2).logits, logits[:, -2:], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(0, 5), (2, 0)])
@pytest.mark.parametrize("positions", POSITIONS)
def test_empty_inputs_are_refused(positions, shape):
    model = make(SynthesizerForCausalLM, "random+vanilla", positions=positions)
    with pytest.raises(ValueError, match=rf"^the input holds no tokens: its shape is \({shape[0]}, {shape[1]}\)$"):
        model(tokens(*shape))


def test_negative_positions_are_refused():
    model = make(SynthesizerForCausalLM, "vanilla", positions="learned")
    with pytest.raises(ValueError, match=r"^positions start at 0, got -1; give padding any valid position, such as 0$"):
        model(tokens(1, 3), position_ids=torch.tensor([[-1, 0, 1]]))


def test_positions_of_another_batch_are_refused():
    with pytest.raises(ValueError, match=r"once or for each of 2 examples, got int64 of shape \(3, 6\)$"):
        make(SynthesizerForCausalLM)(tokens(), position_ids=torch.zeros(3, 6, dtype=torch.long))


def test_the_number_of_layers_by_its_common_name():
    layers: dict[str, Any] = {"num_hidden_layers": 2}
    config = SynthesizerConfig(vocab_size=64, d_model=16, num_heads=2, d_ff=16, **layers)
    assert (config.encoder_layers, config.decoder_layers, config.num_hidden_layers) == (2, 2, 2)
    for kind in (SynthesizerForMaskedLM, SynthesizerForCausalLM):
        model: Any = kind(config)
        assert len((model.model.encoder or model.model.decoder).layers) == 2
        assert model.config.num_hidden_layers == 2
    assert SynthesizerConfig.from_dict(config.to_dict()).to_dict() == config.to_dict()
    encoder: Any = SynthesizerForMaskedLM(presets.tiny(encoder_layers=3, decoder_layers=1))
    assert encoder.config.num_hidden_layers == 3
    with pytest.raises(ValueError, match=r"encoder_attention lists 1 layers, there are 2"):
        SynthesizerConfig(encoder_attention=["random"], **layers)


def test_hooks_of_the_relative_table_are_called():
    """Libraries that keep weights elsewhere fetch them in a hook, which needs a call of the module."""
    model = make(SynthesizerForMaskedLM, "vanilla", positions="relative")
    called = []
    (table,) = model.model.encoder.relative.values()
    assert isinstance(table, nn.Module)
    table.register_forward_pre_hook(lambda module, inputs: called.append(module))
    model(tokens())
    assert called == [table]


@pytest.mark.parametrize("spec", ["lightconv", "dynamicconv(kernel=5)", "linformer"])
def test_baselines_cannot_be_cross_attention(spec):
    name = spec.partition("(")[0]
    with pytest.raises(
        ValueError, match=rf"^cross_attention cannot be {name}, which mixes the tokens of one text; give"
    ):
        presets.tiny(cross_attention=spec)
