"""Train what a table needs and does not have yet, and keep a record of each run."""

import contextlib
import dataclasses
import os
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from synthattn.compare.measure import measure, typical
from synthattn.compare.pictures import pictures
from synthattn.data.locks import FolderInUseError, locked_folder
from synthattn.metrics.corpus_vectors import corpus_vectors, save_vectors
from synthattn.models.describe import describe
from synthattn.paper import entries
from synthattn.paper.entries import Entry
from synthattn.paper.recipe import Part, Recipe, Row
from synthattn.paper.recipes import recipe
from synthattn.render.results import Histogram
from synthattn.tasks.encoding import examples
from synthattn.training import record
from synthattn.training.best_constant_answer import best_constant_answer
from synthattn.training.model import MODEL_OF, build, configuration, load, matched_control, placed
from synthattn.training.prepare import Prepared, check_same_data, open_parts
from synthattn.training.progress import Display
from synthattn.training.run import MODEL, Stopped, decided_fields, prepare_data, train
from synthattn.training.settings import ModelSettings, Settings, as_dict

SPEED_ROUNDS = 11
WAIT = 1.0
"""Seconds between looks whether another process is ready."""
CHOICE = "rates"
"""The folder of the runs that a learning rate is chosen from."""


class _NotYetError(ValueError):
    """Something must be run before."""


@dataclass(frozen=True)
class Folders:
    """Where everything is.

    Args:
        results: records, tables and pages: small, to be kept.
        work: models and checkpoints.
        data: data sets of the scale ``cpu``, a folder for each.
    """

    results: Path
    work: Path
    data: Path | None = None

    @property
    def hidden(self) -> dict[str, str]:
        """What must not be in a record, since it is different on every machine."""
        found = {str(self.work): "WORK", str(self.work.resolve()): "WORK"}
        if self.data is not None:
            found |= {str(self.data): "DATA", str(self.data.resolve()): "DATA"}
        return {folder: name for folder, name in found.items() if len(folder) > 1}


@dataclass(frozen=True)
class Job:
    """A run that is to be made."""

    part: Part
    row: Row
    seed: int
    rate: float | None = None
    """A learning rate to try; None takes the one that was chosen."""

    @property
    def name(self) -> str:
        return f"{self.row.key}-{self.seed}" if self.rate is None else f"{CHOICE}/{self.rate:g}"


def jobs(chosen: Recipe, rows: Sequence[str] = (), seeds: int | None = None) -> Iterator[Job]:
    """All runs of a table, in the order in which they are worth having: first every row once, then further seeds."""
    for part in chosen.parts:
        for rate in part.rates:
            yield Job(part, part.baseline, 0, rate)
    most = max(row.seeds for part in chosen.parts for row in part.rows) if seeds is None else seeds
    for seed in range(most):
        for part in chosen.parts:
            for row in part.rows:
                wanted = row.seeds if seeds is None else seeds
                # What the others are compared with comes along unasked.
                asked = not rows or row.key in rows or row == part.baseline or not row.trained
                if seed < (wanted if row.trained else row.seeds) and asked:
                    yield Job(part, row, seed)


