"""What goes wrong in a long run: it is killed, interrupted, its files are damaged, the disk or the memory is full.

Runs are processes that are forked after all imports, so that a run takes a second and many can be killed.

``python tests/unchecked/test_faults.py --kills 10`` kills a run ten times at random moments; the tests do it three
times, and once at each place where something could be half done.
"""

import argparse
import contextlib
import gc
import importlib
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch

from synthattn.cli.app import main
from synthattn.training import checkpoints, record, run
from synthattn.training.settings import TrainingSettings

FORKS = multiprocessing.get_context("forkserver")
# Those that are imported late as well: a name that is not there does no harm.
FORKS.set_forkserver_preload(["synthattn.cli.train", "synthattn.comparison.compare", "pytest", "typer._adapters"])

STEPS, SAVE_EVERY, LOG_EVERY = 18, 3, 3
OPTIONS = ["--data", "../data", "--task", "sentence-modeling", "--preset", "tiny", "--attention", "random+dense"]
OPTIONS += ["--vocab-size", "120", "--steps", str(STEPS), "--batch-tokens", "150", "--output", "run"]
SETTINGS = {
    "data.tokenizer": "words",
    "model.dropout": 0.1,
    "training.warmup": 5,
    "training.log_every": LOG_EVERY,
    "training.save_every": SAVE_EVERY,
    "training.evaluate_every": 7,
    "training.keep": "average",
}
START = ["train", *OPTIONS, *(text for name, value in SETTINGS.items() for text in ("--set", f"{name}={value}"))]
RESUME = ["train", "--resume", "run"]
WAIT = 120


@dataclass(frozen=True)
class Fault:
    """Something that happens to a process, at the first or a later call of a function."""

    place: str
    call: int = 1
    when: Literal["before", "after"] = "before"
    what: Literal["kill", "interrupt", "terminate", "interrupt twice", "memory", "nan", "slow"] = "kill"


