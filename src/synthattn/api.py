"""The verbs of the command as functions: ``compare``, ``train``, ``evaluate``, ``generate`` and ``export``."""

import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from synthattn.compare.compare import compare as run_comparison
from synthattn.compare.comparison import FILE as COMPARISON
from synthattn.compare.comparison import Comparison, choose_run, load_comparison, with_chosen_start
from synthattn.compare.executors import find_executor
from synthattn.compare.forecast import seconds_of
from synthattn.compare.plan import slug
from synthattn.compare.results import FILE as RESULTS
from synthattn.compare.results import Results
from synthattn.compare.results import load as load_results
from synthattn.compare.table import csv_table
from synthattn.compare.verdict import LEAD
from synthattn.data.in_memory import as_source
from synthattn.messages import printable, suggestion
from synthattn.paper.published import published
from synthattn.synthesizers import FAMILY
from synthattn.training.answering import Answerer
from synthattn.training.export import Exported
from synthattn.training.export import export as export_model
from synthattn.training.gather import DEMO, DEMO_SEEDS, gather, new_folder
from synthattn.training.memory import keep_memory
from synthattn.training.model import load, load_tokenizer_of
from synthattn.training.progress import Display, display, displays
from synthattn.training.record import MODEL, SETTINGS, RunRecord, final_model, saved_settings
from synthattn.training.run import Stopped
from synthattn.training.run import train as run_training
from synthattn.training.scoring import score_saved
from synthattn.training.settings import EvaluationSettings

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Interrupted(KeyboardInterrupt):
    """Raised after Ctrl-C. What was saved by then is kept.

    Args:
        verb: ``compare`` or ``train``.
        folder: the folder of the results.
        begun: there is something to go on with.
        said: more about where it stopped.
    """

    def __init__(self, verb: str, folder: Path, begun: bool, said: str = "") -> None:
        self.verb, self.folder, self.begun = verb, folder, begun
        self.said = said or (f"stopped; what was saved is in {folder}" if begun else "stopped")
        again = f". Go on with: synthattn.{verb}(resume={str(folder)!r})" if begun else ""
        super().__init__(f"{self.said}{again}")


@dataclass(frozen=True)
class ComparisonResult:
    """The results of a comparison, and the folder that holds its models and its report.

    Args:
        folder: the folder of the comparison.
        results: everything that the report shows.
    """

    folder: Path
    results: Results

    @property
    def answer(self) -> str:
        """The answer, the evidence for it, and how far to trust it, a line each."""
        return "\n".join(self.results.answer[:LEAD])

    def to_pandas(self) -> Any:
        """Return the table as a pandas frame, a row for each variant."""
        import io

        import pandas  # pyright: ignore[reportMissingImports]

        return pandas.read_csv(io.StringIO(csv_table(self.results)))

    def report(self, path: str | Path) -> Path:
        """Copy the report, a page without further files, to a path."""
        return Path(shutil.copyfile(self.folder / "report.html", path))

    def load(self, attention: str, seed: int = 0) -> "PreTrainedModel":
        """Load the trained model of a variant."""
        return load(self._model(attention, seed))

    def tokenizer(self) -> Any:
        """Load the tokenizer, which all models share."""
        return load_tokenizer_of(self._model(self._done()[0], 0))

    def _model(self, attention: str, seed: int) -> Path:
        if attention not in self._done():
            raise ValueError(f"there is no trained model {attention!r}{suggestion(attention, self._done())}")
        return final_model(self.folder / "runs" / f"{slug(attention)}-{seed}")

    def _done(self) -> list[str]:
        return [row.attention for row in self.results.rows if row.attention and row.status == "done"]

    def __repr__(self) -> str:
        return f"{self.answer}\n(report: {self.folder / 'report.html'})"

    def _repr_html_(self) -> str:
        """Show answer, table and charts in a notebook."""
        from html import escape

        page = (self.folder / "report.html").read_text(encoding="utf-8")
        frame = f'<iframe srcdoc="{escape(page)}" style="width:100%;height:44rem;border:0" sandbox="allow-scripts">'
        return f"{frame}</iframe>"


@dataclass(frozen=True)
class TrainedRun:
    """A run that is done: its folder, its scores and its model.

    Args:
        folder: the folder of the run.
        record: everything that is known about the run.
    """

    folder: Path
    record: RunRecord

    @property
    def scores(self) -> Mapping[str, Mapping[str, Any]]:
        """Value, interval and definition of each metric."""
        return self.record.scores

    def load(self) -> "PreTrainedModel":
        """Load the trained model."""
        return load(self.folder / MODEL)

    def tokenizer(self) -> Any:
        """Load the tokenizer of the model."""
        return load_tokenizer_of(self.folder / MODEL)


