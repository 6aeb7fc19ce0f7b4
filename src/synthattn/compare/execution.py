"""Make the runs of a study: find their settings and data, train, score and measure, and keep a record of each.

Settings may depend on other runs: a learning rate, a size, a model to start from.
"""

import contextlib
import dataclasses
import itertools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from synthattn.bench.two_models import heaviest, measure, training_memory, typical
from synthattn.compare import records
from synthattn.compare.plan import Places, PlannedRun, Study, StudyPart, StudyRow
from synthattn.compare.records import StudyRecord
from synthattn.compare.results import SPEEDS
from synthattn.data.locks import FolderInUseError, locked_folder
from synthattn.metrics.corpus_vectors import corpus_vectors, save_vectors
from synthattn.models.describe import describe
from synthattn.tasks.encoding import examples
from synthattn.training import record
from synthattn.training.attention_weights import pictures
from synthattn.training.floors import TOKEN_KINDS, floors
from synthattn.training.model import MODEL_OF, build, configuration, load, matched_control, placed
from synthattn.training.prepare import Prepared, check_same_data, open_parts
from synthattn.training.progress import Display
from synthattn.training.run import MODEL, Stopped, decided_fields, prepare_data, train
from synthattn.training.settings import ModelSettings, Settings, as_dict

WAIT = 1.0
"""Seconds between looks whether another process is ready."""


class _NotYetError(ValueError):
    """Something must be run before."""


