"""Make runs on a Ray cluster that the user has started, one task for each run.

This process joins the cluster and hands out runs by name. A task opens the plan in the folder that all machines share,
makes its run there, and writes messages to a file beside it. Nothing here starts a cluster.
"""

import contextlib
import functools
import importlib
import json
import logging
import os
import platform
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from synthattn import __version__
from synthattn.compare.execution import Execution
from synthattn.compare.executors import Executor, measure_here, threads_of_torch
from synthattn.compare.forecast import Forecast, forecast
from synthattn.compare.plan import Places, Study, plan
from synthattn.compare.schedule import (
    Announce,
    Channel,
    PlanSource,
    Schedule,
    SentDisplay,
    Task,
    name_of,
    outcome,
    refuse,
    show,
    unfinished,
)
from synthattn.messages import shortened
from synthattn.training.memory import keep_memory
from synthattn.training.prepare import Prepared
from synthattn.training.progress import Display
from synthattn.training.run import Stopped, prepare_data

PATIENCE = 120.0
"""Seconds until a file that another machine has written must be visible; network file systems keep old listings."""
SOON = 5.0
"""Seconds until a file with a new name must be visible: no listing can be older."""
INTERVAL = 0.5
"""Seconds between looks at the messages of runs."""


@dataclass(frozen=True)
class Machine:
    """A machine of the cluster, and what tasks may ask of it."""

    node: str
    name: str
    cpus: int
    gpus: float
    memory: int


@dataclass
class _Started:
    """A run that was handed out, and the messages about it."""

    task: Task
    display: Callable[[str], Display]
    messages: Path
    read: int = 0
    shown: Display | None = None

    def show(self) -> None:
        """Show the messages that are new."""
        try:
            with self.messages.open("rb") as file:
                file.seek(self.read)
                found = file.read()
        except OSError:  # not written yet
            return
        whole = found[: found.rfind(b"\n") + 1]
        self.read += len(whole)
        for line in whole.splitlines():
            self.shown = show(self.display, self.shown, json.loads(line))

    def close(self) -> None:
        self.show()
        if self.shown is not None:
            self.shown.close()
        with contextlib.suppress(OSError):
            self.messages.unlink(missing_ok=True)


