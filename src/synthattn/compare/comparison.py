"""What is compared: the settings of a comparison, its folder, its runs, and the choice of one of them."""

import dataclasses
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from synthattn.compare.execution import Execution
from synthattn.compare.plan import PlannedRun, Study, StudyPart, StudyRow, plan
from synthattn.compare.schedule import Task
from synthattn.data.in_memory import readable_source
from synthattn.layers.mixers import parse_mixer
from synthattn.messages import listed, suggestion
from synthattn.metrics.labels import label
from synthattn.render.numbers import digits
from synthattn.saved_file import one_line, read_yaml, restore, write_text
from synthattn.synthesizers import FAMILY
from synthattn.training import record
from synthattn.training.progress import Display
from synthattn.training.record import COMPARISON as FILE
from synthattn.training.record import MODEL, SETTINGS, final_model
from synthattn.training.settings import ModelSettings, Settings, as_dict, from_dict

BASELINE = "vanilla"
CONTROL = "vanilla (control)"
"""Vanilla with as many parameters as the largest variant."""

SPEED_ROUNDS = 7
WAY_OUT = "compare anew, in another folder"


@dataclass(frozen=True)
class Comparison:
    """What is compared.

    Args:
        settings: of all runs, but for the attention and the seed.
        attention: the variants; the first should be the baseline.
        seeds: how many runs each has, from seeds that follow the one of the settings.
        control: whether a vanilla model with as many parameters as the largest variant is trained too.
        threads: of each run; by default as many as let all cores work. Results depend on it in their last digits.
    """

    settings: Settings = field(default_factory=Settings)
    attention: tuple[str, ...] = FAMILY
    seeds: int = 1
    control: bool = False
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"threads must be at least 1, got {self.threads}")
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
        if BASELINE not in names:
            raise ValueError(f"{BASELINE} is not in the list, and the others are compared with it; add it")
        object.__setattr__(self, "attention", tuple(names))

    def study(self) -> Study:
        """Return what is to be run: one part, with a row for each variant."""
        rows = [StudyRow(name, name, seeds=self.seeds) for name in self.attention]
        if self.control:
            rows.append(StudyRow(CONTROL, BASELINE, seeds=self.seeds, control=True))
        title = f"{self.settings.data.task} on {readable_source(self.settings.data.source)}"
        baseline = StudyRow(BASELINE, BASELINE, seeds=self.seeds)
        rounds = SPEED_ROUNDS
        part = StudyPart("", title, self.settings, tuple(rows), against=baseline, speed_rounds=rounds, looks="maps")
        return Study("comparison", "", (part,))

    def shortened(self, steps: int) -> "Comparison":
        """Return the comparison with another number of steps; a warm-up is at most a quarter of them."""
        training = self.settings.training
        settings = self.settings.changed(
            training__steps=steps,
            training__tokens=None,
            training__minutes=None,
            training__warmup=min(training.warmup, steps // 4),
        )
        return dataclasses.replace(self, settings=settings)

    def save(self, folder: Path) -> None:
        content = {name: getattr(self, name) for name in ("seeds", "control", "threads")}
        content["attention"] = list(self.attention)
        write_text(folder / FILE, yaml.safe_dump(content | {"settings": as_dict(self.settings)}, sort_keys=False))


@dataclass
class _Saved:
    """The content of ``compare.yaml``."""

    settings: dict[str, Any]
    attention: list[str]
    seeds: int
    control: bool
    threads: int | None = None


def load_comparison(folder: Path) -> Comparison:
    file = folder / FILE
    if not file.is_file():
        raise ValueError(f"{folder} holds no {FILE}, so it is not the folder of a comparison")
    try:
        found = restore(_Saved, read_yaml(file))
        return Comparison(from_dict(found.settings), tuple(found.attention), found.seeds, found.control, found.threads)
    except ValueError as error:
        raise ValueError(f"{file} is damaged: {one_line(error).removeprefix(f'{file} ')}") from error


@dataclass(frozen=True)
class ComparisonFolder:
    """The folder of a comparison: records and runs lie side by side."""

    folder: Path
    hidden: Mapping[str, str] = field(default_factory=dict)

    def record(self, run: PlannedRun) -> Path:
        return self.folder / "runs" / f"{run.name}.json"

    def run(self, run: PlannedRun) -> Path:
        return self.folder / "runs" / run.name


def open_tasks(display: Callable[[str], Display], folder: str) -> list[Task]:
    """Return the tasks of a comparison that has begun, for a process that makes some of them."""
    study, place = load_comparison(Path(folder)).study(), ComparisonFolder(Path(folder))
    execution = Execution(study, place, display, lambda run: "", WAY_OUT)
    return [(execution, run) for run in plan(study)]


def choose_run(folder: Path, name: str | None = None) -> tuple[Path, str]:
    """Return the folder of a run, and a line that says which run of a comparison was chosen.

    Args:
        folder: the folder of a comparison, or any other path, which is returned as it is, with an empty line.
        name: the name of a run in the comparison, such as ``random-0``, or its path. By default the best one.
    """
    if not (folder / FILE).is_file():
        if name is not None:
            raise ValueError(f"--run chooses from a comparison, and {folder} holds no {FILE}; leave --run out")
        return folder, ""
    runs = _finished(folder)
    if not runs:
        raise ValueError(
            f"{folder} is a comparison without a trained model; go on with synthattn compare --resume, or {WAY_OUT}"
        )
    if name is not None:
        chosen = name if name in runs else Path(name).name if Path(name).parent.name == "runs" else name
        if chosen not in runs:
            raise ValueError(f"{folder} has no finished run {name!r}{suggestion(name, runs)}")
        return runs[chosen], ""
    # The first metric is the main one; those by a model's own word vectors measure each model with another ruler.
    scored = {run: record.load(place).scores for run, place in runs.items()}
    metric, first = next((name, one) for name, one in scored[next(iter(runs))].items() if "embedding-" not in name)
    scores = {run: found[metric]["value"] for run, found in scored.items()}
    best = (max if first["higher_is_better"] else min)(scores, key=lambda run: scores[run])
    others = [run for run in runs if run != best]
    said = f"{folder} is a comparison; {best} is used, the best by {label(metric)} ({digits(scores[best], 4)})"
    return runs[best], f"{said}; --run chooses another: {listed(others)}" if others else said


def with_chosen_start(settings: Settings) -> tuple[Settings, str]:
    """Return settings whose start is a saved model, where a run or a comparison is given as the start."""
    if settings.model.start is None:
        return settings, ""
    place, said = choose_run(Path(settings.model.start))
    if (place / SETTINGS).is_file():
        place = final_model(place)
    model = dataclasses.replace(settings.model, start=str(place))
    return dataclasses.replace(settings, model=model), said.replace("--run chooses", "--start FOLDER/runs/NAME takes")


def _finished(folder: Path) -> dict[str, Path]:
    """Return the runs of a comparison that have a model and scores, by name."""
    found = {}
    for place in sorted((folder / "runs").glob("*")):
        if (place / MODEL / "config.json").is_file() and (place / record.FILE).is_file():
            run = record.load(place)
            if run.status == "done" and run.scores:
                found[place.name] = place
    return found
