"""The verbs of the command as functions: ``compare``, ``train``, ``evaluate``, ``generate`` and ``export``."""

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from synthattn.compare.choose import choose_run, with_chosen_start
from synthattn.compare.cluster import find_executor
from synthattn.compare.compare import compare as run_comparison
from synthattn.compare.comparison import FILE as COMPARISON
from synthattn.compare.comparison import Comparison, load_comparison
from synthattn.compare.forecast import seconds_of
from synthattn.compare.plan import slug
from synthattn.compare.results import FILE as RESULTS
from synthattn.compare.results import Results
from synthattn.compare.results import load as load_results
from synthattn.compare.table import csv_table
from synthattn.compare.verdict import LEAD
from synthattn.data.in_memory import as_source
from synthattn.messages import printable, suggestion
from synthattn.synthesizers import FAMILY
from synthattn.training.answering import Answerer
from synthattn.training.export import Exported
from synthattn.training.export import export as export_model
from synthattn.training.gather import DEMO, gather, new_folder
from synthattn.training.memory import keep_memory
from synthattn.training.model import load, load_tokenizer_of
from synthattn.training.progress import display, displays
from synthattn.training.record import MODEL, final_model, saved_settings
from synthattn.training.run import train as run_training
from synthattn.training.scoring import score_saved
from synthattn.training.settings import EvaluationSettings

if TYPE_CHECKING:
    from transformers import PreTrainedModel


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
        scores: value, interval and definition of each metric.
    """

    folder: Path
    scores: Mapping[str, Mapping[str, Any]]

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
    seeds: int = 1,
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
    **settings: Any,
) -> ComparisonResult:
    """Train the same model with each kind of attention, score all of them, and measure their speed.

    Args:
        task: such as ``"classification"``; ``synthattn data --help`` lists all.
        data: a path, ``hub:NAME`` or ``builtin:NAME``; or records in memory: a list of dicts, a pandas or polars frame,
            a ``datasets.Dataset``, or a dict of these by split.
        attention: the variants; by default those of the paper.
        seeds: runs per variant. With one, the answer is a hint.
        budget: time for everything, such as ``"30min"``; it decides the number of steps.
        jobs: runs at the same time; by default as many as cores and memory allow.
        threads: threads of each run.
        control: add a vanilla model with as many parameters as the largest variant.
        output: the folder for all results; by default a new one in ``runs``.
        resume: the folder of a comparison that was stopped. All else is taken from there.
        progress: show progress.
        **settings: any setting, with two underscores for the dot: ``training__steps=500``, ``model__preset="demo"``,
            ``data__columns="text=review"``.

    Returns:
        The answer, the table, the report and the models.
    """
    seconds, made_by = None if budget is None else seconds_of(budget), find_executor(executor, address, gpus)
    if resume is not None:
        comparison, folder = load_comparison(Path(resume)), Path(resume)
    else:
        bare = data is None and "model__preset" not in settings
        options = _options(settings, {"data.task": task, "data.source": None if data is None else as_source(data)})
        chosen = gather(None, options, [], DEMO if bare else None)
        comparison = Comparison(chosen, FAMILY if attention is None else tuple(attention), seeds, control, threads)
        folder = Path(output) if output is not None else new_folder("compare", chosen.data.task)
    keep_memory()
    shown, close = displays(not progress)
    try:
        found = run_comparison(
            comparison,
            folder,
            shown,
            command="synthattn.compare",
            resume=resume is not None,
            jobs=jobs,
            budget=seconds,
            executor=made_by,
        )
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
    **settings: Any,
) -> TrainedRun:
    """Train and score one model.

    Args:
        task: such as ``"translation"``.
        data: as in :func:`compare`.
        attention: of all layers, such as ``"random+vanilla"``.
        output: the folder of the run; by default a new one in ``runs``.
        resume: the folder of a run that was stopped. All else is taken from there.
        progress: show progress.
        **settings: any setting, as in :func:`compare`.
    """
    if resume is not None:
        chosen, folder = saved_settings(Path(resume)), Path(resume)
    else:
        source = None if data is None else as_source(data)
        given = {"data.task": task, "data.source": source, "model.attention": attention}
        chosen, said = with_chosen_start(gather(None, _options(settings, given), []))
        _say(said)
        folder = Path(output) if output is not None else new_folder("train", chosen.data.task)
    keep_memory()
    shown = display(folder.name, not progress)
    found = run_training(chosen, folder, shown, "synthattn.train", resume=resume is not None)
    return TrainedRun(folder, found.scores)


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
    options = _options(settings, {"data.source": None if data is None else as_source(data)})
    return score_saved(_chosen(model, run), options, None, quiet=True)[0]


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
    yield from Answerer(_chosen(model, run), EvaluationSettings(beams=beams), temperature).answers(texts, batch)


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
    return export_model(_chosen(model, run), form, None if output is None else Path(output))


def _chosen(model: str | Path, run: str | None) -> Path:
    place, said = choose_run(Path(model), run)
    _say(said)
    return place


def _say(text: str) -> None:
    if text:
        print(f"synthattn: {printable(text)}", file=sys.stderr)


def _options(settings: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("__", ".", 1): value for name, value in settings.items()} | dict(given)
