"""Faults of a long run: kills, interruptions, damaged files, a full disk, too little memory.

``python -m tools.faults killed_runs --count 10`` kills runs ten times at random moments; the tests do it three times,
and once at each place where something could be half done.
"""

import contextlib
import json
import random
import shutil
import signal
from pathlib import Path

import pytest
import torch
from tools.faults.killed_runs import RESUME, START, STEPS, begin, difference, random_kills, reference
from tools.faults.processes import Fault, Process

from synthattn.training import checkpoints, record, run
from synthattn.training.settings import Settings, TrainingSettings

pytestmark = pytest.mark.unchecked


def assert_same(found: Path, expected: Path) -> None:
    assert not difference(found, expected)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, float]:
    """A folder with data, and in it a run that nothing happened to, and how long that took."""
    folder = tmp_path_factory.mktemp("faults")
    return folder, *reference(folder)


def test_kills_at_random_moments(place):
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    outcome = random_kills(place[1], place[2], 3, seed)
    assert outcome.counts["right"] == outcome.tried == 3, outcome.failures


# One run is killed at each of these places in turn, and goes on after each.
PLACES = [
    Fault("synthattn.training.record:versions"),
    Fault("pathlib:Path.replace"),  # the record is written, but does not have its name yet
    Fault("pathlib:Path.replace", 2),  # nor do the settings
    Fault("synthattn.training.prepare:encode"),
    Fault("synthattn.training.trainer:SynthesizerTrainer.training_step", 3),
    Fault("torch:save"),  # the weights are there, the state of the optimizer is not
    Fault("synthattn.training.checkpoints:seal", 2),
    Fault("synthattn.training.callbacks:RecordCallback.on_save"),
    Fault("shutil:rmtree", 2),  # an old checkpoint is removed; the first is what the seal was missing from
    Fault("synthattn.training.trainer:SynthesizerTrainer.evaluate", 2),
    Fault("synthattn.training.checkpoints:average"),
    Fault("pathlib:Path.rename"),
    Fault("pathlib:Path.rename", when="after"),
    Fault("synthattn.training.run:evaluate"),
    Fault("synthattn.training.run:_Run.tidy"),
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
    process = Process(killed, RESUME, Fault("synthattn.training.run:_Run.finish")).wait()
    assert process.code == -signal.SIGKILL, process.said
    process = Process(killed, RESUME).wait()
    assert process.code == 0, process.said
    assert_same(killed, whole)


@pytest.fixture(scope="module")
def killed(place) -> Path:
    """A run that was killed when it had two whole checkpoints, of steps 3 and 6."""
    folder = place[0] / "killed"
    process = Process(folder, START, Fault("synthattn.training.trainer:SynthesizerTrainer.training_step", 8)).wait()
    assert process.code == -signal.SIGKILL, process.said
    assert [checkpoints.step_of(one) for one in checkpoints.checkpoints(folder / "run")] == [6, 3]
    return folder


@pytest.fixture
def stopped(place, killed, tmp_path) -> Path:
    """A copy of the killed run."""
    for name in ("data", "cache"):
        (tmp_path / name).symlink_to(place[0] / name)
    return Path(shutil.copytree(killed, tmp_path / "stopped"))


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("both", [False, True], ids=["one damaged", "all damaged"])
def test_a_damaged_run_goes_on(stopped, place, both):
    damaged = "model.safetensors" if both else "optimizer.pt"
    flip(stopped / "run" / "checkpoint-6" / damaged)
    if both:
        (stopped / "run" / "checkpoint-3" / checkpoints.SEAL).unlink()
    process = Process(stopped, RESUME).wait()
    assert process.code == 0, process.said
    assert f"run: checkpoint-6 has a damaged {damaged}, and is not used" in process.said
    assert ("run: checkpoint-3 is only half written, and is not used" in process.said) == both
    assert ("going on from step 3" in process.said) == (not both)
    assert ("starting from the beginning" in process.said) == both
    assert_same(stopped, place[1])


def errors(process: Process) -> list[str]:
    """Return the last lines of the output, without the lines about the progress of training."""
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
    """The signal comes in the middle of a point of the loss curve, which is drawn as if nothing had happened."""
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
        "preparing": Fault("synthattn.training.prepare:encode", what="terminate"),
        "scoring": Fault("synthattn.training.run:evaluate", what="interrupt"),
    }[where]
    process = Process(folder, START, fault).wait()
    assert process.code == 130, process.said
    assert errors(process) == ["stopped; what was saved is in run. Go on with: synthattn train --resume run"]
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
    options = [*START[1:], "--attention", "random,dense,vanilla", "--steps", "3", "--set", "training.keep=last"]
    # The fourth step is the first one of the second.
    fault = Fault("synthattn.training.trainer:SynthesizerTrainer.compute_loss", 4, "after", "nan")
    process = Process(folder, ["compare", *options], fault).wait()
    assert process.code == 0, process.said
    (part,) = json.loads((folder / "run" / "results.json").read_text())["parts"]
    rows = {one["attention"]: one for one in part["rows"]}
    assert rows["random"]["status"] == "done"
    assert rows["dense"]["status"] == "failed"
    assert rows["dense"]["reason"].startswith("the loss is nan at step 1")


@pytest.mark.parametrize("amx", [False, True])
def test_bf16_is_for_those_who_have_it(amx, monkeypatch):
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with contextlib.nullcontext() if amx else pytest.raises(ValueError, match=r"no AMX; use fp32$"):
        run.check_hardware(TrainingSettings(precision="bf16"))


@pytest.mark.parametrize(
    ("gpu", "in_hardware", "chosen"), [(False, False, "fp32"), (True, True, "bf16"), (True, False, "fp32")]
)
def test_the_machine_decides_the_precision(gpu, in_hardware, chosen, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: in_hardware or including_emulation)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA X7")
    found = run.with_precision(Settings()).training
    assert found.precision == chosen
    assert run.computes_on(found) == f"on {'NVIDIA X7' if gpu else 'the CPU'} in {chosen}"
