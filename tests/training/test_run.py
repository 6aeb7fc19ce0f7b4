"""Whole runs of a few steps: what they leave, how they end, and that a run goes on as if it had never stopped."""

import dataclasses
import json
import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file
from training_helpers import SIZES, data, prepared, settings, suite
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)

from synthattn.data.batching import TokenBatches
from synthattn.tasks.inputs import RunBatches
from synthattn.training import record
from synthattn.training import run as run_module
from synthattn.training.evaluation import load_rows
from synthattn.training.model import class_names, load
from synthattn.training.progress import Display
from synthattn.training.record import final_model, saved_settings
from synthattn.training.run import Stopped, train
from synthattn.training.settings import ModelSettings, Settings, as_dict

AUTO: dict[str, Any] = {
    "language-modeling": AutoModelForCausalLM,
    "sentence-modeling": AutoModelForCausalLM,
    "span-corruption": AutoModelForSeq2SeqLM,
    "translation": AutoModelForSeq2SeqLM,
    "classification": AutoModelForSequenceClassification,
    "glue": AutoModelForSeq2SeqLM,
}


class At(Display):
    """Does something at a step."""

    def __init__(self, step: int, what: Any) -> None:
        self.at, self.what = step, what
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def step(self, step: int, steps: int, facts: dict[str, str]) -> None:
        if step == self.at:
            self.what()


def power_cut() -> None:
    raise RuntimeError("the power was cut")


def ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "model" / "model.safetensors")


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(first[name].equal(second[name]) for name in first)


def repeatable(run: Path) -> dict[str, Any]:
    """The record without what differs from run to run."""
    found = dataclasses.asdict(record.load(run))
    return {name: value for name, value in found.items() if name not in ("times", "versions", "hardware")}


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return data(tmp_path_factory.mktemp("texts"), "sentence-modeling")


@pytest.mark.parametrize("task", AUTO)
def test_a_run_of_every_kind_leaves_all_that_is_needed(tmp_path: Path, task: str):
    folder = suite(tmp_path / "data") if task == "glue" else data(tmp_path / "data", task)
    chosen, run = settings(folder, task, evaluation__max_new_tokens=3), tmp_path / "run"
    found = train(chosen, run, command="synthattn train")
    assert found.status == "done"
    assert record.load(run) == found
    assert found.steps == 4
    assert [step for step, _ in found.loss] == [step for step, _ in found.validation] == [2, 4]
    assert all(np.isfinite(one["value"]) for one in found.scores.values())
    assert found.evaluation["examples"] == (2 * SIZES["validation"] if task == "glue" else SIZES["test"])
    assert found.weights == "of step 4"
    assert saved_settings(run) == chosen
    assert found.settings == as_dict(chosen) == yaml.safe_load((run / "settings.yaml").read_text())
    assert list(run.glob("checkpoint-*")) == []
    assert list(run.glob("tensorboard/events*"))
    assert list(load_rows(run)) == list(found.scores)
    assert (run / "predictions.jsonl").is_file() == (
        AUTO[task] is not AutoModelForCausalLM and task != "span-corruption"
    )
    model = AUTO[task].from_pretrained(final_model(run))
    assert type(model).__name__ == found.model["class"]
    assert sum(p.numel() for p in model.parameters()) == found.model["parameters"]
    tokenizer = AutoTokenizer.from_pretrained(run / "model")
    assert len(tokenizer) == model.config.vocab_size == found.data["vocabulary"]
    assert (run / "model" / "tokenizer.json").is_file()
    if task == "classification":
        assert sorted(model.config.id2label.values()) == ["early", "late"]
        said = {json.loads(line)["prediction"] for line in (run / "predictions.jsonl").read_text().splitlines()}
        assert said <= set(model.config.label2id)


def test_a_run_keeps_the_precision_that_it_began_with(texts: Path, tmp_path: Path, monkeypatch):
    """Although another machine would choose another one for a new run."""
    chosen, run, told = settings(texts, "sentence-modeling", training__precision="auto"), tmp_path / "run", At(0, None)
    with pytest.raises(RuntimeError):
        train(chosen, run, At(3, power_cut))
    assert saved_settings(run) == chosen.changed(training__precision="fp32")
    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: True)
        patch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)
        assert run_module.with_precision(chosen).training.precision == "bf16"
        assert run_module.with_precision(chosen, run).training.precision == "fp32"
    found = train(chosen, run, told, resume=True)
    assert told.notes[0] == f"training {found.hardware['training']}" == "training on the CPU in fp32"
    assert found.settings["training"]["precision"] == "fp32"


