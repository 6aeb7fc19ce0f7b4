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
from transformers import EarlyStoppingCallback, TrainerCallback, TrainingArguments

from synthattn.data.batching import TokenBatches
from synthattn.data.locks import LOCK, locked_folder
from synthattn.messages import listed, out_of_memory, printable
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
from synthattn.training.settings import Settings, TrainingSettings, as_dict, from_dict, read_settings
from synthattn.training.trainer import T5_SCHEDULE, SynthesizerTrainer

SETTINGS, MODEL, COMPARISON = "settings.yaml", "model", "compare.yaml"
STEPS = 2000
"""Default number of steps."""


class Stopped(Exception):  # noqa: N818 (not an error)
    """Raised after a run was asked to stop and has saved its state."""

    def __init__(self, run: Path, step: int) -> None:
        super().__init__(f"stopped at step {step}; everything up to there is saved in {run}")
        self.run, self.step = run, step


@dataclass
class Plan:
    """Steps and intervals of a run, computed from settings and data."""

    steps: int
    """Number of the last step; for runs by time, a number that is never reached."""
    evaluate_every: int
    save_every: int
    label_smoothing: float


def train(
    settings: Settings,
    run: Path,
    display: Display | None = None,
    command: str = "",
    prepared: Prepared | None = None,
    resume: bool = False,
) -> record.RunRecord:
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
        with locked_folder(run) if main else contextlib.nullcontext():
            return _train_alone(settings, run, display, command, prepared, resume, main)
    finally:
        display.close()


def _train_alone(
    settings: Settings, run: Path, display: Display, command: str, prepared: Prepared | None, resume: bool, main: bool
) -> record.RunRecord:
    """Train in a folder that no other process writes to; a failure is written into the record."""
    found = _begin(settings, run, command, resume, main)
    if found.status == "done":
        if main:
            _tidy(run)
        display.note(f"{run} is done already")
        return found
    try:
        with _explained_memory(settings.training):
            return _train(settings, run, found, display, prepared, main)
    except Stopped:
        raise
    except Exception as error:
        if main:
            found.status, found.reason = "failed", str(error) or type(error).__name__
            with contextlib.suppress(OSError):
                found.save(run)
                if not found.times.get("starts"):  # the command was wrong: the folder can be used again
                    (run / SETTINGS).unlink(missing_ok=True)
        raise


def refuse_comparison(folder: Path) -> None:
    """Raise a ValueError that lists the runs of a folder, if it is that of a comparison."""
    if not (folder / COMPARISON).is_file():
        return
    runs = [str(one) for one in sorted((folder / "runs").glob("*")) if (one / SETTINGS).is_file()]
    if not runs:
        raise ValueError(f"{folder} is a comparison without trained models; go on with: synthattn compare --resume")
    raise ValueError(f"{folder} is a comparison of several models; choose one: {listed(runs)}")


def saved_settings(run: Path) -> Settings:
    """Load the settings that a run was started with."""
    refuse_comparison(run)
    file = run / SETTINGS
    if not file.is_file():
        raise ValueError(f"{run} holds no {SETTINGS}, so it is not the folder of a run")
    found = read_settings(file)
    try:
        settings = from_dict(found)
    except ValueError as error:
        raise ValueError(f"{file} is damaged: {error}") from error
    if (run / record.FILE).is_file():
        _check_recorded(run, settings)
    return settings


MOVABLE = {("data", "source"), ("model", "start"), ("evaluation", "vectors")}
"""Settings that are paths; the files may have been moved since the run was started."""


def _check_recorded(run: Path, settings: Settings) -> None:
    """Raise an error if settings differ from the record, which was written with them. Files may have moved."""
    recorded = record.load(run).settings
    if not recorded:
        return
    file = run / record.FILE
    try:
        before = as_dict(from_dict(recorded))
    except ValueError as error:
        raise ValueError(f"{file} is damaged: settings: {error}") from error
    for group, values in as_dict(settings).items():
        for name, value in values.items():
            earlier = before[group].get(name)
            if value != earlier and (group, name) not in MOVABLE:
                raise ValueError(
                    f"{run / SETTINGS} has {group}.{name}={value}, {file} has {earlier}: one of them was "
                    "changed or damaged; put back what it was"
                )


def final_model(run: Path) -> Path:
    """Return the folder of a run's model, or of its last complete checkpoint if the run is not done."""
    refuse_comparison(run)
    if (run / MODEL / "config.json").is_file():
        return run / MODEL
    folder, _ = checkpoints.last_good(run)
    if folder is None:
        raise ValueError(f"{run} has no model yet, and no whole checkpoint")
    return folder


