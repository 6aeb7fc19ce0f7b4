"""Traps in transformers that a conversion has to avoid, one test each."""

import copy
import inspect
import io
from typing import Any

import pytest
import torch
from conversion_checks import SPECS, converted, generate
from model_families import BATCH, FAMILIES, LENGTH, TEXTS, VOCABULARY, inputs, logits, original, padded
from torch import nn

import synthattn
from synthattn.attend import run
from synthattn.convert import interface
from synthattn.convert.masks import read_mask

pytestmark = pytest.mark.unchecked


# transformers has no checkpointing for ALBERT.
CHECKPOINTED = [*((name, False) for name in FAMILIES if name != "albert"), ("llama", True)]


def calls(model, given, monkeypatch) -> list:
    """Return the calls of the engine in a forward pass."""
    seen = []
    monkeypatch.setattr(interface, "run", lambda call: seen.append(call) or run(call))
    with torch.no_grad():
        logits(model, given)
    return seen


def test_a_static_cache_does_not_change_positions():
    """The number of keys minus queries is not a position where the cache has empty slots."""
    model, given = converted("llama", "random"), inputs("llama", length=5)
    expected = generate(model, given, use_cache=False)
    static = {"cache_implementation": "static", "disable_compile": True}
    torch.testing.assert_close(generate(model, given, **static), expected)


def test_a_step_of_a_static_cache_that_is_compiled_equals_one_without():
    model, given = converted("llama", "random+vanilla"), inputs("llama", length=5)
    from transformers import StaticCache

    def steps(compiled: bool) -> torch.Tensor:
        cache = StaticCache(config=model.config, max_cache_len=13)
        first = model(given["input_ids"], past_key_values=cache).logits
        call: Any = torch.compile(model, backend="eager") if compiled else model
        second = call(given["input_ids"][:, :1], past_key_values=cache).logits
        third = call(given["input_ids"][:, :1], past_key_values=cache).logits
        return torch.cat([first, second, third], dim=1)

    results = []
    for compiled in (False, True):
        torch._dynamo.reset()
        with torch.no_grad():
            results.append(steps(compiled))
    torch.testing.assert_close(*results, rtol=1e-9, atol=1e-10)


def test_keys_that_nothing_reads_still_count_the_tokens_of_a_cache():
    model, given = converted("bart", "random"), inputs("bart")
    cache = model(**given, use_cache=True).past_key_values
    assert cache.get_seq_length() == LENGTH - 2
    assert cache.self_attention_cache.layers[0].keys.shape == cache.self_attention_cache.layers[0].values.shape


def test_t5_initialises_projections_by_name():
    model = converted("t5", "random")
    attention = model.encoder.block[0].layer[0].SelfAttention
    assert attention.q.weight.numel() == 0
    model._init_weights(attention)


def test_norms_of_queries_that_nothing_reads_go():
    """Parameters without a gradient would make DistributedDataParallel fail."""
    model = converted("qwen3", "random")
    assert not any("q_norm" in path or "k_norm" in path for path, _ in model.named_parameters())
    logits(model, inputs("qwen3")).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_padding_leaves_weights_shared_by_the_batch(implementation, monkeypatch):
    """A mask of shape (batch, 1, q, k) that is padding must not make logits of each example."""
    model = converted("bert", "random")
    model.set_attn_implementation(implementation)
    for call in calls(model, padded(inputs("bert"), "right"), monkeypatch):
        assert call.logits.input_independent
        assert call.mask.allowed_pairs is None
        assert call.mask.unpadded.shape == (BATCH, LENGTH + 2)
        assert not call.mask.causal


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_padding_in_a_decoder_is_causal_and_padding(implementation, monkeypatch):
    model = converted("llama", "random")
    model.set_attn_implementation(implementation)
    for call in calls(model, padded(inputs("llama"), "right"), monkeypatch):
        assert call.logits.input_independent
        assert call.mask.allowed_pairs is None
        assert call.mask.causal


def test_without_padding_a_decoder_is_causal(monkeypatch):
    for call in calls(converted("gpt2", "random"), inputs("gpt2"), monkeypatch):
        assert call.mask.causal


def test_sliding_windows_are_kept(monkeypatch):
    seen = calls(converted("modernbert", "random"), inputs("modernbert"), monkeypatch)
    assert seen[0].mask.allowed_pairs is None
    distance = (torch.arange(LENGTH) - torch.arange(LENGTH)[:, None]).abs()
    assert torch.equal(seen[1].mask.allowed_pairs, distance <= 2)


