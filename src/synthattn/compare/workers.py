"""Make the runs of a plan in several processes of this machine, each with threads of its own.

The parent hands out runs by name, one at a time, and shows what the workers report. A worker whose parent is gone saves
its run and ends. A worker that dies is replaced, and its run continues from its last checkpoint.

    parent to worker, a line of JSON each: the plan, then the name of a run; the end of the input means stop
    worker to parent: what to display, and how the run ended
"""

import contextlib
import dataclasses
import importlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from synthattn.compare.execution import Execution
from synthattn.compare.executors import Task, held
from synthattn.compare.plan import PlannedRun
from synthattn.data.locks import FolderInUseError
from synthattn.training.memory import keep_memory
from synthattn.training.progress import Display
from synthattn.training.run import Stopped

TRIES = 3
"""Number of times that a run is started again after its process has died."""
PAUSE = 5.0
"""Seconds until a run is tried again that another command is making."""
DEVICES = "CUDA_VISIBLE_DEVICES"
COMMAND = [sys.executable, "-m", "synthattn.compare.workers"]
"""Starts a worker."""


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


def execute(
    tasks: Sequence[Task],
    source: PlanSource,
    jobs: int,
    threads: int,
    announce: Callable[[int, int, PlannedRun], None] = lambda number, total, run: None,
    finished: Callable[[], object] = lambda: None,
) -> None:
    """Make the runs of a plan that have no record yet, several at the same time.

    Args:
        tasks: all runs of the plan, as ``source`` returns them.
        source: tells the workers where their tasks come from.
        jobs: number of worker processes.
        threads: number of threads of each worker.
        announce: is told the number of the next run, how many there are, and which it is.
        finished: is called after each run, in this process.
    """
    missing = [(execution, run) for execution, run in tasks if not execution.done(run)]
    pool = _Pool(missing, source, min(jobs, len(missing)), threads, announce, finished)
    try:
        pool.run()
    except BaseException:
        pool.stop()
        raise
    finally:
        pool.close()


@dataclass(eq=False)
class _Worker:
    """A process that makes runs, and the thread that reads what it reports."""

    number: int
    process: "subprocess.Popen[str]"
    errors: IO[bytes]
    task: Task | None = None
    display: Display | None = None
    listener: threading.Thread | None = None

    def tell(self, message: Any) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):  # a process that is gone is noticed by its reader
            self.process.stdin.write(json.dumps(message) + "\n")
            self.process.stdin.flush()

    def last_words(self) -> str:
        """Return why the process ended, in one line."""
        self.errors.seek(max(0, self.errors.seek(0, os.SEEK_END) - 2000))
        lines = self.errors.read().decode(errors="replace").split("\n")
        said = next((line.strip() for line in reversed(lines) if line.strip()), "")
        code = self.process.wait()
        if code == -signal.SIGKILL:
            return "its process was killed (signal 9), which is what systems do when memory runs out"
        return (
            f"its process ended with {f'signal {-code}' if code < 0 else f'code {code}'}{f': {said}' if said else ''}"
        )


