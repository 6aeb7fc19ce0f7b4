"""Traps of the ecosystem, most of them silent: each test fails if its remedy is taken away."""

import json

import pytest
import torch
import torch.nn.functional as F
from transformers import Trainer, TrainerCallback, TrainingArguments

from model_helpers import KINDS, assert_same_numbers, assert_same_weights, config, ids, labels_for, make
from synthattn.models import SynthesizerForCausalLM, SynthesizerForConditionalGeneration, SynthesizerForMaskedLM

pytestmark = pytest.mark.unchecked


def test_a_fixed_matrix_is_fixed_after_reloading_too(tmp_path):
    """A parameter that wants no gradient comes back from a checkpoint wanting one."""
    model = make(SynthesizerForCausalLM, "fixed_random")
    model.save_pretrained(tmp_path)
    again = SynthesizerForCausalLM.from_pretrained(tmp_path, dtype=torch.float64).train()
    matrix = again.model.decoder.blocks[0].attention.synthesizer.matrix
    assert torch.equal(matrix, model.model.decoder.blocks[0].attention.synthesizer.matrix)
    before = matrix.clone()
    optimizer = torch.optim.SGD(again.parameters(), lr=1.0)
    again(ids(2, 7), labels=ids(2, 7)).loss.backward()
    optimizer.step()
    assert torch.equal(again.model.decoder.blocks[0].attention.synthesizer.matrix, before)
    assert not any(name.endswith("matrix") for name, _ in again.named_parameters())


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "relative", "none"])
@pytest.mark.parametrize("spec", ["fixed_random", "relative+vanilla"])
def test_nothing_comes_back_as_uninitialised_memory(positions, spec, tmp_path):
    """A buffer that is not saved is whatever was in memory after loading."""
    model, x = make(SynthesizerForMaskedLM, spec, positions=positions), ids(2, 7)
    model.save_pretrained(tmp_path)
    again = SynthesizerForMaskedLM.from_pretrained(tmp_path, dtype=torch.float64)
    assert_same_weights(again, model)
    assert_same_numbers(again(x).logits, model(x).logits)
    saved = set(model.state_dict())
    assert {name for name, _ in model.named_buffers()} <= saved, "a buffer that is not saved"


def test_the_loss_is_the_one_of_the_task():
    """transformers chooses a loss by the name of the class, for an encoder-decoder one that shifts the labels."""
    x = ids(3, 7)
    for kind in ("seq2seq", "causal-lm", "masked-lm", "classifier"):
        model = make(KINDS[kind])
        labels = labels_for(kind, x).clone()
        if kind != "classifier":
            labels[0, 3:] = -100
        output = model(x, labels=labels)
        logits, targets = output.logits, labels
        if kind == "causal-lm":
            logits, targets = logits[:, :-1], labels[:, 1:]
        expected = F.cross_entropy(logits.flatten(0, -2), targets.flatten())
        torch.testing.assert_close(output.loss, expected, check_dtype=False, rtol=0, atol=1e-5)


def test_the_decoder_reads_the_labels_one_place_later():
    model = make(SynthesizerForConditionalGeneration)
    labels = torch.tensor([[5, 6, 7, 1], [8, 1, -100, -100]])
    shifted = model.prepare_decoder_input_ids_from_labels(labels)
    assert shifted.tolist() == [[0, 5, 6, 7], [0, 8, 1, 0]]


def test_the_loss_of_accumulated_batches_is_that_of_one(tmp_path):
    """The Trainer divides by the tokens of all batches together, if the model lets it."""
    model, x = make(SynthesizerForCausalLM), ids(2, 7)
    summed = model(x, labels=x, num_items_in_batch=torch.tensor(100)).loss
    torch.testing.assert_close(summed * 100, model(x, labels=x).loss * 12, rtol=1e-5, atol=1e-5)


class Texts(torch.utils.data.Dataset):
    def __init__(self, count: int = 16) -> None:
        self.tokens = ids(count, 7)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, n: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[n], "labels": self.tokens[n]}


