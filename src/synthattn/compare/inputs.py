"""Settings and data of runs, which may depend on other runs: a learning rate, a size, a model to start from."""

import contextlib
import dataclasses
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from synthattn.compare import records
from synthattn.compare.plan import Places, PlannedRun, Study, StudyPart, StudyRow
from synthattn.compare.records import StudyRecord
from synthattn.data.locks import locked_folder
from synthattn.metrics.corpus_vectors import corpus_vectors, save_vectors
from synthattn.models.describe import describe
from synthattn.tasks.encoding import examples
from synthattn.training.model import MODEL_OF, configuration, matched_control
from synthattn.training.prepare import Prepared, check_same_data
from synthattn.training.progress import Display
from synthattn.training.run import MODEL, decided_fields, prepare_data
from synthattn.training.settings import ModelSettings, Settings, as_dict


class _NotYetError(ValueError):
    """Something must be run before."""


@dataclass
class RunInputs:
    """Finds the settings and the data of runs of one study; remembers data that several of them share.

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
