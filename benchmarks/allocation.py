"""What it brings to keep freed memory: ``allocation.py [--turns 20] [--json FILE]``.

Two processes train the same model on the same batches in turns, one as torch leaves it, one as ``synthattn train``
does.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

import torch
from overhead import TASKS, bare, settings

from synthattn.training.memory import keep_memory
from synthattn.training.run import prepare_data

STEPS = 3
"""In a turn."""
WARM_UP = 2


def child(task: str, keep: bool, preset: str, batch_tokens: int, threads: int) -> None:
    """Make a turn for every line read, and say how long it took."""
    torch.set_num_threads(threads)
    if keep and not keep_memory():
        sys.exit("memory cannot be kept here: not glibc, or the environment has settings of its own")
    chosen = settings(task, "vanilla", preset, batch_tokens, 10_000)
    steps = bare(chosen, prepare_data(chosen))
    for _ in sys.stdin:
        print(sum(next(steps) for _ in range(STEPS)), flush=True)


def turn(process: subprocess.Popen[str]) -> float:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        sys.exit("a process ended; what it said is above")
    return float(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--preset", default="cpu")
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.turns < 2:
        sys.exit(f"--turns must be at least 2, got {chosen.turns}")
    if chosen.child:
        task, kind = chosen.child
        return child(task, kind == "kept", chosen.preset, chosen.batch_tokens, chosen.threads)
    found = {}
    options = [f"--preset={chosen.preset}", f"--batch-tokens={chosen.batch_tokens}", f"--threads={chosen.threads}"]
    for task in TASKS:
        processes = {
            kind: subprocess.Popen(
                [sys.executable, __file__, *options, "--child", task, kind],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for kind in ("given back", "kept")
        }
        try:
            turns = range(WARM_UP + chosen.turns)
            times = [{kind: turn(process) for kind, process in processes.items()} for _ in turns]
        finally:
            for process in processes.values():
                process.kill()
        ratios = [one["given back"] / one["kept"] for one in times[WARM_UP:]]
        low, middle, high = statistics.quantiles(ratios, n=4)
        found[task] = {"ratio": middle, "low": low, "high": high, "steps": STEPS * chosen.turns}
        print(
            f"{task}: training is {middle:.2f} times as fast when memory is kept (quartiles {low:.2f} to {high:.2f}, "
            f"{chosen.turns} turns of {STEPS} steps)",
            flush=True,
        )
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(vars(chosen) | {"json": str(chosen.json), "tasks": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