@dataclass
class Execution:
    """Makes the runs of one study; remembers data that several of them share.

    Args:
        study: the study.
        places: where records, models and checkpoints are.
        display: makes something that is told how a run goes, from the run's label.
        command: what to type to make a run again.
        way_out: what a user can do where data or settings have changed.
    """

    study: Study
    places: Places
    display: Callable[[str], Display]
    command: Callable[[PlannedRun], str]
    way_out: str
    _prepared: dict[str, Prepared] = field(default_factory=dict)

    @property
    def main(self) -> bool:
        """Whether this process writes: of several that torchrun has started, the first."""
        return int(os.environ.get("RANK", "0")) == 0

    def load(self, run: PlannedRun) -> StudyRecord | None:
        """Read the record of a run; None where there is none."""
        path = self.places.record(run)
        return records.load(path) if path.is_file() else None

    def done(self, run: PlannedRun) -> bool:
        """Return whether there is a record; one that was made with other settings than now is refused."""
        found = self.load(run)
        if found is None or found.record.status == "failed":
            # A learning rate that is too high fails each time.
            return found is not None and run.rate is not None
        # Of a record from elsewhere it may not be known with which rate it would have been made here.
        with contextlib.suppress(_NotYetError):
            self.check_settings(found.record.settings, self.recorded_settings(run), run, self.places.record(run))
        return found.record.status == "done"

    def ready(self, run: PlannedRun) -> bool:
        """Return whether all runs that this one needs are made."""
        try:
            self.known_settings(run)
        except _NotYetError:
            return False
        return True

    def settings(self, run: PlannedRun) -> Settings:
        """Return all settings of a run; the data is read where they depend on it."""
        part, settings = run.part, self.known_settings(run)
        if part.vectors:
            self._make_vectors(part, settings)
        if not run.row.control:
            return settings
        prepared = self.prepared(part, settings)
        models = [row for row in part.rows if row.trained and not row.control]
        sizes = [described(with_row(part.settings.model, row), prepared)["parameters"]["total"] for row in models]
        model = matched_control(part.settings.model, prepared.kind, max(sizes), **decided_fields(prepared))
        return dataclasses.replace(settings, model=model)

    def known_settings(self, run: PlannedRun) -> Settings:
        """Return the settings that can be known without looking at data."""
        part, row = run.part, run.row
        settings = part.settings.changed(training__seed=part.settings.training.seed + run.seed)
        if not row.trained:
            return settings
        rate = run.rate
        if run.candidates:
            rate = self.chosen(run).rate
        if rate is not None:
            settings = settings.changed(training__learning_rate=rate)
        if part.vectors:
            settings = settings.changed(evaluation__vectors=str(self._vectors(part)))
        if run.start is not None:
            model = ModelSettings(start=str(self._start(run.start, row)), fields=dict(part.tuned))
        else:
            model = with_row(settings.model, row)
        return dataclasses.replace(settings, model=model)

    def recorded_settings(self, run: PlannedRun) -> dict[str, Any]:
        """Return the settings that a record has: what is no model knows nothing of training."""
        found = as_dict(self.known_settings(run))
        return found if run.row.trained else {name: found[name] for name in ("data", "evaluation")}

    def rate(self, part: StudyPart) -> float | None:
        """Return the learning rate of all rows, with which the baseline had the lowest validation loss."""
        run = PlannedRun(self.study, part, part.baseline, 0)
        return self.chosen(run).rate if run.candidates else None

    def chosen(self, run: PlannedRun) -> PlannedRun:
        """Return the candidate whose learning rate a run takes."""
        found = []
        for one in run.candidates:
            entry = self.load(one)
            if entry is None or entry.record.status not in ("done", "failed"):
                raise _NotYetError(
                    f"the learning rate of {one.part.name} is not chosen yet: {one.rate:g} is still to be tried"
                )
            found.append(entry)
        rate = chosen_rate(found)
        for one in run.candidates:
            if one.rate == rate:
                return one
        name, reason = run.candidates[0].part.name, found[0].record.reason
        raise ValueError(f"no learning rate of {name} could be used: {reason}")

    def _start(self, start: PlannedRun, row: StudyRow) -> Path:
        """Return the model that a row of another study has left."""
        other = dataclasses.replace(self, study=start.study, _prepared={})
        if not other.done(start):
            raise _NotYetError(
                f"{self.study.name} starts from the models of {other.study.name}; first run: {self.command(start)}"
            )
        model = other.model(start)
        if not (model / "config.json").is_file():
            raise _NotYetError(f"the record of {row.name} is there, but its model is not in {model}; train it again")
        return model

    def model(self, run: PlannedRun) -> Path:
        """Return the folder of a run's model."""
        return self.places.run(self.chosen(run) if run.shares_candidate else run) / MODEL

    def check_settings(self, before: Mapping[str, Any], now: Mapping[str, Any], run: PlannedRun, place: Path) -> None:
        old, new = (flat(records.without_folders(settings, self.places.hidden)) for settings in (before, now))
        # How large a control is depends on the other rows, and a model to start from on where it was trained.
        left = ("model.",) if run.row.control or run.part.before else ()
        for name in sorted(old.keys() | new.keys()):
            if old.get(name) != new.get(name) and not name.startswith(left):
                raise ValueError(
                    f"{place} was made with {name}={old.get(name)}, now it is {new.get(name)}; remove it, or "
                    f"{self.way_out}"
                )

    def prepared(self, part: StudyPart, settings: Settings) -> Prepared:
        """Return the data, read once for all rows; a model to start from brings its own words."""
        if part.name not in self._prepared:
            # Vectors of words are made of this data, and are not there yet.
            plain = settings.changed(evaluation__vectors=None) if part.vectors else settings
            self._prepared[part.name] = prepare_data(plain)
        return self._prepared[part.name]

    def check_data(self, part: StudyPart, now: Mapping[str, Any]) -> None:
        """Refuse a part of which some rows would learn from other texts than the rest have."""
        folder = self.places.record(PlannedRun(self.study, part, part.baseline, 0)).parent
        for path in records.record_files(folder.glob("*")):
            # Records may be from another machine, whose libraries may write down the same tokenizer in another way.
            self.check_facts(records.load(path).record.data, part, now, f"{path} was made", tokenizer=False)

    def check_facts(
        self, before: Mapping[str, Any], part: StudyPart, now: Mapping[str, Any], since: str, tokenizer: bool = True
    ) -> None:
        check_same_data(before, now, part.settings.data.source, since, self.way_out, tokenizer)

    def _vectors(self, part: StudyPart) -> Path:
        return self.places.run(PlannedRun(self.study, part, part.baseline, 0)).parent / "vectors.txt"

    def _make_vectors(self, part: StudyPart, settings: Settings) -> None:
        """Make vectors of words, the same for all rows: those of each model would be another ruler."""
        path = self._vectors(part)
        if not self.main or path.is_file():
            return
        texts = (
            text
            for one in self.prepared(part, settings).parts
            for example in examples(one.task, one.source, "train")
            for text in (example.source, example.target)
        )
        with locked_folder(path.parent, wait=True):  # a command that runs beside this one makes the same
            if not path.is_file():
                save_vectors(corpus_vectors(texts), path)

    # Making runs --------------------------------------------------------------------------------------------

    def run(self, run: PlannedRun) -> None:
        """Make a run, or go on with it, and keep its record; a failure is a record too."""
        if run.shares_candidate:
            self._share(run)
        elif not run.row.trained:
            self._score_floor(run)
        elif not self._failed_before(run):
            self._train(run)

    def _failed_before(self, run: PlannedRun) -> bool:
        """Return whether an earlier seed of the row has failed: what survives would be no fair sample."""
        earlier = (self.load(dataclasses.replace(run, seed=seed)) for seed in range(run.seed if self.main else 0))
        return any(found is not None and found.record.status == "failed" for found in earlier)

    def _train(self, run: PlannedRun) -> None:
        settings, folder = self.settings(run), self.places.run(run)
        again = (folder / record.FILE).is_file()
        prepared = self.prepared(run.part, settings)
        self.check_data(run.part, prepared.facts)
        if again:
            before = record.load(folder)
            self.check_settings(before.settings, as_dict(settings), run, folder)
            self.check_facts(before.data, run.part, prepared.facts, f"{folder} was begun")
        try:
            found = train(settings, folder, self.display(run.label), self.command(run), prepared, resume=again)
        except (Stopped, KeyboardInterrupt, FolderInUseError):
            raise
        except Exception as error:
            # Of several processes, the others would wait for this one in the middle of the run.
            if os.environ.get("SYNTHATTN_TRACEBACK") or processes() > 1:
                raise
            return self.fail(run, " ".join(str(error).split()) or type(error).__name__)
        if not self.main:
            return self._wait(run)
        if found.status == "done" and run.rate is None:
            records.copy_rows(folder, self.places.record(run))
        # What is measured on the first model of a row besides its scores does not depend on training.
        left = found.status == "done" and run.rate is None and run.seed == 0 and settings.model.start is None
        self._keep(run, found, measured=not left)

    def fail(self, run: PlannedRun, reason: str) -> None:
        """Record that a run has failed."""
        folder = self.places.run(run)
        found = record.load(folder) if (folder / record.FILE).is_file() else record.RunRecord()
        found.status, found.reason = "failed", reason
        self._keep(run, found, measured=True)

    def _wait(self, run: PlannedRun) -> None:
        """The first process still scores; what comes next may hang on it. A collective would give up after a while."""
        while not self.done(run):
            time.sleep(WAIT)

    def _share(self, run: PlannedRun) -> None:
        """Take the baseline's first run from those that its learning rate was chosen from."""
        chosen = self.chosen(run)
        found = self.load(chosen)
        assert found is not None
        if self.main:
            records.copy_rows(self.places.run(chosen), self.places.record(run))
            self._keep(run, found.record, measured=run.part.before is not None)

    def _score_floor(self, run: PlannedRun) -> None:
        """Score a row that is no model: read, count and score."""
        if not self.main:
            return self._wait(run)
        settings, folder = self.known_settings(run), self.places.run(run)
        started = record.now()
        parts = open_parts(settings.data)
        facts = {"sources": {part.source.name: part.source.fingerprint() for part in parts}}
        self.check_data(run.part, facts)
        tokenizer, longest = None, 0
        if parts[0].task.kind in TOKEN_KINDS:  # their floor predicts tokens
            prepared = self.prepared(run.part, settings)
            tokenizer, longest = prepared.tokenizer, prepared.longest
        # The last, where there are several, knows most: the frequency of each token.
        *_, scored = floors(parts, settings.evaluation, tokenizer, longest, settings.data.train_examples).values()
        folder.mkdir(parents=True, exist_ok=True)
        scored.save(folder)
        records.copy_rows(folder, self.places.record(run))
        found = record.RunRecord(
            "done",
            command=self.command(run),
            settings=self.recorded_settings(run),
            data=facts,
            scores={name: one.as_dict() for name, one in scored.scored.items()},
            evaluation=scored.facts(),
            times={"started": started, "evaluation_seconds": scored.seconds, "finished": record.now()},
            versions=record.versions(),
            hardware=record.hardware(),
        )
        self._keep(run, found, measured=True)

    def _keep(self, run: PlannedRun, found: record.RunRecord, measured: bool) -> None:
        entry = StudyRecord(
            self.study.name, self.study.scale, run.part.name, run.row.name, run.seed, self.command(run), found,
            candidate=run.rate is not None, measured=measured,
        )  # fmt: skip
        entry.save(self.places.record(run), self.places.hidden)

    def unmeasured(self, run: PlannedRun) -> StudyRecord | None:
        """Return the record of a run that has something left to measure."""
        found = self.load(run) if self.main else None
        return None if found is None or found.measured else found

    def measure(self, run: PlannedRun) -> None:
        """Measure the model of a row that is done, beside the baseline, and add this to its record."""
        found = self.unmeasured(run)
        if found is None:
            return
        settings = self.settings(run)
        try:
            prepared = self.prepared(run.part, settings)
            self._add_costs(found, run, settings, prepared)
        except (ValueError, RuntimeError, OSError) as error:
            found.trouble = f"{run.row.name} could not be measured: {' '.join(str(error).split())}"
        else:
            found.measured, found.trouble = True, ""
        found.save(self.places.record(run), self.places.hidden)

    def _add_costs(self, found: StudyRecord, run: PlannedRun, settings: Settings, prepared: Prepared) -> None:
        """Add to the record of a row what its part asks for: sizes, attention weights, speeds, memory."""
        part = run.part
        figures = described(settings.model, prepared)
        found.gigaflop = figures["flops"]["forward"] / 1e9
        if figures["cache"]:
            found.cache_bytes_per_token = figures["cache"]["bytes_per_token"]
        batches = typical(prepared.train, settings.training.batch_tokens)
        new = builder(settings, prepared)
        if part.looks:
            batch = {name: value[:8] for name, value in batches[0].items()}
            found.heads, found.after, found.mixture = pictures(load(self.model(run)), batch)
            if part.looks == "histograms":
                found.before, found.heads, found.mixture = pictures(new(), batch)[1], [], []
        if part.speed_rounds and run.row != part.baseline:
            baseline = dataclasses.replace(settings, model=with_row(part.settings.model, part.baseline))
            measured = measure(new, builder(baseline, prepared), batches, part.speed_rounds)
            found.speeds = {name: [one.value, one.low, one.high, one.rounds] for name, one in measured.speeds.items()}
            found.training_memory = measured.training_memory
        elif part.speed_rounds:
            writes = prepared.kind != "classification"
            found.speeds = {name: [1.0, 1.0, 1.0] for name in SPEEDS[: 3 if writes else 2]}
            found.training_memory = training_memory(new, heaviest(batches))


