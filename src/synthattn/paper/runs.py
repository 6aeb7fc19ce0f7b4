"""Where the runs of the paper's tables are kept, and how each is made again."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from synthattn.compare.execution import Execution
from synthattn.compare.plan import PlannedRun, Study, plan
from synthattn.compare.schedule import PlanSource, Task
from synthattn.paper.evidence import place
from synthattn.paper.recipes import SMALL_DATA, Scale, recipe
from synthattn.training.progress import Display


@dataclass(frozen=True)
class Folders:
    """Folders of all tables.

    Args:
        results: records, tables and pages: small, to be kept.
        work: models and checkpoints.
        data: data sets of the scales ``cpu`` and ``long``, a folder for each.
    """

    results: Path
    work: Path
    data: Path | None = None

    @property
    def hidden(self) -> dict[str, str]:
        """Folders that are different on every machine, and what stands for them in records."""
        found = {str(self.work): "WORK", str(self.work.resolve()): "WORK"}
        if self.data is not None:
            found |= {str(self.data): "DATA", str(self.data.resolve()): "DATA"}
        return {folder: name for folder, name in found.items() if len(folder) > 1}

    def record(self, run: PlannedRun) -> Path:
        return place(self.results, run.study.name, run.study.scale, run.part.name, run.name)

    def run(self, run: PlannedRun) -> Path:
        return self.work / f"{run.study.name}-{run.study.scale}" / run.part.name / run.name


def execution(study: Study, folders: Folders, display: Callable[[str], Display]) -> Execution:
    """Return what makes the runs of a table."""
    return Execution(study, folders, display, command, "name another --output and --work")


def plan_source(
    studies: Sequence[Study], folders: Folders, rows: Mapping[str, list[str]], seeds: int | None
) -> PlanSource:
    """Return what opens the runs of several tables in any process.

    Args:
        studies: recipes of one scale.
        folders: folders of all tables.
        rows: keys of the rows that are wanted, by table; none means all.
        seeds: runs of each row, in place of the recipe's own number.
    """
    arguments = {
        "tables": {study.name: list(rows[study.name]) for study in studies},
        "scale": studies[0].scale if studies else "tiny",
        "seeds": seeds,
        "results": str(folders.results),
        "work": str(folders.work),
        "data": None if folders.data is None else str(folders.data),
    }
    return PlanSource("synthattn.paper.runs:open_tasks", arguments)


def open_tasks(
    display: Callable[[str], Display],
    tables: Mapping[str, list[str]],
    scale: Scale,
    seeds: int | None,
    results: str,
    work: str,
    data: str | None,
) -> list[Task]:
    """Return the tasks of tables, for a process that makes some of them; see ``plan_source``."""
    folders = Folders(Path(results), Path(work), None if data is None else Path(data))
    made = [execution(recipe(table, scale, folders.data), folders, display) for table in tables]
    return [(one, run) for one in made for run in plan(one.study, tables[one.study.name], seeds)]


def command(run: PlannedRun) -> str:
    """Return what to type to make a run again."""
    words = ["synthattn", "reproduce", run.study.name, "--scale", run.study.scale]
    words += ["--data", "DATA"] if run.study.scale in SMALL_DATA else []
    words += ["--rows", run.row.key, "--seeds", str(run.seed + 1)]
    return shlex.join(words)
