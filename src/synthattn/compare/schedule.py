"""Hand out the runs of a plan to other processes, and count how often each of them has ended early."""

import importlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from synthattn.compare.execution import Execution
from synthattn.compare.forecast import Forecast
from synthattn.compare.plan import PlannedRun
from synthattn.training.prepare import Prepared
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


@runtime_checkable
class Executor(Protocol):
    """Makes the runs of a plan: on this machine, or on many."""

    def usual_threads(self, runs: int) -> int:
        """Return the threads of a run with which as many runs as there are keep all cores busy."""
        ...

    def usual_jobs(self, expected: Forecast | None, threads: int) -> int:
        """Return how many runs are made at the same time unless the user says so; None: nothing was timed."""
        ...

    def forecast(self, execution: Execution, prepared: Prepared, threads: int) -> Forecast:
        """Time the first steps of every model where the runs will be made."""
        ...

    def execute(
        self,
        tasks: Sequence[Task],
        source: PlanSource,
        jobs: int,
        threads: int,
        announce: Announce,
        finished: Callable[[], object],
    ) -> None:
        """Make the runs of a plan that have no record yet.

        Args:
            tasks: all runs of the plan, as ``source`` returns them.
            source: tells other processes where their tasks come from.
            jobs: number of runs at the same time.
            threads: number of threads of each run.
            announce: is told the number of the next run, how many there are, and which it is.
            finished: is called after each run, in this process.
        """
        ...

    def measure(
        self, tasks: Sequence[Task], source: PlanSource, threads: int, progress: Callable[[int, int], None]
    ) -> None:
        """Measure the models of a plan that are not measured yet, after all of its runs."""
        ...


def name_of(run: PlannedRun) -> str:
    """Return the name of a run within all studies."""
    return f"{run.study.name}/{run.study.scale}/{run.part.name}/{run.name}"


def unfinished(tasks: Sequence[Task]) -> list[Task]:
    """Return the runs that have no record yet."""
    return [(execution, run) for execution, run in tasks if not execution.done(run)]


@dataclass
class Schedule:
    """The runs that are still to be made by other processes.

    Args:
        waiting: runs that no process has.
        announce: is told of each run that is handed out.
        finished: is called after each run.
    """

    waiting: list[Task]
    announce: Announce
    finished: Callable[[], object]
    deaths: dict[str, int] = field(default_factory=dict)
    not_before: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.total = len(self.waiting)

    def next(self, busy: bool) -> Task | None:
        """Hand out the first run that can be made now; one that needs another run waits for it.

        Args:
            busy: other runs are being made.
        """
        now = time.monotonic()
        for task in self.waiting:
            execution, run = task
            if self.not_before.get(name_of(run), now) <= now and (not busy or execution.ready(run)):
                self.waiting.remove(task)
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
        run = task[1]
        name = name_of(run)
        self.deaths[name] = self.deaths.get(name, 0) + 1
        if self.deaths[name] <= TRIES:
            self.waiting.insert(0, task)
            return
        self.fail(task, f"given up after {TRIES + 1} tries: {reason}")

    def fail(self, task: Task, reason: str) -> None:
        """Record that a run has failed."""
        execution, run = task
        execution.fail(run, reason)
        self.finished()