def _begin(settings: Settings, run: Path, command: str, resume: bool, main: bool) -> record.RunRecord:
    if resume:
        found = record.load(run)
        if found.status != "done":
            found.status, found.reason = "running", ""
            _use_threads_of(found, run)
        if main and not (run / SETTINGS).is_file():  # the process was killed right after writing the record
            write_text(run / SETTINGS, yaml.safe_dump(as_dict(settings), sort_keys=False))
        return found
    if not main:  # the first process creates the folder
        return record.RunRecord(seed=settings.training.seed)
    # A start that was killed at once leaves no settings, which are written last, and cannot be resumed.
    begun = {LOCK, record.FILE, f"{record.FILE}.part", f"{SETTINGS}.part"}
    if any(entry.name not in begun for entry in run.iterdir()):
        raise ValueError(f"{run} is not empty; choose another folder, or go on with --resume {run}")
    found = record.RunRecord(
        command=command,
        settings=as_dict(settings),
        seed=settings.training.seed,
        versions=record.versions(),
        hardware=record.hardware(),
        times={"started": record.now(), "training_seconds": 0.0, "starts": 0},
    )
    found.save(run)
    write_text(run / SETTINGS, yaml.safe_dump(as_dict(settings), sort_keys=False))
    return found


def _use_threads_of(found: record.RunRecord, run: Path) -> None:
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


def _train(
    settings: Settings, run: Path, found: record.RunRecord, display: Display, prepared: Prepared | None, main: bool
) -> record.RunRecord:
    start = None if settings.model.start is None else Path(settings.model.start)
    if prepared is None:
        display.note("preparing the data")
        prepared = prepare_data(settings)
    for part in prepared.parts:  # reports a missing split before training
        part.evaluation_splits(settings.evaluation.split)
    way_out = "put back what it was, or train anew, in another folder"
    check_same_data(found.data, prepared.facts, settings.data.source, f"{run} was begun", way_out)
    config = configuration(settings.model, **decided_fields(prepared))
    seed = settings.training.seed
    # Initialise the model even if a checkpoint follows, so that a resumed run sums numbers in equal order.
    if start is None:
        model = build(config, prepared.kind, seed)
    else:
        model = load_for(start, prepared.kind, prepared.labels, config)
    if prepared.labels:
        name_classes(model, prepared.labels)  # before training, since checkpoints are models, too
    found.data, found.notes = prepared.facts, prepared.notes
    found.model = {
        "class": type(model).__name__,
        "parameters": parameters(model),
        "configuration": json.loads(model.config.to_json_string(use_diff=False)),
    }
    if not (run / MODEL / "config.json").is_file():
        trainer = _fit(settings, run, found, display, prepared, model)
        _finish(settings, run, found, trainer, prepared)
    if not main:
        return found
    display.note("scoring")
    scored = placed(load(run / MODEL))
    result = evaluate(scored, prepared.tokenizer, prepared.parts, settings.evaluation, display.scored)
    result.save(run)
    found.scores = {name: one.as_dict() for name, one in result.scored.items()}
    found.evaluation = result.facts()
    found.times["evaluation_seconds"] = result.seconds
    found.times["finished"] = record.now()
    write_card(run / MODEL, found)
    found.status = "done"
    found.save(run)
    _tidy(run)
    return found


def _tidy(run: Path) -> None:
    """Remove the checkpoints of a run that is done; the model is kept."""
    for folder in checkpoints.checkpoints(run):
        checkpoints.remove(folder)


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


def plan(settings: TrainingSettings, prepared: Prepared) -> Plan:
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
    return Plan(steps, every, saving, smoothing)


def _batches(settings: TrainingSettings, prepared: Prepared) -> TokenBatches:
    inputs = prepared.train
    return TokenBatches(inputs.lengths, settings.batch_tokens, settings.seed, order=inputs.order)


def _fit(
    settings: Settings, run: Path, found: record.RunRecord, display: Display, prepared: Prepared, model: Any
) -> SynthesizerTrainer:
    training = settings.training
    planned = plan(training, prepared)
    checkpoint, complaints = checkpoints.last_good(run)
    for complaint in complaints:
        display.note(complaint)
    if checkpoint is not None:
        display.note(f"going on from step {checkpoints.step_of(checkpoint):,}")
        if _out_of_patience(checkpoint, training.patience):
            planned.steps = checkpoints.step_of(checkpoint)
    elif complaints:
        display.note("no checkpoint is whole; starting from the beginning")
    arguments = _arguments(training, planned, run, prepared)
    batches = RunBatches(
        _batches(training, prepared),
        planned.steps * training.accumulation,
        arguments.process_index,
        arguments.world_size,
    )
    reporter = Reporter(display, 0 if training.minutes is not None else planned.steps)
    keeper = RecordCallback(found, run, training.minutes, checkpoint)
    callbacks: list[TrainerCallback] = [reporter, keeper]
    board = TensorBoardCallback(run / "tensorboard") if arguments.process_index == 0 else None
    if board is not None:
        callbacks.append(board)
    if training.patience is not None:
        callbacks.append(EarlyStoppingCallback(training.patience))
    trainer = SynthesizerTrainer(
        model,
        arguments,
        prepared.train,
        batches,
        prepared.validation,
        prepared.tokenizer,
        settings.evaluation.batch_tokens,
        planned.label_smoothing,
        training.keep_checkpoints,
        training.keep == "best",
        callbacks=callbacks,
    )
    trainer.remove_callback(transformers.PrinterCallback)
    reporter.trainer = keeper.trainer = trainer
    torch.manual_seed(training.seed)
    found.times["starts"] = found.times.get("starts", 0) + 1
    with stop_on_signals(keeper), contextlib.nullcontext() if board is None else contextlib.closing(board):
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    keeper.write()
    if keeper.interrupted:
        found.status = "stopped"
        if trainer.args.should_save:
            found.save(run)
        raise Stopped(run, trainer.state.global_step)
    return trainer