@dataclass
class Execution:
    """Of one table; remembers data that several runs share."""

    recipe: Recipe
    folders: Folders
    display: Callable[[str], Display]
    _prepared: dict[str, Prepared] = field(default_factory=dict)

    @property
    def main(self) -> bool:
        """Whether this process writes: of several that torchrun has started, the first."""
        return int(os.environ.get("RANK", "0")) == 0

    def kept(self, job: Job) -> Path:
        return entries.place(self.folders.results, self.recipe.table, self.recipe.scale, job.part.name, job.name)

    def run_folder(self, job: Job) -> Path:
        return self.folders.work / f"{self.recipe.table}-{self.recipe.scale}" / job.part.name / job.name

    def done(self, job: Job) -> bool:
        """Whether there is a record of it; one that was made in another way than it would be now is refused."""
        path = self.kept(job)
        entry = entries.load(path) if path.is_file() else None
        if entry is None or entry.record.status == "failed":
            # A learning rate that is too high fails each time.
            return entry is not None and job.rate is not None
        # Of a record from elsewhere it may not be known with which rate it would have been made here.
        with contextlib.suppress(_NotYetError):
            self._check(entry.record.settings, self._kept_settings(job), job, path)
        return entry.record.status == "done"

    def _check(self, before: Mapping[str, Any], now: Mapping[str, Any], job: Job, place: Path) -> None:
        hidden = self.folders.hidden
        old, new = (flat(entries.without_folders(settings, hidden)) for settings in (before, now))
        # How large a control is depends on the other rows, and a model to start from on where it was trained.
        left = ("model.",) if job.row.control or job.part.before else ()
        for name in sorted(old.keys() | new.keys()):
            if old.get(name) != new.get(name) and not name.startswith(left):
                raise ValueError(
                    f"{place} was made with {name}={old.get(name)}, now it is {new.get(name)}; remove it, or name "
                    "another --output and --work"
                )

    def ready(self, job: Job) -> bool:
        """Whether all is there that must be made before."""
        try:
            self._settings(job)
        except _NotYetError:
            return False
        return True

    def run(self, job: Job) -> Entry:
        """Make a run, or go on with it, and keep its record; a failure is a record too."""
        if job.rate is None and job.row == job.part.baseline and job.seed == 0 and job.part.rates:
            return self._take_best(job)
        if not job.row.trained:
            return self._give_one_answer(job)
        settings = self.settings(job)
        folder = self.run_folder(job)
        again = (folder / record.FILE).is_file()
        if again:
            self._check(record.load(folder).settings, as_dict(settings), job, folder)
        prepared = self.prepared(job.part, settings)
        self._check_data(job.part, prepared.facts)
        if again:
            self._check_facts(record.load(folder).data, job.part, prepared.facts, f"{folder} was begun")
        shown = self.display(f"{job.part.name} {job.name}")
        try:
            found = train(settings, folder, shown, self.command(job), prepared, resume=again)
        except (Stopped, KeyboardInterrupt, FolderInUseError):
            raise
        except Exception as error:
            # Of several processes, the others would wait for this one in the middle of the run.
            if os.environ.get("SYNTHATTN_TRACEBACK") or processes() > 1:
                raise
            found = record.load(folder)
            found.status, found.reason = "failed", " ".join(str(error).split()) or type(error).__name__
        entry = self._entry(job, found)
        if found.status == "done":
            self._look(job, entry, prepared, settings)
        if self.main:
            if found.status == "done":
                entries.copy_rows(folder, self.kept(job))
            entry.save(self.kept(job), self.folders.hidden)
        else:
            self._wait(job)
        return entry

    def _wait(self, job: Job) -> None:
        """The first process still scores; what comes next may hang on it. A collective would give up after a while."""
        while not self.done(job):
            time.sleep(WAIT)

    def _give_one_answer(self, job: Job) -> Entry:
        """There is nothing to train: read, count and score."""
        if not self.main:
            self._wait(job)
            return entries.load(self.kept(job))
        settings, kept = self._settings(job), self.kept(job)
        started = record.now()
        parts = open_parts(settings.data)
        facts = {"sources": {part.source.name: part.source.fingerprint() for part in parts}}
        self._check_data(job.part, facts)
        scored = best_constant_answer(parts, settings.evaluation, settings.data.train_examples)
        kept.with_suffix("").mkdir(parents=True, exist_ok=True)
        scored.save(kept.with_suffix(""))
        found = record.RunRecord(
            "done",
            command=self.command(job),
            settings=self._kept_settings(job),
            data=facts,
            scores={name: one.as_dict() for name, one in scored.scored.items()},
            evaluation=scored.facts(),
            times={"started": started, "evaluation_seconds": scored.seconds, "finished": record.now()},
            versions=record.versions(),
            hardware=record.hardware(),
        )
        entry = self._entry(job, found)
        entry.save(kept, self.folders.hidden)
        return entry

    def _kept_settings(self, job: Job) -> dict[str, Any]:
        """Those that a run depends on: what is no model knows nothing of training."""
        found = as_dict(self._settings(job))
        return found if job.row.trained else {name: found[name] for name in ("data", "evaluation")}

    def settings(self, job: Job) -> Settings:
        """All of a run's."""
        part, settings = job.part, self._settings(job)
        if part.vectors:
            self._make_vectors(part, settings)
        if not job.row.control:
            return settings
        prepared = self.prepared(part, settings)
        models = [row for row in part.rows if row.trained and not row.control]
        sizes = [_parameters(_model(part.settings.model, row), prepared) for row in models]
        model = matched_control(part.settings.model, prepared.kind, max(sizes), **decided_fields(prepared))
        return dataclasses.replace(settings, model=model)

    def _settings(self, job: Job) -> Settings:
        """All that can be known without looking at data."""
        part, row = job.part, job.row
        settings = part.settings.changed(training__seed=job.seed)
        if not row.trained:
            return settings
        rate = job.rate if job.rate is not None else self.rate(part)
        if rate is not None:
            settings = settings.changed(training__learning_rate=rate)
        if part.vectors:
            settings = settings.changed(evaluation__vectors=str(self._vectors(part)))
        if part.before is not None:
            model = ModelSettings(start=str(self._start(part.before, row)), fields=dict(part.tuned))
        else:
            model = _model(settings.model, row)
        return dataclasses.replace(settings, model=model)

    def rate(self, part: Part) -> float | None:
        """The learning rate of all rows: the one with which the baseline had the lowest validation loss."""
        of = self.recipe.part(part.rate_of) if part.rate_of is not None else part
        if not of.rates:
            return None
        found = []
        for rate in of.rates:
            path = self.kept(Job(of, of.baseline, 0, rate))
            entry = entries.load(path) if path.is_file() else None
            if entry is None or entry.record.status not in ("done", "failed"):
                raise _NotYetError(f"the learning rate of {of.name} is not chosen yet: {rate:g} is still to be tried")
            found.append(entry)
        chosen = chosen_rate(found)
        if chosen is None:
            raise ValueError(f"no learning rate of {of.name} could be used: {found[0].record.reason}")
        return chosen

    def prepared(self, part: Part, settings: Settings) -> Prepared:
        """The data, once for all rows; a model to start from brings its own words, which are those of all rows."""
        if part.name not in self._prepared:
            # Vectors of words are made of this data, and are not there yet.
            self._prepared[part.name] = prepare_data(settings.changed(evaluation__vectors=None))
        return self._prepared[part.name]

    def _check_data(self, part: Part, now: Mapping[str, Any]) -> None:
        """Where some rows have learned from other texts than the rest would, nothing could be compared."""
        for path in sorted(self.kept(Job(part, part.baseline, 0)).parent.glob("*.json")):
            # Records may be from another machine, whose libraries may write down the same tokenizer in another way.
            before = entries.load(path).record.data
            self._check_facts(before, part, now, f"{path} was made", tokenizer=False)

    def _check_facts(
        self, before: Mapping[str, Any], part: Part, now: Mapping[str, Any], since: str, tokenizer: bool = True
    ) -> None:
        source, way_out = part.settings.data.source, "name another --output and --work"
        check_same_data(before, now, source, since, way_out, tokenizer)

    def _vectors(self, part: Part) -> Path:
        return self.folders.work / f"{self.recipe.table}-{self.recipe.scale}" / part.name / "vectors.txt"

    def _make_vectors(self, part: Part, settings: Settings) -> None:
        """Vectors of words, the same for all rows: those of each model would be another ruler."""
        path = self._vectors(part)
        if not self.main or path.is_file():
            return
        prepared = self.prepared(part, settings)
        texts = (
            text
            for one in prepared.parts
            for example in examples(one.task, one.source, "train")
            for text in (example.source, example.target)
        )
        with locked_folder(path.parent, wait=True):  # a command that runs beside this one makes the same
            if not path.is_file():
                save_vectors(corpus_vectors(texts), path)

    def command(self, job: Job) -> str:
        words = ["synthattn", "reproduce", self.recipe.table, "--scale", self.recipe.scale]
        words += ["--data", "DATA"] if self.recipe.scale == "cpu" else []
        words += ["--rows", job.row.key, "--seeds", str(job.seed + 1)]
        return shlex.join(words)

    def _take_best(self, job: Job) -> Entry:
        """The baseline's first run has been made already, when its learning rate was chosen."""
        rate = self.rate(job.part)
        tried = Job(job.part, job.row, 0, rate)
        entry = dataclasses.replace(entries.load(self.kept(tried)), candidate=False)
        if self.main:
            entries.copy_rows(self.kept(tried).with_suffix(""), self.kept(job))
            entry.save(self.kept(job), self.folders.hidden)
        return entry

    def _start(self, before: tuple[str, str], row: Row) -> Path:
        """The model that a row of another table has left."""
        table, name = before
        other = recipe(table, self.recipe.scale, self.folders.data)
        part = other.part(name)
        source = part.like(row)
        job, execution = Job(part, source, 0), Execution(other, self.folders, self.display)
        if not execution.done(job):
            raise _NotYetError(
                f"{self.recipe.table} starts from the models of {table}; first run: {execution.command(job)}"
            )
        if source == part.baseline and part.rates:
            job = dataclasses.replace(job, rate=execution.rate(part))
        model = execution.run_folder(job) / MODEL
        if not (model / "config.json").is_file():
            raise _NotYetError(f"the record of {row.name} is there, but its model is not in {model}; train it again")
        return model

    def _entry(self, job: Job, found: record.RunRecord) -> Entry:
        return Entry(
            self.recipe.table,
            self.recipe.scale,
            job.part.name,
            job.row.name,
            job.seed,
            self.command(job),
            found,
            candidate=job.rate is not None,
        )

    def _look(self, job: Job, entry: Entry, prepared: Prepared, settings: Settings) -> None:
        """What is measured on a model besides its scores."""
        if not self.main:
            return
        if settings.model.start is None:
            config = configuration(settings.model, **decided_fields(prepared))
            entry.gigaflop = describe(config, MODEL_OF[prepared.kind])["flops"]["forward"] / 1e9
        if job.seed or settings.model.start is not None:
            return
        if job.part.looks:
            batch = {
                name: value[:8] for name, value in typical(prepared.train, settings.training.batch_tokens, 1)[0].items()
            }
            entry.before = _histograms(self._new(settings, prepared), batch)
            entry.after = _histograms(load(self.run_folder(job) / MODEL), batch)
        if job.part.speed and job.row != job.part.baseline:
            base = dataclasses.replace(settings, model=_model(job.part.settings.model, job.part.baseline))
            found = measure(
                lambda: self._new(settings, prepared),
                lambda: self._new(base, prepared),
                typical(prepared.train, settings.training.batch_tokens),
                SPEED_ROUNDS,
            )
            entry.speed = (found.training_speed, *found.spread["training_speed"])

    def _new(self, settings: Settings, prepared: Prepared) -> Any:
        config = configuration(settings.model, **decided_fields(prepared))
        return placed(build(config, prepared.kind, settings.training.seed))


def chosen_rate(tried: Sequence[Entry]) -> float | None:
    """The rate with the lowest validation loss; of several, the lowest rate; None where all have failed."""
    losses = {entry.rate: entry.validation_loss for entry in tried if entry.record.status == "done"}
    known = {rate: loss for rate, loss in losses.items() if loss is not None}
    return min(sorted(known), key=lambda rate: known[rate]) if known else None


def processes() -> int:
    """How many torchrun has started."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def flat(settings: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Nested settings by names such as ``training.steps``."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found |= flat(value, f"{path}{name}.") if isinstance(value, Mapping) else {f"{path}{name}": value}
    return found


def _model(settings: ModelSettings, row: Row) -> ModelSettings:
    return dataclasses.replace(settings, attention=row.attention, fields=settings.fields | row.fields)


def _parameters(settings: ModelSettings, prepared: Prepared) -> int:
    config = configuration(settings, **decided_fields(prepared))
    return describe(config, MODEL_OF[prepared.kind])["parameters"]["total"]


def _histograms(model: Any, batch: Mapping[str, Any]) -> list[Histogram]:
    return pictures(model, batch)[1]