def train(folder, resume: bool = False, steps: int = 8, stop_after: int | None = None, seed: int = 0, **options):
    class Stop(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            control.should_training_stop = state.global_step == stop_after

    torch.manual_seed(seed)
    model = SynthesizerForCausalLM(config("random+vanilla", dropout=0.1))
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        per_device_train_batch_size=4,
        save_steps=4,
        learning_rate=1e-2,
        use_cpu=True,
        disable_tqdm=True,
        report_to=[],
        seed=7,
        **options,
    )
    trainer = Trainer(model, arguments, train_dataset=Texts(), callbacks=[Stop()])
    trainer.train(resume_from_checkpoint=resume)
    return model


@pytest.mark.filterwarnings("ignore")
def test_training_is_resumed_exactly(tmp_path):
    """Weights, optimizer, order and chance; the Trainer reads the configuration again with transformers' base class."""
    straight = train(tmp_path / "straight")
    train(tmp_path / "stopped", stop_after=4)
    resumed = train(tmp_path / "stopped", resume=True, seed=1)
    for name, parameter in straight.named_parameters():
        assert torch.equal(dict(resumed.named_parameters())[name], parameter), name


@pytest.mark.filterwarnings("ignore")
def test_a_trained_model_decodes_with_a_cache(tmp_path):
    """The Trainer writes use_cache=false into the configuration that it saves, unless told not to."""
    train(tmp_path, steps=4, use_cache=True)
    saved = tmp_path / "checkpoint-4"
    assert json.loads((saved / "config.json").read_text())["use_cache"] is True
    model = SynthesizerForCausalLM.from_pretrained(saved)
    assert model(ids(1, 5)).past_key_values.get_seq_length() == 5
    steps = {"max_new_tokens": 5, "do_sample": False}
    assert torch.equal(model.generate(ids(2, 5), **steps), model.generate(ids(2, 5), use_cache=False, **steps))


@pytest.mark.filterwarnings("ignore")
def test_even_without_that_generate_uses_one(tmp_path):
    train(tmp_path, steps=4)
    model = SynthesizerForCausalLM.from_pretrained(tmp_path / "checkpoint-4")
    seen = []
    forward = model.forward
    model.forward = lambda *a, **k: seen.append(k["input_ids"].shape[1]) or forward(*a, **k)
    model.generate(ids(1, 5), max_new_tokens=4, do_sample=False, eos_token_id=-1)
    assert seen == [5, 1, 1, 1]


@pytest.mark.filterwarnings("ignore")
def test_smoothed_labels_are_shifted(tmp_path):
    """The Trainer computes this loss itself, and shifts labels only for the language models that it knows by name."""
    model = SynthesizerForCausalLM(config("random+vanilla")).eval()
    arguments = TrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to=[], label_smoothing_factor=0.1)
    x = ids(3, 7)
    found = Trainer(model, arguments).compute_loss(model, {"input_ids": x, "labels": x.clone()})
    expected = F.cross_entropy(model(x).logits[:, :-1].flatten(0, 1), x[:, 1:].flatten(), label_smoothing=0.1)
    torch.testing.assert_close(found, expected)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["regression", "halting"])
def test_small_batches_that_are_summed_up_learn_what_a_large_one_does(kind, tmp_path):
    """A mean of a batch that the Trainer takes for a sum counts as often as there are small batches."""

    def weights(accumulation):
        torch.manual_seed(0)
        if kind == "regression":
            model = KINDS["classifier"](config("random", num_labels=1))
        else:
            model = SynthesizerForCausalLM(config("random", share_layers=True, halting=True, ponder_weight=1.0))
        data = [{"input_ids": t, "labels": torch.tensor(float(t[0])) if kind == "regression" else t} for t in ids(8, 7)]
        arguments = TrainingArguments(
            output_dir=str(tmp_path),
            max_steps=1,
            per_device_train_batch_size=8 // accumulation,
            gradient_accumulation_steps=accumulation,
            optim="sgd",
            learning_rate=0.1,
            max_grad_norm=0.0,
            lr_scheduler_type="constant",
            use_cpu=True,
            disable_tqdm=True,
            report_to=[],
            save_strategy="no",
        )
        Trainer(model, arguments, train_dataset=data).train()
        return model.state_dict()

    once, four_times = weights(1), weights(4)
    for name, weight in once.items():
        torch.testing.assert_close(four_times[name], weight, rtol=1e-4, atol=1e-5)