def _out_of_patience(checkpoint: Path, patience: int | None) -> bool:
    """Return True if a run was due to stop at a checkpoint; the Trainer would train another step."""
    if patience is None:
        return False
    state = json.loads((checkpoint / "trainer_state.json").read_text())
    kept = state["stateful_callbacks"].get(EarlyStoppingCallback.__name__)
    return kept is not None and kept["attributes"]["early_stopping_patience_counter"] >= patience


def _arguments(training: TrainingSettings, planned: Plan, run: Path, prepared: Prepared) -> TrainingArguments:
    on_cpu = not torch.cuda.is_available()
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    adam = training.optimizer == "adam"
    arguments = TrainingArguments(
        output_dir=str(run),
        report_to="none",
        max_steps=planned.steps,
        gradient_accumulation_steps=training.accumulation,
        learning_rate=training.learning_rate,
        lr_scheduler_type={"constant": "constant_with_warmup", "t5": "inverse_sqrt"}.get(
            training.schedule, training.schedule
        ),
        lr_scheduler_kwargs=T5_SCHEDULE if training.schedule == "t5" else None,
        warmup_steps=training.warmup,
        optim="adamw_torch_fused" if adam else "adafactor",
        adam_beta1=training.beta1,
        adam_beta2=training.beta2,
        adam_epsilon=training.epsilon,
        weight_decay=training.weight_decay,
        max_grad_norm=training.clip,
        seed=training.seed,
        data_seed=training.seed,
        bf16=training.precision == "bf16",
        gradient_checkpointing=training.gradient_checkpointing,
        torch_compile=training.compile,
        dataloader_num_workers=training.workers,
        logging_strategy="steps",
        logging_steps=training.log_every,
        logging_nan_inf_filter=False,
        eval_strategy="steps",
        eval_steps=planned.evaluate_every,
        metric_for_best_model="loss",
        greater_is_better=False,
        save_strategy="steps",
        save_steps=planned.save_every,
        save_total_limit=None,
        restore_callback_states_from_checkpoint=True,  # otherwise patience would start again
        disable_tqdm=True,
        use_cpu=on_cpu,
        use_cache=True,  # otherwise the saved configuration would disable the cache
        ddp_find_unused_parameters=False,
        # The first process scores alone, while the others wait for it in the next run, if there is one.
        ddp_timeout=6 * 60 * 60,
        remove_unused_columns=False,
        fsdp=training.shard or None,  # pyright: ignore[reportArgumentType] (its annotation is older than its meaning)
        fsdp_config={"transformer_layer_cls_to_wrap": ["Block"]} if training.shard else None,
        average_tokens_across_devices=True,
    )
    if arguments.n_gpu > 1:
        arguments._n_gpu = 1  # several need torchrun: one process for all is slow, and splits batches again
    return arguments


def _finish(
    settings: Settings, run: Path, found: record.RunRecord, trainer: SynthesizerTrainer, prepared: Prepared
) -> None:
    """Choose the final weights, and save model and tokenizer for ``from_pretrained``."""
    keep = settings.training.keep
    model: Any = trainer.accelerator.unwrap_model(trainer.model)
    # All processes take part in gathering a sharded model.
    weights = trainer.accelerator.get_state_dict(trainer.model) if settings.training.shard else None
    if not trainer.args.should_save:
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


def check_names(folder: Path, settings: Settings) -> None:
    """Raise an error before training for names that cannot be written as UTF-8."""
    for name in (str(folder), settings.data.source, settings.model.start or ""):
        try:
            name.encode()
        except UnicodeEncodeError:
            raise ValueError(f"the name {printable(name)} is not UTF-8; rename it, or choose another") from None


def check_hardware(training: TrainingSettings) -> None:
    """Raise an error for options that this machine cannot use, or that would slow it down."""
    if training.shard and not torch.cuda.is_available():
        raise ValueError("training.shard needs accelerators; on CPUs every process has the whole model, leave it out")
    if training.precision == "bf16" and not torch.cuda.is_available() and not _has_fast_bf16():
        raise ValueError(
            "precision=bf16 would be many times slower than fp32 on this processor, which has no AMX; use fp32"
        )


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