def test_what_is_done_is_not_done_again(texts: Path, tmp_path: Path):
    chosen, run = settings(texts, "sentence-modeling"), tmp_path / "run"
    with pytest.raises(ValueError, match=r"run holds no settings\.yaml, so it is not the folder of a run"):
        saved_settings(run)
    with pytest.raises(ValueError, match="has no model yet, and no whole checkpoint"):
        final_model(run)
    train(chosen, run)
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    with pytest.raises(ValueError, match=f"{run} is not empty; choose another folder, or go on with --resume {run}"):
        train(chosen, run)
    told = At(0, None)
    assert train(chosen, run, told, resume=True).status == "done"
    assert told.notes == [f"{run} is done already"]
    assert {file: file.read_bytes() for file in run.rglob("*") if file.is_file()} == before


def long(texts: Path, **changes: Any) -> Settings:
    """Return settings with dropout, so that the state of the random numbers matters."""
    chosen = settings(texts, "sentence-modeling", training__steps=8, training__evaluate_every=4, **changes)
    return chosen.changed(model__fields=chosen.model.fields | {"dropout": 0.1})


@pytest.mark.parametrize("optimizer", ["adam", "adafactor"])
def test_a_run_goes_on_as_if_it_had_never_stopped(texts: Path, tmp_path: Path, optimizer: str):
    chosen = long(texts, training__optimizer=optimizer)
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    train(chosen, whole)
    with pytest.raises(Stopped, match=f"stopped at step 3; everything up to there is saved in {stopped}"):
        train(chosen, stopped, At(3, ctrl_c))
    assert record.load(stopped).status == "stopped"
    assert final_model(stopped).name == "checkpoint-3"
    told = At(6, power_cut)
    with pytest.raises(RuntimeError, match="the power was cut"):
        train(saved_settings(stopped), stopped, told, resume=True)
    assert "going on from step 3" in told.notes
    failed = record.load(stopped)
    assert (failed.status, failed.reason) == ("failed", "the power was cut")
    told = At(0, None)
    found = train(saved_settings(stopped), stopped, told, resume=True)
    assert told.notes == ["preparing the data", "going on from step 4", "scoring"]
    assert found.times["starts"] == 3
    assert same(weights(whole), weights(stopped))
    assert repeatable(stopped) == repeatable(whole)


@pytest.mark.parametrize("left", ["training", "scoring"])
def test_a_run_does_not_go_on_with_other_data(tmp_path: Path, left: str, monkeypatch: pytest.MonkeyPatch):
    folder, run = data(tmp_path / "data", "sentence-modeling"), tmp_path / "run"
    chosen = settings(folder, "sentence-modeling", training__keep_checkpoints=1)
    if left == "training":
        with pytest.raises(Stopped):
            train(chosen, run, At(3, ctrl_c))
    else:
        monkeypatch.setattr(run_module, "evaluate", lambda *rest: power_cut())
        with pytest.raises(RuntimeError, match="the power was cut"):
            train(chosen, run)
        monkeypatch.undo()
    before = (folder / "train.txt").read_text()
    (folder / "train.txt").write_text(before + "ant bee\n")
    message = f"{folder} has changed since {run} was begun; put back what it was, or train anew, in another folder"
    for _ in range(2):  # the record of the first try must not make the second one pass
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            train(saved_settings(run), run, resume=True)
    (folder / "train.txt").write_text(before)
    found = record.load(run)
    found.data["tokenizer"] = "another"
    found.save(run)
    with pytest.raises(ValueError, match=f"^the tokenizer of {re.escape(message)}$"):
        train(saved_settings(run), run, resume=True)
    found.data["tokenizer"] = prepared(folder, "sentence-modeling").facts["tokenizer"]
    found.save(run)
    assert train(saved_settings(run), run, resume=True).status == "done"


def test_a_checkpoint_names_its_classes(tmp_path: Path):
    chosen = settings(data(tmp_path / "data", "classification"), "classification")
    with pytest.raises(Stopped):
        train(chosen, tmp_path / "run", At(2, ctrl_c))
    assert class_names(load(final_model(tmp_path / "run"))) == ("early", "late")


def test_other_seeds_learn_something_else(texts: Path, tmp_path: Path):
    for seed in (0, 1):
        train(settings(texts, "sentence-modeling", training__seed=seed), tmp_path / str(seed))
    assert not same(weights(tmp_path / "0"), weights(tmp_path / "1"))
    assert repeatable(tmp_path / "0")["loss"] != repeatable(tmp_path / "1")["loss"]


def test_the_best_weights_are_those_of_the_lowest_validation_loss(texts: Path, tmp_path: Path):
    """The first look is the best one if the learning rate ruins the model after its first steps."""
    found = train(
        settings(
            texts,
            "sentence-modeling",
            training__steps=8,
            training__keep="best",
            training__keep_checkpoints=1,
            training__learning_rate=1.0,
            training__schedule="constant",
            training__warmup=0,
            training__patience=2,
            training__clip=0.0,
        ),
        tmp_path / "run",
    )
    losses = {int(step): loss for step, loss in found.validation}
    best = min(losses, key=losses.__getitem__)
    assert found.best_step == best
    assert found.weights == f"of step {best}, the lowest validation loss"
    assert found.steps == best + 2 * 2 < 8, "patience ends after two looks that are not better"
    ready = prepared(texts, "sentence-modeling")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "model")
    batch = ready.validation.batch(range(len(ready.validation)))
    with torch.no_grad():
        assert model(**batch).loss.item() == pytest.approx(losses[best], rel=1e-4)


