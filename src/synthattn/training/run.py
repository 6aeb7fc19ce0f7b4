"""Train a model in a folder with its record and scores; a run can be stopped and resumed."""

import contextlib
import json
import math
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
import yaml
from transformers import EarlyStoppingCallback, TrainerCallback

from synthattn.data.batching import TokenBatches
from synthattn.data.locks import LOCK, locked_folder
from synthattn.messages import out_of_memory, printable
from synthattn.metrics.vectors import check_vectors
from synthattn.saved_file import write_text
from synthattn.tasks import find_tasks
from synthattn.tasks.inputs import RunBatches
from synthattn.training import checkpoints, record
from synthattn.training.callbacks import RecordCallback, TensorBoardCallback, stop_on_signals
from synthattn.training.card import write_card
from synthattn.training.evaluation import evaluate
from synthattn.training.model import build, configuration, load, load_for, name_classes, parameters, placed
from synthattn.training.prepare import Prepared, check_same_data, prepare
from synthattn.training.progress import Display, Reporter
from synthattn.training.record import MODEL, SETTINGS, RunRecord, refuse_comparison
from synthattn.training.settings import Settings, TrainingSettings, as_dict
from synthattn.training.trainer import SynthesizerTrainer, training_arguments

STEPS = 2000
"""Default number of steps."""


class Stopped(Exception):  # noqa: N818 (not an error)
    """Raised after a run was asked to stop and has saved its state."""

    def __init__(self, run: Path, step: int) -> None:
        super().__init__(f"stopped at step {step}; everything up to there is saved in {run}")
        self.run, self.step = run, step


def train(
    settings: Settings,
    run: Path,
    display: Display | None = None,
    command: str = "",
    prepared: Prepared | None = None,
    resume: bool = False,
) -> RunRecord:
    """Train and score a model, and write all results into the folder ``run``.

    Args:
        settings: settings of the run.
        run: a folder; an earlier run in it is not overwritten.
        display: display of the progress.
        command: the command line, for the record.
        prepared: prepared data, if several runs share it.
        resume: continue the run in the folder from its last complete checkpoint.

    Raises:
        FolderInUseError: if another process writes into the folder.
    """
    display = display or Display()
    # Only the first of the processes of torchrun writes files.
    main = int(os.environ.get("RANK", "0")) == 0
    try:
        check_hardware(settings.training)
        check_names(run, settings)
        if settings.training.precision == "auto":
            settings = with_precision(settings, run if resume else None)
            display.note(f"training {computes_on(settings.training)}")
        with locked_folder(run) if main else contextlib.nullcontext():
            found = _resumed(settings, run, main) if resume else _begun(settings, run, command, main)
            return _Run(settings, run, display, main, found).train(prepared)
    finally:
        display.close()


def _begun(settings: Settings, run: Path, command: str, main: bool) -> RunRecord:
    """Write the first record and the settings of a new run into its folder."""
    if not main:  # the first process creates the folder
        return RunRecord(seed=settings.training.seed)
    # A start that was killed at once leaves no settings, which are written last, and cannot be resumed.
    begun = {LOCK, record.FILE, f"{record.FILE}.part", f"{SETTINGS}.part"}
    if any(entry.name not in begun for entry in run.iterdir()):
        raise ValueError(f"{run} is not empty; choose another folder, or go on with --resume {run}")
    found = RunRecord(
        command=command,
        settings=as_dict(settings),
        seed=settings.training.seed,
        versions=record.versions(),
        hardware=record.hardware() | {"training": computes_on(settings.training)},
        times={"started": record.now(), "training_seconds": 0.0, "starts": 0},
    )
    found.save(run)
    _write_settings(settings, run)
    return found


def _resumed(settings: Settings, run: Path, main: bool) -> RunRecord:
    """Read the record of a run that goes on, and use as many threads as before."""
    found = record.load(run)
    if found.status != "done":
        found.status, found.reason = "running", ""
        _use_threads_of(found, run)
    if main and not (run / SETTINGS).is_file():  # the process was killed right after writing the record
        _write_settings(settings, run)
    return found


def _write_settings(settings: Settings, run: Path) -> None:
    write_text(run / SETTINGS, yaml.safe_dump(as_dict(settings), sort_keys=False))