def compare(
    task: str | None = None,
    data: Any = None,
    attention: Sequence[str] | None = None,
    *,
    seeds: int | None = None,
    budget: str | None = None,
    jobs: int | None = None,
    threads: int | None = None,
    control: bool = False,
    executor: str = "local",
    address: str | None = None,
    gpus: float | None = None,
    output: str | Path | None = None,
    resume: str | Path | None = None,
    progress: bool = True,
    config: Path | None = None,
    overrides: Sequence[str] = (),
    command: str = "synthattn.compare",
    **settings: Any,
) -> ComparisonResult:
    """Train the same model with each kind of attention, score all of them, and measure their speed.

    Args:
        task: such as ``"classification"``; ``synthattn data --help`` lists all.
        data: a path, ``hub:NAME`` or ``builtin:NAME``; or records in memory: a list of dicts, a pandas or polars frame,
            a ``datasets.Dataset``, or a dict of these by split.
        attention: the variants; by default those of the paper.
        seeds: runs per variant. With one, the answer is a hint. By default one, and two where neither data nor the
            size of the model is chosen.
        budget: time for everything, such as ``"30min"``; it decides the number of steps.
        jobs: runs at the same time; by default as many as cores and memory allow.
        threads: threads of each run.
        control: add a vanilla model with as many parameters as the largest variant.
        executor: ``"local"``, or ``"ray"`` for a cluster that is running.
        address: the cluster: ``"auto"`` or ``"HOST:PORT"``.
        gpus: part of an accelerator for each run on a cluster.
        output: the folder for all results; by default a new one in ``runs``.
        resume: the folder of a comparison that was stopped. All else is taken from there.
        progress: show progress.
        config: a YAML file of settings.
        overrides: settings as ``NAME=VALUE``, which win over all others.
        command: shown by the report.
        **settings: any setting, with two underscores for the dot: ``training__steps=500``, ``model__preset="demo"``,
            ``data__columns="text=review"``.

    Returns:
        The answer, the table, the report and the models.
    """
    seconds, made_by = None if budget is None else seconds_of(budget), find_executor(executor, address, gpus)
    source = None if data is None else as_source(data)
    options = by_path(settings, {"data.task": task, "data.source": source})
    if resume is not None:
        others = (attention, seeds, threads, budget, output)
        _only_resume(resume, [*options.values(), *others, *overrides], config, control)
        comparison, folder = load_comparison(Path(resume)), Path(resume)
    else:
        said = {*options, *(text.partition("=")[0].strip() for text in overrides)}
        bare = config is None and not said & {"data.source", "model.preset"}
        chosen = gather(config, options, overrides, DEMO if bare else None)
        ends = [f"--{end}" for end in ("steps", "tokens", "minutes") if f"training.{end}" in options]
        if budget is not None and ends:
            raise ValueError(f"--budget chooses the number of steps; leave {' and '.join(ends)} out")
        usual = DEMO_SEEDS if bare else 1
        specs = FAMILY if attention is None else tuple(attention)
        comparison = Comparison(chosen, specs, usual if seeds is None else seeds, control, threads)
        folder = Path(output) if output is not None else new_folder("compare", chosen.data.task)
    keep_memory()
    shown, close = displays(not progress)
    beside = published(comparison.settings.data.task, comparison.settings.data.source)
    try:
        found = run_comparison(comparison, folder, shown, command, resume is not None, beside, jobs, seconds, made_by)
    except (Stopped, KeyboardInterrupt) as stopped:
        raise Interrupted("compare", folder, (folder / COMPARISON).is_file()) from stopped
    finally:
        close()
    return ComparisonResult(folder, found)


def open_comparison(folder: str | Path) -> ComparisonResult:
    """Open the folder of a comparison that was made before."""
    place = Path(folder)
    if not (place / COMPARISON).is_file():
        raise ValueError(f"{place} holds no {COMPARISON}, so it is not the folder of a comparison")
    return ComparisonResult(place, load_results(place / RESULTS))


