"""Kill runs at random moments and resume them; they must end like a run that was never killed.

Each input is one kill. It is ``right`` if its run ends with the weights, scores, record and files of an undisturbed
run, to the last bit.
"""

import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np

from synthattn.training import checkpoints, record
from synthattn.training import run as run_module
from tools.faults.outcome import Outcome, Verdict
from tools.faults.processes import FORKS, Fault, Process

STEPS, SAVE_EVERY, LOG_EVERY = 18, 3, 3
OPTIONS = ["--data", "../data", "--task", "sentence-modeling", "--preset", "tiny", "--attention", "random+dense"]
OPTIONS += ["--vocab-size", "120", "--steps", str(STEPS), "--batch-tokens", "150", "--output", "run"]
SETTINGS = {
    "data.tokenizer": "words",
    "model.dropout": 0.1,
    "model.decoder_layers": 1,
    "training.warmup": 5,
    "training.log_every": LOG_EVERY,
    "training.save_every": SAVE_EVERY,
    "training.evaluate_every": 7,
    "training.keep": "average",
}
START = ["train", *OPTIONS, *(text for name, value in SETTINGS.items() for text in ("--set", f"{name}={value}"))]
RESUME = ["train", "--resume", "run"]


def write_texts(folder: Path) -> None:
    """Write texts of made-up words, in three splits."""
    draw = random.Random(0)
    words = [f"w{n}" for n in range(29)]
    folder.mkdir(parents=True)
    for split, count in (("train", 211), ("validation", 13), ("test", 11)):
        lines = [" ".join(draw.choices(words, k=draw.randint(3, 12))) for _ in range(count)]
        (folder / f"{split}.txt").write_text("\n".join(lines) + "\n")


def begin(folder: Path, start: list[str] = START) -> list[str]:
    """Return the command that starts a run, or resumes it."""
    return RESUME if (folder / "run" / run_module.SETTINGS).is_file() else start


def difference(found: Path, expected: Path) -> str:
    """Name the difference between two finished runs; return an empty text if they are equal to the last bit."""
    weights = [(folder / "run" / run_module.MODEL / checkpoints.WEIGHTS).read_bytes() for folder in (found, expected)]
    if weights[0] != weights[1]:
        return "other weights"
    records = [asdict(record.load(folder / "run")) for folder in (found, expected)]
    for name in sorted(set(records[1]) - {"times", "versions"}):
        if records[0][name] != records[1][name]:
            return f"another {name} in the record"
    rows = [np.load(folder / "run" / "rows.npz") for folder in (found, expected)]
    if not all(np.array_equal(rows[0][name], rows[1][name]) for name in rows[1].files):
        return "other rows"
    names = [{file.name for file in (folder / "run").iterdir()} for folder in (found, expected)]
    return f"other files: {sorted(names[0] ^ names[1])}" if names[0] != names[1] else ""


def reference(folder: Path, start: list[str] = START) -> tuple[Path, float]:
    """Finish an undisturbed run, and return its folder and its duration in seconds."""
    if not (folder / "data").is_dir():
        write_texts(folder / "data")
    first = FORKS.Process(target=int)  # imports everything, once
    first.start()
    first.join()
    started = time.monotonic()
    process = Process(folder / "reference", start).wait()
    if process.code != 0:
        raise RuntimeError(f"a run that nothing happened to failed: {process.said}")
    return folder / "reference", time.monotonic() - started


def random_kills(
    expected: Path,
    seconds: float,
    kills: int,
    seed: int,
    start: list[str] = START,
    tell: Callable[[str], object] = print,
) -> Outcome:
    """Kill runs at random moments, resume each until it ends, and compare it with an undisturbed run.

    Args:
        expected: folder of an undisturbed run.
        seconds: duration of that run.
        kills: number of kills.
        seed: seed of the moments.
        start: the command that starts a run.
        tell: function that receives the state after each kill.
    """
    draw, outcome = random.Random(seed), Outcome("killed_runs")
    attempt = 0
    pending: list[str] = []
    while outcome.tried + len(pending) < kills or pending:
        place = expected.parent / f"killed-{attempt}"
        began = time.time()
        # Slow writing raises the chance that a kill hits it.
        process = Process(place, begin(place, start), Fault("os:fsync", what="slow"))
        if outcome.tried + len(pending) < kills and process.kill_after(draw.uniform(0, seconds)):
            pending.append(f"kill after {time.time() - began:.2f} s, {state(place / 'run', began)}")
            tell(pending[-1])
            continue
        verdict, why = _ended(process, place, expected)
        tell(f"ended: {why or 'the same to the last bit'}")
        for kill in pending:
            outcome.add(verdict, f"seed {seed}, {kill}: {why}")
        pending = []
        attempt += 1  # the run ended before it was killed often enough
    return outcome


def _ended(process: Process, place: Path, expected: Path) -> tuple[Verdict, str]:
    """Wait for a run, and judge it."""
    try:
        process.wait()
    except TimeoutError as error:
        return "crash", str(error)
    if process.code != 0:
        return "traceback" if "Traceback" in process.said else "wrong", f"exit code {process.code}: {process.said}"
    why = difference(place, expected)
    return "wrong" if why else "right", why


def state(folder: Path, began: float) -> str:
    """Describe the state of a run after a kill."""
    if not (folder / run_module.SETTINGS).is_file():
        return "before it had begun"
    if (folder / run_module.MODEL).is_dir():
        return "while scoring"
    if (folder / f"{run_module.MODEL}.part").is_dir():
        return "while the model was written"
    found = checkpoints.checkpoints(folder)
    half = [one.name for one in found if checkpoints.damage(one) and one.stat().st_mtime > began]
    whole = [one.name for one in found if not checkpoints.damage(one)]
    return f"after {whole[0] if whole else 'no checkpoint'}" + (f", while {half[0]} was written" if half else "")


def run(count: int, seed: int) -> Outcome:
    """Kill runs of 60 steps ``count`` times."""
    longer = [*START, "--steps", "60"]
    with tempfile.TemporaryDirectory() as made:
        return random_kills(*reference(Path(made), longer), count, seed, longer, tell=lambda text: None)