def _use_threads_of(found: RunRecord, run: Path) -> None:
    """Use as many threads as a run was begun with: sums of another number of threads differ in their last digits."""
    threads = found.hardware.get("threads", "")
    if not threads.isdigit() or int(threads) == torch.get_num_threads() or torch.cuda.is_available():
        return
    if "OMP_NUM_THREADS" in os.environ:
        raise ValueError(
            f"{run} was begun with {threads} threads, OMP_NUM_THREADS asks for {os.environ['OMP_NUM_THREADS']}; "
            f"set OMP_NUM_THREADS={threads}"
        )
    torch.set_num_threads(int(threads))


@dataclass
class _Run:
    """A run in a folder that no other process writes to."""

    settings: Settings
    folder: Path
    display: Display
    main: bool
    """True in the process that writes files."""
    record: RunRecord

    def train(self, prepared: Prepared | None) -> RunRecord:
        """Train and score unless that is done already; write a failure into the record."""
        if self.record.status == "done":
            if self.main:
                self.tidy()
            self.display.note(f"{self.folder} is done already")
            return self.record
        try:
            with _explained_memory(self.settings.training):
                return self._train(prepared)
        except Stopped:
            raise
        except Exception as error:
            if self.main:
                self.record.status, self.record.reason = "failed", str(error) or type(error).__name__
                with contextlib.suppress(OSError):
                    self.record.save(self.folder)
                    if not self.record.times.get("starts"):  # the command was wrong: the folder can be used again
                        (self.folder / SETTINGS).unlink(missing_ok=True)
            raise

    def _train(self, prepared: Prepared | None) -> RunRecord:
        settings, found, model_folder = self.settings, self.record, self.folder / MODEL
        if prepared is None:
            self.display.note("preparing the data")
            prepared = prepare_data(settings)
        for part in prepared.parts:  # reports a missing split before training
            part.evaluation_splits(settings.evaluation.split)
        way_out = "put back what it was, or train anew, in another folder"
        check_same_data(found.data, prepared.facts, settings.data.source, f"{self.folder} was begun", way_out)
        # Made even if a checkpoint follows, so that a resumed run sums numbers in equal order.
        model = self._new_model(prepared)
        found.data, found.notes = prepared.facts, prepared.notes
        found.model = {
            "class": type(model).__name__,
            "parameters": parameters(model),
            "configuration": json.loads(model.config.to_json_string(use_diff=False)),
        }
        if not (model_folder / "config.json").is_file():
            self.finish(self.fit(model, prepared), prepared)
        if not self.main:
            return found
        self.display.note("scoring")
        scored = placed(load(model_folder))
        result = evaluate(scored, prepared.tokenizer, prepared.parts, settings.evaluation, self.display.scored)
        result.save(self.folder)
        found.scores = {name: one.as_dict() for name, one in result.scored.items()}
        found.evaluation = result.facts()
        found.times["evaluation_seconds"] = result.seconds
        found.times["finished"] = record.now()
        write_card(model_folder, found)
        found.status = "done"
        found.save(self.folder)
        self.tidy()
        return found

    def _new_model(self, prepared: Prepared) -> Any:
        """Build the model that training starts from, or load it."""
        start, config = self.settings.model.start, configuration(self.settings.model, **decided_fields(prepared))
        if start is None:
            model = build(config, prepared.kind, self.settings.training.seed)
        else:
            model = load_for(Path(start), prepared.kind, prepared.labels, config)
        if prepared.labels:
            name_classes(model, prepared.labels)  # before training, since checkpoints are models, too
        return model

    def tidy(self) -> None:
        """Remove the checkpoints of a run that is done; the model is kept."""
        for folder in checkpoints.checkpoints(self.folder):
            checkpoints.remove(folder)

    def fit(self, model: Any, prepared: Prepared) -> SynthesizerTrainer:
        """Train a model from the last complete checkpoint, if there is one, to the last step."""
        settings, training, found, display = self.settings, self.settings.training, self.record, self.display
        planned = plan(training, prepared)
        checkpoint, complaints = checkpoints.last_good(self.folder)
        for complaint in complaints:
            display.note(complaint)
        if checkpoint is not None:
            display.note(f"going on from step {checkpoints.step_of(checkpoint):,}")
            if _out_of_patience(checkpoint, training.patience):
                planned.steps = checkpoints.step_of(checkpoint)
        elif complaints:
            display.note("no checkpoint is whole; starting from the beginning")
        arguments = training_arguments(
            training,
            self.folder,
            max_steps=planned.steps,
            eval_steps=planned.evaluate_every,
            save_steps=planned.save_every,
            label_smoothing_factor=planned.label_smoothing,
        )
        steps, process = planned.steps * training.accumulation, (arguments.process_index, arguments.world_size)
        batches = RunBatches(_batches(training, prepared), steps, *process)
        reporter = Reporter(display, 0 if training.minutes is not None else planned.steps)
        keeper = RecordCallback(found, self.folder, training.minutes, checkpoint)
        callbacks: list[TrainerCallback] = [reporter, keeper]
        if training.patience is not None:
            callbacks.append(EarlyStoppingCallback(training.patience))
        trainer = SynthesizerTrainer(model, arguments, prepared, batches, settings, callbacks=callbacks)
        trainer.remove_callback(transformers.PrinterCallback)
        reporter.trainer = keeper.trainer = trainer
        torch.manual_seed(training.seed)
        found.times["starts"] = found.times.get("starts", 0) + 1
        with contextlib.ExitStack() as stack:
            if self.main:
                board = TensorBoardCallback(self.folder / "tensorboard")
                trainer.add_callback(stack.enter_context(contextlib.closing(board)))
            stack.enter_context(stop_on_signals(keeper))
            trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        keeper.write()
        if keeper.interrupted:
            found.status = "stopped"
            if self.main:
                found.save(self.folder)
            raise Stopped(self.folder, trainer.state.global_step)
        return trainer

    def finish(self, trainer: SynthesizerTrainer, prepared: Prepared) -> None:
        """Choose the final weights, and save model and tokenizer for ``from_pretrained``."""
        run, found, keep = self.folder, self.record, self.settings.training.keep
        model: Any = trainer.accelerator.unwrap_model(trainer.model)
        # All processes take part in gathering a sharded model.
        weights = trainer.accelerator.get_state_dict(trainer.model) if self.settings.training.shard else None
        if not self.main:
            return
        unfinished = run / f"{MODEL}.part"
        shutil.rmtree(unfinished, ignore_errors=True)
        with checkpoints.writing("the model", run, unfinished):
            model.save_pretrained(unfinished, state_dict=weights)
            prepared.tokenizer.save_pretrained(unfinished)
            whole = [folder for folder in checkpoints.checkpoints(run) if checkpoints.damage(folder) is None]
            found.weights = f"of step {trainer.state.global_step}"
            if keep == "best" and trainer.state.best_global_step is not None:
                best = [folder for folder in whole if checkpoints.step_of(folder) == trainer.state.best_global_step]
                if best:
                    shutil.copyfile(best[0] / checkpoints.WEIGHTS, unfinished / checkpoints.WEIGHTS)
                    found.weights = f"of step {checkpoints.step_of(best[0])}, the lowest validation loss"
            if keep == "average" and whole:
                count = checkpoints.average(whole, unfinished / checkpoints.WEIGHTS)
                found.weights = f"mean of {count} checkpoints up to step {checkpoints.step_of(whole[0])}"
            checkpoints.seal(unfinished)  # flushes to the disk, since the checkpoints are removed soon
        # Save before the model exists: afterwards nobody could tell which weights it has.
        found.save(run)
        unfinished.rename(run / MODEL)


