"""Studies of many runs: parts with rows and seeds, and the list of runs that they come to."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from synthattn.training.settings import Settings

CHOICE = "rates"
"""The folder of the runs that a learning rate is chosen from."""


@dataclass(frozen=True)
class StudyRow:
    """One model of a part, or a trivial system that models are compared with.

    Args:
        name: what readers call it.
        attention: of both stacks; empty for a row that is no model, see ``ONE_ANSWER``.
        fields: fields of the configuration that differ from those of the other rows.
        seeds: number of runs.
        control: make the model as large as the largest of the other rows.
    """

    name: str
    attention: str
    fields: dict[str, Any] = field(default_factory=dict)
    seeds: int = 1
    control: bool = False

    @property
    def key(self) -> str:
        """Short name for options, files and folders."""
        return slug(self.name)

    @property
    def trained(self) -> bool:
        """Tell models from rows that are only scored."""
        return bool(self.attention)


ONE_ANSWER = StudyRow("One answer for all", "")
"""The best score of one answer, given to every question. Nothing can be said of models that are not above it."""


@dataclass(frozen=True)
class StudyPart:
    """One experiment: all of its rows learn from the same data in the same way.

    Args:
        name: short name for files and folders; empty where the study has one part.
        title: the data, for a reader.
        settings: settings of all runs; rows, the learning rate and the seed change them.
        rows: the models, and other systems.
        against: the baseline; the first row unless given.
        metrics: metrics to show, the main one first; all that were scored unless given.
        rates: learning rates to try on the baseline; all rows take the one with the lowest validation loss.
        rate_of: another part of the study whose learning rate is taken.
        before: a study and the name of its part; every row starts from the model of the same row there.
        tuned: fields that these models have from then on, such as their dropout.
        speed_rounds: rounds in which speed is measured in turn with the baseline; 0 measures none.
        looks: attention weights to look at: ``histograms`` before and after training, or ``maps`` after training.
        vectors: compare answers by vectors of words, which are made from the training texts.
        note: differences from the paper's experiment that a reader must know.
    """

    name: str
    title: str
    settings: Settings
    rows: tuple[StudyRow, ...]
    metrics: tuple[str, ...] = ()
    against: StudyRow | None = None
    rates: tuple[float, ...] = ()
    rate_of: str | None = None
    before: "tuple[Study, str] | None" = None
    tuned: dict[str, Any] = field(default_factory=dict)
    speed_rounds: int = 0
    looks: Literal["", "histograms", "maps"] = ""
    vectors: bool = False
    note: str = ""

    @property
    def baseline(self) -> StudyRow:
        """The row that the others are compared with."""
        return self.against or self.rows[0]

    def like(self, row: StudyRow) -> StudyRow:
        """Return the row with the same model, which may have another name."""
        return next(one for one in self.rows if (one.attention, one.fields) == (row.attention, row.fields))


@dataclass(frozen=True)
class Study:
    """Parts whose runs belong together: a comparison has one, a table of the paper has several.

    Args:
        name: short name for files and folders.
        scale: size of the experiment, where the study exists in several.
        parts: the experiments.
    """

    name: str
    scale: str
    parts: tuple[StudyPart, ...]

    def part(self, name: str) -> StudyPart:
        return next(part for part in self.parts if part.name == name)


@dataclass(frozen=True)
class PlannedRun:
    """A run that is to be made: of a row with a seed, or of the baseline with a learning rate to try."""

    study: Study
    part: StudyPart
    row: StudyRow
    seed: int
    rate: float | None = None
    """A learning rate to try; None takes the one that was chosen."""

    @property
    def name(self) -> str:
        return f"{self.row.key}-{self.seed}" if self.rate is None else f"{CHOICE}/{self.rate:g}"

    @property
    def label(self) -> str:
        """What progress is shown with."""
        seed = f" seed {self.seed}" if self.row.seeds > 1 else ""
        return f"{self.part.name} {self.name}" if self.part.name else f"{self.row.name}{seed}"

    @property
    def shares_candidate(self) -> bool:
        """Tell the first run of a tuned baseline, which was made already when its learning rate was chosen."""
        return bool(self.part.rates) and self.rate is None and (self.row, self.seed) == (self.part.baseline, 0)

    @property
    def candidates(self) -> "tuple[PlannedRun, ...]":
        """The runs that its learning rate is chosen from."""
        if self.rate is not None or not self.row.trained:
            return ()
        of = self.part if self.part.rate_of is None else self.study.part(self.part.rate_of)
        return tuple(PlannedRun(self.study, of, of.baseline, 0, rate) for rate in of.rates)

    @property
    def start(self) -> "PlannedRun | None":
        """The run whose model it starts from, which may belong to another study."""
        if self.part.before is None or not self.row.trained:
            return None
        study, name = self.part.before
        part = study.part(name)
        return PlannedRun(study, part, part.like(self.row), 0)


@runtime_checkable
class Places(Protocol):
    """Folders of a study."""

    @property
    def hidden(self) -> Mapping[str, str]:
        """Folders of this machine, and what stands for them in records."""
        ...

    def record(self, run: PlannedRun) -> Path:
        """The file of a run's record; the rows that its scores come from are in the folder of the same name."""
        ...

    def run(self, run: PlannedRun) -> Path:
        """The folder of a run's model and checkpoints."""
        ...


def plan(study: Study, rows: Sequence[str] = (), seeds: int | None = None) -> Iterator[PlannedRun]:
    """List all runs in the order in which they are worth having: every row once, then further seeds.

    Args:
        study: the study.
        rows: keys of the rows that are wanted, all unless given; baselines and rows that are no models come along.
        seeds: number of runs of each model, in place of the study's own.
    """
    for part in study.parts:
        for rate in part.rates:
            yield PlannedRun(study, part, part.baseline, 0, rate)
    most = max(row.seeds for part in study.parts for row in part.rows) if seeds is None else seeds
    for seed in range(most):
        for part in study.parts:
            for row in part.rows:
                wanted = row.seeds if seeds is None or not row.trained else seeds
                asked = not rows or row.key in rows or row == part.baseline or not row.trained
                if seed < wanted and asked:
                    yield PlannedRun(study, part, row, seed)


def slug(name: str) -> str:
    """Make a name for a folder: ``Syn (R+V)`` becomes ``syn-r+v``."""
    return re.sub(r"[^a-z0-9_+.=-]+", "-", name.lower().replace(" + ", "+")).strip("-")


def with_seeds(rows: Iterable[StudyRow], seeds: int, names: Iterable[str] | None = None) -> tuple[StudyRow, ...]:
    """Give the models of these names, or all, that many seeds."""
    chosen = None if names is None else set(names)
    return tuple(
        replace(row, seeds=seeds) if row.trained and (chosen is None or row.name in chosen) else row for row in rows
    )