class Process:
    """``synthattn`` in a process of its own, in a folder where what it prints is kept."""

    def __init__(self, folder: Path, arguments: list[str], *faults: Fault, file_size: int | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.process = FORKS.Process(target=_command, args=(str(folder), arguments, faults, file_size))
        self.process.start()

    def wait(self) -> "Process":
        self.process.join(WAIT)
        if self.process.exitcode is None:
            self.process.kill()
            raise AssertionError(f"still running after {WAIT} s: {self.said}")
        return self

    def kill_after(self, seconds: float) -> bool:
        """Whether there was something left to kill."""
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
    # A shell that runs the tests in the background makes them deaf to Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.set_num_threads(1)
    gc.freeze()  # every run collects garbage, among all that the imports made
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
    elif fault.what == "memory":
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory")
    elif fault.what != "nan":
        kind = {"kill": signal.SIGKILL, "terminate": signal.SIGTERM}.get(fault.what, signal.SIGINT)
        for _ in range(2 if fault.what == "interrupt twice" else 1):
            os.kill(os.getpid(), kind)


def write_texts(folder: Path) -> None:
    draw = random.Random(0)
    words = [f"w{n}" for n in range(29)]
    folder.mkdir(parents=True)
    for split, count in (("train", 211), ("validation", 13), ("test", 11)):
        lines = [" ".join(draw.choices(words, k=draw.randint(3, 12))) for _ in range(count)]
        (folder / f"{split}.txt").write_text("\n".join(lines) + "\n")


def begin(folder: Path) -> list[str]:
    """How to start a run, or to go on with it."""
    return RESUME if (folder / "run" / run.SETTINGS).is_file() else START


def assert_same(found: Path, expected: Path) -> None:
    """The same model to the last bit, and the same record; nothing else is left."""
    weights = [(folder / "run" / run.MODEL / checkpoints.WEIGHTS).read_bytes() for folder in (found, expected)]
    assert weights[0] == weights[1], "other weights"
    records = [asdict(record.load(folder / "run")) for folder in (found, expected)]
    for name in set(records[1]) - {"times", "versions"}:
        assert records[0][name] == records[1][name], name
    rows = [np.load(folder / "run" / "rows.npz") for folder in (found, expected)]
    assert all(np.array_equal(rows[0][name], rows[1][name]) for name in rows[1].files)
    assert {f.name for f in (found / "run").iterdir()} == {f.name for f in (expected / "run").iterdir()}


def reference(folder: Path, start: list[str] = START) -> tuple[Path, float]:
    """A run that nothing happened to, and how long it took."""
    if not (folder / "data").is_dir():
        write_texts(folder / "data")
    first = FORKS.Process(target=int)  # imports everything, once
    first.start()
    first.join()
    started = time.monotonic()
    process = Process(folder / "reference", start).wait()
    assert process.code == 0, process.said
    return folder / "reference", time.monotonic() - started


def random_kills(expected: Path, seconds: float, kills: int, seed: int, start: list[str] = START) -> None:
    """Kill a run again and again at random moments, and see that what comes of it is what comes without."""
    draw = random.Random(seed)
    done = attempt = 0
    while True:
        place = expected.parent / f"killed-{attempt}"
        # Slow writing gives a kill a chance to hit it.
        began = time.time()
        process = Process(place, start if begin(place) is START else RESUME, Fault("os:fsync", what="slow"))
        if done < kills and process.kill_after(draw.uniform(0, seconds)):
            done += 1
            print(f"kill {done} after {time.time() - began:.2f} s: {state(place / 'run', began)}")
            continue
        process.wait()
        assert process.code == 0, process.said
        assert_same(place, expected)
        print("ended, the same to the last bit")
        if done == kills:
            return
        attempt += 1  # it ended before it was killed often enough


def state(folder: Path, began: float) -> str:
    """What a kill left behind."""
    if not (folder / run.SETTINGS).is_file():
        return "before it had begun"
    if (folder / run.MODEL).is_dir():
        return "while scoring"
    if (folder / f"{run.MODEL}.part").is_dir():
        return "while the model was written"
    found = checkpoints.checkpoints(folder)
    half = [one.name for one in found if checkpoints.damage(one) and one.stat().st_mtime > began]
    whole = [one.name for one in found if not checkpoints.damage(one)]
    return f"after {whole[0] if whole else 'no checkpoint'}" + (f", while {half[0]} was written" if half else "")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, float]:
    """A folder with data, and in it a run that nothing happened to, and how long that took."""
    folder = tmp_path_factory.mktemp("faults")
    return folder, *reference(folder)


def test_kills_at_random_moments(place):
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    random_kills(place[1], place[2], 3, seed)


# One run is killed at each of these places in turn, and goes on after each.
PLACES = [
    Fault("synthattn.training.record:versions"),
    Fault("pathlib:Path.replace"),  # the record is written, but does not have its name yet
    Fault("pathlib:Path.replace", 2),  # nor do the settings
    Fault("synthattn.training.prepare:_encode"),
    Fault("synthattn.training.trainer:SynthesizerTrainer.training_step", 3),
    Fault("torch:save"),  # the weights are there, the state of the optimizer is not
    Fault("synthattn.training.checkpoints:seal", 2),
    Fault("synthattn.training.keeping:Keeper.on_save"),
    Fault("shutil:rmtree", 2),  # an old checkpoint is removed; the first is what the seal was missing from
    Fault("synthattn.training.trainer:SynthesizerTrainer.evaluate", 2),
    Fault("synthattn.training.checkpoints:average"),
    Fault("pathlib:Path.rename"),
    Fault("pathlib:Path.rename", when="after"),
    Fault("synthattn.training.run:evaluate"),
    Fault("synthattn.training.run:_tidy"),
]


def test_a_kill_at_every_place(place):
    folder = place[0] / "everywhere"
    for fault in PLACES:
        process = Process(folder, begin(folder), fault).wait()
        assert process.code == -signal.SIGKILL, f"{fault} was never reached: {process.said}"
    process = Process(folder, begin(folder)).wait()
    assert process.code == 0, process.said
    assert "run is done already" in process.said
    assert_same(folder, place[1])


