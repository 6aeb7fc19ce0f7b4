"""Go through the runs of a plan; commands that run side by side, each in its own process, share them."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from synthattn.compare.execution import Execution, processes
from synthattn.compare.plan import PlannedRun
from synthattn.compare.schedule import Announce, Task, unfinished
from synthattn.data.locks import locked_file


def execute(
    tasks: Sequence[Task],
    announce: Announce = lambda number, total, run: None,
    finished: Callable[[], object] = lambda: None,
) -> None:
    """Make the runs of a plan that have no record yet.

    Args:
        tasks: all runs of a plan, each with what makes it.
        announce: is told the number of the next run, how many there are, and which it is.
        finished: is called after each run.
    """
    missing = unfinished(tasks)
    for number, execution, run in shared(missing):
        announce(number, len(missing), run)
        execution.run(run)
        finished()


def measure(tasks: Sequence[Task], progress: Callable[[int, int], None] = lambda done, total: None) -> None:
    """Measure the models of a plan that are not measured yet, after all of its runs.

    Speeds come last: beside a training they would be those of half a machine.
    """
    left = [(execution, run) for execution, run in tasks if execution.unmeasured(run)]
    progress(0, len(left))
    for number, (execution, run) in enumerate(left, 1):
        with held(execution.places.run(run)) as mine:
            if mine:
                execution.measure(run)
        progress(number, len(left))


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


def shared(missing: Sequence[Task], seconds: float = 5.0) -> Iterator[tuple[int, Execution, PlannedRun]]:
    """Yield the runs that are for this process, each held while it is made, with the number of those dealt with.

    What another process is making is passed over for what comes after it, and waited for at the end, a look every few
    seconds: if that process is stopped, its run is taken over.
    """
    if processes() > 1:  # these make every run together
        yield from ((number, *task) for number, task in enumerate(missing, 1))
        return
    left = list(missing)
    while left:
        busy = False
        for task in left:
            execution, run = task
            with held(execution.places.run(run)) as mine:
                busy = busy or not mine
                # A learning rate, or a model to start from, may be what another process is about to have.
                if not mine or (busy and not execution.ready(run)):
                    continue
                left.remove(task)
                if not execution.done(run):
                    yield len(missing) - len(left), execution, run
                break
        else:
            time.sleep(seconds)
