"""Make the runs of a plan on this machine, in this process or in several; commands that run side by side share them."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence

import torch

from synthattn.compare.execution import Execution, processes
from synthattn.compare.forecast import Forecast, cores, forecast
from synthattn.compare.schedule import Announce, PlanSource, Schedule, Task, held, make, unfinished
from synthattn.messages import suggestion
from synthattn.models.size import available_memory
from synthattn.training.prepare import Prepared
from synthattn.training.progress import Display

EXECUTORS = ("local", "ray")
WORTH_PROCESSES = 30.0
"""Seconds of training that are worth the start of several processes."""
INTERVAL = 1.0
"""Seconds between looks whether another command has ended a run."""


class Executor:
    """Makes the runs of a plan on this machine; the base of those that make them elsewhere."""

    def usual_threads(self, runs: int) -> int:
        """Return the threads of a run with which as many runs as there are keep all cores busy."""
        return max(1, cores() // runs) if not torch.cuda.is_available() else torch.get_num_threads()

    def usual_jobs(self, expected: Forecast | None, threads: int) -> int:
        """Return how many runs are made at the same time: as many as cores and memory allow, one per accelerator.

        Args:
            expected: of all runs; None: nothing was timed.
            threads: of each run.
        """
        if expected is None:
            return 1
        if torch.cuda.is_available():
            return torch.cuda.device_count()
        if expected.training(1) < WORTH_PROCESSES:
            return 1
        memory = available_memory()
        fitting = cores() if memory is None else memory // expected.memory
        return max(1, min(cores() // threads, fitting))

    def forecast(self, execution: Execution, prepared: Prepared, threads: int) -> Forecast:
        """Time the first steps of every model where the runs will be made."""
        with threads_of_torch(threads):
            return forecast(execution, execution.study.parts[0], prepared)

    def execute(
        self,
        tasks: Sequence[Task],
        source: PlanSource,
        jobs: int,
        threads: int,
        announce: Announce = lambda number, total, run: None,
        finished: Callable[[], object] = lambda: None,
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
        schedule = Schedule(unfinished(tasks), announce, finished)
        if min(jobs, schedule.total) > 1:
            from synthattn.compare.workers import Pool

            Pool(schedule, source, min(jobs, schedule.total), threads).run()
            return
        with threads_of_torch(threads):
            make_here(schedule)

    def measure(self, tasks: Sequence[Task], source: PlanSource, threads: int, display: Display) -> None:
        """Measure the models of a plan that are not measured yet, after all of its runs."""
        measure_here(tasks, display)


def find_executor(name: str = "local", address: str | None = None, gpus: float | None = None) -> Executor:
    """Return what makes runs: this machine, or a cluster at an address.

    Args:
        name: ``local`` or ``ray``.
        address: of the cluster: ``auto`` for the one that this machine belongs to, or ``HOST:PORT``.
        gpus: part of an accelerator that each run on the cluster gets; by default one, if there are any.
    """
    if name not in EXECUTORS:
        raise ValueError(f"there is no executor {name!r}{suggestion(name, EXECUTORS)}")
    if name == "ray":
        from synthattn.compare.cluster import RayCluster

        return RayCluster(address or "", gpus)
    if address is not None or gpus is not None:
        raise ValueError(f"{'--address' if address is not None else '--gpus'} is for --executor ray")
    return Executor()


def make_here(schedule: Schedule) -> None:
    """Make all runs in this process. Those that another command makes are waited for at the end, or taken over."""
    while schedule.waiting:
        task = schedule.next(busy=False)
        if task is None:
            time.sleep(INTERVAL)
        elif processes() > 1:  # these make every run together
            task[0].run(task[1])
            schedule.ended(task, "done")
        else:
            schedule.ended(task, make(*task))


def measure_here(tasks: Sequence[Task], display: Display) -> None:
    """Measure in this process. Speeds come last: beside a training they would be those of half a machine."""
    left = [(execution, run) for execution, run in tasks if execution.unmeasured(run)]
    display.scored(0, len(left))
    for number, (execution, run) in enumerate(left, 1):
        with held(execution.places.run(run)) as mine:
            if mine:
                execution.measure(run)
        display.scored(number, len(left))


@contextlib.contextmanager
def threads_of_torch(count: int) -> Iterator[None]:
    """Let torch use so many threads until the block ends."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
