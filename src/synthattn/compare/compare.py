"""The main job: the same model with several kinds of attention, under equal conditions; then a table and a page."""

import contextlib
import copy
import dataclasses
import itertools
import json
import math
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import yaml

from synthattn.compare import statistics
from synthattn.compare.measure import heaviest, measure, training_memory, typical
from synthattn.compare.pictures import pictures
from synthattn.compare.verdict import answer
from synthattn.data.locks import LOCK, FolderInUseError, locked_folder
from synthattn.layers.mixers import parse_mixer
from synthattn.models.describe import describe
from synthattn.render import tables
from synthattn.render.page import page
from synthattn.render.picture import picture
from synthattn.render.published import published
from synthattn.render.results import Metric, Results, Sample, Score, Variant
from synthattn.render.results import load as load_results
from synthattn.saved_file import one_line, read_dataclass, read_yaml, restore
from synthattn.synthesizers import FAMILY
from synthattn.training import record
from synthattn.training.best_constant_answer import answers_are_chosen, best_constant_answer
from synthattn.training.checkpoints import write_text
from synthattn.training.evaluation import load_rows, metrics_of
from synthattn.training.model import MODEL_OF, build, configuration, load, matched_control, placed
from synthattn.training.prepare import Prepared, check_same_data
from synthattn.training.progress import Display
from synthattn.training.run import MODEL, Stopped, check_names, decided_fields, prepare_data, train
from synthattn.training.settings import ModelSettings, Settings, as_dict, from_dict

BASELINE = "vanilla"
CONTROL = "vanilla (control)"
"""Vanilla with as many parameters as the largest variant."""

SAMPLES = 8
FILE = "compare.yaml"


@dataclass(frozen=True)
class Comparison:
    """What is compared.

    Args:
        settings: of all runs, but for the attention and the seed.
        attention: the variants; the first should be the baseline.
        seeds: how many runs each has, from seeds that follow the one of the settings.
        control: whether a vanilla model with as many parameters as the largest variant is trained too.
    """

    settings: Settings = field(default_factory=Settings)
    attention: tuple[str, ...] = FAMILY
    seeds: int = 1
    control: bool = False

    def __post_init__(self) -> None:
        if not self.attention:
            raise ValueError("nothing to compare: give at least one attention")
        if self.seeds < 1:
            raise ValueError(f"seeds must be at least 1, got {self.seeds}")
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise ValueError("a comparison is one process; torchrun is for synthattn train")
        if self.settings.model.attention != ModelSettings().attention:
            raise ValueError("model.attention is for synthattn train; say what to compare with --attention")
        for name in ("encoder_attention", "decoder_attention"):
            if name in self.settings.model.fields:
                raise ValueError(f"model.{name} would be the same for every variant; leave it out of a comparison")
        if self.settings.model.start is not None:
            raise ValueError("a comparison trains every variant anew; model.start is for synthattn train")
        names = [str(parse_mixer(spec)) for spec in self.attention]
        for spec, name in zip(self.attention, names, strict=True):
            if names.count(name) > 1:
                raise ValueError(f"{spec} is given twice")
        object.__setattr__(self, "attention", tuple(names))

    def save(self, folder: Path) -> None:
        content = {"attention": list(self.attention), "seeds": self.seeds, "control": self.control}
        write_text(folder / FILE, yaml.safe_dump(content | {"settings": as_dict(self.settings)}, sort_keys=False))


@dataclass
class _Saved:
    """The content of ``compare.yaml``."""

    settings: dict[str, Any]
    attention: list[str]
    seeds: int
    control: bool


def load_comparison(folder: Path) -> Comparison:
    file = folder / FILE
    if not file.is_file():
        raise ValueError(f"{folder} holds no {FILE}, so it is not the folder of a comparison")
    try:
        found = restore(_Saved, read_yaml(file))
        return Comparison(from_dict(found.settings), tuple(found.attention), found.seeds, found.control)
    except ValueError as error:
        raise ValueError(f"{file} is damaged: {one_line(error).removeprefix(f'{file} ')}") from error