def test_a_sliding_window_with_a_cache_is_refused():
    from model_families import DECODER
    from transformers import MistralConfig, MistralForCausalLM

    torch.manual_seed(0)
    model = MistralForCausalLM(MistralConfig(**DECODER, sliding_window=3)).double().eval()
    given = inputs("llama")
    expected = logits(model, given)
    synthattn.replace_attention(model, "vanilla")
    torch.testing.assert_close(logits(model, given), expected)
    assert generate(model, inputs("llama", length=5)).isfinite().all()
    synthattn.restore(model)
    synthattn.replace_attention(model, "random", 11)
    assert logits(model, given, use_cache=False).isfinite().all()
    with pytest.raises(ValueError, match=r"layers\.0\.self_attn has a sliding window.*use_cache=False"):
        generate(model, inputs("llama", length=5))


def test_masks_of_each_kind_are_read_exactly():
    torch.manual_seed(0)
    past = torch.ones(4, 6, dtype=torch.bool).tril()
    keep = torch.tensor([[1, 1, 1, 1, 0, 0], [0, 1, 1, 1, 1, 1]]).bool()
    masks = [
        keep[:, None, None, :],
        keep[:, None, None, :].expand(2, 1, 4, 6),
        (past & keep[:, None])[:, None],
        past[None, None],
        (torch.rand(4, 6) > 0.3)[None, None],
        (torch.rand(2, 1, 4, 6) > 0.3),
        (torch.rand(2, 3, 4, 6) > 0.3),
    ]
    for mask in masks:
        for given in (mask, torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)):
            read = read_mask(given, False, 2, 4, 6)
            assert read.bias is None
            full = read.mask.full(4, 6, torch.device("cpu"))
            assert full is not None
            assert torch.equal(full.expand(2, mask.shape[1], 4, 6), mask.expand(2, -1, 4, 6))
    padding = read_mask(masks[0], False, 2, 4, 6).padding
    assert padding is not None
    assert padding.tolist() == [0, 1]
    given = torch.randn(2, 1, 4, 6).masked_fill(~masks[5], -float("inf"))
    bias = read_mask(given, False, 2, 4, 6).bias
    assert bias is not None
    assert torch.equal(bias, given.masked_fill(~masks[5], 0.0))


def test_a_mask_that_was_changed_in_place_is_read_again():
    mask = torch.ones(1, 1, 1, 5, dtype=torch.bool)
    assert read_mask(mask, False, 1, 1, 5).mask.unpadded is None
    mask[..., 3:] = False
    keep = read_mask(mask, False, 1, 1, 5).mask.unpadded
    assert keep is not None
    assert keep.tolist() == [[True, True, True, False, False]]


@pytest.mark.parametrize("name", TEXTS)
def test_attention_weights_of_all_families_are_those_of_the_logits(name):
    """Rows sum to 1, nothing is seen that the mask hides, and the output does not change."""
    model, given = converted(name, "random+vanilla"), padded(inputs(name), "right")
    model.set_attn_implementation("eager")
    expected = logits(model, given)
    result = model(**given, output_attentions=True)
    torch.testing.assert_close(result.logits, expected)
    every = result.attentions if hasattr(result, "attentions") else result.encoder_attentions
    assert len(every) == 2
    for weights in every:
        assert weights.shape == (BATCH, 4, LENGTH + 2, LENGTH + 2)
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]), rtol=0, atol=1e-6)
        assert not weights[:, :, :LENGTH, LENGTH:].any()
        if name in ("gpt2", "llama"):
            assert not weights.triu(1).any()


def test_attention_weights_are_returned_where_they_are_asked_for():
    model, given = converted("bert", "random"), inputs("bert")
    assert not model(**given).get("attentions")
    weights = model(**given, output_attentions=True).attentions
    assert [w.shape for w in weights] == [(BATCH, 4, LENGTH, LENGTH)] * 2
    table = model.bert.encoder.layer[1].attention.self.synthesizer.matrix[:, :LENGTH, :LENGTH].softmax(-1)
    torch.testing.assert_close(weights[1][2], table)


@pytest.mark.parametrize(("name", "reentrant"), CHECKPOINTED)
def test_gradient_checkpointing_gives_equal_gradients(name, reentrant):
    grads = []
    for checkpointing in (False, True):
        model = converted(name, "random+vanilla" if name == "llama" else "random").train()
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": reentrant})
            model.enable_input_require_grads()
        logits(model, inputs(name)).square().sum().backward()
        grads.append({path: value.grad for path, value in model.named_parameters()})
    torch.testing.assert_close(*grads)


