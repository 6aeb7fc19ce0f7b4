"""Trainer callbacks that write the record and the curves of a run, and stop the run on signals."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
from tensorboardX.summary import scalar
from transformers import TrainerCallback
from transformers.integrations.integration_utils import rewrite_logs

from synthattn.training import record


class TensorBoardCallback(TrainerCallback):
    """Write curves for TensorBoard.

    The writer thread of transformers ends on a full disk, and training then waits for it for ever. This callback loses
    the curve instead, and the next checkpoint reports the full disk.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.writer = EventsWriter(str(folder / "events"))

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        with contextlib.suppress(OSError):
            for name, value in rewrite_logs(logs or {}).items():
                event = Event(wall_time=time.time(), step=state.global_step, summary=scalar(name, value))
                self.writer.write_event(event)
            self.writer.flush()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.writer.close()


class RecordCallback(TrainerCallback):
    """Write the record, and stop a run on request or when its time is over."""

    def __init__(self, found: record.RunRecord, run: Path, minutes: float | None, checkpoint: Path | None) -> None:
        self.record, self.run, self.minutes, self.checkpoint = found, run, minutes, checkpoint
        self.interrupted = False
        self.trainer: Any = None
        self.began = time.monotonic()
        self.before = float(found.times.get("training_seconds", 0.0))

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.began = time.monotonic()
        if self.checkpoint is not None:
            self.trainer.continue_curve(self.checkpoint)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        late = self.minutes is not None and self._seconds() >= 60 * self.minutes
        if args.world_size > 1:
            # A process may receive the signal a step before another, which would then wait for it for ever.
            told = self.trainer.over_processes(torch.tensor([self.interrupted, late], dtype=torch.float32))
            self.interrupted, late = (bool(count) for count in told.tolist())
        if self.interrupted or late:
            control.should_save = control.should_training_stop = True

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if args.should_save:
            self.write()
            try:
                self.record.save(self.run)
            except OSError as error:
                raise OSError(
                    f"cannot write the record at step {state.global_step}: {error}; its checkpoint is whole"
                ) from error

    def write(self) -> None:
        """Copy the trainer's state into the record."""
        state = self.trainer.state
        self.record.steps = state.global_step
        self.record.best_step = state.best_global_step
        self.record.loss = [[line["step"], line["loss"]] for line in state.log_history if "loss" in line]
        self.record.validation = [
            [line["step"], line["eval_loss"]] for line in state.log_history if "eval_loss" in line
        ]
        batches = self.trainer.batches
        done = state.global_step * self.trainer.args.gradient_accumulation_steps
        self.record.tokens, self.record.epochs = batches.seen(done)
        self.record.times["training_seconds"] = self._seconds()

    def _seconds(self) -> float:
        return self.before + time.monotonic() - self.began


@contextlib.contextmanager
def stop_on_signals(keeper: RecordCallback) -> Iterator[None]:
    """Finish the step and save after Ctrl-C or a scheduler's signal; a second signal ends the run at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    # Processes of torchrun receive a Ctrl-C from the terminal and from torchrun; both count as one signal.
    grace = 1.0 if int(os.environ.get("WORLD_SIZE", "1")) > 1 else 0.0
    heard: list[float] = []

    def handle(number: int, frame: Any) -> None:
        heard.append(time.monotonic())
        if len(heard) > 1 and heard[-1] - heard[0] >= grace:
            raise KeyboardInterrupt
        keeper.interrupted = True

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
