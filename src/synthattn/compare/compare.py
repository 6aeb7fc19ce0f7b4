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
from synthattn.compare.forecast import Forecast
from synthattn.compare.local import Local
from synthattn.compare.overall import Overall
from synthattn.compare.page import answer_page, markdown, page, picture
from synthattn.compare.plan import StudyPart, plan
from synthattn.compare.results import FILE as RESULTS
from synthattn.compare.results import MetricInfo, Published, Results, Sample, Score, Variant
from synthattn.compare.results import load as load_results
from synthattn.compare.schedule import Executor, PlanSource, Task, unfinished
from synthattn.compare.table import csv_table
from synthattn.compare.verdict import answer
from synthattn.data.locks import LOCK, FolderInUseError, locked_folder
from synthattn.saved_file import one_line, restore, write_text
from synthattn.training import record
from synthattn.training.evaluation import Evaluation, load_rows, metrics_of
from synthattn.training.floors import floors
from synthattn.training.model import check_sizes
from synthattn.training.prepare import Prepared, check_same_data
from synthattn.training.progress import Display
from synthattn.training.run import Stopped, check_names, prepare_data

SAMPLES, FEW_DRAWS = 8, 200


@dataclass
class _Progress:
    """A comparison that is under way."""

    folder: Path
    comparison: Comparison
    execution: Execution
    executor: Executor
    prepared: Prepared
    empty: Results
    """What is known before the first run."""
    seconds: float
    """Time that earlier starts took."""
    draw: statistics.Draw = field(default_factory=statistics.remembered)
    began: float = field(default_factory=time.monotonic)
    next_write: float = 0.0
    """When results may be written again while runs are made."""

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

    def write_sometimes(self) -> None:
        """Write what is known so far, but spend little time on it while runs are made."""
        started = time.monotonic()
        if started >= self.next_write:
            _write(self)
            self.next_write = time.monotonic() + 20 * (time.monotonic() - started)

    @property
    def draws(self) -> int:
        """So many that a p-value can be small enough when it is adjusted for all variants."""
        return max(statistics.SAMPLES, 100 * len(self.part.rows))


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
        display, executor = display or (lambda name: Display()), executor or Local()
        progress, expected = _begin(comparison, folder, display, command, resume, jobs, budget, began, executor)
        progress.empty.published = list(published)
        try:
            if expected is not None:
                _train(progress, expected, jobs, display)
        except (Stopped, KeyboardInterrupt, FolderInUseError):
            _write(progress)
            raise
        speed = display("speed")
        executor.measure(progress.tasks, progress.source, progress.threads, speed.scored)
        speed.close()
        return _write(progress, _notes(progress))


def _train(progress: _Progress, expected: Forecast, jobs: int | None, display: Callable[[str], Display]) -> None:
    """Make all runs that have no record yet."""
    missing, threads = unfinished(progress.tasks), progress.threads
    jobs = min(len(missing), jobs or progress.executor.usual_jobs(expected, threads))
    general = display("plan")
    general.note(expected.summary(jobs, threads))
    general.close()
    seconds = {run.label: expected.run(run.row.name) for _, run in missing}
    overall = Overall(display, seconds, expected.measuring, jobs)
    execution = progress.execution
    execution.display = overall.display
    try:
        progress.executor.execute(
            progress.tasks, progress.source, jobs, threads, lambda *run: None, progress.write_sometimes
        )
    finally:
        execution.display = display
        overall.close()


def _begin(
    comparison: Comparison,
    folder: Path,
    display: Callable[[str], Display],
    command: str,
    resume: bool,
    jobs: int | None,
    budget: float | None,
    began: float,
    executor: Executor,
) -> tuple[_Progress, Forecast | None]:
    """Check everything that can be checked before the first run, and estimate the time of all of them.

    The folder of a new comparison stays empty until everything is decided: after a mistake, it can be used again.
    """
    if not resume and any(entry.name != LOCK for entry in folder.iterdir()):
        raise ValueError(f"{folder} is not empty; choose another folder, or go on with --resume {folder}")
    general = display("data")
    general.note("preparing the data")
    prepared = prepare_data(comparison.settings)
    # Where a variant cannot be built, the others go on without it; without the baseline there is nothing to compare.
    model = dataclasses.replace(comparison.settings.model, attention=BASELINE)
    check_sizes(model, prepared.kind)
    metrics_of(prepared.parts, comparison.settings.evaluation)  # a split that is not there is known before training
    if comparison.threads is None:
        runs = comparison.seeds * (len(comparison.attention) + comparison.control)
        comparison = dataclasses.replace(comparison, threads=executor.usual_threads(runs))
    threads = comparison.threads or torch.get_num_threads()
    execution = _execution(comparison, folder, display, prepared)
    expected = None
    if any(not execution.done(run) for run in plan(execution.study)):
        general.note("timing the first steps")
        passed = time.monotonic() - began
        expected = dataclasses.replace(executor.forecast(execution, prepared, threads), passed=passed)
    if budget is not None and expected is not None:
        expected = expected.fitting(jobs or executor.usual_jobs(expected, threads), budget)
        comparison = comparison.shortened(expected.steps)
        execution = _execution(comparison, folder, display, prepared)
    if not resume:
        comparison.save(folder)
    empty = _empty(comparison, prepared, command)
    progress = _Progress(folder, comparison, execution, executor, prepared, empty, 0.0)
    with contextlib.suppress(ValueError, FileNotFoundError):  # results that are not there, or damaged, are written anew
        before = load_results(folder / RESULTS)
        progress.empty.started, progress.seconds = before.started, before.seconds
        progress.empty.command = before.command or command
    _check_runs(progress)
    general.close()
    return progress, expected


