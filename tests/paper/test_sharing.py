"""Several processes that make the runs of one table."""

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from synthattn.compare import executors, schedule
from synthattn.compare.schedule import Schedule, held, unfinished
from synthattn.data import locks

pytestmark = pytest.mark.unchecked


class Runs:
    """Stands for an execution: runs are folders, of which those named ``rate`` come before the others."""

    def __init__(self, place: Path, log: list[Any] | None = None) -> None:
        self.place, self.made = place, []
        self.log = [] if log is None else log
        self.places = SimpleNamespace(run=lambda job: place / job.name)

    def done(self, job):
        return (self.place / f"{job.name}.json").exists()

    def ready(self, job):
        return job.name.startswith("rate") or (self.place / "rate.json").exists()

    def run(self, job):
        if not self.ready(job):
            raise ValueError("the rate is missing")
        self.made.append(job.name)
        self.log.append((self.place.name, job.name))
        time.sleep(0.02)
        (self.place / f"{job.name}.json").touch()


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(executors, "INTERVAL", 0.01)
    monkeypatch.setattr(schedule, "PAUSE", 0.01)


def tasks(runs: Any, *names: str) -> Any:
    place = SimpleNamespace(name=runs.place.name, scale="")
    return [(runs, SimpleNamespace(name=name, study=place, part=place)) for name in names]


def work(*found: Any, announced: Any = None) -> None:
    told = [] if announced is None else announced
    executors.make_here(Schedule(unfinished(list(found)), lambda number, *rest: told.append(number), lambda: None))


def working(*found: Any) -> threading.Thread:
    thread = threading.Thread(target=lambda: work(*found))
    thread.start()
    return thread


def test_every_run_is_made_once(tmp_path):
    names = ["rate", *(f"row-{number}" for number in range(8))]
    everybody = [Runs(tmp_path) for _ in range(3)]
    for thread in [working(*tasks(runs, *names)) for runs in everybody]:
        thread.join(20)
    assert sorted(job for runs in everybody for job in runs.made) == sorted(names)
    assert sum(bool(runs.made) for runs in everybody) > 1


def test_a_run_that_another_process_has_is_waited_for(tmp_path):
    runs = Runs(tmp_path)
    (job,) = tasks(runs, "rate")
    with held(tmp_path / "rate") as mine:
        assert mine
        thread = working(job, *tasks(runs, "row"))
        time.sleep(0.1)
        assert thread.is_alive()
        assert not runs.made
        runs.run(job[1])
    thread.join(20)
    assert runs.made == ["rate", "row"]  # the first by the other


def test_another_table_goes_on_meanwhile(tmp_path):
    log: list[Any] = []
    first, second = Runs(tmp_path / "first", log), Runs(tmp_path / "second", log)
    found = [*tasks(first, "rate", "row"), *tasks(second, "rate", "row")]
    with held(tmp_path / "first" / "rate"):
        thread = working(*found)
        time.sleep(0.3)
        assert log == [("second", "rate"), ("second", "row")]
        first.run(found[0][1])
    thread.join(20)
    assert log[2:] == [("first", "rate"), ("first", "row")]


def test_a_run_of_a_process_that_was_stopped_is_taken_over(tmp_path):
    runs = Runs(tmp_path)
    with held(tmp_path / "rate"):
        thread = working(*tasks(runs, "rate"))
        time.sleep(0.1)
    thread.join(20)
    assert runs.made == ["rate"]


def test_each_run_is_announced_once(tmp_path):
    runs, numbers = Runs(tmp_path), []
    with held(tmp_path / "rate"):
        thread = threading.Thread(target=lambda: work(*tasks(runs, "rate", "row"), announced=numbers))
        thread.start()
        time.sleep(0.1)
    thread.join(20)
    assert numbers == [1, 2]


def test_held_once(tmp_path):
    with held(tmp_path / "a") as first, held(tmp_path / "a") as second, held(tmp_path / "b") as other:
        assert (first, second, other) == (True, False, True)


def test_what_is_not_ready_is_an_error_of_its_own_where_nobody_else_works(tmp_path):
    """It is handed out, so that making it says what is missing; waiting for nobody would never end."""
    with pytest.raises(ValueError, match="the rate is missing"):
        work(*tasks(Runs(tmp_path), "row"))


def test_processes_of_torchrun_make_every_run_together(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    runs = Runs(tmp_path)
    with held(tmp_path / "rate"):
        work(*tasks(runs, "rate", "row"))
    assert runs.made == ["rate", "row"]


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