def test_patience_is_kept(place):
    """A run that stops early stops at the same step after a kill, also after one right before the end."""
    whole, killed = place[0] / "patient", place[0] / "impatient"
    impatient = ["--set", "training.learning_rate=3.0", "--set", "training.patience=2"]
    start = [*START, *impatient, "--set", "training.evaluate_every=3", "--set", "training.clip=0"]
    process = Process(whole, start).wait()
    assert process.code == 0, process.said
    found = record.load(whole / "run")
    assert found.best_step is not None
    assert found.steps == found.best_step + 6 < STEPS, "it did not stop early"
    looks = found.steps // 3
    # Before the last look, and after it.
    process = Process(killed, start, Fault("synthattn.training.trainer:SynthesizerTrainer.evaluate", looks)).wait()
    assert process.code == -signal.SIGKILL, process.said
    process = Process(killed, RESUME, Fault("synthattn.training.run:_finish")).wait()
    assert process.code == -signal.SIGKILL, process.said
    process = Process(killed, RESUME).wait()
    assert process.code == 0, process.said
    assert_same(killed, whole)


@pytest.fixture
def stopped(place, tmp_path) -> Path:
    """A run that was killed when it had two whole checkpoints, of steps 3 and 6."""
    for name in ("data", "cache"):
        (tmp_path / name).symlink_to(place[0] / name)
    folder = tmp_path / "stopped"
    process = Process(folder, START, Fault("synthattn.training.trainer:SynthesizerTrainer.training_step", 8)).wait()
    assert process.code == -signal.SIGKILL, process.said
    assert [checkpoints.step_of(one) for one in checkpoints.checkpoints(folder / "run")] == [6, 3]
    return folder


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "half written": (lambda folder: (folder / checkpoints.SEAL).unlink(), "is only half written, and is not used"),
    "a flipped bit": (lambda folder: flip(folder / "optimizer.pt"), "has a damaged optimizer.pt, and is not used"),
    "a missing file": (lambda folder: (folder / "model.safetensors").unlink(), "lacks model.safetensors, and is not"),
    "cut short": (lambda folder: os.truncate(folder / "rng_state.pth", 99), "has a damaged rng_state.pth, and is not"),
    "a damaged seal": (lambda folder: (folder / checkpoints.SEAL).write_text("{"), "cannot be read: "),
}


def test_the_last_whole_checkpoint_is_used(stopped):
    """Each damage to the newest one: the one before it is found, and the user is told."""
    for make, message in DAMAGE.values():
        shutil.copytree(stopped / "run", stopped / "copy")
        make(stopped / "copy" / "checkpoint-6")
        found, complaints = checkpoints.last_good(stopped / "copy")
        assert found == stopped / "copy" / "checkpoint-3"
        assert len(complaints) == 1
        assert complaints[0].startswith(f"checkpoint-6 {message}")
        shutil.rmtree(stopped / "copy")


@pytest.mark.parametrize("both", [False, True], ids=["one damaged", "all damaged"])
def test_a_damaged_run_goes_on(stopped, place, both):
    flip(stopped / "run" / "checkpoint-6" / "model.safetensors")
    if both:
        (stopped / "run" / "checkpoint-3" / checkpoints.SEAL).unlink()
    process = Process(stopped, RESUME).wait()
    assert process.code == 0, process.said
    assert "run: checkpoint-6 has a damaged model.safetensors, and is not used" in process.said
    assert ("run: checkpoint-3 is only half written, and is not used" in process.said) == both
    assert ("going on from step 3" in process.said) == (not both)
    assert ("starting from the beginning" in process.said) == both
    assert_same(stopped, place[1])


def errors(process: Process) -> list[str]:
    """What it says on its way out: the lines that do not tell how training goes."""
    return [line for line in process.said.splitlines() if not line.startswith("run: ")]


