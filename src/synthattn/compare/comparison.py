"""What is compared: the settings of a comparison, its file, and its runs."""

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
from synthattn.layers.mixers import parse_mixer
from synthattn.saved_file import one_line, read_yaml, restore, write_text
from synthattn.synthesizers import FAMILY
from synthattn.training.progress import Display
from synthattn.training.record import COMPARISON as FILE
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
        title = f"{self.settings.data.task} on {self.settings.data.source}"
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