@dataclass
class RayCluster(Executor):
    """Makes the runs of a plan on a Ray cluster.

    Args:
        address: ``auto`` or ``HOST:PORT`` of a cluster that this machine belongs to.
        gpus: part of an accelerator that each run gets; by default one, if there are any.
    """

    address: str
    gpus: float | None = None
    _checked: set[Path] = field(default_factory=set)

    def __post_init__(self) -> None:
        # Ray would start a cluster without an address, and with "local"; the other forms are of Ray's client.
        if self.address != "auto" and (":" not in self.address or "://" in self.address):
            raise ValueError(
                f"--executor ray needs --address: auto or HOST:PORT of a Ray cluster that this machine belongs to, got "
                f"{self.address!r}"
            )
        if self.gpus is not None and not 0 <= self.gpus <= 1:
            raise ValueError(f"--gpus is the part of an accelerator for each run, from 0 to 1, got {self.gpus:g}")

    @functools.cached_property
    def ray(self) -> Any:
        """Join the cluster, and return Ray's functions."""
        try:
            ray: Any = importlib.import_module("ray")
        except ImportError as error:
            raise ValueError("--executor ray needs Ray; install it with: pip install 'synthattn[ray]'") from error
        if not ray.is_initialized():
            main = threading.current_thread() is threading.main_thread()
            before = signal.getsignal(signal.SIGTERM)
            try:
                ray.init(address=self.address, log_to_driver=False, logging_level=logging.ERROR)
            except (OSError, RuntimeError, ValueError) as error:
                raise ValueError(f"cannot join the Ray cluster at {self.address}: {_line(error)}") from error
            finally:
                if main:  # Ray's handler would end the process without a word
                    signal.signal(signal.SIGTERM, before)
        return ray

    @property
    def machines(self) -> list[Machine]:
        """Machines that take tasks."""
        found = []
        for node in self.ray.nodes():
            offered: Mapping[str, float] = node["Resources"] if node["Alive"] else {}
            if offered.get("CPU", 0) >= 1:
                gpus, memory = offered.get("GPU", 0.0), int(offered.get("memory", 0))
                found.append(Machine(node["NodeID"], node["NodeManagerHostname"], int(offered["CPU"]), gpus, memory))
        if not found:
            raise ValueError(f"no machine of the Ray cluster at {self.address} takes tasks: none has a processor left")
        return found

    def usual_threads(self, runs: int) -> int:
        machines = self.machines
        gpus = self._gpus(machines)
        if gpus:
            each = [machine.cpus // int(machine.gpus / gpus) for machine in machines if machine.gpus >= gpus]
        else:
            each = [machine.cpus // -(-runs // len(machines)) for machine in machines]
        return max(1, min(each, default=1))

    def usual_jobs(self, expected: Forecast | None, threads: int) -> int:
        """Return how many runs the machines have room for."""
        machines = self.machines
        gpus = self._gpus(machines)
        total = 0
        for machine in machines:
            room = [machine.cpus // threads]
            if gpus:
                room.append(int(machine.gpus / gpus))
            if expected is not None and machine.memory:
                room.append(machine.memory // expected.memory)
            total += min(room)
        return max(1, total)

    def forecast(self, execution: Execution, prepared: Prepared, threads: int) -> Forecast:
        self._check([(execution, run) for run in plan(execution.study)], threads)
        arguments = execution.study, execution.places, execution.way_out, threads
        return self._wait(self._task(_forecast, threads, *arguments))

    def execute(
        self,
        tasks: Sequence[Task],
        source: PlanSource,
        jobs: int,
        threads: int,
        announce: Announce = lambda number, total, run: None,
        finished: Callable[[], object] = lambda: None,
    ) -> None:
        missing = unfinished(tasks)
        self._check(missing, threads)
        schedule = Schedule(missing, announce, finished)
        under_way: dict[Any, _Started] = {}
        try:
            while schedule.waiting or under_way:
                while len(under_way) < jobs and (task := schedule.next(busy=bool(under_way))):
                    reference, started = self._start(task, source, threads)
                    under_way[reference] = started
                if not under_way:
                    time.sleep(INTERVAL)
                    continue
                ended, _ = self.ray.wait(list(under_way), timeout=INTERVAL)
                for started in under_way.values():
                    started.show()
                for reference in ended:
                    started = under_way.pop(reference)
                    started.close()
                    self._end(schedule, started.task, reference)
        except BaseException:
            self._stop(list(under_way))
            raise
        finally:
            for started in under_way.values():
                started.close()

    def measure(self, tasks: Sequence[Task], source: PlanSource, threads: int, display: Display) -> None:
        """Measure all models in one task, on one machine: speeds are ratios to the baseline beside them."""
        left = [task for task in tasks if task[0].unmeasured(task[1])]
        display.scored(0, len(left))
        if not left:
            return
        self._check(left, threads)
        machines = self.machines
        alone = threads if self._gpus(machines) else max(machine.cpus for machine in machines)
        execution, run = left[0]
        messages = execution.places.run(run).with_name(f"{uuid.uuid4().hex}.messages")
        started = _Started(left[0], lambda label: display, messages)
        try:
            self._wait(self._task(_measure, alone, source, str(messages)), started.show)
        finally:
            started.close()

    def _gpus(self, machines: Iterable[Machine]) -> float:
        """Return the part of an accelerator that a run gets."""
        if self.gpus is not None:
            return self.gpus
        return 1.0 if any(machine.gpus for machine in machines) else 0.0

    def _task(self, function: Callable[..., Any], cpus: int, *arguments: Any, **options: Any) -> Any:
        """Start a task; a task that dies is started again here, not by Ray."""
        asked = {"num_cpus": cpus, "num_gpus": self._gpus(self.machines), "max_retries": 0} | options
        variables = {name: value for name, value in os.environ.items() if name.startswith("SYNTHATTN_")}
        return self.ray.remote(**asked)(_at_home).remote(os.getcwd(), variables, function, arguments)

    def _wait(self, reference: Any, meanwhile: Callable[[], None] = lambda: None) -> Any:
        """Return what a task returns; a task that fails is an error of one line."""
        try:
            while not self.ray.wait([reference], timeout=INTERVAL)[0]:
                meanwhile()
        except BaseException:
            self._stop([reference])
            raise
        try:
            return self.ray.get(reference)
        except self.ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None)
            told = isinstance(cause, ValueError | OSError)
            raise ValueError(str(cause) if told else f"a task of the cluster has failed: {_line(error)}") from error

    def _start(self, task: Task, source: PlanSource, threads: int) -> tuple[Any, _Started]:
        execution, run = task
        folder = execution.places.run(run)
        folder.parent.mkdir(parents=True, exist_ok=True)
        started = _Started(task, execution.display, folder.with_name(f"{folder.name}.messages"))
        started.messages.unlink(missing_ok=True)
        return self._task(_make, threads, source, threads, name_of(run), str(started.messages)), started

    def _end(self, schedule: Schedule, task: Task, reference: Any) -> None:
        try:
            ended = self.ray.get(reference)
        except self.ray.exceptions.RayError as error:
            schedule.died(task, _line(error))
            return
        refuse(*ended)
        if ended[0] == "stopped":  # its machine is about to be taken away
            schedule.died(task, "its process was stopped")
            return
        record = task[0].places.record(task[1])
        if ended[0] == "done" and not _visible(record):
            raise ValueError(f"{record} was written on another machine, but is not visible here; is its folder shared?")
        schedule.ended(task, ended[0])

    def _stop(self, references: list[Any]) -> None:
        """Let all runs save and end; a second Ctrl-C ends them at once."""
        if not references:
            return
        try:
            for reference in references:
                self.ray.cancel(reference)
            self.ray.wait(references, num_returns=len(references))
        except KeyboardInterrupt:
            for reference in references:
                self.ray.cancel(reference, force=True)

    def _check(self, tasks: Sequence[Task], threads: int) -> None:
        """Refuse a cluster that has no room for a run, another version, or folders that its machines do not share."""
        machines = self.machines
        most = max(machine.cpus for machine in machines)
        if threads > most:
            raise ValueError(
                f"no machine of the cluster has {threads} processors for the threads of a run, the largest has {most}; "
                "give fewer --threads"
            )
        gpus = self._gpus(machines)
        if gpus and not any(machine.gpus >= gpus for machine in machines):
            raise ValueError(f"no machine of the cluster has an accelerator for --gpus {gpus:g}; give --gpus 0")
        runs, records = [made.places.run(run) for made, run in tasks], [made.places.record(run) for made, run in tasks]
        for places in filter(None, (runs, records)):
            folder = Path(os.path.commonpath([place.parent for place in places]))
            if folder not in self._checked:
                new = not folder.exists()
                folder.mkdir(parents=True, exist_ok=True)
                try:
                    self._check_shared(folder, machines)
                finally:
                    if new:  # a folder in which nothing was begun stays empty
                        with contextlib.suppress(OSError):
                            folder.rmdir()
                self._checked.add(folder)

    def _check_shared(self, folder: Path, machines: Sequence[Machine]) -> None:
        """Write a file here, and let each machine read it and answer with another."""
        strategies = importlib.import_module("ray.util.scheduling_strategies")
        text = uuid.uuid4().hex
        question, *answers = (folder / f".shared-{text}-{n}" for n in range(1 + len(machines)))
        try:
            question.write_text(text)
            started = []
            for machine, answer in zip(machines, answers, strict=True):
                there = strategies.NodeAffinitySchedulingStrategy(machine.node, soft=False)
                options = {"num_gpus": 0, "scheduling_strategy": there}
                started.append(self._task(_answer, 0, str(question), str(answer), **options))
            for machine, answer, reference in zip(machines, answers, started, strict=True):
                version, reason = self._wait(reference)
                if version != __version__:
                    raise ValueError(
                        f"{machine.name} of the cluster has synthattn {version}, this machine has {__version__}; "
                        "install the same on all machines"
                    )
                if reason or not _visible(answer, SOON) or answer.read_text() != text:
                    raise ValueError(
                        f"{machine.name} of the cluster does not share {folder.absolute()}"
                        f"{reason and f' ({reason})'}; choose an --output that all machines see under the same name"
                    )
        finally:
            for path in (question, *answers):
                path.unlink(missing_ok=True)


def _visible(path: Path, seconds: float = PATIENCE) -> bool:
    """Wait for a file that another machine has written: network file systems keep old listings for a while."""
    until = time.monotonic() + seconds
    while not path.is_file() and time.monotonic() < until:
        time.sleep(INTERVAL)
    return path.is_file()


def _line(error: BaseException) -> str:
    """Return an error of Ray, or of a task, as one line."""
    cause = getattr(error, "cause", None)
    text = str(error) if cause is None else f"{type(cause).__name__}: {cause}"
    return shortened(" ".join(text.split()) or type(error).__name__, 300)


# In a task ----------------------------------------------------------------------------------------------------------


def _at_home(folder: str, variables: Mapping[str, str], function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """Call a function of this module in the folder of the process that has started the task, if this machine has it."""
    with contextlib.suppress(OSError):
        os.chdir(folder)
    os.environ.update(variables)
    return function(*arguments)


def _answer(question: str, answer: str) -> tuple[str, str]:
    """Copy a file; return the version that is installed, and the reason if that was not possible."""
    if not _visible(Path(question), SOON):
        return __version__, f"{platform.node()} does not see what was written there"
    try:
        Path(answer).write_text(Path(question).read_text())
    except OSError as error:
        return __version__, str(error)
    return __version__, ""


def _forecast(study: Study, places: Places, way_out: str, threads: int) -> Forecast:
    """Time the first steps of every model of a study on this machine."""
    execution = Execution(study, places, lambda label: Display(), lambda run: "", way_out)
    with threads_of_torch(threads):
        return forecast(execution, study.parts[0], prepare_data(study.parts[0].settings))


def _make(source: PlanSource, threads: int, name: str, messages: str) -> tuple[str, ...]:
    """Make a run of a plan, and return how that ended: ``stopped`` if it was interrupted, else see ``outcome``."""
    keep_memory()
    with _interruptible(), threads_of_torch(threads), open(messages, "w", encoding="utf-8") as file:
        channel = Channel(file)
        try:
            tasks = source.tasks(lambda label: SentDisplay(channel, label, seconds=1.0))
            return outcome(*next(task for task in tasks if name_of(task[1]) == name))
        except (Stopped, KeyboardInterrupt):
            return ("stopped",)
        except ValueError as error:
            return "failed", str(error)


def _measure(source: PlanSource, messages: str) -> None:
    """Measure all models of a plan on this machine."""
    keep_memory()
    with _interruptible(), open(messages, "w", encoding="utf-8") as file:
        measure_here(source.tasks(lambda label: Display()), SentDisplay(Channel(file), "speed"))


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ray interrupt this process, as Ctrl-C does."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