def test_files_that_cannot_be_written(stopped, place):
    """A limit to the size of files is as good as a full disk: the weights fit, the optimizer's state does not."""
    size = (stopped / "run" / "checkpoint-6" / "model.safetensors").stat().st_size
    process = Process(stopped, RESUME, file_size=size + 20_000).wait()
    assert process.code == 2, process.said
    assert len(errors(process)) == 1, process.said
    assert "synthattn: cannot write a checkpoint at step 9: " in process.said
    assert "; checkpoint-6 is whole" in process.said
    failed = record.load(stopped / "run")
    assert failed.status == "failed"
    assert failed.reason.startswith("cannot write a checkpoint at step 9")
    assert [one.name for one in checkpoints.checkpoints(stopped / "run")] == ["checkpoint-6", "checkpoint-3"]
    process = Process(stopped, RESUME).wait()
    assert process.code == 0, process.said
    assert_same(stopped, place[1])


@pytest.mark.parametrize("what", ["interrupt", "terminate"])
def test_a_signal_saves_and_says_how_to_go_on(what, place):
    """In the middle of a point of the loss curve, which is drawn as if nothing had happened."""
    folder = place[0] / what
    fault = Fault("synthattn.training.trainer:SynthesizerTrainer.training_step", 17, what=what)
    process = Process(folder, START, fault).wait()
    assert process.code == 130, process.said
    expected = "stopped at step 17; everything up to there is saved in run. Go on with: synthattn train --resume run"
    assert errors(process) == [expected]
    assert record.load(folder / "run").status == "stopped"
    process = Process(folder, RESUME).wait()
    assert process.code == 0, process.said
    assert "going on from step 17" in process.said
    assert_same(folder, place[1])


@pytest.mark.parametrize("where", ["training", "preparing", "scoring"])
def test_a_signal_that_ends_it_at_once(where, place):
    """The second one in training; elsewhere there is nothing to save, and the first one does."""
    folder = place[0] / f"at-once-{where}"
    fault = {
        "training": Fault("synthattn.training.trainer:SynthesizerTrainer.training_step", 5, what="interrupt twice"),
        "preparing": Fault("synthattn.training.prepare:_encode", what="terminate"),
        "scoring": Fault("synthattn.training.run:evaluate", what="interrupt"),
    }[where]
    process = Process(folder, START, fault).wait()
    assert process.code == 130, process.said
    assert errors(process) == ["stopped. Go on with: synthattn train --resume run"]
    process = Process(folder, RESUME).wait()
    assert process.code == 0, process.said
    assert_same(folder, place[1])


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (
            Fault("synthattn.training.trainer:SynthesizerTrainer.compute_loss", 5, "after", "nan"),
            "the loss is nan at step 5, on a batch of ",
        ),
        (
            Fault("synthattn.models.stack:Stack.forward", 5, "before", "memory"),
            "out of memory: lower training.batch_tokens (now 150) and raise training.accumulation (now 1) as much, "
            "or set training.gradient_checkpointing=true",
        ),
    ],
    ids=["no number", "memory"],
)
def test_a_run_that_fails_says_why(fault, message, place):
    folder = place[0] / fault.what
    process = Process(folder, START, fault).wait()
    assert process.code == 2, process.said
    assert len(errors(process)) == 1, process.said
    assert errors(process)[0].startswith(f"synthattn: {message}")
    failed = record.load(folder / "run")
    assert failed.status == "failed"
    assert failed.reason.startswith(message)
    assert failed.steps == 3, "what the last checkpoint had"
    if fault.what == "nan":
        assert failed.reason.endswith("tokens; lower training.learning_rate (now 0.001) or lengthen training.warmup")


