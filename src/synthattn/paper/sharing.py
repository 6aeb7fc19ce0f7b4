"""Commands for the same tables that run side by side, each in its own process, share their runs."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from synthattn.data.locks import locked_file
from synthattn.paper.execute import Execution, Job, processes


@contextlib.contextmanager
def held(folder: Path) -> Iterator[bool]:
    """Try to have a run for this process alone; the block is told whether it has it.

    The lock is beside the folder: the one inside of it is for whoever trains there, see ``locked_folder``.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked_file(folder.with_name(f"{folder.name}.lock")) as mine:
        yield mine


def shared(missing: Sequence[tuple[Execution, Job]], seconds: float = 5.0) -> Iterator[tuple[int, Execution, Job]]:
    """The runs that are for this process, each held while it is made, with the number of those dealt with.

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
            execution, job = task
            with held(execution.run_folder(job)) as mine:
                busy = busy or not mine
                # A learning rate, or a model to start from, may be what another process is about to have.
                if not mine or (busy and not execution.ready(job)):
                    continue
                left.remove(task)
                if not execution.done(job):
                    yield len(missing) - len(left), execution, job
                break
        else:
            time.sleep(seconds)
