"""The loss by hand, gradients of a step whatever its batches, the validation loss by a plain loop."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from training_helpers import Fixed, Gradients, data, new_model, settings, trainer

from synthattn.training.prepare import Prepared
from synthattn.training.run import prepare_data
from synthattn.training.settings import Settings
from synthattn.training.trainer import Diverged, smoothed_loss

TASKS = ["translation", "sentence-modeling", "language-modeling", "span-corruption", "classification"]


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory):
    made: dict[str, tuple[Settings, Prepared]] = {}

    def get(task: str, **changes: Any) -> tuple[Settings, Prepared]:
        if task not in made:
            chosen = settings(data(tmp_path_factory.mktemp(task), task), task)
            made[task] = chosen, prepare_data(chosen)
        chosen, found = made[task]
        return chosen.changed(**changes), found

    return get


def log_likelihoods(logits: Tensor, labels: Tensor, smoothing: float) -> list[Tensor]:
    """Compute the loss of every label from the definition of label smoothing."""
    found = []
    for scores, label in zip(logits.flatten(0, -2).double(), labels.flatten(), strict=True):
        if label != -100:
            logs = scores - scores.exp().sum().log()
            found.append((1 - smoothing) * -logs[label] + smoothing * -logs.mean())
    return found


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_the_smoothed_loss_is_its_definition(smoothing):
    torch.manual_seed(0)
    logits, labels = torch.randn(3, 5, 7), torch.randint(7, (3, 5))
    labels[0, 2:] = labels[2, 0] = -100
    same = torch.stack(log_likelihoods(logits, labels, smoothing)).sum()
    torch.testing.assert_close(
        smoothed_loss(logits, labels, smoothing, shifted=False).double(), same, rtol=1e-5, atol=0
    )
    later = torch.stack(log_likelihoods(logits[:, :-1], labels[:, 1:], smoothing)).sum()
    torch.testing.assert_close(
        smoothed_loss(logits, labels, smoothing, shifted=True).double(), later, rtol=1e-5, atol=0
    )


def loss_by_hand(model: Any, batch: dict[str, Tensor], smoothing: float) -> Tensor:
    """The mean over all labels of a batch."""
    labels = batch["labels"]
    given = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
    if model.config.is_encoder_decoder:
        start = labels.new_zeros(len(labels), 1)
        given["decoder_input_ids"] = torch.cat([start, labels[:, :-1].clamp(min=0)], dim=1)
    logits = model(**given).logits
    if model.config.is_decoder:
        logits, labels = logits[:, :-1], labels[:, 1:]
    return F.cross_entropy(
        logits.flatten(0, -2), labels.flatten(), label_smoothing=smoothing, ignore_index=-100, reduction="mean"
    )


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("task", TASKS)
def test_a_step_has_the_gradient_of_all_its_examples(ready, tmp_path, task, smoothing):
    """Batches that are accumulated count by their labels, not as batches."""
    changes = {"training__label_smoothing": smoothing, "training__clip": 0.0, "training__steps": 1}
    chosen, found = ready(task, **changes, training__accumulation=2)
    numbers = [0, 1, 2, 3, 4] if len(found.train) > 4 else [0, 1, 2]
    gradients = Gradients()
    trainer(chosen, found, tmp_path, Fixed([numbers[:-1], numbers[-1:]]), callbacks=[gradients]).train()
    assert len(gradients.found) == 1
    model = new_model(chosen, found)
    loss_by_hand(model, found.train.batch(numbers), smoothing).backward()
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(gradients.found[0][name], parameter.grad, rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize("task", TASKS)
def test_the_validation_loss_is_that_of_a_plain_loop_without_smoothing(ready, tmp_path, task):
    chosen, found = ready(task, training__label_smoothing=0.1, evaluation__batch_tokens=50)
    one = trainer(chosen, found, tmp_path, Fixed([[0]]))
    metrics = one.evaluate()
    total = count = 0.0
    model: Any = one.model
    assert model.training, "as training needs it"
    model.eval()
    with torch.no_grad():
        for n in range(len(found.validation)):
            batch = found.validation.batch([n])
            labels = int((batch["labels"] != -100).sum())
            total += labels * float(loss_by_hand(model, batch, 0.0))
            count += labels
    assert metrics["eval_loss"] == pytest.approx(total / count, rel=1e-5)


def test_an_example_longer_than_a_batch_of_the_validation_loss_is_a_batch(ready, tmp_path):
    losses = []
    for tokens in (1, 1000):
        chosen, found = ready("translation", evaluation__batch_tokens=tokens)
        losses.append(trainer(chosen, found, tmp_path, Fixed([[0]])).evaluate()["eval_loss"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.parametrize("mix", ["sigmoid", "softmax"])
def test_only_matrices_decay(ready, tmp_path, mix):
    """Not how much the terms of a mixture weigh, which is a single number with ``sigmoid``."""
    chosen, found = ready("translation", training__weight_decay=0.1)
    chosen = dataclasses.replace(
        chosen, model=dataclasses.replace(chosen.model, fields={**chosen.model.fields, "mix": mix})
    )
    one = trainer(chosen, found, tmp_path, Fixed([[0]]))
    optimizer, model = one.create_optimizer(), one.model
    assert model is not None
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = {
        group["weight_decay"]: [names[id(parameter)] for parameter in group["params"]]
        for group in optimizer.param_groups
    }
    assert set(groups) == {0.1, 0.0}
    shapes = {name: parameter.dim() for name, parameter in model.named_parameters()}
    assert all(shapes[name] > 1 for name in groups[0.1])
    assert any(name.endswith("synthesizer.weights.alpha") for name in groups[0.0])
    assert not any(name.endswith("alpha") for name in groups[0.1])
    matrices = ("embedding.weight", "value.weight", "synthesizer.terms.0.matrix")
    assert all(any(name.endswith(end) for name in groups[0.1]) for end in matrices)


def test_a_loss_that_is_no_number_ends_the_run_with_step_and_numbers(ready, tmp_path):
    chosen, found = ready("translation")
    model = new_model(chosen, found)
    with torch.no_grad():
        model.get_input_embeddings().weight[:] = float("nan")
    width = int(found.train.batch([3, 4])["input_ids"].shape[1])
    message = (
        rf"the loss is nan at step 1, on a batch of 2 examples of up to {width} tokens; "
        r"lower training\.learning_rate \(now 0\.001\) or lengthen training\.warmup"
    )
    with pytest.raises(Diverged, match=message) as caught:
        trainer(chosen, found, tmp_path, Fixed([[3, 4]] * 4), model=model).train()
    assert "\n" not in str(caught.value)


def rates(ready: Any, folder: Path, schedule: str, steps: int, warmup: int) -> list[float]:
    """The learning rate of each step."""
    chosen, found = ready("classification", training__schedule=schedule, training__steps=steps, training__warmup=warmup)
    one: Any = trainer(chosen, found, folder, Fixed([[0]] * steps))
    one.create_optimizer_and_scheduler(steps)
    seen = []
    for _ in range(steps):
        seen.append(one.optimizer.param_groups[0]["lr"])
        one.optimizer.step()
        one.lr_scheduler.step()
    return seen


def test_learning_rates_rise_and_then_follow_their_schedule(ready, tmp_path):
    steps, warmup, highest = 20, 4, 1e-3
    expected = {
        "constant": [highest] * steps,
        "inverse_sqrt": [highest * math.sqrt(warmup / max(n, 1)) for n in range(steps)],
        "linear": [highest * (steps - n) / (steps - warmup) for n in range(steps)],
        "cosine": [highest * (1 + math.cos(math.pi * (n - warmup) / (steps - warmup))) / 2 for n in range(steps)],
    }
    for schedule, later in expected.items():
        found = rates(ready, tmp_path, schedule, steps, warmup)
        assert found[:warmup] == pytest.approx([highest * n / warmup for n in range(warmup)]), schedule
        assert found[warmup:] == pytest.approx(later[warmup:]), schedule
    held = [highest * math.sqrt(warmup / max(n, warmup)) for n in range(steps)]
    assert rates(ready, tmp_path, "t5", steps, warmup) == pytest.approx(held)


@pytest.mark.parametrize("optimizer", ["adam", "adafactor"])
def test_optimizers_lower_the_loss(ready, tmp_path, optimizer):
    chosen, found = ready(
        "classification",
        training__optimizer=optimizer,
        training__learning_rate=0.01,
        training__steps=8,
        training__log_every=1,
        training__evaluate_every=100,
        training__warmup=0,
        training__schedule="constant",
        training__weight_decay=0.01,
    )
    one: Any = trainer(chosen, found, tmp_path, Fixed([list(range(9))] * 8))
    one.train()
    losses = [line["loss"] for line in one.state.log_history if "loss" in line]
    assert len(losses) == 8
    assert losses[-1] < losses[0]
    assert one.args.ddp_timeout >= 3 * 60 * 60, "scoring a large split takes one process hours"
    for group in one.optimizer.param_groups:
        if group["weight_decay"] > 0:
            assert min(parameter.dim() for parameter in group["params"]) >= 2, "matrices only"


def test_rates_of_adafactor_are_relative_to_the_size_of_a_parameter(ready, tmp_path):
    """The learning rate follows T5: the first update has the sign of the gradient, so its size is the rate."""
    rate = 0.01
    chosen, found = ready(
        "classification",
        training__optimizer="adafactor",
        training__learning_rate=rate,
        training__steps=1,
        training__warmup=0,
        training__schedule="constant",
    )
    one: Any = trainer(chosen, found, tmp_path, Fixed([list(range(9))]))
    before = {name: value.detach().clone() for name, value in one.model.named_parameters()}
    one.train()
    seen = set()
    for name, value in one.model.named_parameters():
        size, change = float(before[name].square().mean().sqrt()), (value - before[name]).detach().abs()
        step = rate * max(0.001, size)
        assert float(change.square().mean().sqrt()) <= 1.001 * step, name
        if value.dim() == 1 and change.all():
            assert change.tolist() == pytest.approx([step] * len(value), rel=1e-3), name
            seen.add(size)
    assert seen >= {0.0, 1.0}, "biases and norms"


def test_tokens_are_counted_without_padding(ready, tmp_path):
    chosen, found = ready("translation", training__steps=2)
    one = trainer(chosen, found, tmp_path, Fixed([[0, 1, 2], [3, 4]]))
    one.train()
    batches = [found.train.batch(numbers) for numbers in ([0, 1, 2], [3, 4])]
    assert one.tokens == sum(int(batch["attention_mask"].sum()) for batch in batches)
    assert one.padded == sum(batch["input_ids"].numel() for batch in batches)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("task", ["translation", "sentence-modeling", "classification"])
def test_a_batch_in_which_nothing_counts_has_no_gradient(ready, tmp_path, task, smoothing):
    """A process may get a batch without an example that counts."""
    chosen, found = ready(task, training__label_smoothing=smoothing)
    one: Any = trainer(chosen, found, tmp_path, Fixed([[0]]))
    filler = found.train.collate([found.train[0, 1, False]])
    items = torch.tensor(5)  # that others have
    loss = one.compute_loss(one.model, filler, num_items_in_batch=items)
    assert loss.item() == 0.0
    loss.backward()
    assert all(p.grad is None or not p.grad.any() for p in one.model.parameters())