@dataclass
class _State:
    """Of a comparison that is under way."""

    folder: Path
    comparison: Comparison
    prepared: Prepared
    results: Results
    scores: dict[tuple[str, str], Score] = field(default_factory=dict)
    """By attention and metric, with p-values that are not adjusted for the others."""
    began: float = field(default_factory=time.monotonic)
    before: float = 0.0

    @property
    def baseline(self) -> Variant | None:
        return next((variant for variant in self.results.variants if variant.attention == BASELINE), None)

    def settings(self, attention: str, seed: int) -> Settings:
        settings = self.comparison.settings.changed(training__seed=self.comparison.settings.training.seed + seed)
        if attention != CONTROL:
            return settings.changed(model__attention=attention)
        return dataclasses.replace(settings, model=self._control())

    def _control(self) -> Any:
        model = self.comparison.settings.model
        fields = decided_fields(self.prepared)
        sizes = [self._parameters(attention) for attention in self.comparison.attention]
        return matched_control(model, self.prepared.kind, max(sizes), **fields)

    def _parameters(self, attention: str) -> int:
        model = dataclasses.replace(self.comparison.settings.model, attention=attention)
        config = configuration(model, **decided_fields(self.prepared))
        return describe(config, MODEL_OF[self.prepared.kind])["parameters"]["total"]

    def run(self, attention: str, seed: int) -> Path:
        return self.folder / "runs" / f"{slug(attention)}-{seed}"

    def builder(self, attention: str) -> Callable[[], Any]:
        settings = self.settings(attention, 0)
        config = configuration(settings.model, **decided_fields(self.prepared))

        def new() -> Any:
            model = placed(build(config, self.prepared.kind, settings.training.seed))
            if settings.training.gradient_checkpointing:
                model.gradient_checkpointing_enable()
            return model

        return new


def slug(attention: str) -> str:
    """A name for a folder."""
    return re.sub(r"[^a-z0-9_+.=-]+", "-", attention).strip("-")


def compare(
    comparison: Comparison,
    folder: Path,
    display: Callable[[str], Display] | None = None,
    command: str = "",
    resume: bool = False,
) -> Results:
    """Train every variant, score it, measure it, and leave ``report.html``, tables and models in ``folder``.

    Args:
        comparison: what is compared.
        folder: where everything goes.
        display: makes something that is told how a run goes, from the run's name.
        command: what the user typed.
        resume: go on with what is in the folder.

    Raises:
        FolderInUseError: if another process writes into the folder.
    """
    check_names(folder, comparison.settings)
    with locked_folder(folder):
        return _compare(comparison, folder, display or (lambda name: Display()), command, resume)


def _compare(
    comparison: Comparison, folder: Path, display: Callable[[str], Display], command: str, resume: bool
) -> Results:
    if not resume:
        if any(entry.name != LOCK for entry in folder.iterdir()):
            raise ValueError(f"{folder} is not empty; choose another folder, or go on with --resume {folder}")
        comparison.save(folder)
    general = display("data")
    general.note("preparing the data")
    try:
        prepared = prepare_data(comparison.settings)
        metrics_of(prepared.parts, comparison.settings.evaluation)  # a split that is not there is known before training
    except (ValueError, OSError):
        if not resume:  # a mistake in the command: there is nothing to go on with, and the folder can be used again
            (folder / FILE).unlink()
        raise
    state = _State(folder, comparison, prepared, _empty(comparison, prepared, command))
    _remember(state)
    _check_data(state)
    general.close()
    for seed, variant in itertools.product(range(comparison.seeds), state.results.variants):
        _run(state, variant, seed, display)
        _collect(state)
    _measure(state, display("speed"))
    _collect(state)
    return state.results


def _empty(comparison: Comparison, prepared: Prepared, command: str) -> Results:
    settings = comparison.settings
    attention = [*comparison.attention, *([CONTROL] if comparison.control else [])]
    training = settings.training
    length = next((f"{getattr(training, n)} {n}" for n in ("tokens", "minutes") if getattr(training, n)), None)
    facts = {
        "task": settings.data.task,
        "data": settings.data.source,
        "preset": settings.model.preset,
        "changes to the preset": ", ".join(f"{k}={v}" for k, v in settings.model.fields.items()) or "none",
        "training": length or f"{training.steps or 2000} steps",
        "batch": f"{training.batch_tokens * training.accumulation:,} tokens",
        "seeds": str(comparison.seeds),
        "vocabulary": f"{len(prepared.tokenizer):,} tokens, {settings.data.tokenizer}",
        "training inputs": f"{len(prepared.train):,}",
        "longest input": f"{prepared.longest:,} tokens",
    }
    floor = {}
    if answers_are_chosen(prepared.parts):
        scored = best_constant_answer(prepared.parts, settings.evaluation, settings.data.train_examples).scored
        floor = {name: one.score.value for name, one in scored.items()}
        facts["one answer for all"] = ", ".join(f"{name} {value:.2f}" for name, value in floor.items())
    return Results(
        task=settings.data.task,
        data=settings.data.source,
        baseline=BASELINE,
        main_metric="",
        answer=[],
        variants=[Variant(name) for name in attention],
        metrics={},
        published=published(settings.data.task, settings.data.source),
        facts=facts,
        one_answer=floor,
        command=command,
        versions=record.versions(),
        hardware=record.hardware(),
        data_hashes={name: value[:16] for name, value in prepared.facts["sources"].items()},
        notes=list(prepared.notes),
        started=record.now(),
    )