def test_a_comparison_says_which_variant_failed(place):
    folder = place[0] / "compared"
    options = [*START[1:], "--attention", "random,dense", "--steps", "3", "--set", "training.keep=last"]
    # The fourth step is the first one of the second.
    fault = Fault("synthattn.training.trainer:SynthesizerTrainer.compute_loss", 4, "after", "nan")
    process = Process(folder, ["compare", *options], fault).wait()
    assert process.code == 0, process.said
    rows = {one["attention"]: one for one in json.loads((folder / "run" / "results.json").read_text())["variants"]}
    assert rows["random"]["status"] == "done"
    assert rows["dense"]["status"] == "failed"
    assert rows["dense"]["reason"].startswith("the loss is nan at step 1")


@pytest.mark.parametrize("amx", [False, True])
def test_bf16_is_for_those_who_have_it(amx, monkeypatch):
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with contextlib.nullcontext() if amx else pytest.raises(ValueError, match=r"no AMX; use fp32$"):
        run.check_hardware(TrainingSettings(precision="bf16"))


@contextlib.contextmanager
def typed(arguments: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "argv", ["synthattn", *arguments])
    monkeypatch.chdir(folder)
    monkeypatch.setenv("SYNTHATTN_CACHE", str(folder / "cache"))
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    yield


MISTAKES = {
    "--preset tinny": "unknown preset 'tinny'; did you mean tiny",
    "--attention ramdom": "unknown attention 'ramdom'; did you mean random?",
    "--attention dense(wimdow=3)": "did you mean window?",
    "--task translatoin": "did you mean translation?",
    "--data builtin:dosc": "did you mean docs?",
    "--data nowhere": "nowhere",
    "--config nowhere.yaml": "nowhere.yaml",
    "--set training.stepps=3": "there is no setting training.stepps; did you mean steps",
    "--set trainig.steps=3": "there are no settings 'trainig'; did you mean training?",
    "--set training.steps=many": "training.steps must be a whole number, got 'many'",
    "--set training.schedule=cosin": "training.schedule cannot be 'cosin'; did you mean cosine?",
    "--set model.d_modle=3": "a configuration has no field 'd_modle'; did you mean d_model?",
    "--set model.num_heads=5": "d_model",
    "--set training.steps": "--set needs NAME=VALUE",
    "--set training.log_every=4 --set training.save_every=6": "must be a multiple of training.log_every=4, got 6",
    "--set training.precision=bf16": "no AMX; use fp32",
    "--steps 0": "training.steps must be at least 1, got 0",
    "--steps 5 --minutes 1": "a run ends after steps, tokens or minutes, got steps and minutes; leave one",
    "--batch-tokens 3": "an example has ",
    "--resume nowhere": "nowhere holds no settings.yaml, so it is not the folder of a run",
    "--resume nowhere --steps 5": "leave the other options out",
    "--output data": "data is not empty; choose another folder",
    "--split tset": "has no split 'tset'; did you mean test?",
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_gets_one_line(mistake, place, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    (tmp_path / "data").symlink_to(place[0] / "data")
    options = [] if "--resume" in mistake else ["--data", "data", "--preset", "tiny", "--vocab-size", "120", "--quiet"]
    if "--resume" not in mistake:
        options += ["--task", "sentence-modeling", "--set", "data.tokenizer=words", "--steps", "1", "--output", "run"]
    with typed(["train", *options, *mistake.split()], tmp_path, monkeypatch):
        said = capfd.readouterr().err.strip()
    assert len(said.splitlines()) == 1, said
    assert said.startswith("synthattn: ")
    assert MISTAKES[mistake] in said


def test_an_unknown_option(tmp_path, monkeypatch, capfd):
    with typed(["train", "--stepps", "5"], tmp_path, monkeypatch):
        said = capfd.readouterr().err
    assert "No such option: --stepps" in said
    assert "--steps" in said
    assert "Traceback" not in said


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Kill a run at random moments.")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    chosen = parser.parse_args()
    print(f"seed {chosen.seed}")
    longer = [*START, "--steps", str(chosen.steps)]
    with tempfile.TemporaryDirectory() as made:
        random_kills(*reference(Path(made), longer), chosen.kills, chosen.seed, longer)
