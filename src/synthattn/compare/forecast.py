"""Estimate how long a study takes from the first steps of each model, before anything is trained."""

import contextlib
import dataclasses
import math
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from synthattn.bench.timing import undisturbed
from synthattn.bench.two_models import (
    generation_step,
    heaviest,
    inference_step,
    training_memory,
    training_step,
    typical,
)
from synthattn.compare.execution import Execution, builder
from synthattn.compare.plan import PlannedRun, StudyPart
from synthattn.render.numbers import duration
from synthattn.training.prepare import Prepared, encode_for_evaluation
from synthattn.training.progress import Display
from synthattn.training.run import plan as plan_training
from synthattn.training.settings import Settings

MARGIN = 0.9
"""Part of a budget that is planned for; the rest is for what no estimate sees."""
LEAST_STEPS = 20
"""Fewer steps of training tell nothing."""
PROCESS_BYTES = 600_000_000
"""Memory of a process that has loaded the libraries."""
NEW_TOKENS = 8
EXPECTED = 10.0
"""Seconds for which the expected pace counts."""


@dataclass(frozen=True)
class ModelTimes:
    """Seconds that one model takes.

    Args:
        step: one step of training.
        validation: one look at the validation loss.
        scoring: scoring the evaluation split.
        measuring: measuring its speed beside the baseline.
    """

    step: float
    validation: float
    scoring: float
    measuring: float


@dataclass(frozen=True)
class Forecast:
    """Times of all models of a part, and what is to be made of them.

    Args:
        times: of one run, by the name of the row.
        runs: number of runs of each row.
        steps: of each run; None for runs that end after some minutes.
        validations: number of looks at the validation loss in each run.
        minutes: of each run, where these end it.
        memory: bytes of one process that trains the largest model.
        passed: seconds that have passed already.
    """

    times: Mapping[str, ModelTimes]
    runs: int
    steps: int
    validations: int
    minutes: float | None
    memory: int
    passed: float

    def run(self, row: str) -> float:
        """Return the seconds of one run of a row; 0 for a row that could not be timed."""
        if row not in self.times:
            return 0.0
        one = self.times[row]
        trained = self.steps * one.step if self.minutes is None else 60 * self.minutes
        return trained + self.validations * one.validation + one.scoring

    def training(self, jobs: int) -> float:
        """Return the seconds of all runs, with some of them at the same time."""
        seconds = [self.run(name) for name in self.times]
        # However many run side by side, one run is not made in less than its time.
        return max([self.runs * sum(seconds) / jobs, *seconds])

    @property
    def measuring(self) -> float:
        return math.fsum(one.measuring for one in self.times.values())

    def total(self, jobs: int) -> float:
        return self.passed + self.training(jobs) + self.measuring

    def fitting(self, jobs: int, seconds: float) -> "Forecast":
        """Return a forecast with as many steps, equal for all runs, as fit into a budget.

        Raises:
            ValueError: if nearly nothing fits.
        """

        def total(steps: int) -> float:
            return dataclasses.replace(self, steps=steps).total(jobs)

        if not self.times:  # every run fails, whatever its length
            return self
        steps, most = 0, 1
        while total(most) <= MARGIN * seconds:
            most *= 2
        while most - steps > 1:
            middle = (steps + most) // 2
            steps, most = (middle, most) if total(middle) <= MARGIN * seconds else (steps, middle)
        if steps < LEAST_STEPS:
            raise ValueError(
                f"--budget {duration(seconds)} is too short: {LEAST_STEPS} steps of each of the "
                f"{self.runs * len(self.times)} runs take about {duration(total(LEAST_STEPS) / MARGIN)}; give more "
                "time, fewer variants (--attention) or fewer seeds"
            )
        return dataclasses.replace(self, steps=steps)

    def summary(self, jobs: int, threads: int) -> str:
        """Describe what is about to be done, and how long it takes."""
        length = f"{self.steps:,} steps" if self.minutes is None else f"{self.minutes:g} minutes"
        where = f"{jobs} at a time, {threads} thread{'s' * (threads > 1)} each" if jobs > 1 else "one after another"
        rest = f"training and scoring {duration(self.training(jobs))}, measuring speed {duration(self.measuring)}"
        if self.passed >= 1:
            rest = f"{duration(self.passed)} so far, {rest}"
        return (
            f"{len(self.times)} variants x {self.runs} seed{'s' * (self.runs > 1)} x {length}, {where}: about "
            f"{duration(self.total(jobs))} ({rest}). To fit a time: --budget 30min, fewer --steps, variants or seeds"
        )


