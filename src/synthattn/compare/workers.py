"""Make the runs of a plan in several processes of this machine, each with threads of its own.

The parent hands out runs by name, one at a time, and shows what the workers report. A worker whose parent is gone saves
its run and ends. A worker that dies is replaced, and its run continues from its last checkpoint.

    parent to worker, a line of JSON each: the plan, then the name of a run; the end of the input means stop
    worker to parent: what to display, and how the run ended
"""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Any

from synthattn.compare.schedule import Channel, PlanSource, Schedule, SentDisplay, Task, name_of, outcome, refuse, show
from synthattn.training.memory import keep_memory
from synthattn.training.progress import Display
from synthattn.training.run import Stopped

DEVICES = "CUDA_VISIBLE_DEVICES"
COMMAND = [sys.executable, "-m", "synthattn.compare.workers"]
"""Starts a worker."""


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
class Pool:
    """Worker processes that make the runs of a schedule.

    Args:
        schedule: the runs that are still to be made.
        source: tells the workers where their tasks come from.
        jobs: number of worker processes.
        threads: number of threads of each worker.
    """

    schedule: Schedule
    source: PlanSource
    jobs: int
    threads: int
    workers: list[_Worker] = field(default_factory=list)
    events: "queue.Queue[tuple[_Worker, dict[str, Any] | None]]" = field(default_factory=queue.Queue)

    def run(self) -> None:
        """Make all runs."""
        try:
            self._make_all()
        except BaseException:
            self._stop()
            raise
        finally:
            for worker in self.workers:
                self._discard(worker)

    def _make_all(self) -> None:
        while self.schedule.waiting or any(worker.task for worker in self.workers):
            self._hand_out()
            with contextlib.suppress(queue.Empty):
                worker, event = self.events.get(timeout=1.0)
                if event is None:
                    self._replace(worker)
                else:
                    self._handle(worker, event)

    def _hand_out(self) -> None:
        """Give each idle worker the first run that can be made now; start workers up to the number of jobs."""
        while self.schedule.waiting:
            idle = next((worker for worker in self.workers if worker.task is None), None)
            if idle is None and len(self.workers) >= self.jobs:
                return
            task = self.schedule.next(busy=any(worker.task for worker in self.workers))
            if task is None:
                return
            worker = idle or self._start(len(self.workers))
            worker.task = task
            worker.tell(name_of(task[1]))

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
        (name, values), task = next(iter(event.items())), worker.task
        refuse(name, *values)
        if name in ("done", "busy"):
            worker.task = worker.display = None
            self.schedule.ended(task, name)
        else:
            worker.display = show(task[0].display, worker.display, event)

    def _replace(self, worker: _Worker) -> None:
        """Let another worker continue the run of one that has died."""
        self.workers.remove(worker)
        reason = worker.last_words()
        self._discard(worker)
        if worker.task is not None:
            self.schedule.died(worker.task, reason)

    def _stop(self) -> None:
        """Let all workers save and end; a second Ctrl-C ends them at once."""
        for worker in self.workers:
            assert worker.process.stdin is not None
            with contextlib.suppress(OSError):
                worker.process.stdin.close()
        with contextlib.suppress(KeyboardInterrupt):
            for worker in self.workers:
                worker.process.wait()

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


def _channel() -> Channel:
    """Return what a worker reports to its parent."""
    file = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    # What libraries print must not come between the lines.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return Channel(file)


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
    channel, messages = _channel(), _messages()
    try:
        first = next(messages)
        torch.set_num_threads(first["threads"])
        keep_memory()
        source = PlanSource(first["function"], first["arguments"])
        tasks = {name_of(run): (made, run) for made, run in source.tasks(lambda name: SentDisplay(channel, name))}
        for name in messages:
            execution, run = tasks[name]
            channel.send(*outcome(execution, run))
    except (Stopped, KeyboardInterrupt, StopIteration):
        return


if __name__ == "__main__":
    work()
