"""Make one run for another process, which is told how it goes: lines of JSON through a pipe or a shared file."""

import contextlib
import dataclasses
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

from synthattn.compare.execution import Execution
from synthattn.compare.executors import held
from synthattn.compare.plan import PlannedRun
from synthattn.data.locks import FolderInUseError
from synthattn.training.progress import Display


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


def make(execution: Execution, run: PlannedRun) -> tuple[str, ...]:
    """Make a run, and return how that ended: ``done``, ``busy``, or ``failed`` and ``in use`` with the reason."""
    try:
        with held(execution.places.run(run)) as mine:
            if not mine:
                return ("busy",)
            if not execution.done(run):
                execution.run(run)
    except FolderInUseError as error:
        return "in use", str(error)
    except (ValueError, OSError) as error:
        return "failed", str(error)
    return ("done",)


def refuse(outcome: str, *reason: Any) -> None:
    """Raise the error that has ended a run, if it is one that ends all."""
    if outcome == "failed":
        raise ValueError(*reason)
    if outcome == "in use":
        raise FolderInUseError(*reason)
