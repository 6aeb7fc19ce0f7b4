"""What a step of ``synthattn train`` costs more than one of a bare loop: ``overhead.py [--steps 80] [--json FILE]``.

Both train the same model on the same batches in one process, in turns of a few steps, so that whatever else the
machine does hits both.
"""

import argparse
import gc
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import get_inverse_sqrt_schedule

from synthattn.data.batching import TokenBatches
from synthattn.tasks.inputs import RunBatches
from synthattn.training.model import build, configuration
from synthattn.training.prepare import Prepared
from synthattn.training.progress import Display
from synthattn.training.run import decided_fields, plan, prepare_data, train
from synthattn.training.settings import Settings, from_dict
from synthattn.training.trainer import smoothed_loss

TASKS = {"translation": "builtin:grammar-de", "language-modeling": "builtin:docs"}
TURN = 4
WARM_UP = 3
"""Turns that do not count."""


def settings(task: str, attention: str, preset: str, batch_tokens: int, steps: int) -> Settings:
    return from_dict(
        {
            "data": {"task": task, "source": TASKS[task]},
            "model": {"preset": preset, "attention": attention},
            # Looks at the validation loss and checkpoints are not part of a step.
            "training": {
                "steps": steps,
                "batch_tokens": batch_tokens,
                "evaluate_every": 10 * steps,
                "save_every": 10 * steps,
                "evaluate_tokens": 1,
            },
            "evaluation": {"limit": 1, "max_new_tokens": 1},
        }
    )


def bare(settings: Settings, prepared: Prepared) -> Iterator[float]:
    """The loop that a user would write, a step at a time; the seconds of each."""
    training = settings.training
    planned = plan(training, prepared)
    config = configuration(settings.model, **decided_fields(prepared))
    model: Any = build(config, prepared.kind, training.seed)
    model.train()
    optimizer = torch.optim.AdamW(
        model.parameters(),
        training.learning_rate,
        (training.beta1, training.beta2),
        training.epsilon,
        training.weight_decay,
        fused=True,
    )
    schedule = get_inverse_sqrt_schedule(optimizer, training.warmup)
    inputs = prepared.train
    batches = RunBatches(TokenBatches(inputs.lengths, training.batch_tokens, training.seed), planned.steps)
    started = time.perf_counter()
    for keys in batches:
        batch = inputs.collate([inputs[key] for key in keys])
        if planned.label_smoothing:
            labels = batch.pop("labels")
            logits = model(**batch, decoder_input_ids=model.prepare_decoder_input_ids_from_labels(labels)).logits
            loss = smoothed_loss(logits, labels, planned.label_smoothing, shifted=False) / (labels != -100).sum()
        else:
            loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), training.clip)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        yield time.perf_counter() - started
        started = time.perf_counter()


class Turns(Display):
    """Is told of every step of the run, and lets the bare loop make as many after each turn."""

    def __init__(self, other: Iterator[float]) -> None:
        self.other = other
        self.times: dict[str, list[list[float]]] = {"train": [], "bare": []}
        self.turn: list[float] = []
        self.started: float | None = None

    def step(self, step: int, steps: int, facts: dict[str, str]) -> None:
        now = time.perf_counter()
        if self.started is not None:  # the first step has no known beginning
            self.turn.append(now - self.started)
        if len(self.turn) == TURN:
            self.times["train"].append(self.turn)
            self.times["bare"].append([next(self.other) for _ in range(TURN)])
            self.turn = []
        self.started = time.perf_counter()


def measure(chosen: Settings) -> dict[str, Any]:
    prepared = prepare_data(chosen)
    other = bare(chosen, prepared)
    next(other)
    turns = Turns(other)
    with tempfile.TemporaryDirectory() as folder:
        train(chosen, Path(folder) / "run", turns, prepared=prepared)
    times = {name: found[WARM_UP:] for name, found in turns.times.items()}
    medians = {name: statistics.median(t for turn in found for t in turn) for name, found in times.items()}
    ratios = [sum(a) / sum(b) for a, b in zip(times["train"], times["bare"], strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4)
    return {
        "steps": TURN * len(ratios),
        "train_milliseconds": 1000 * medians["train"],
        "bare_milliseconds": 1000 * medians["bare"],
        "ratio": medians["train"] / medians["bare"],
        "ratio_of_turns": {"low": low, "median": statistics.median(ratios), "high": high},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--preset", default="cpu")
    parser.add_argument("--attention", default="random+vanilla")
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    if chosen.steps < TURN * (WARM_UP + 2) + 1:
        sys.exit(f"--steps must be at least {TURN * (WARM_UP + 2) + 1}, got {chosen.steps}")
    torch.set_num_threads(chosen.threads)
    found = {}
    for task in TASKS:
        gc.collect()
        one = measure(settings(task, chosen.attention, chosen.preset, chosen.batch_tokens, chosen.steps))
        found[task] = one
        turns = one["ratio_of_turns"]
        print(
            f"{task}: a step of train takes {one['train_milliseconds']:.0f} ms, of a bare loop "
            f"{one['bare_milliseconds']:.0f} ms, {one['ratio']:.3f} times as long; by turns of {TURN} steps "
            f"{turns['median']:.3f} (quartiles {turns['low']:.3f} to {turns['high']:.3f}); {one['steps']} steps each",
            flush=True,
        )
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(vars(chosen) | {"json": str(chosen.json), "tasks": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