def test_the_average_is_that_of_the_checkpoints(texts: Path, tmp_path: Path):
    base = {"training__schedule": "constant", "training__warmup": 0}
    for steps in (2, 4):
        train(settings(texts, "sentence-modeling", training__steps=steps, **base), tmp_path / str(steps))
    found = train(settings(texts, "sentence-modeling", training__keep="average", **base), tmp_path / "mean")
    assert found.weights == "mean of 2 checkpoints up to step 4"
    first, second = weights(tmp_path / "2"), weights(tmp_path / "4")
    for name, value in weights(tmp_path / "mean").items():
        torch.testing.assert_close(value, (first[name] + second[name]) / 2, rtol=1e-6, atol=1e-7)


def test_a_run_ends_after_tokens(texts: Path, tmp_path: Path):
    chosen = settings(texts, "sentence-modeling", training__steps=None, training__tokens=500, training__accumulation=2)
    found = train(chosen, tmp_path / "run")
    ready = prepared(texts, "sentence-modeling")
    batches = RunBatches(TokenBatches(ready.train.lengths, 100, 0), 0)
    steps = -(-batches.until(500) // 2)
    assert found.steps == steps > 1
    assert (found.tokens, found.epochs) == batches.seen(2 * steps)
    assert found.tokens >= 500


def test_a_run_ends_after_minutes(texts: Path, tmp_path: Path):
    found = train(settings(texts, "sentence-modeling", training__steps=None, training__minutes=0.005), tmp_path / "run")
    assert found.status == "done"
    assert found.steps >= 1
    assert 0.3 <= found.times["training_seconds"] < 30


def started(chosen: Settings, start: Path, **fields: float) -> Settings:
    """Return settings of a run that starts from a saved model, without what the model decides."""
    own = dataclasses.replace(chosen.data, tokenizer="unigram", vocab_size=8000)
    return dataclasses.replace(chosen, data=own, model=ModelSettings(start=str(start), fields=fields))


def test_what_a_saved_model_decides_cannot_be_set(texts: Path):
    with pytest.raises(
        ValueError, match=r"my-model has its own sizes, attention and tokenizer; leave out model\.preset"
    ):
        settings(texts, "sentence-modeling", model__start="my-model")
    with pytest.raises(ValueError, match=r"my-model has its own sizes, .*; leave out model\.d_ff$"):
        Settings(model=ModelSettings(start="my-model", fields={"dropout": 0.1, "d_ff": 48}))


def test_a_run_starts_from_a_saved_model(texts: Path, tmp_path: Path):
    chosen = settings(texts, "sentence-modeling")
    train(chosen, tmp_path / "first")
    start = tmp_path / "first" / "model"
    still = {"training__steps": 1, "training__learning_rate": 1e-12, "training__warmup": 0}
    assert json.loads((start / "config.json").read_text())["dropout"] == 0.0
    train(started(chosen, start, dropout=0.25).changed(**still), tmp_path / "second")
    first, second = weights(tmp_path / "first"), weights(tmp_path / "second")
    for name, value in first.items():
        torch.testing.assert_close(second[name], value, rtol=0, atol=1e-9)
    files = [(folder / "tokenizer.json").read_text() for folder in (start, tmp_path / "second" / "model")]
    assert json.loads(files[0]) == json.loads(files[1])
    configs = [json.loads((tmp_path / run / "model" / "config.json").read_text()) for run in ("first", "second")]
    assert configs[1] == configs[0] | {"dropout": 0.25}
    other = started(settings(data(tmp_path / "data", "classification"), "classification"), start)
    message = "holds a SynthesizerForCausalLM, classification needs a SynthesizerForSequenceClassification"
    with pytest.raises(ValueError, match=message):
        train(other, tmp_path / "third")


def test_broken_vectors_are_known_before_training(texts: Path, tmp_path: Path):
    """Only tasks that compare vectors look at them."""
    (tmp_path / "cut.txt").write_text("2 1\nant 1\n")
    changed = {"evaluation__vectors": str(tmp_path / "cut.txt")}
    with pytest.raises(ValueError, match=r"cut\.txt: line 1 says 2 words, there are 1"):
        prepared(data(tmp_path / "data", "dialogue"), "dialogue", **changed)
    assert prepared(texts, "sentence-modeling", **changed).parts


def test_a_failure_is_in_the_record(texts: Path, tmp_path: Path):
    chosen = settings(texts, "sentence-modeling", training__batch_tokens=3)
    with pytest.raises(ValueError, match=r"an example has \d+ tokens, a batch may have 3; allow more or shorten"):
        train(chosen, tmp_path / "run")
    found = record.load(tmp_path / "run")
    assert found.status == "failed"
    assert "a batch may have 3" in found.reason