def _out_of_patience(checkpoint: Path, patience: int | None) -> bool:
    """Return True if a run was due to stop at a checkpoint; the Trainer would train another step."""
    if patience is None:
        return False
    state = json.loads((checkpoint / "trainer_state.json").read_text())
    kept = state["stateful_callbacks"].get(EarlyStoppingCallback.__name__)
    return kept is not None and kept["attributes"]["early_stopping_patience_counter"] >= patience


def prepare_data(settings: Settings) -> Prepared:
    """Prepare the data of a run for its model, and report errors now that would only show after training."""
    if settings.model.start is not None:
        refuse_comparison(Path(settings.model.start))
    tasks = find_tasks(settings.data.task)
    asked = settings.model.fields.get("max_position_embeddings")
    least = 3 if tasks[0].kind == "span-corruption" else 2  # a token, the end, and a sentinel for hidden tokens
    if isinstance(asked, int) and asked < least:
        raise ValueError(
            f"--max-length (model.max_position_embeddings) must be at least {least} for {settings.data.task}, "
            f"got {asked}"
        )
    config = configuration(settings.model)
    if settings.evaluation.vectors is not None and any(task.compares_vectors for task in tasks):
        check_vectors(settings.evaluation.vectors)
    start = None if settings.model.start is None else Path(settings.model.start)
    return prepare(
        settings.data,
        config.max_position_embeddings,
        settings.training.evaluate_tokens,
        start,
        settings.evaluation.split,
    )