def forecast(execution: Execution, part: StudyPart, prepared: Prepared, passed: float = 0.0) -> Forecast:
    """Time the first steps of every model of a part.

    Args:
        execution: makes the runs.
        part: all of its rows are timed.
        prepared: the data of the part.
        passed: seconds that have passed already.
    """
    rows = [row for row in part.rows if row.trained]
    settings = {row.name: execution.settings(PlannedRun(execution.study, part, row, 0)) for row in rows}
    training = part.settings.training
    planned = plan_training(training, prepared)
    batches = typical(prepared.train, training.batch_tokens)
    times = {}
    for name, one in settings.items():
        # A model that cannot be built or trained fails in its own run, which leaves the others.
        with contextlib.suppress(ValueError, RuntimeError, MemoryError):
            times[name] = _times(one, prepared, batches, part.speed_rounds)
    memory = PROCESS_BYTES
    if times:
        slowest = settings[max(times, key=lambda name: times[name].step)]
        memory += training_memory(builder(slowest, prepared), heaviest(batches))
    return Forecast(
        times,
        max(row.seeds for row in rows),
        planned.steps,
        0 if training.minutes is not None else planned.steps // planned.evaluate_every,
        training.minutes,
        memory,
        passed,
    )


def _times(settings: Settings, prepared: Prepared, batches: Sequence[Any], rounds: int) -> ModelTimes:
    """Time a model on a few batches, and from that estimate what a run does with it."""
    training, evaluation = settings.training, settings.evaluation
    model = builder(settings, prepared)()
    with undisturbed():
        step = training.accumulation * _seconds(training_step(model), batches)
        forward = _seconds(inference_step(model), batches)
        token = 0.0
        if prepared.kind == "seq2seq":
            prompts = [{name: batch[name] for name in ("input_ids", "attention_mask")} for batch in batches]
            token = _seconds(generation_step(model, NEW_TOKENS), prompts[:1]) / NEW_TOKENS
    per_token = forward / (sum(batch["input_ids"].numel() for batch in batches) / len(batches))
    scoring = 0.0
    for part in prepared.parts:
        for split in part.evaluation_splits(evaluation.split).values():
            encoded = encode_for_evaluation(part, split, prepared.tokenizer, prepared.longest)
            sources, targets = (texts.lengths[: evaluation.limit] for texts in (encoded.source, encoded.target))
            tokens = int(sources.sum()) + int(targets.sum())
            scoring += per_token * tokens
            if token:
                written = min(int(targets.max()), evaluation.max_new_tokens or prepared.longest)
                scoring += token * written * evaluation.beams * -(-tokens // evaluation.batch_tokens)
    measuring = 2 * rounds * (step + forward) + (rounds + 1) * NEW_TOKENS * token
    return ModelTimes(step, per_token * training.evaluate_tokens, scoring, measuring)


def _seconds(run: Callable[[Any], None], batches: Sequence[Any]) -> float:
    """Return the mean time of a call, after one to warm up."""
    run(batches[0])
    start = time.perf_counter()
    for batch in batches:
        run(batch)
    return (time.perf_counter() - start) / len(batches)


def cores() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def seconds_of(text: str) -> float:
    """Read a time such as ``90s``, ``30min`` or ``1.5h``."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|min|h)\s*", text)
    seconds = float(found[1]) * {"s": 1, "min": 60, "h": 3600}[found[2]] if found else 0.0
    if not seconds or seconds > 1e9:
        raise ValueError(f"--budget takes a time such as 90s, 30min or 1.5h, got {text!r}")
    return seconds


@dataclass
class Overall:
    """Progress of several runs, some of them at the same time.

    Args:
        inner: returns the display of one run, from its label.
        seconds: expected time of each run that is still to be made, by its label.
        afterwards: seconds of what comes after the last run.
        jobs: number of runs at the same time.
    """

    inner: Callable[[str], Display]
    seconds: Mapping[str, float]
    afterwards: float
    jobs: int = 1
    done: dict[str, float] = field(default_factory=dict)
    """Finished part of each run, from 0 to 1."""
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.shown = self.inner("all runs")

    def display(self, label: str) -> Display:
        """Return a display of one run that counts in the total, too."""
        return _Counted(self, label, self.inner(label))

    def update(self, label: str, part: float) -> None:
        if label not in self.seconds:
            return
        self.done[label] = part
        total = sum(self.seconds.values())
        if not total:  # no model could be timed
            return
        behind = sum(self.seconds[name] * done for name, done in self.done.items())
        passed = time.monotonic() - self.began
        # Little has been seen at first: trust what was expected then, and what was seen later.
        pace = (passed + EXPECTED) / (behind + EXPECTED * self.jobs)
        self.shown.overall(behind / total, f"about {duration((total - behind) * pace + self.afterwards)} left")

    def close(self) -> None:
        self.shown.close()


@dataclass
class _Counted(Display):
    """The display of a run that is part of a total."""

    overall_progress: Overall
    label: str
    inner: Display

    def note(self, text: str) -> None:
        self.inner.note(text)

    def step(self, step: int, steps: int, facts: dict[str, str]) -> None:
        self.inner.step(step, steps, facts)
        if steps:
            self.overall_progress.update(self.label, step / steps)

    def scored(self, done: int, total: int) -> None:
        self.inner.scored(done, total)

    def close(self) -> None:
        self.inner.close()
        self.overall_progress.update(self.label, 1.0)
