"""The main job: the same model with several kinds of attention, under equal conditions; then a table and a page."""

import contextlib
import dataclasses
import itertools
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from synthattn.compare import collect, statistics
from synthattn.compare.comparison import BASELINE, WAY_OUT, Comparison, ComparisonFolder
from synthattn.compare.execution import Execution
from synthattn.compare.executors import Executor
from synthattn.compare.forecast import Forecast, Overall
from synthattn.compare.page import answer_page, markdown, page, picture
from synthattn.compare.plan import StudyPart, plan
from synthattn.compare.records import StudyRecord
from synthattn.compare.results import FILE as RESULTS
from synthattn.compare.results import MetricInfo, Published, Results, Sample, Score, Variant
from synthattn.compare.results import load as load_results
from synthattn.compare.schedule import PlanSource, Task, unfinished
from synthattn.compare.table import csv_table
from synthattn.compare.verdict import answer
from synthattn.data.in_memory import readable_source
from synthattn.data.locks import LOCK, FolderInUseError, locked_folder
from synthattn.saved_file import one_line, restore, write_text
from synthattn.training import record
from synthattn.training.evaluation import Evaluation, load_rows, metrics_of
from synthattn.training.floors import floors
from synthattn.training.model import check_sizes
from synthattn.training.prepare import Prepared, check_same_data
from synthattn.training.progress import Display
from synthattn.training.run import Stopped, check_names, computes_on, prepare_data, with_precision

SAMPLES, FEW_DRAWS = 8, 200


def compare(
    comparison: Comparison,
    folder: Path,
    display: Callable[[str], Display] | None = None,
    command: str = "",
    resume: bool = False,
    published: Sequence[Published] = (),
    jobs: int | None = None,
    budget: float | None = None,
    executor: Executor | None = None,
) -> Results:
    """Train every variant, score it, measure it, and leave ``report.html``, tables and models in ``folder``.

    Args:
        comparison: what is compared.
        folder: where everything goes.
        display: makes something that is told how a run goes, from the run's name.
        command: what the user typed.
        resume: go on with what is in the folder.
        published: numbers of the paper for the same task, to be shown beside ours.
        jobs: number of runs at the same time; by default as many as cores and memory allow, on an accelerator one.
        budget: seconds for everything. It decides the number of steps, which is the same for all runs.
        executor: makes the runs; by default this machine.

    Raises:
        FolderInUseError: if another process writes into the folder.
    """
    began = time.monotonic()
    if jobs is not None and jobs < 1:
        raise ValueError(f"jobs must be at least 1, got {jobs}")
    check_names(folder, comparison.settings)
    with locked_folder(folder):
        made = _Comparing(comparison, folder, display or (lambda name: Display()), executor or Executor(), began)
        expected = made.begin(command, resume, jobs, budget)
        made.known.published = list(published)
        try:
            if expected is not None:
                made.train(expected, jobs)
        except (Stopped, KeyboardInterrupt, FolderInUseError):
            made.write()
            raise
        speed = made.display("speed")
        made.executor.measure(made.tasks, made.source, made.threads, speed)
        speed.close()
        return made.write(measured=True)