def decided_fields(prepared: Prepared) -> dict[str, Any]:
    """Return the fields of a configuration that depend on the data."""
    fields: dict[str, Any] = {"vocab_size": len(prepared.tokenizer)}
    if prepared.labels:
        fields["num_labels"] = len(prepared.labels)
    return fields


@dataclass
class StepPlan:
    """Steps and intervals of a run, computed from settings and data."""

    steps: int
    """Number of the last step; for runs by time, a number that is never reached."""
    evaluate_every: int
    save_every: int
    label_smoothing: float


def plan(settings: TrainingSettings, prepared: Prepared) -> StepPlan:
    """Compute the number of steps, and the intervals of evaluation and saving."""
    if settings.tokens is not None:
        batches = RunBatches(_batches(settings, prepared), 0)
        steps = math.ceil(batches.until(settings.tokens) / settings.accumulation)
    elif settings.minutes is not None:
        steps = 10_000_000
    else:
        steps = settings.steps or STEPS
    log = settings.log_every
    tenth = 200 if settings.minutes is not None else -(-max(1, steps // 10) // log) * log
    every = settings.evaluate_every or tenth
    saving = every if settings.keep == "best" else settings.save_every or -(-every // log) * log
    smoothing = settings.label_smoothing
    if smoothing is None:
        smoothing = 0.1 if prepared.kind == "seq2seq" else 0.0
    return StepPlan(steps, every, saving, smoothing)


def _batches(settings: TrainingSettings, prepared: Prepared) -> TokenBatches:
    inputs = prepared.train
    return TokenBatches(inputs.lengths, settings.batch_tokens, settings.seed, order=inputs.order)


def check_names(folder: Path, settings: Settings) -> None:
    """Raise an error before training for names that cannot be written as UTF-8."""
    for name in (str(folder), settings.data.source, settings.model.start or ""):
        try:
            name.encode()
        except UnicodeEncodeError:
            raise ValueError(f"the name {printable(name)} is not UTF-8; rename it, or choose another") from None


def check_hardware(training: TrainingSettings) -> None:
    """Raise an error for options that this machine cannot use, or that would slow it down."""
    if training.shard and training.optimizer == "adafactor":
        raise ValueError("training.shard needs optimizer=adam: the state of adafactor cannot be split over processes")
    if training.shard and not torch.cuda.is_available():
        raise ValueError("training.shard needs accelerators; on CPUs every process has the whole model, leave it out")
    if not training.shard and os.environ.get("ACCELERATE_USE_FSDP", "").lower() in ("1", "true"):
        raise ValueError(
            "accelerate was told to shard the model, which synthattn has to know; leave FSDP out of accelerate's "
            "configuration (--use_fsdp), and give --set training.shard=true"
        )
    if training.precision == "bf16" and not torch.cuda.is_available() and not _has_fast_bf16():
        raise ValueError(
            "precision=bf16 would be many times slower than fp32 on this processor, which has no AMX; use fp32"
        )


def with_precision(settings: Settings, run: Path | None = None) -> Settings:
    """Return settings with the precision that a run began with, or else one for this machine."""
    if run is not None:
        return settings.changed(training__precision=record.load(run).settings["training"]["precision"])
    fast = torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
    return settings.changed(training__precision="bf16" if fast else "fp32")


def computes_on(training: TrainingSettings) -> str:
    """Name the device and the precision, for the output and for records."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "the CPU"
    return f"on {device} in {training.precision}"


def _has_fast_bf16() -> bool:
    return bool(torch.cpu._is_amx_tile_supported())


@contextlib.contextmanager
def _explained_memory(training: TrainingSettings) -> Iterator[None]:
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        raise ValueError(
            f"out of memory: lower training.batch_tokens (now {training.batch_tokens}) and raise "
            f"training.accumulation (now {training.accumulation}) as much, or set training.gradient_checkpointing=true"
        ) from error
