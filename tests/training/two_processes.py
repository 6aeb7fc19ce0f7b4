"""Call a function in two processes, with the variables that torchrun sets.

The processes are forked from one that has imported everything: torchrun would import it once for each.
"""

import gc
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tools.faults.processes import FORKS

WORLD = 2


def in_two_processes(function: Callable[..., Any], folder: Path, seconds: float = 400) -> str:
    """Call ``function(folder)`` in both processes, and return what they print."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = [FORKS.Process(target=_call, args=(function, folder, rank, port)) for rank in range(WORLD)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(seconds)
        if process.exitcode != 0:  # the other would wait for it
            for one in processes:
                one.kill()
    said = "".join((folder / f"said-{rank}").read_text() for rank in range(WORLD))
    assert [process.exitcode for process in processes] == [0] * WORLD, said
    return said


def _call(function: Callable[..., Any], folder: Path, rank: int, port: int) -> None:
    said = os.open(folder / f"said-{rank}", os.O_WRONLY | os.O_CREAT)
    os.dup2(said, 1)
    os.dup2(said, 2)
    places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": WORLD, "LOCAL_WORLD_SIZE": WORLD}
    os.environ |= {name: str(number) for name, number in (places | {"MASTER_PORT": port}).items()}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "SYNTHATTN_CACHE": str(folder / "cache")}
    torch.set_num_threads(1)
    gc.freeze()  # every run collects garbage, among all that the imports made
    function(folder)
    sys.stdout.flush()