@dataclass
class _Comparing:
    """A comparison that is under way."""

    comparison: Comparison
    folder: Path
    display: Callable[[str], Display]
    executor: Executor
    began: float
    seconds: float = 0.0
    """Time that earlier starts took."""
    draw: statistics.Draw = field(default_factory=statistics.remembered)
    next_write: float = 0.0
    """When results may be written again while runs are made."""
    prepared: Prepared = field(init=False)
    execution: Execution = field(init=False)
    known: Results = field(init=False)
    """What is known before the first run."""

    @property
    def part(self) -> StudyPart:
        return self.execution.study.parts[0]

    @property
    def tasks(self) -> list[Task]:
        return [(self.execution, run) for run in plan(self.execution.study)]

    @property
    def source(self) -> PlanSource:
        return PlanSource("synthattn.compare.comparison:open_tasks", {"folder": str(self.folder)})

    @property
    def threads(self) -> int:
        return self.comparison.threads or torch.get_num_threads()

    @property
    def draws(self) -> int:
        """So many that a p-value can be small enough when it is adjusted for all variants."""
        return max(statistics.SAMPLES, 100 * len(self.part.rows))

    def begin(self, command: str, resume: bool, jobs: int | None, budget: float | None) -> Forecast | None:
        """Check everything that can be checked before the first run, and estimate the time of all of them.

        The folder of a new comparison stays empty until everything is decided: after a mistake, it can be used again.
        """
        if not resume and any(entry.name != LOCK for entry in self.folder.iterdir()):
            raise ValueError(f"{self.folder} is not empty; choose another folder, or go on with --resume {self.folder}")
        general = self.display("data")
        if not resume and self.comparison.settings.training.precision == "auto":
            self.comparison = dataclasses.replace(self.comparison, settings=with_precision(self.comparison.settings))
            training = self.comparison.settings.training
            here = type(self.executor) is Executor  # a cluster may have other hardware
            general.note(f"training {computes_on(training) if here else f'in {training.precision}'}")
        settings = self.comparison.settings
        general.note("preparing the data")
        self.prepared = prepare_data(settings)
        # A variant that cannot be built is left out; without the baseline there is nothing to compare.
        check_sizes(dataclasses.replace(settings.model, attention=BASELINE), self.prepared.kind)
        metrics_of(self.prepared.parts, settings.evaluation)  # a split that is not there is known before training
        if self.comparison.threads is None:
            runs = self.comparison.seeds * (len(self.comparison.attention) + self.comparison.control)
            self._change(dataclasses.replace(self.comparison, threads=self.executor.usual_threads(runs)))
        else:
            self._change(self.comparison)
        expected = None
        if unfinished(self.tasks):
            general.note("timing the first steps")
            passed = time.monotonic() - self.began
            expected = self.executor.forecast(self.execution, self.prepared, self.threads)
            expected = dataclasses.replace(expected, passed=passed)
        if budget is not None and expected is not None:
            expected = expected.fitting(jobs or self.executor.usual_jobs(expected, self.threads), budget)
            self._change(self.comparison.shortened(expected.steps))
        if not resume:
            self.comparison.save(self.folder)
        self.known = _known(self.comparison, self.prepared, command)
        with contextlib.suppress(
            ValueError, FileNotFoundError
        ):  # results that are not there, or damaged, are written anew
            before = load_results(self.folder / RESULTS)
            self.known.started, self.seconds = before.started, before.seconds
            self.known.command = before.command or command
        self._check_runs()
        general.close()
        return expected

    def _change(self, comparison: Comparison) -> None:
        study, places = comparison.study(), ComparisonFolder(self.folder)
        data = {study.parts[0].name: self.prepared}
        self.comparison = comparison
        self.execution = Execution(study, places, self.display, lambda run: "", WAY_OUT, data)

    def _check_runs(self) -> None:
        """Refuse runs that have learned from other texts; see to it that runs whose rows are lost are scored again."""
        source = self.comparison.settings.data.source
        for execution, run in self.tasks:
            work = execution.places.run(run)
            if not (work / record.FILE).is_file():
                continue
            found = record.load(work)
            check_same_data(found.data, self.prepared.facts, source, f"{self.folder} was begun", WAY_OUT)
            if found.status == "done" and not load_rows(work):
                found.status = "running"
                found.save(work)
                execution.places.record(run).unlink(missing_ok=True)

    def train(self, expected: Forecast, jobs: int | None) -> None:
        """Make all runs that have no record yet."""
        missing, threads = unfinished(self.tasks), self.threads
        jobs = min(len(missing), jobs or self.executor.usual_jobs(expected, threads))
        general = self.display("plan")
        general.note(expected.summary(jobs, threads))
        general.close()
        seconds = {run.label: expected.run(run.row.name) for _, run in missing}
        overall = Overall(self.display, seconds, expected.measuring, jobs)
        self.execution.display = overall.display
        try:
            self.executor.execute(self.tasks, self.source, jobs, threads, finished=self._write_sometimes)
        finally:
            self.execution.display = self.display
            overall.close()

    def _write_sometimes(self) -> None:
        """Write what is known so far, but spend little time on it while runs are made."""
        started = time.monotonic()
        if started >= self.next_write:
            self.write()
            self.next_write = time.monotonic() + 20 * (time.monotonic() - started)

    def write(self, measured: bool = False) -> Results:
        """Write everything that is known so far."""
        results, folder = self._collect(), self.folder
        results.notes += self._notes(results) if measured else []
        results.answer = answer(results)
        results.seconds = self.seconds + time.monotonic() - self.began
        results.save(folder / RESULTS)
        texts = {"answer.md": answer_page, "table.md": markdown, "table.csv": csv_table}
        for name, made in (texts | {"picture.svg": picture, "report.html": page}).items():
            write_text(folder / name, made(results))
        return results

    def _collect(self) -> Results:
        """Make results of the records."""
        results = dataclasses.replace(self.known, rows=[], metrics={}, samples=[], notes=list(self.known.notes))
        found = [entry for execution, run in self.tasks if (entry := execution.load(run)) is not None]
        results.notes += [entry.trouble for entry in found if entry.trouble]
        results.hardware = hardware_of(found) or results.hardware
        runs = collect.by_row(found)
        metrics = metrics_of(self.prepared.parts, self.comparison.settings.evaluation)
        scoring = collect.Scoring(metrics, self.draw, collect.all_seeds, self.draws, FEW_DRAWS)
        for row in self.part.rows:
            own = runs.get(row.name, {})
            variant = Variant(row.name, wanted_seeds=row.seeds)
            collect.add_runs(variant, own, self.folder)
            curves = [entry.record.validation for entry in collect.done(own).values()]
            variant.validation_curve, variant.validation_band = collect.over_seeds(curves)
            if variant.failed_seeds or len(own) == row.seeds:
                variant.status = "failed" if variant.failed_seeds else "done"
            base = {} if row == self.part.baseline else runs.get(BASELINE, {})
            self._add_scores(results, variant, own, base, scoring)
            _add_samples(results, variant, self.folder / "runs" / f"{row.key}-0" / "predictions.jsonl")
            results.rows.append(variant)
        scoring.pool(results.rows, runs, BASELINE, results.main_metric)
        main = [row.scores[results.main_metric] for row in results.rows if results.main_metric in row.scores]
        results.rows += self.known.rows
        statistics.adjust([score.difference for score in main if score.difference is not None])
        return results

    def _add_scores(
        self, results: Results, variant: Variant, runs: collect.Runs, base: collect.Runs, scoring: collect.Scoring
    ) -> None:
        first = next(iter(collect.done(runs).values()), None)
        own_vectors = self.comparison.settings.evaluation.vectors is None
        for name, scored in {} if first is None else first.record.scores.items():
            if own_vectors and name.startswith("embedding-"):
                continue  # each variant's own vectors are another ruler
            results.metrics[name] = MetricInfo(scored["definition"], scored["higher_is_better"])
            results.main_metric = results.main_metric or name
            score = scoring.score(name, runs, base, name == results.main_metric)
            if score is None:
                results.notes.append(f"{variant.attention}: {name} is not a finite number")
            else:
                variant.scores[name] = score

    def _notes(self, results: Results) -> list[str]:
        """Return how speeds and intervals were made."""
        device = "accelerator" if "accelerators" in results.hardware else "CPU"
        several = (
            "Student's t of seeds and of a bootstrap over examples, for the first metric with the seed variance of all "
            "variants together"
        )
        way = several if self.comparison.seeds > 1 else "bootstrap"
        return [
            "Speeds are medians of ratios to the baseline, measured step by step in turn with it, apart from training, "
            f"in fp32 on the {device}.",
            f"Intervals and paired tests: {way}, {self.draws} draws for the first metric, else {FEW_DRAWS}. "
            "P-values of the first metric are adjusted for the number of variants (Holm).",
        ]


