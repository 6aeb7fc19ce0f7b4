"""Make runs on this machine, in this process or in several."""

import contextlib
from collections.abc import Callable, Iterator, Sequence

import torch

from synthattn.compare import executors, workers
from synthattn.compare.execution import Execution
from synthattn.compare.forecast import Forecast, available_memory, cores, forecast
from synthattn.compare.schedule import Announce, PlanSource, Task, unfinished
from synthattn.training.prepare import Prepared

WORTH_PROCESSES = 30.0
"""Seconds of training that are worth the start of several processes."""


class Local:
    """Makes the runs of a plan on this machine; an ``Executor``."""

    def usual_threads(self, runs: int) -> int:
        return max(1, cores() // runs) if not torch.cuda.is_available() else torch.get_num_threads()

    def usual_jobs(self, expected: Forecast | None, threads: int) -> int:
        """Return how many runs are made at the same time: as many as cores and memory allow, one per accelerator."""
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
        if min(jobs, len(unfinished(tasks))) > 1:
            workers.execute(tasks, source, jobs, threads, announce, finished)
            return
        with threads_of_torch(threads):
            executors.execute(tasks, announce, finished)

    def measure(
        self, tasks: Sequence[Task], source: PlanSource, threads: int, progress: Callable[[int, int], None]
    ) -> None:
        executors.measure(tasks, progress)


@contextlib.contextmanager
def threads_of_torch(count: int) -> Iterator[None]:
    """Let torch use so many threads until the block ends."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
