"""Two processes cannot write into one folder: the second one says who has it, and changes nothing."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tools.faults.killed_runs import START, write_texts
from tools.faults.processes import Fault, Process

from synthattn.data.locks import LOCK, FolderInUseError, locked_file, locked_folder
from synthattn.training import record

pytestmark = pytest.mark.unchecked

STEP = "synthattn.training.trainer:SynthesizerTrainer.training_step"
COMPARE = ["compare", *START[1:], "--attention", "random,vanilla", "--steps", "3", "--set", "training.keep=last"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("locked")
    write_texts(folder / "data")
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def refused(place: Path, *arguments: str) -> str:
    """Run a command that must be refused; its one line of error."""
    process = Process(place / "second", list(arguments)).wait()
    assert process.code == 2, process.said
    lines = [
        line
        for line in process.said.splitlines()
        if not line.startswith(("run: ", "data: ", "plan: ", "all runs: ", "random"))
    ]
    assert len(lines) == 1, process.said
    return lines[0]


def test_a_run_belongs_to_one_process(place: Path):
    first = Process(place / "first", START, Fault(STEP, 3, what="wait")).until_waiting()
    run = place / "first" / "run"
    before = content(run)
    for arguments in ([*START, "--output", "../first/run"], ["train", "--resume", "../first/run"]):
        line = refused(place, *arguments)
        holder = rf"process {first.process.pid} on \S+ since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
        way_out = "wait until it ends, stop it, or choose another folder"
        assert re.fullmatch(rf"synthattn: ../first/run is in use by {holder}; {way_out}", line), line
    assert refused(place, "evaluate", "../first/run", "--output", "../first/run").endswith(way_out)
    assert content(run) == before
    (place / "first" / "go").touch()
    assert first.wait().code == 0, first.said
    assert record.load(run).status == "done"
    assert not (run / LOCK).exists()


def test_a_comparison_and_its_variants_belong_to_one_process(place: Path):
    first = Process(place / "compared", COMPARE, Fault(STEP, 2, what="wait")).until_waiting()
    before = content(place / "compared" / "run")
    assert "../compared/run is in use by" in refused(place, "compare", "--resume", "../compared/run")
    assert "runs/random-0 is in use by" in refused(place, "train", "--resume", "../compared/run/runs/random-0")
    assert content(place / "compared" / "run") == before
    first.process.kill()
    first.process.join()
    # The other way round: a variant that someone else trains stops the comparison, and has not failed.
    other = Process(place / "variant", ["train", "--resume", "../compared/run/runs/random-0"], Fault(STEP, what="wait"))
    other.until_waiting()
    assert "runs/random-0 is in use by" in refused(place, "compare", "--resume", "../compared/run")
    assert record.load(place / "compared" / "run" / "runs" / "random-0").status == "running"
    (place / "variant" / "go").touch()
    assert other.wait().code == 0, other.said
    assert record.load(place / "compared" / "run" / "runs" / "random-0").status == "done"


def test_nothing_is_left_of_a_lock(tmp_path: Path):
    with locked_folder(tmp_path / "new"):
        assert (tmp_path / "new" / LOCK).read_text().startswith(f"process {os.getpid()} on ")
        with pytest.raises(FolderInUseError), locked_folder(tmp_path / "new"):
            pass
        assert (tmp_path / "new" / LOCK).exists()
    assert not (tmp_path / "new").exists(), "it was made for nothing"
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / LOCK).write_text("of a process that was killed")
    with locked_folder(tmp_path / "old"):
        (tmp_path / "old" / "kept").touch()
    assert [file.name for file in (tmp_path / "old").iterdir()] == ["kept"]


def test_who_waits_for_a_lock_that_is_removed_takes_the_new_one(tmp_path: Path):
    path = tmp_path / LOCK
    code = "import sys; from pathlib import Path; from synthattn.data.locks import locked_file\n"
    code += (
        "with locked_file(Path(sys.argv[1]), wait=True) as mine: print(mine, Path(sys.argv[1]).exists(), flush=True)"
    )
    with locked_file(path) as mine:
        assert mine
        waits = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
        descriptors = Path(f"/proc/{waits.pid}/fd")
        while not any(os.path.realpath(one) == str(path) for one in descriptors.iterdir()):
            assert waits.poll() is None
            time.sleep(0.02)
        path.unlink()
    assert waits.communicate(timeout=60)[0] == "True True\n"


def test_a_forked_child_does_not_keep_the_lock(tmp_path: Path):
    code = (
        "import os, sys, time; from pathlib import Path; from synthattn.data.locks import locked_folder\n"
        "with locked_folder(Path(sys.argv[1])):\n"
        "    child = os.fork()\n"
        "    if not child: print(os.getpid(), flush=True)\n"
        "    time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    child = int(process.stdout.readline())
    try:
        with pytest.raises(FolderInUseError, match=f"process {process.pid} on "), locked_folder(tmp_path):
            pass
        process.kill()
        process.wait()
        with locked_folder(tmp_path):
            os.kill(child, 0)  # it still runs
    finally:
        os.kill(child, signal.SIGKILL)
        process.stdout.close()