def _known(comparison: Comparison, prepared: Prepared, command: str) -> Results:
    """Return results with what is known before the first run."""
    settings = comparison.settings
    training = settings.training
    length = next((f"{getattr(training, n)} {n}" for n in ("tokens", "minutes") if getattr(training, n)), None)
    facts = {
        "task": settings.data.task,
        "data": readable_source(settings.data.source),
        "preset": settings.model.preset,
        "changes to the preset": ", ".join(f"{k}={v}" for k, v in settings.model.fields.items()) or "none",
        "training": length or f"{training.steps or 2000} steps",
        "batch": f"{training.batch_tokens * training.accumulation:,} tokens",
        "precision": training.precision,
        "seeds": str(comparison.seeds),
        "vocabulary": f"{len(prepared.tokenizer):,} tokens, {settings.data.tokenizer}",
        "training inputs": f"{len(prepared.train):,}",
        "longest input": f"{prepared.longest:,} tokens",
    }
    trivial = floors(
        prepared.parts, settings.evaluation, prepared.tokenizer, prepared.longest, settings.data.train_examples
    )
    return Results(
        task=settings.data.task,
        data=readable_source(settings.data.source),
        baseline=BASELINE,
        main_metric="",
        answer=[],
        rows=[_floor_row(name, scored) for name, scored in trivial.items()],
        metrics={},
        facts=facts,
        command=command,
        versions=record.versions(),
        hardware=record.hardware(),
        data_hashes={name: value[:16] for name, value in prepared.facts["sources"].items()},
        notes=list(prepared.notes),
        started=record.now(),
        title=comparison.study().parts[0].title,
    )


def _floor_row(name: str, found: Evaluation) -> Variant:
    """Return the row of a trivial system, whose scores are exact: nothing about it is by chance."""
    values = {metric: one.score.value for metric, one in found.scored.items()}
    return Variant(
        "", "done", name=name, scores={n: Score(value, value, value, [value]) for n, value in values.items()}
    )


def hardware_of(found: Sequence[StudyRecord]) -> dict[str, str]:
    """Return the hardware that made the runs, which on a cluster is not that of this process."""
    values: dict[str, dict[str, None]] = {}
    for entry in found:
        for name, value in entry.record.hardware.items():
            values.setdefault(name, {})[value] = None
    return {name: " and ".join(each) for name, each in values.items()}


@dataclass
class _Prediction:
    """One line of ``predictions.jsonl``."""

    source: str
    reference: str
    prediction: str


def _add_samples(results: Results, variant: Variant, file: Path) -> None:
    """Add a few answers of a variant; all have the same questions."""
    if not file.is_file():
        return
    try:
        with file.open(encoding="utf-8") as lines:
            found = [restore(_Prediction, json.loads(line)) for line in itertools.islice(lines, SAMPLES)]
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} is damaged: {one_line(error)}; score the run anew") from error
    if not results.samples:
        results.samples = [Sample(one.source, one.reference) for one in found]
    variant.samples = [one.prediction for one in found]