def chosen_rate(tried: Sequence[StudyRecord]) -> float | None:
    """Return the rate with the lowest validation loss; of several, the lowest rate; None where all have failed."""
    losses = {entry.rate: entry.validation_loss for entry in tried if entry.record.status == "done"}
    known = {rate: loss for rate, loss in losses.items() if loss is not None}
    return min(sorted(known), key=lambda rate: known[rate]) if known else None


def flat(settings: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Name nested settings as users do, such as ``training.steps``."""
    pairs = (
        flat(value, f"{path}{name}.") if isinstance(value, Mapping) else {f"{path}{name}": value}
        for name, value in settings.items()
    )
    return dict(itertools.chain.from_iterable(found.items() for found in pairs))


def with_row(settings: ModelSettings, row: StudyRow) -> ModelSettings:
    return dataclasses.replace(settings, attention=row.attention, fields=settings.fields | row.fields)


def described(model: ModelSettings, prepared: Prepared) -> dict[str, Any]:
    """Return all figures of a model for this data, from its shapes alone."""
    return describe(configuration(model, **decided_fields(prepared)), MODEL_OF[prepared.kind])


def processes() -> int:
    """Return how many processes torchrun has started."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def builder(settings: Settings, prepared: Prepared) -> Callable[[], Any]:
    """Return what builds a new model of these settings."""
    config = configuration(settings.model, **decided_fields(prepared))

    def new() -> Any:
        model = placed(build(config, prepared.kind, settings.training.seed))
        if settings.training.gradient_checkpointing:
            model.gradient_checkpointing_enable()
        return model

    return new
