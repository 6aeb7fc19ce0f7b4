"""Make the runs of a study: train, score and measure them, and keep a record of each."""

import dataclasses
import os
import time
from dataclasses import dataclass

from synthattn.compare import records
from synthattn.compare.costs import add_costs
from synthattn.compare.inputs import RunInputs
from synthattn.compare.plan import PlannedRun
from synthattn.compare.records import StudyRecord
from synthattn.data.locks import FolderInUseError
from synthattn.training import record
from synthattn.training.floors import TOKEN_KINDS, floors
from synthattn.training.prepare import open_parts
from synthattn.training.run import Stopped, train
from synthattn.training.settings import as_dict

WAIT = 1.0
"""Seconds between looks whether another process is ready."""


@dataclass
class Execution(RunInputs):
    """Makes runs of one study."""

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
            add_costs(found, run.part, run.row, settings, prepared, self.model(run))
        except (ValueError, RuntimeError, OSError) as error:
            found.trouble = f"{run.row.name} could not be measured: {' '.join(str(error).split())}"
        else:
            found.measured, found.trouble = True, ""
        found.save(self.places.record(run), self.places.hidden)


def processes() -> int:
    """Return how many processes torchrun has started."""
    return int(os.environ.get("WORLD_SIZE", "1"))