def train(
    task: str | None = None,
    data: Any = None,
    attention: str | None = None,
    *,
    output: str | Path | None = None,
    resume: str | Path | None = None,
    progress: bool = True,
    config: Path | None = None,
    overrides: Sequence[str] = (),
    command: str = "synthattn.train",
    **settings: Any,
) -> TrainedRun:
    """Train and score one model.

    Args:
        task: such as ``"translation"``.
        data: as in :func:`compare`.
        attention: of all layers, such as ``"random+vanilla"``.
        output: the folder of the run; by default a new one in ``runs``.
        resume: the folder of a run that was stopped. All else is taken from there.
        progress, config, overrides, **settings: as in :func:`compare`.
        command: for the record of the run.
    """
    source = None if data is None else as_source(data)
    options = by_path(settings, {"data.task": task, "data.source": source, "model.attention": attention})
    if resume is not None:
        _only_resume(resume, [*options.values(), output, *overrides], config)
        chosen, folder = saved_settings(Path(resume)), Path(resume)
    else:
        chosen, said = with_chosen_start(gather(config, options, overrides))
        _say(said, not progress)
        if output is None and "RANK" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise ValueError("with several processes, say where the run goes: --output FOLDER")
        folder = Path(output) if output is not None else new_folder("train", chosen.data.task)
    keep_memory()
    # Of the processes that torchrun has started, the first one speaks.
    shown = display(folder.name, not progress) if int(os.environ.get("RANK", "0")) == 0 else Display()
    try:
        found = run_training(chosen, folder, shown, command, resume=resume is not None)
    except (Stopped, KeyboardInterrupt) as stopped:
        raise Interrupted("train", folder, (folder / SETTINGS).is_file(), str(stopped)) from stopped
    return TrainedRun(folder, found)


def _only_resume(resume: str | Path, others: Sequence[Any], config: Path | None, control: bool = False) -> None:
    if config is not None or control or any(value is not None for value in others):
        raise ValueError(
            f"--resume takes all settings from {resume}; leave the other options out, but for --jobs and those of "
            "--executor"
        )


def evaluate(
    model: str | Path, data: Any = None, *, run: str | None = None, **settings: Any
) -> Mapping[str, Mapping[str, Any]]:
    """Score a run or a saved model, and return value, interval and definition of each metric.

    Args:
        model: the folder of a run, of a model or of a comparison.
        data: other data than the run's own, as in :func:`compare`.
        run: the run of a comparison, such as ``"random-0"``; by default the best one.
        **settings: settings of the data and the evaluation, such as ``evaluation__beams=4`` and ``data__task``.
    """
    options = by_path(settings, {"data.source": None if data is None else as_source(data)})
    return score_saved(chosen(model, run), options, None, quiet=True)[0]


def generate(
    model: str | Path,
    texts: Sequence[str],
    *,
    run: str | None = None,
    beams: int = 1,
    temperature: float = 0.0,
    batch: int = 32,
) -> Iterator[str]:
    """Yield the answer of a trained model to each text: a translation, a continuation, a class.

    Args:
        model: the folder of a run, of a model or of a comparison.
        texts: inputs of the model's task.
        run: the run of a comparison, such as ``"random-0"``; by default the best one.
        beams: width of beam search; 1 is greedy.
        temperature: of sampling, for models that continue a text; 0 takes the most likely token.
        batch: number of texts that are answered together.
    """
    yield from Answerer(chosen(model, run), EvaluationSettings(beams=beams), temperature).answers(texts, batch)


def export(
    model: str | Path, form: str = "torch", output: str | Path | None = None, *, run: str | None = None
) -> Exported:
    """Export a trained model as one file, which is kept only if its outputs equal the model's.

    Args:
        model: the folder of a run, of a model or of a comparison.
        form: ``"torch"`` for a ``.pt2`` file of torch.export, ``"onnx"`` for ONNX.
        output: the file; by default ``model.pt2`` or ``model.onnx`` in the folder.
        run: the run of a comparison, such as ``"random-0"``; by default the best one.
    """
    return export_model(chosen(model, run), form, None if output is None else Path(output))


def chosen(model: str | Path, run: str | None = None, quiet: bool = False) -> Path:
    """Return the folder of a run of a comparison, and say which; any other path is returned as it is."""
    place, said = choose_run(Path(model), run)
    _say(said, quiet)
    return place


def _say(text: str, quiet: bool) -> None:
    """Print a line about a choice, if there is one, where it does not mix with answers."""
    if text and not quiet:
        print(f"synthattn: {printable(text)}", file=sys.stderr, flush=True)


def by_path(settings: Mapping[str, Any], given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the settings that are given, by their names with a dot."""
    every = [*((name.replace("__", ".", 1), value) for name, value in settings.items()), *(given or {}).items()]
    return {name: value for name, value in every if value is not None}