def _remember(state: _State) -> None:
    """When it was begun, and what it was begun with, are those of the first start."""
    file = state.folder / "results.json"
    if not file.is_file():
        return
    with contextlib.suppress(ValueError):  # it is written anew
        before = load_results(file)
        state.results.started, state.before = before.started, before.seconds
        state.results.command = before.command or state.results.command


def _check_data(state: _State) -> None:
    """Where some variants have learned from other texts than the rest would, nothing could be compared."""
    now, source = state.prepared.facts, state.comparison.settings.data.source
    for file in sorted(state.folder.glob(f"runs/*/{record.FILE}")):
        before = record.load(file.parent).data
        check_same_data(before, now, source, f"{state.folder} was begun", "compare anew, in another folder")


def _run(state: _State, variant: Variant, seed: int, display: Callable[[str], Display]) -> None:
    """One run. Where it fails, its row says why, and the others go on."""
    run = state.run(variant.attention, seed)
    again = (run / record.FILE).is_file()
    if variant.status == "failed" and seed:
        return  # an earlier seed did already
    if again and (found := record.load(run)).status == "done":
        if load_rows(run):
            return
        found.status = "running"  # what was scored is lost, so that it is scored again
        found.save(run)
    name = variant.attention if state.comparison.seeds == 1 else f"{variant.attention} seed {seed}"
    variant.status, variant.reason = "running", ""
    try:
        train(state.settings(variant.attention, seed), run, display(name), "", state.prepared, resume=again)
        variant.status = "waiting"  # until all of its seeds are done
    except (Stopped, KeyboardInterrupt, FolderInUseError):
        variant.status = "waiting"
        _collect(state)
        raise
    except Exception as error:
        if os.environ.get("SYNTHATTN_TRACEBACK"):
            raise
        variant.status, variant.reason = "failed", " ".join(str(error).split()) or type(error).__name__
        variant.failed_seeds += 1


def _collect(state: _State) -> None:
    """Write all that is known so far."""
    results = state.results
    metrics = metrics_of(state.prepared.parts, state.comparison.settings.evaluation)
    rows = {variant.attention: _rows(state, variant) for variant in results.variants}
    base = rows.get(BASELINE, {})
    for variant in results.variants:
        records = _records(state, variant)
        done = [found for found in records if found.status == "done"]
        if variant.status != "failed" and len(done) == state.comparison.seeds:
            variant.status = "done"
        if records:
            _add_run(variant, records[0])
        _score(state, variant, done, metrics, rows[variant.attention], base)
    if results.main_metric:
        statistics.adjust(
            [s.difference for v in results.variants for n, s in v.scores.items()
             if n == results.main_metric and s.difference is not None]
        )  # fmt: skip
    _add_samples(state)
    results.answer = answer(results)
    results.seconds = state.before + time.monotonic() - state.began
    _write(state)


def _records(state: _State, variant: Variant) -> list[record.RunRecord]:
    runs = [state.run(variant.attention, seed) for seed in range(state.comparison.seeds)]
    return [record.load(run) for run in runs if (run / record.FILE).is_file()]


def _rows(state: _State, variant: Variant) -> dict[int, dict[str, Any]]:
    """By seed, of the runs that have been scored."""
    found = {seed: load_rows(state.run(variant.attention, seed)) for seed in range(state.comparison.seeds)}
    return {seed: rows for seed, rows in found.items() if rows}


def _add_run(variant: Variant, found: record.RunRecord) -> None:
    variant.parameters = found.model.get("parameters")
    variant.training_seconds = found.times.get("training_seconds")
    # A loss that is no number any more says why a run failed; a curve cannot show it, nor JSON hold it.
    variant.loss_curve, variant.validation_curve = (
        [[float(step), value] for step, value in curve if math.isfinite(value)]
        for curve in (found.loss, found.validation)
    )


def _score(
    state: _State,
    variant: Variant,
    done: Sequence[record.RunRecord],
    metrics: Mapping[str, Any],
    rows: Mapping[int, dict[str, Any]],
    base: Mapping[int, dict[str, Any]],
) -> None:
    if not done or not rows:
        return
    results = state.results
    # Seeds that survived are no sample of all: a variant that failed in some is not compared on the others.
    sound = state.baseline is not None and "failed" not in (variant.status, state.baseline.status)
    compared = variant is not state.baseline and sound and set(rows) == set(base)
    own_vectors = state.comparison.settings.evaluation.vectors is None
    for name, found in done[0].scores.items():
        if own_vectors and name.startswith("embedding-"):
            continue  # each variant's own vectors are another ruler
        results.metrics[name] = Metric(found["definition"], found["higher_is_better"])
        results.main_metric = results.main_metric or name
        known = state.scores.get((variant.attention, name))
        if known is None or len(known.by_seed) != len(rows) or (known.difference is not None) != compared:
            others = [base[seed][name] for seed in rows] if compared else None
            # Corpus metrics take their time: the intervals of the main one are the finest.
            samples = _draws(state) if name == results.main_metric else 200
            known = statistics.score(metrics[name], [one[name] for one in rows.values()], others, samples)
            state.scores[variant.attention, name] = known
        if _finite(known):
            variant.scores[name] = copy.deepcopy(known)
        else:
            note = f"{variant.attention}: {name} is not a finite number"
            results.notes += [note] if note not in results.notes else []


