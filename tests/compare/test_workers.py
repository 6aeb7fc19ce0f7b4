"""Runs in several processes: equal results, also after workers were killed."""

import dataclasses
import hashlib
import os
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_compare import data, tiny  # noqa: F401 (a fixture)
from tools.faults.processes import FORKS

from synthattn.compare import workers
from synthattn.compare.compare import compare
from synthattn.compare.comparison import Comparison, load_comparison, open_tasks
from synthattn.compare.executors import Executor
from synthattn.compare.records import load as load_record
from synthattn.compare.schedule import PlanSource
from synthattn.engine import thresholds
from synthattn.training import checkpoints, record
from synthattn.training.progress import Display

pytestmark = pytest.mark.unchecked

FUSED_KEYS = thresholds.FUSED_KEYS  # as other processes have it: tests lower it in this one


def weights(folder: Path) -> dict[str, str]:
    files = sorted((folder / "runs").glob("*/model/model.safetensors"))
    return {file.parts[-3]: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def scores(folder: Path) -> dict[str, object]:
    return {file.stem: load_record(file).record.scores for file in sorted((folder / "runs").glob("*.json"))}


class _Forked:
    """A worker in place of ``subprocess.Popen``, forked from a process that has imported all that takes seconds."""

    started: "list[_Forked]"

    def __init__(self, command: list[str], stderr: Any, env: dict[str, str], text: bool, **options: Any) -> None:
        assert (options["start_new_session"], text, command[:2]) == (True, True, [sys.executable, "-m"])
        (there, mine), (out, theirs) = FORKS.Pipe(duplex=False), FORKS.Pipe(duplex=False)
        self.process = FORKS.Process(target=_work, args=(there, theirs, command[2], env))
        self.process.start()
        self.stdin = os.fdopen(os.dup(mine.fileno()), "w", encoding="utf-8")
        self.stdout = os.fdopen(os.dup(out.fileno()), encoding="utf-8")
        for pipe in (there, theirs, mine, out):
            pipe.close()
        self.started.append(self)

    def kill(self) -> None:
        self.process.kill()

    def wait(self) -> int | None:
        self.process.join()
        return self.process.exitcode


def _work(stdin: Any, stdout: Any, module: str, variables: dict[str, str]) -> None:
    os.setsid()
    os.environ |= variables
    for place, pipe in ((0, stdin), (1, stdout)):
        os.dup2(pipe.fileno(), place)
        pipe.close()
    sys.stdin, sys.stdout = os.fdopen(0, encoding="utf-8"), os.fdopen(1, "w", encoding="utf-8")
    runpy.run_module(module, run_name="__main__")


class _Killer(Display):
    """Kills all workers once a run has two checkpoints, the first of which is surely in its record."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.killed: list[_Forked] = []
        self.labels: list[str] = []
        self.shares: list[float] = []

    def named(self, label: str) -> Display:
        self.labels.append(label)
        return self

    def overall(self, part: float, left: str) -> None:
        self.shares.append(part)

    def step(self, step: int, steps: int, facts: dict[str, str]) -> None:
        runs = [run for run in (self.folder / "runs").iterdir() if run.is_dir()]
        if not self.killed and any(len(checkpoints.checkpoints(run)) > 1 for run in runs):
            self.killed = list(_Forked.started)
            for worker in self.killed:
                worker.kill()


def test_weights_and_scores_are_equal_with_two_processes_that_are_killed(data, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr(thresholds, "FUSED_KEYS", FUSED_KEYS)
    monkeypatch.setattr(workers, "subprocess", SimpleNamespace(Popen=_Forked, PIPE=subprocess.PIPE))
    monkeypatch.setattr(_Forked, "started", [], raising=False)
    settings = tiny(data / "classes", "classification", steps=96, evaluate_every=48, save_every=8)
    comparison = Comparison(settings, ("vanilla", "random"), threads=1)
    compare(comparison, tmp_path / "alone", jobs=1)
    killer = _Killer(tmp_path / "both")
    compare(comparison, tmp_path / "both", killer.named, jobs=2)
    assert len(killer.killed) == 2
    assert {"vanilla", "random", "all runs"} <= set(killer.labels)
    assert killer.shares[-1] == 1
    starts = [record.load(run).times["starts"] for run in (tmp_path / "both" / "runs").iterdir() if run.is_dir()]
    assert max(starts) == 2
    assert len(weights(tmp_path / "alone")) == 2
    assert weights(tmp_path / "both") == weights(tmp_path / "alone")
    assert scores(tmp_path / "both") == scores(tmp_path / "alone")
    assert [worker.process.is_alive() for worker in _Forked.started] == [False] * 4


def begun(data: Path, folder: Path) -> None:  # noqa: F811
    folder.mkdir()
    Comparison(tiny(data / "classes", "classification"), ("vanilla", "random"), threads=1).save(folder)


def pool_of(folder: Path, display=lambda label: Display()) -> None:
    tasks = open_tasks(display, str(folder))
    source = PlanSource("synthattn.compare.comparison:open_tasks", {"folder": str(folder)})
    Executor().execute(tasks, source, jobs=2, threads=1)


def test_a_run_whose_process_always_dies_is_given_up(data, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr(workers, "COMMAND", [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"])
    begun(data, tmp_path / "new")
    pool_of(tmp_path / "new")
    found = [load_record(file).record for file in sorted((tmp_path / "new" / "runs").glob("*.json"))]
    assert [one.status for one in found] == ["failed", "failed"]
    assert found[0].reason == (
        "given up after 4 tries: its process was killed (signal 9), which is what systems do when memory runs out"
    )


def test_the_last_words_of_a_process_are_in_the_reason(data, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr(workers, "COMMAND", [sys.executable, "-c", "raise SystemExit('no such library')"])
    begun(data, tmp_path / "new")
    pool_of(tmp_path / "new")
    reason = load_record(tmp_path / "new" / "runs" / "vanilla-0.json").record.reason
    assert reason == "given up after 4 tries: its process ended with code 1: no such library"


ECHO = """
import json, sys
sys.stdin.readline()
for line in sys.stdin:
    print(json.dumps({outcome}), flush=True)
"""


def test_a_mistake_that_a_worker_finds_ends_all(data, tmp_path, monkeypatch):  # noqa: F811
    outcome = {"failed": ["the tokenizer has changed"]}
    monkeypatch.setattr(workers, "COMMAND", [sys.executable, "-c", ECHO.replace("{outcome}", repr(outcome))])
    begun(data, tmp_path / "new")
    with pytest.raises(ValueError, match=r"^the tokenizer has changed$"):
        pool_of(tmp_path / "new")


def test_workers_stop_with_their_parent(data, tmp_path, monkeypatch):  # noqa: F811
    """An interrupt closes the input of each worker; nothing is left running."""
    begun(data, tmp_path / "new")
    waiting = "import sys, json; print(json.dumps({'display': ['a run']}), flush=True); sys.stdin.read()"
    monkeypatch.setattr(workers, "COMMAND", [sys.executable, "-c", waiting])

    started = []

    def start(*arguments: Any, **options: Any) -> Any:
        started.append(subprocess.Popen(*arguments, **options))
        return started[-1]

    def interrupt(label: str) -> Display:
        raise KeyboardInterrupt

    monkeypatch.setattr(workers, "subprocess", SimpleNamespace(Popen=start, PIPE=subprocess.PIPE))
    with pytest.raises(KeyboardInterrupt):
        pool_of(tmp_path / "new", interrupt)
    assert [process.returncode for process in started] == [0, 0]


def test_variables_of_a_worker(monkeypatch):
    monkeypatch.delenv(workers.DEVICES, raising=False)
    assert workers.environment(1, 3) == {"OMP_NUM_THREADS": "3"}
    monkeypatch.setenv(workers.DEVICES, "4,6")
    assert [workers.environment(n, 1)[workers.DEVICES] for n in range(3)] == ["4", "6", "4"]


def test_the_number_of_threads_is_saved(data, tmp_path):  # noqa: F811
    comparison = Comparison(tiny(data / "classes", "classification"), ("vanilla",), threads=3)
    comparison.save(tmp_path)
    assert load_comparison(tmp_path) == comparison
    with pytest.raises(ValueError, match="threads must be at least 1, got 0"):
        dataclasses.replace(comparison, threads=0)