@dataclass
class _Pool:
    """Workers, and the runs that are still to be made."""

    waiting: list[Task]
    source: PlanSource
    jobs: int
    threads: int
    announce: Callable[[int, int, PlannedRun], None]
    finished: Callable[[], object]
    workers: list[_Worker] = field(default_factory=list)
    events: "queue.Queue[tuple[_Worker, dict[str, Any] | None]]" = field(default_factory=queue.Queue)
    deaths: dict[str, int] = field(default_factory=dict)
    not_before: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.total = len(self.waiting)

    def run(self) -> None:
        while self.waiting or any(worker.task for worker in self.workers):
            self._hand_out()
            with contextlib.suppress(queue.Empty):
                worker, event = self.events.get(timeout=1.0)
                if event is None:
                    self._replace(worker)
                else:
                    self._handle(worker, event)

    def _hand_out(self) -> None:
        """Give each idle worker the first run that can be made now; start workers up to the number of jobs."""
        while self.waiting:
            idle = next((worker for worker in self.workers if worker.task is None), None)
            if idle is None and len(self.workers) >= self.jobs:
                return
            task = self._next()
            if task is None:
                return
            worker = idle or self._start(len(self.workers))
            self.waiting.remove(task)
            worker.task = task
            self.announce(self.total - len(self.waiting), self.total, task[1])
            worker.tell(name_of(task[1]))

    def _next(self) -> Task | None:
        """Return the first run that can be made; one that needs another run waits for it."""
        now, busy = time.monotonic(), any(worker.task for worker in self.workers)
        for execution, run in self.waiting:
            due = self.not_before.get(name_of(run), now) <= now
            if due and (not busy or execution.ready(run)):
                return execution, run
        return None

    def _start(self, number: int) -> _Worker:
        errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the worker)
        process = subprocess.Popen(
            COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            encoding="utf-8",
            env=os.environ | environment(number, self.threads),
            start_new_session=True,  # Ctrl-C reaches the parent, which lets each worker save its run
        )
        worker = _Worker(number, process, errors)
        self.workers.append(worker)
        worker.tell({"function": self.source.function, "arguments": self.source.arguments, "threads": self.threads})
        worker.listener = threading.Thread(target=self._listen, args=(worker,), daemon=True)
        worker.listener.start()
        return worker

    def _listen(self, worker: _Worker) -> None:
        assert worker.process.stdout is not None
        with worker.process.stdout as lines:
            for line in lines:
                self.events.put((worker, json.loads(line)))
        self.events.put((worker, None))

    def _handle(self, worker: _Worker, event: dict[str, Any]) -> None:
        assert worker.task is not None
        (name, values), (execution, run) = next(iter(event.items())), worker.task
        if name == "display":
            worker.display = execution.display(*values)
        elif name in ("note", "step", "scored", "close") and worker.display is not None:
            getattr(worker.display, name)(*values)
        elif name == "failed":
            raise ValueError(*values)
        elif name == "in use":
            raise FolderInUseError(*values)
        elif name in ("done", "busy"):
            worker.task = worker.display = None
            if name == "busy":  # another command makes it: come back to it later
                self.waiting.append((execution, run))
                self.not_before[name_of(run)] = time.monotonic() + PAUSE
            else:
                self.finished()

    def _replace(self, worker: _Worker) -> None:
        """Let another worker continue the run of one that has died; give a run up that always ends like this."""
        self.workers.remove(worker)
        reason = worker.last_words()
        self._discard(worker)
        if worker.task is None:
            return
        execution, run = worker.task
        name = name_of(run)
        self.deaths[name] = self.deaths.get(name, 0) + 1
        if self.deaths[name] <= TRIES:
            self.waiting.insert(0, (execution, run))
            return
        execution.fail(run, f"given up after {TRIES + 1} tries: {reason}")
        self.finished()

    def stop(self) -> None:
        """Let all workers save and end; a second Ctrl-C ends them at once."""
        for worker in self.workers:
            assert worker.process.stdin is not None
            with contextlib.suppress(OSError):
                worker.process.stdin.close()
        with contextlib.suppress(KeyboardInterrupt):
            for worker in self.workers:
                worker.process.wait()

    def close(self) -> None:
        for worker in self.workers:
            self._discard(worker)

    def _discard(self, worker: _Worker) -> None:
        if worker.display is not None:
            worker.display.close()
        if worker.task is not None:
            worker.process.kill()
        assert worker.process.stdin is not None
        with contextlib.suppress(OSError):
            worker.process.stdin.close()
        worker.process.wait()
        if worker.listener is not None:
            worker.listener.join()
        worker.errors.close()


def environment(number: int, threads: int) -> dict[str, str]:
    """Return the variables of a worker, which libraries read when they are loaded.

    Args:
        number: of the worker. Workers share the accelerators that are visible, one for each in turn.
        threads: number of threads of torch and of the libraries below it.
    """
    found = {"OMP_NUM_THREADS": str(threads)}
    visible = [name for name in os.environ.get(DEVICES, "").split(",") if name]
    if visible:
        found[DEVICES] = visible[number % len(visible)]
    return found


# In a worker --------------------------------------------------------------------------------------------------------


class _Channel:
    """What a worker reports to its parent."""

    def __init__(self) -> None:
        # What libraries print must not come between the lines.
        self.file = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        self.lock = threading.Lock()

    def send(self, name: str, *values: Any) -> None:
        with self.lock, contextlib.suppress(OSError):  # a parent that is gone is noticed by its end of the input
            self.file.write(json.dumps({name: values}) + "\n")
            self.file.flush()


@dataclass
class _SentDisplay(Display):
    """A display whose messages are shown by the parent."""

    channel: _Channel
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


def _messages() -> Iterator[Any]:
    """Yield the messages of the parent. At the end of the input, interrupt a run that is under way."""
    found: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            found.put(line)
        found.put("")
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=read, daemon=True).start()
    while line := found.get():
        yield json.loads(line)


def work() -> None:
    """Make runs until the parent wants no more."""
    import torch

    # A parent that a shell has put into the background ignores this signal, and so would its children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    channel, messages = _Channel(), _messages()
    try:
        first = next(messages)
        torch.set_num_threads(first["threads"])
        keep_memory()
        source = PlanSource(first["function"], first["arguments"])
        tasks = {name_of(run): (made, run) for made, run in source.tasks(lambda name: _SentDisplay(channel, name))}
        for name in messages:
            execution, run = tasks[name]
            channel.send(*_make(execution, run))
    except (Stopped, KeyboardInterrupt, StopIteration):
        return


def _make(execution: Execution, run: PlannedRun) -> tuple[str, ...]:
    """Make a run, and return how that ended."""
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


if __name__ == "__main__":
    work()