def _draws(state: _State) -> int:
    """So many that a p-value can be small enough when it is adjusted for all variants."""
    return max(statistics.SAMPLES, 100 * len(state.results.variants))


def _finite(score: Score) -> bool:
    parts = [score.value, score.low, score.high]
    if score.difference is not None:
        parts += [score.difference.value, score.difference.low, score.difference.high]
    return all(math.isfinite(part) for part in parts)


def _add_samples(state: _State) -> None:
    """A few answers of every variant, for the same questions."""
    results = state.results
    for variant in results.variants:
        file = state.run(variant.attention, 0) / "predictions.jsonl"
        if not file.is_file() or variant.samples:
            continue
        with file.open(encoding="utf-8") as lines:
            found = [_prediction(file, line) for line in itertools.islice(lines, SAMPLES)]
        if not results.samples:
            results.samples = [Sample(one.source, one.reference) for one in found]
        variant.samples = [one.prediction for one in found]


@dataclass
class _Prediction:
    """One line of ``predictions.jsonl``."""

    source: str
    reference: str
    prediction: str


def _prediction(file: Path, line: str) -> _Prediction:
    try:
        return restore(_Prediction, json.loads(line))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} is damaged: {one_line(error)}; score the run anew") from error


def _measure(state: _State, display: Display) -> None:
    """Costs, side by side with the baseline; and what the attention looks like."""
    results = state.results
    batches = typical(state.prepared.train, state.comparison.settings.training.batch_tokens)
    trained = [v for v in results.variants if v.status == "done"]
    for n, variant in enumerate(trained):
        display.scored(n, len(trained))
        kept = state.run(variant.attention, 0) / "measured.json"
        try:
            if not kept.is_file():
                write_text(kept, json.dumps(dataclasses.asdict(_costs(state, variant, batches))))
            measured = read_dataclass(Costs, kept, "is damaged; delete it, and it is measured again")
            for name, value in dataclasses.asdict(measured).items():
                setattr(variant, name, value)
            model = load(state.run(variant.attention, 0) / MODEL)
            variant.heads, variant.histograms, variant.mixture = pictures(
                model, {name: value[:8] for name, value in batches[0].items()}
            )
        except (ValueError, RuntimeError, OSError) as error:
            results.notes.append(f"{variant.attention} could not be measured: {' '.join(str(error).split())}")
    display.scored(len(trained), len(trained))
    display.close()
    results.notes.append(
        "Speeds are medians of ratios to the baseline, measured step by step in turn with it, apart from training, in "
        f"fp32 on the {'accelerator' if torch.cuda.is_available() else 'CPU'}."
    )
    several = "Student's t of seeds and of a bootstrap over examples" if state.comparison.seeds > 1 else "bootstrap"
    results.notes.append(
        f"Intervals and paired tests: {several}, {_draws(state)} draws for the first metric, else 200. P-values of the "
        "first metric are adjusted for the number of variants (Holm)."
    )


@dataclass
class Costs:
    """Speed and memory of a variant, as ``measured.json`` keeps them; the fields are those of ``Variant``."""

    cache_bytes_per_token: int | None
    training_speed: float | None
    inference_speed: float | None
    generation_speed: float | None
    training_memory: int | None


def _costs(state: _State, variant: Variant, batches: Sequence[Mapping[str, Any]]) -> Costs:
    builder = state.builder(variant.attention)
    config = configuration(state.settings(variant.attention, 0).model, **decided_fields(state.prepared))
    cache = describe(config, MODEL_OF[state.prepared.kind])["cache"]
    cache_bytes = cache["bytes_per_token"] if cache else None
    if variant.attention == BASELINE:
        writes = state.prepared.kind != "classification"
        return Costs(cache_bytes, 1.0, 1.0, 1.0 if writes else None, training_memory(builder, heaviest(batches)))
    found = measure(builder, state.builder(BASELINE), batches)
    speeds = (found.training_speed, found.inference_speed, found.generation_speed)
    return Costs(cache_bytes, *speeds, found.training_memory)


def _write(state: _State) -> None:
    results, folder = state.results, state.folder
    results.save(folder / "results.json")
    write_text(folder / "table.md", tables.markdown(results))
    write_text(folder / "table.csv", tables.csv_table(results))
    write_text(folder / "picture.svg", picture(results))
    write_text(folder / "report.html", page(results))
