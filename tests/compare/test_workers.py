"""Runs in several processes: equal results, also after workers were killed."""

import dataclasses
import hashlib
import os
import signal
import sys
from pathlib import Path

import pytest
from test_compare import data, tiny  # noqa: F401 (a fixture)

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


class _Killer(Display):
    """Kills all workers once a run has two checkpoints, the first of which is surely in its record."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.killed: list[int] = []
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
            self.killed = worker_processes()
            for process in self.killed:
                os.kill(process, signal.SIGKILL)


def worker_processes() -> list[int]:
    """Return the children of this process that are workers."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if parent == os.getpid() and b"synthattn.compare.workers" in command:
                found.append(int(entry.name))
    return found


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds processes in /proc")
def test_weights_and_scores_are_equal_with_two_processes_that_are_killed(data, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr(thresholds, "FUSED_KEYS", FUSED_KEYS)
    settings = tiny(data / "classes", "classification", steps=160, evaluate_every=4, save_every=4)
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
    assert not worker_processes()


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

    def interrupt(label: str) -> Display:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pool_of(tmp_path / "new", interrupt)
    assert not worker_processes()


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
