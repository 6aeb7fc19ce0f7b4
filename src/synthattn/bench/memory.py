"""Peak memory of a contender, measured in a process that does nothing else."""

import dataclasses
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from synthattn.bench.record import Case
from synthattn.bench.timing import Run

HOMES = {
    "layer": "synthattn.bench.layers",
    "model": "synthattn.bench.models",
    "train": "synthattn.bench.models",
    "decode": "synthattn.bench.decode",
}
"""Modules that make the contenders, by kind of benchmark."""


def home(case: Case) -> Any:
    return import_module(HOMES[case.kind])


def available() -> bool:
    """Return whether this system reports the peak memory of a process, and can reset it."""
    return Path("/proc/self/clear_refs").exists()


def peak_megabytes(name: str, case: Case) -> float:
    """Return peak memory above that of weights and input."""
    command = [sys.executable, "-m", "synthattn.bench.memory", json.dumps([name, dataclasses.asdict(case)])]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        reason = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit code {done.returncode}"
        raise ChildProcessError(f"{name}, {case}: {reason}")
    return float(done.stdout)


def main(request: str) -> None:
    name, fields = json.loads(request)
    case = Case(**fields)
    prepare = home(case).build(name, case)
    # The libraries' own buffers, which a tiny input needs as well, do not count.
    prepare(dataclasses.replace(case, batch=1, length=min(case.length, 32)))()
    run = prepare(case)
    if case.device:
        print(_peak_of_accelerator(run))
        return
    Path("/proc/self/clear_refs").write_text("5")  # lets the peak start again from what is in use now
    before = _high_water()
    run()
    print(_high_water() - before)


def _peak_of_accelerator(run: Run) -> float:
    import torch

    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    return (torch.cuda.max_memory_allocated() - before) / 1e6


def _high_water() -> float:
    """Return peak resident memory in megabytes; ru_maxrss would start from the peak of the parent process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise OSError("/proc/self/status has no VmHWM")


if __name__ == "__main__":
    main(sys.argv[1])
