"""Several processes that make the runs of one table."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from synthattn.compare import executors
from synthattn.compare.executors import held
from synthattn.data import locks

pytestmark = pytest.mark.unchecked


class Folders:
    """A folder for each run."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def run(self, run):
        return self.place / run


class Runs:
    """Stands for an execution: runs are folders, of which those named ``rate`` come before the others."""

    def __init__(self, place: Path) -> None:
        self.place, self.made = place, []

    @property
    def places(self):
        return Folders(self.place)

    def done(self, job):
        return (self.place / f"{job}.json").exists()

    def ready(self, job):
        return job.startswith("rate") or self.done("rate")

    def run(self, job):
        assert self.ready(job)
        self.made.append(job)
        time.sleep(0.02)
        (self.place / f"{job}.json").touch()


def shared(runs: Any, jobs: Any, seconds: float = 0.01) -> Any:
    for number, execution, job in executors.shared([(runs, job) for job in jobs], seconds):
        assert execution is runs
        yield number, job


def work(runs, jobs):
    for _, job in shared(runs, jobs):
        runs.run(job)


def test_every_run_is_made_once(tmp_path):
    jobs = ["rate", *(f"row-{number}" for number in range(8))]
    everybody = [Runs(tmp_path) for _ in range(3)]
    threads = [threading.Thread(target=work, args=(runs, jobs)) for runs in everybody]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(job for runs in everybody for job in runs.made) == sorted(jobs)
    assert sum(bool(runs.made) for runs in everybody) > 1


def test_a_run_that_another_process_has_is_waited_for(tmp_path):
    runs = Runs(tmp_path)
    numbers = []
    with held(tmp_path / "rate") as mine:
        assert mine
        thread = threading.Thread(target=lambda: numbers.extend(shared(runs, ["rate", "row"])))
        thread.start()
        time.sleep(0.1)
        assert thread.is_alive()
        assert not numbers
        runs.run("rate")
    thread.join(20)
    assert numbers == [(2, "row")]  # the other is done


def test_another_table_goes_on_meanwhile(tmp_path):
    first, second = Runs(tmp_path / "first"), Runs(tmp_path / "second")
    tasks: Any = [(first, "rate"), (first, "row"), (second, "rate"), (second, "row")]
    made = []
    with held(tmp_path / "first" / "rate"):
        found = executors.shared(tasks, 0.01)
        for _ in range(2):
            _, execution, job = next(found)
            execution.run(job)
            made.append((execution, job))
        first.run("rate")
    made += [(execution, job) for _, execution, job in found]
    assert made == [(second, "rate"), (second, "row"), (first, "row")]


def test_a_run_of_a_process_that_was_stopped_is_taken_over(tmp_path):
    with held(tmp_path / "rate") as mine:
        assert mine
    assert [job for _, job in shared(Runs(tmp_path), ["rate"])] == ["rate"]


def test_held_once(tmp_path):
    with held(tmp_path / "a") as first, held(tmp_path / "a") as second, held(tmp_path / "b") as other:
        assert (first, second, other) == (True, False, True)


def test_what_is_not_ready_is_an_error_of_its_own_where_nobody_else_works(tmp_path):
    """It is handed out, so that making it says what is missing; waiting for nobody would never end."""
    assert [job for _, job in shared(Runs(tmp_path), ["row"], seconds=60)] == ["row"]


def test_processes_of_torchrun_make_every_run_together(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with held(tmp_path / "rate"):
        assert [job for _, job in shared(Runs(tmp_path), ["rate", "row"])] == ["rate", "row"]


@pytest.mark.parametrize("system", ["without locks", "a file system without locks"])
def test_where_there_are_no_locks_everything_is_ones_own(system, tmp_path, monkeypatch):
    import fcntl

    def fail(*_):
        raise OSError

    if system == "without locks":
        monkeypatch.setattr(locks, "fcntl", None)
    else:
        monkeypatch.setattr(fcntl, "flock", fail)
    with held(tmp_path / "a") as first, held(tmp_path / "a") as second:
        assert first
        assert second
