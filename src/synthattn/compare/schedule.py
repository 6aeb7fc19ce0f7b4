"""The runs of a plan that are still to be made: which comes next, how one is made, and how another process reports it.

Reports are lines of JSON through a pipe or a shared file: what to display, and at the end how the run ended.
"""

import contextlib
import dataclasses
import importlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from synthattn.compare.execution import Execution
from synthattn.compare.plan import PlannedRun
from synthattn.data.locks import FolderInUseError, locked_file
from synthattn.training.progress import Display

Task = tuple[Execution, PlannedRun]
Announce = Callable[[int, int, PlannedRun], None]
"""Is told the number of the next run, how many there are, and which it is."""

TRIES = 3
"""Number of times that a run is started again after its process has died."""
PAUSE = 5.0
"""Seconds until a run is tried again that another command is making."""


@dataclass(frozen=True)
class PlanSource:
    """Name of a function that returns the tasks of a plan, in any process.

    Args:
        function: ``module:name``. It is called with a function that makes displays, and with the arguments.
        arguments: keyword arguments, which JSON can hold.
    """

    function: str
    arguments: dict[str, Any]

    def tasks(self, display: Callable[[str], Display]) -> list[Task]:
        module, _, name = self.function.partition(":")
        return getattr(importlib.import_module(module), name)(display, **self.arguments)


def name_of(run: PlannedRun) -> str:
    """Return the name of a run within all studies."""
    return f"{run.study.name}/{run.study.scale}/{run.part.name}/{run.name}"


def unfinished(tasks: Sequence[Task]) -> list[Task]:
    """Return the runs that have no record yet."""
    return [(execution, run) for execution, run in tasks if not execution.done(run)]


@dataclass
class Schedule:
    """The runs that are still to be made.

    Args:
        waiting: runs that nobody has here.
        announce: is told of each run when it is handed out for the first time.
        finished: is called after each run.
    """

    waiting: list[Task]
    announce: Announce
    finished: Callable[[], object]
    deaths: dict[str, int] = field(default_factory=dict)
    not_before: dict[str, float] = field(default_factory=dict)
    """When a run may be tried again that another command was making."""

    def __post_init__(self) -> None:
        self.total = len(self.waiting)

    def next(self, busy: bool) -> Task | None:
        """Hand out the first run that can be made now; one that needs another run waits for it.

        Args:
            busy: other runs are being made. Where nobody makes any, a run whose needs are missing is handed out: making
                it says what is missing, and waiting would never end.
        """
        now = time.monotonic()
        busy = busy or any(name_of(run) in self.not_before for _, run in self.waiting)
        for task in self.waiting:
            execution, run = task
            name = name_of(run)
            if self.not_before.get(name, now) <= now and (name in self.not_before or not busy or execution.ready(run)):
                self.waiting.remove(task)
                if self.not_before.pop(name, None) is None:
                    self.announce(self.total - len(self.waiting), self.total, run)
                return task
        return None

    def ended(self, task: Task, outcome: str) -> None:
        """Take note of a run that is ``done``, or ``busy`` because another command makes it."""
        if outcome == "busy":  # come back to it later
            self.waiting.append(task)
            self.not_before[name_of(task[1])] = time.monotonic() + PAUSE
        else:
            self.finished()

    def died(self, task: Task, reason: str) -> None:
        """Hand out a run again whose process has died; give a run up that always ends like this."""
        execution, run = task
        name = name_of(run)
        self.deaths[name] = self.deaths.get(name, 0) + 1
        if self.deaths[name] <= TRIES:
            self.waiting.insert(0, task)
            return
        execution.fail(run, f"given up after {TRIES + 1} tries: {reason}")
        self.finished()


@contextlib.contextmanager
def held(folder: Path) -> Iterator[bool]:
    """Try to have a run for this process alone; the block is told whether it has it.

    The lock is beside the folder: the one inside of it is for whoever trains there, see ``locked_folder``.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    path = folder.with_name(f"{folder.name}.lock")
    with locked_file(path) as mine:
        try:
            yield mine
        finally:
            if mine:
                path.unlink(missing_ok=True)  # before the lock is given up: afterwards it may be another's


def make(execution: Execution, run: PlannedRun) -> str:
    """Make a run unless it is done, and return ``done``, or ``busy`` if another command is making it."""
    with held(execution.places.run(run)) as mine:
        if mine and not execution.done(run):
            execution.run(run)
        return "done" if mine else "busy"


# For another process -------------------------------------------------------------------------------------------------


def outcome(execution: Execution, run: PlannedRun) -> tuple[str, ...]:
    """Make a run, and return how that ended: as ``make``, or ``failed`` and ``in use`` with the reason."""
    try:
        return (make(execution, run),)
    except FolderInUseError as error:
        return "in use", str(error)
    except (ValueError, OSError) as error:
        return "failed", str(error)


def refuse(outcome: str, *reason: Any) -> None:
    """Raise the error that has ended a run, if it is one that ends all."""
    if outcome in ("failed", "in use"):
        raise (ValueError if outcome == "failed" else FolderInUseError)(*reason)


class Channel:
    """Lines for the process that has asked for a run."""

    def __init__(self, file: IO[str]) -> None:
        self.file = file
        self.lock = threading.Lock()

    def send(self, name: str, *values: Any) -> None:
        with self.lock, contextlib.suppress(OSError):  # nobody may be listening any more
            self.file.write(json.dumps({name: values}) + "\n")
            self.file.flush()


@dataclass
class SentDisplay(Display):
    """A display whose messages are shown by another process.

    Args:
        channel: takes the messages there.
        name: label of the run.
        seconds: least time between two of them.
    """

    channel: Channel
    name: dataclasses.InitVar[str]
    seconds: float = 0.2
    last: float = 0.0

    def __post_init__(self, name: str) -> None:
        self.channel.send("display", name)

    def note(self, text: str) -> None:
        self.channel.send("note", text)

    def step(self, step: int, steps: int, facts: dict[str, str]) -> None:
        if self._due(step == steps):
            self.channel.send("step", step, steps, facts)

    def scored(self, done: int, total: int) -> None:
        if self._due(done == total):
            self.channel.send("scored", done, total)

    def close(self) -> None:
        self.channel.send("close")

    def _due(self, last: bool) -> bool:
        if not last and time.monotonic() - self.last < self.seconds:
            return False
        self.last = time.monotonic()
        return True


def show(display: Callable[[str], Display], shown: Display | None, event: dict[str, Any]) -> Display | None:
    """Show a message of a run, and return the display that shows the next one."""
    name, values = next(iter(event.items()))
    if name == "display":
        return display(*values)
    if name in ("note", "step", "scored", "close") and shown is not None:
        getattr(shown, name)(*values)
    return shown
