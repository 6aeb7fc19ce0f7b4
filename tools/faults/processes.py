"""Run the command ``synthattn`` in processes that suffer a fault at a chosen moment.

Processes are forked after all imports, so that a run takes only a second.
"""

import gc
import importlib
import multiprocessing
import os
import resource
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from synthattn.cli.app import main

FORKS = multiprocessing.get_context("forkserver")
# Late imports, too; an unknown name does no harm.
FORKS.set_forkserver_preload(["synthattn.cli.train", "synthattn.compare.compare", "pytest", "typer._adapters"])

WAIT = 120
"""Seconds after which a running process is killed."""


@dataclass(frozen=True)
class Fault:
    """A fault that happens to a process at the first or a later call of a function."""

    place: str
    call: int = 1
    when: Literal["before", "after"] = "before"
    what: Literal["kill", "interrupt", "terminate", "interrupt twice", "memory", "nan", "slow", "wait"] = "kill"
    """Kind of fault. ``wait`` creates a file ``waiting``, and waits for a file ``go`` in the folder."""


class Process:
    """The command in its own process, with its output in a folder."""

    def __init__(self, folder: Path, arguments: list[str], *faults: Fault, file_size: int | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.process = FORKS.Process(target=_command, args=(str(folder), arguments, faults, file_size))
        self.process.start()

    def wait(self) -> "Process":
        """Wait for the end of the process; kill it after ``WAIT`` seconds."""
        self.process.join(WAIT)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
            raise TimeoutError(f"still running after {WAIT} s: {self.said}")
        return self

    def until_waiting(self) -> "Process":
        """Wait until the process waits, see ``Fault``."""
        while not (self.folder / "waiting").exists():
            if self.process.exitcode is not None:
                raise RuntimeError(f"ended with {self.code} before it waited: {self.said}")
            time.sleep(0.02)
        return self

    def kill_after(self, seconds: float) -> bool:
        """Kill the process after some seconds; return True if it was still running."""
        self.process.join(seconds)
        killed = self.process.exitcode is None
        if killed:
            self.process.kill()
            self.process.join()
        return killed

    @property
    def code(self) -> int | None:
        return self.process.exitcode

    @property
    def said(self) -> str:
        return (self.folder / "stderr").read_text()


def _command(folder: str, arguments: list[str], faults: tuple[Fault, ...], file_size: int | None) -> None:
    os.chdir(folder)
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    # A shell that runs the tests in the background makes the processes ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.set_num_threads(1)
    gc.freeze()  # otherwise every run would collect garbage among all imports
    os.environ["SYNTHATTN_CACHE"] = str(Path(folder).parent / "cache")
    if file_size is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))
    for fault in faults:
        _plant(fault)
    sys.argv = ["synthattn", *arguments]
    main()


def _plant(fault: Fault) -> None:
    module, path = fault.place.split(":")
    *parents, name = path.split(".")
    owner: Any = importlib.import_module(module)
    for parent in parents:
        owner = getattr(owner, parent)
    original, calls = getattr(owner, name), 0

    def planted(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        due = calls == fault.call or fault.what == "slow"
        if due and fault.when == "before":
            _happen(fault)
        result = original(*args, **kwargs)
        if due and fault.what == "nan":
            return result * float("nan")
        if due and fault.when == "after":
            _happen(fault)
        return result

    setattr(owner, name, planted)


def _happen(fault: Fault) -> None:
    if fault.what == "slow":
        time.sleep(0.01)
    elif fault.what == "wait":
        Path("waiting").touch()
        while not Path("go").exists():
            time.sleep(0.02)
    elif fault.what == "memory":
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory")
    elif fault.what != "nan":
        kind = {"kill": signal.SIGKILL, "terminate": signal.SIGTERM}.get(fault.what, signal.SIGINT)
        for _ in range(2 if fault.what == "interrupt twice" else 1):
            os.kill(os.getpid(), kind)