def test_strict_data_parallel_training_finds_a_gradient_for_every_parameter(tmp_path):
    """Qwen3's norms of queries and keys have none where nothing reads these; DistributedDataParallel then refuses."""
    given = inputs("qwen3")
    plain = converted("qwen3", "random")
    logits(plain, given).square().sum().backward()
    torch.distributed.init_process_group("gloo", f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        model = nn.parallel.DistributedDataParallel(converted("qwen3", "random"))
        for _ in range(2):  # the second step finds what the first left out
            model.zero_grad()
            logits(model, given).square().sum().backward()
        found = {path: value.grad for path, value in model.module.named_parameters()}
    finally:
        torch.distributed.destroy_process_group()
    torch.testing.assert_close(found, {path: value.grad for path, value in plain.named_parameters()})


@pytest.mark.parametrize("name", FAMILIES)
def test_bf16(name):
    model, given = converted(name, "random+vanilla"), inputs(name)
    expected = logits(model, given)
    given = {key: value.bfloat16() if value.is_floating_point() else value for key, value in given.items()}
    found = logits(model.bfloat16(), given)
    assert found.dtype == torch.bfloat16
    assert (found - expected).abs().mean() < 0.05 * expected.abs().mean()
    found.float().sum().backward()


def test_autocast():
    model, given = converted("bert", "random").float(), inputs("bert")
    expected = logits(model, given)
    with torch.autocast("cpu", torch.bfloat16):
        found = logits(model, given)
    assert (found - expected).abs().mean() < 0.05 * expected.abs().mean()


def test_packed_rows_have_positions_of_their_own():
    model, given = converted("llama", "random"), inputs("llama", batch=1)
    parts = given["input_ids"].split([4, 3], dim=1)
    places = torch.tensor([[0, 1, 2, 3, 0, 1, 2]])
    packed = model(given["input_ids"], position_ids=places, use_cache=False).logits
    alone = torch.cat([model(part, use_cache=False).logits for part in parts], dim=1)
    torch.testing.assert_close(packed, alone)


def test_copies_and_pickles_are_models_of_their_own():
    model, given = converted("bert", "random"), inputs("bert")
    expected = logits(model, given)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for other in (copy.deepcopy(model), torch.load(file, weights_only=False)):
        assert torch.equal(logits(other, given), expected)
        synthattn.restore(other)
        torch.testing.assert_close(logits(other, given), logits(original("bert"), given))
    assert torch.equal(logits(model, given), expected)


def test_another_attention_function_of_the_model_does_not_switch_the_conversion_off():
    model, given = converted("bert", "random"), inputs("bert")
    expected = logits(model, padded(given, "right"))
    model.set_attn_implementation("eager")
    torch.testing.assert_close(logits(model, padded(given, "right")), expected)


def trainer(model: Any, folder: Any, **options: Any) -> Any:
    from transformers import Trainer, TrainingArguments

    tokens = torch.randint(3, VOCABULARY, (8, LENGTH), generator=torch.Generator().manual_seed(0))
    settings = TrainingArguments(
        str(folder), per_device_train_batch_size=4, use_cpu=True, report_to=[], logging_strategy="no",
        disable_tqdm=True, learning_rate=0.01, lr_scheduler_type="constant", **options,
    )  # fmt: skip
    return Trainer(model, settings, train_dataset=[{"input_ids": row, "labels": row} for row in tokens])


def test_the_trainer_trains_saves_and_resumes(tmp_path):
    model = converted("bert", "random+vanilla").float()
    before = copy.deepcopy(model.state_dict())
    options = {"max_steps": 4, "save_steps": 2}
    trainer(model, tmp_path, **options).train()
    assert all(not torch.equal(value, before[path]) for path, value in model.named_parameters())
    again = synthattn.from_pretrained(tmp_path / "checkpoint-2")
    trainer(again, tmp_path, **options).train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    torch.testing.assert_close(again.state_dict(), model.state_dict())


@pytest.mark.parametrize(("name", "spec"), [(name, SPECS[n % 3]) for n, name in enumerate(TEXTS)])
def test_the_trainer_trains_every_family(name, spec, tmp_path):
    model = converted(name, spec).float()
    before = copy.deepcopy(model.state_dict())
    trainer(model, tmp_path, max_steps=1, save_strategy="no").train()
    assert all(
        not torch.equal(value, before[path]) for path, value in model.named_parameters() if ".synthesizer." in path
    )


def test_the_interface_of_transformers_is_what_it_was():
    """A release that renames these arguments must not go unnoticed."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    names = list(inspect.signature(sdpa_attention_forward).parameters)[:9]
    assert names == list(inspect.signature(interface.attention).parameters)[:9]
    assert isinstance(converted("bert", "vanilla").bert.encoder.layer[0].attention.self.synthesizer, nn.Module)
