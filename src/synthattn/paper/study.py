"""What the studies beyond the paper have in common: runs that go on where they stopped, one record, one page."""

import importlib
import json
import lzma
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from synthattn.compare.execution import Execution
from synthattn.compare.executors import Executor
from synthattn.compare.plan import PlannedRun, plan
from synthattn.compare.schedule import Announce, PlanSource, Task, unfinished
from synthattn.messages import suggestion
from synthattn.paper.runs import Folders
from synthattn.render import markdown as md
from synthattn.render.document import Document
from synthattn.render.table import Table
from synthattn.saved_file import read_dataclass, read_json, replacing, write_text
from synthattn.training.progress import Display
from synthattn.training.run import Stopped

RECORD, PAGE, CELL, PLAN = "record.json.xz", "README.md", "cell.json", "plan.json"
"""Files of a study: the record and its page, which are kept; what one run came to, and the plan, in the work folder."""
STUDIES = {
    name: f"synthattn.paper.{module}"
    for name, module in (("abilities", "abilities_page"), ("positions", "positions"), ("layers", "layers"))
}
"""Names of studies, and the modules whose ``STUDY`` describes them."""
Displays = Callable[[str], Display]


@dataclass
class Cells(Execution):
    """Makes the runs of a study, and keeps what each came to in a file, until all are collected in one record."""

    plan: Any = None

    def cell(self, run: PlannedRun) -> Path:
        return self.places.run(run) / CELL

    def done(self, run: PlannedRun) -> bool:
        return self.cell(run).is_file()

    def keep(self, run: PlannedRun, found: Any) -> None:
        self.cell(run).parent.mkdir(parents=True, exist_ok=True)
        write_text(self.cell(run), json.dumps(asdict(found), allow_nan=False) + "\n")

    def cells(self, kind: type[Any]) -> Iterator[Any]:
        """Yield what the runs that are done came to, in the order of the plan."""
        for run in plan(self.study):
            if run.rate is None and self.cell(run).is_file():
                yield read_dataclass(kind, self.cell(run), f"is no run of {self.study.name}; delete it")


@dataclass(frozen=True)
class StudyKind:
    """A study beyond the paper, as the functions that make, read and show it.

    Args:
        name: name on the command line, and of the folder in that of all results.
        title: link to its page.
        plan: dataclass of all options.
        record: dataclass with ``plan``, all runs, and ``complete``.
        open: returns what makes the runs of a plan.
        collect: returns the record of the runs that are done.
        table: of a record.
        document: page of a record.
        pictures: files of a record beside its page.
    """

    name: str
    title: str
    plan: type[Any]
    record: type[Any]
    open: Callable[[Any, Folders, Displays], Cells]
    collect: Callable[[Any], Any]
    table: Callable[[Any], Table]
    document: Callable[[Any], Document]
    pictures: Callable[[Any], Mapping[str, str]]

    def load(self, path: Path) -> Any:
        return read_dataclass(self.record, path, f"is no record of the study of {self.name}", ("version",))

    def write(self, results: Path) -> None:
        """Write page and pictures from the record."""
        folder = results / self.name
        found = self.load(folder / RECORD)
        write_text(folder / PAGE, md.markdown(self.document(found)))
        for name, content in self.pictures(found).items():
            write_text(folder / name, content)


def find_study(name: str) -> StudyKind:
    if name not in STUDIES:
        raise ValueError(f"there is no study {name!r}{suggestion(name, STUDIES)}")
    return importlib.import_module(STUDIES[name]).STUDY


def save(record: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as beside:
        beside.write_bytes(lzma.compress(json.dumps(asdict(record), allow_nan=False).encode()))


def open_tasks(display: Displays, name: str, work: str) -> list[Task]:
    """Return the tasks of a study that has begun, for any process that makes some of them."""
    kind, folder = find_study(name), Path(work) / name
    chosen = read_dataclass(kind.plan, folder / PLAN, f"is no plan of the study of {name}")
    cells = kind.open(chosen, Folders(folder / "records", folder / "models"), display)
    return [(cells, run) for run in plan(cells.study)]


def make(
    kind: StudyKind,
    chosen: Any,
    output: Path,
    work: Path,
    jobs: int = 1,
    resume: bool = False,
    display: Displays = lambda name: Display(),
    announce: Announce = lambda number, total, run: None,
) -> Any:
    """Make all runs of a plan that are not made yet, and write record, page and pictures.

    Args:
        kind: the study.
        chosen: its plan; a study that was begun with another one is not continued.
        output: folder of all results.
        work: folder of models and of what single runs came to.
        jobs: number of runs at the same time.
        resume: go on with what is in the work folder.
        display: makes something that is told how a run goes.
        announce: is told the number of the next run, how many there are, and which it is.
    """
    kept, path = work / kind.name / PLAN, output / kind.name / RECORD
    way_out = "name another --output and --work"
    if path.is_file() and not kept.is_file():
        raise ValueError(f"{path} is there already, but not its runs in {work}; remove it, or {way_out}")
    if kept.is_file():
        if read_json(kept) != json.loads(json.dumps(asdict(chosen))):
            raise ValueError(f"{kept} is another plan; remove its folder, or {way_out}")
        if not resume:
            raise ValueError(f"{kind.name} was begun in {work}; go on with --resume, or {way_out}")
    kept.parent.mkdir(parents=True, exist_ok=True)
    write_text(kept, json.dumps(asdict(chosen)) + "\n")
    source = PlanSource("synthattn.paper.study:open_tasks", {"name": kind.name, "work": str(work)})
    tasks, executor = source.tasks(display), Executor()
    try:
        if unfinished(tasks):
            executor.execute(tasks, source, jobs, executor.usual_threads(jobs), announce)
    except (Stopped, KeyboardInterrupt):
        with suppress(ValueError):  # nothing is known yet
            _write(kind, tasks, output)
        raise
    return _write(kind, tasks, output)


def _write(kind: StudyKind, tasks: Sequence[Task], output: Path) -> Any:
    (cells, _), *_ = tasks
    found = kind.collect(cells)
    save(found, output / kind.name / RECORD)
    kind.write(output)
    return found