def _execution(
    comparison: Comparison, folder: Path, display: Callable[[str], Display], prepared: Prepared
) -> Execution:
    study = comparison.study()
    return Execution(study, ComparisonFolder(folder), display, lambda run: "", WAY_OUT, {study.parts[0].name: prepared})


def _check_runs(progress: _Progress) -> None:
    """Refuse runs that have learned from other texts; see to it that runs whose rows are lost are scored again."""
    source = progress.comparison.settings.data.source
    for execution, run in progress.tasks:
        work = execution.places.run(run)
        if not (work / record.FILE).is_file():
            continue
        found = record.load(work)
        check_same_data(found.data, progress.prepared.facts, source, f"{progress.folder} was begun", WAY_OUT)
        if found.status == "done" and not load_rows(work):
            found.status = "running"
            found.save(work)
            execution.places.record(run).unlink(missing_ok=True)


def _empty(comparison: Comparison, prepared: Prepared, command: str) -> Results:
    settings = comparison.settings
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
    trivial = floors(
        prepared.parts, settings.evaluation, prepared.tokenizer, prepared.longest, settings.data.train_examples
    )
    return Results(
        task=settings.data.task,
        data=settings.data.source,
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


def _write(progress: _Progress, notes: Sequence[str] = ()) -> Results:
    """Write everything that is known so far."""
    results, folder = _collect(progress), progress.folder
    results.notes += notes
    results.answer = answer(results)
    results.seconds = progress.seconds + time.monotonic() - progress.began
    results.save(folder / RESULTS)
    write_text(folder / "answer.md", answer_page(results))
    write_text(folder / "table.md", markdown(results))
    write_text(folder / "table.csv", csv_table(results))
    write_text(folder / "picture.svg", picture(results))
    write_text(folder / "report.html", page(results))
    return results


def _collect(progress: _Progress) -> Results:
    """Make results of the records."""
    results = dataclasses.replace(progress.empty, rows=[], metrics={}, samples=[], notes=list(progress.empty.notes))
    found = [entry for execution, run in progress.tasks if (entry := execution.load(run)) is not None]
    results.notes += [entry.trouble for entry in found if entry.trouble]
    runs = collect.by_row(found)
    metrics = metrics_of(progress.prepared.parts, progress.comparison.settings.evaluation)
    scoring = collect.Scoring(metrics, progress.draw, collect.all_seeds, progress.draws, FEW_DRAWS)
    for row in progress.part.rows:
        own = runs.get(row.name, {})
        variant = Variant(row.name, wanted_seeds=row.seeds)
        collect.add_runs(variant, own, progress.folder)
        curves = [entry.record.validation for entry in collect.done(own).values()]
        variant.validation_curve, variant.validation_band = collect.over_seeds(curves)
        if variant.failed_seeds or len(own) == row.seeds:
            variant.status = "failed" if variant.failed_seeds else "done"
        base = {} if row == progress.part.baseline else runs.get(BASELINE, {})
        _add_scores(progress, results, variant, own, base, scoring)
        _add_samples(results, variant, progress.folder / "runs" / f"{row.key}-0" / "predictions.jsonl")
        results.rows.append(variant)
    scoring.pool(results.rows, runs, BASELINE, results.main_metric)
    main = [row.scores[results.main_metric] for row in results.rows if results.main_metric in row.scores]
    results.rows += progress.empty.rows
    statistics.adjust([score.difference for score in main if score.difference is not None])
    return results


def _add_scores(
    progress: _Progress,
    results: Results,
    variant: Variant,
    runs: collect.Runs,
    base: collect.Runs,
    scoring: collect.Scoring,
) -> None:
    first = next(iter(collect.done(runs).values()), None)
    own_vectors = progress.comparison.settings.evaluation.vectors is None
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


def _notes(progress: _Progress) -> list[str]:
    """Return how speeds and intervals were made."""
    device = "accelerator" if torch.cuda.is_available() else "CPU"
    several = (
        "Student's t of seeds and of a bootstrap over examples, of the first metric with the seed variance of all "
    )
    several = f"{several}variants together" if progress.comparison.seeds > 1 else "bootstrap"
    return [
        "Speeds are medians of ratios to the baseline, measured step by step in turn with it, apart from training, in "
        f"fp32 on the {device}.",
        f"Intervals and paired tests: {several}, {progress.draws} draws for the first metric, else {FEW_DRAWS}. "
        "P-values of the first metric are adjusted for the number of variants (Holm).",
    ]
