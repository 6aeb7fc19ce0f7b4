"""Damage files of runs, then try ``train --resume``, ``evaluate`` and ``generate`` on them.

``train --resume`` is tried on an unfinished run, the other commands on a finished one. One file is cut off, emptied,
deleted, overwritten with other bytes, replaced by another file, by a pickle, by a symbolic link or by a folder.
Afterwards the command must refuse in one line, or end with exactly the weights, scores and answers of the undamaged
run. A pickle that is opened leaves a mark, which counts as wrong.

Checkpoints and the model of a finished run have a seal with the checksum of every file, so a single changed byte in
them must be found. ``settings.yaml`` has none, but the record repeats its content. A record has no checksum either: its
numbers are written anew when a run goes on, and neither ``evaluate`` nor ``generate`` reads more of it than settings.

One third of the damages are done to a model without a seal, such as a model from elsewhere. No checksum detects a
changed byte of its weights or vocabulary, so only damage to the form of a file is tried.
"""

import json
import os
import pickle
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from transformers.utils import logging

from synthattn.training import run as run_module
from synthattn.training.checkpoints import SEAL
from tools.faults.in_process import call, judge, memory_limit
from tools.faults.outcome import Outcome, Verdict

WORDS = ["red", "blue", "old", "new", "small", "large", "house", "tree", "car", "dog", "cat", "sees", "has", "the"]
QUESTIONS = "the dog sees\nold red house\n"
OPTIONS = [
    *("--task", "translation", "--data", "data", "--preset", "tiny", "--vocab-size", "130", "--batch-tokens", "128"),
    *("--steps", "4", "--attention", "random+vanilla", "--quiet"),
]
SETTINGS = {
    "data.tokenizer": "words",
    "model.dropout": 0.1,
    "training.warmup": 1,
    "training.log_every": 1,
    "training.save_every": 2,
    "training.keep_checkpoints": 3,
    "training.evaluate_tokens": 40,
    "evaluation.max_new_tokens": 4,
}


class Evil:
    """An object whose pickle leaves a mark when it is opened."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self.mark),))


Damage = Callable[[random.Random, Path, Path], str]
"""A function that damages a file, given the file of another run, and returns a description."""


def cut(rng: random.Random, file: Path, other: Path) -> str:
    size = file.stat().st_size
    left = rng.randrange(size) if size else 0
    os.truncate(file, left)
    return f"cut to {left} of {size} bytes"


def emptied(rng: random.Random, file: Path, other: Path) -> str:
    file.write_bytes(b"")
    return "emptied"


def deleted(rng: random.Random, file: Path, other: Path) -> str:
    file.unlink()
    return "deleted"


def garbage(rng: random.Random, file: Path, other: Path) -> str:
    file.write_bytes(rng.randbytes(rng.randint(1, 5000)))
    return "random bytes"


def json_of_another_form(rng: random.Random, file: Path, other: Path) -> str:
    text = rng.choice(["{}", "[]", "null", "3", '"x"', '{"a": [1, {"b": null}]}', "[" * 5000, '{"__class__": "os"}'])
    file.write_text(text)
    return f"the text {text[:30]}"


def pickled(rng: random.Random, file: Path, other: Path) -> str:
    with file.open("wb") as target:
        if rng.random() < 0.5:
            torch.save({"a": Evil(_mark(file))}, target)
        else:
            pickle.dump(Evil(_mark(file)), target)
    return "a pickle"


def folder(rng: random.Random, file: Path, other: Path) -> str:
    file.unlink()
    file.mkdir()
    return "a folder"


def dangling(rng: random.Random, file: Path, other: Path) -> str:
    file.unlink()
    file.symlink_to("nowhere")
    return "a link to nothing"


def linked(rng: random.Random, file: Path, other: Path) -> str:
    moved = file.with_name(f".{file.name}.moved")
    shutil.move(file, moved)
    file.symlink_to(moved.name)
    return "a link to itself, moved"


def flipped(rng: random.Random, file: Path, other: Path) -> str:
    content = bytearray(file.read_bytes())
    if not content:
        return "nothing"
    place = rng.randrange(len(content))
    content[place] ^= 1 << rng.randrange(8)
    file.write_bytes(content)
    return f"a bit of byte {place} flipped"


def swapped(rng: random.Random, file: Path, other: Path) -> str:
    """Replace a file by the file of a run with another seed."""
    if not other.is_file():
        return flipped(rng, file, other)
    shutil.copyfile(other, file)
    return "that of another run"


def mistaken(rng: random.Random, file: Path, other: Path) -> str:
    neighbour = rng.choice(sorted(one for one in file.parent.iterdir() if one.is_file()))
    if neighbour != file:
        shutil.copyfile(neighbour, file)
    return f"a copy of {neighbour.name}"


FORM: tuple[Damage, ...] = (
    cut, emptied, deleted, garbage, json_of_another_form, pickled, folder, dangling, linked, mistaken,
)  # fmt: skip
DAMAGES: tuple[Damage, ...] = (*FORM, flipped, flipped, swapped)


def _mark(file: Path) -> Path:
    return next(parent for parent in file.parents if parent.name == "work") / "mark"


def run(count: int, seed: int) -> Outcome:
    """Try ``count`` damaged files."""
    outcome = Outcome("checkpoints")
    rng = random.Random(seed)
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as name, memory_limit():
        place, here, before = Path(name).resolve(), Path.cwd(), os.environ.get("SYNTHATTN_CACHE")
        os.environ["SYNTHATTN_CACHE"] = str(place / "cache")
        os.chdir(place)
        try:
            campaign = Campaign(place)
            for number in range(count):
                verdict, description = campaign.one(rng, ("resume", "evaluate", "generate")[number % 3], number % 9 > 5)
                outcome.add(verdict, f"{description} (seed {seed}, number {number})")
        finally:
            os.chdir(here)
            os.environ.pop("SYNTHATTN_CACHE") if before is None else os.environ.update(SYNTHATTN_CACHE=before)
    return outcome


class Campaign:
    """Runs to damage, and the results of the commands on the undamaged runs."""

    def __init__(self, place: Path) -> None:
        self.place = place
        rng = random.Random(0)
        (place / "data").mkdir()
        for split, lines in (("train", 20), ("valid", 3), ("test", 4)):
            texts = [" ".join(rng.choice(WORDS) for _ in range(rng.randint(2, 6))) for _ in range(lines)]
            (place / "data" / f"{split}.en").write_text("".join(f"{text}\n" for text in texts))
            (place / "data" / f"{split}.de").write_text("".join(f"{text.upper()}\n" for text in texts))
        for name, number in (("unfinished", 0), ("other-unfinished", 1)):
            _train(place / name, number)
            finished = place / name.replace("unfinished", "finished")
            shutil.copytree(place / name, finished)
            assert call("train", "--resume", finished, "--quiet").code == 0
        self.expected = {
            verb: self.result(verb, place / self.whole(verb)) for verb in ("resume", "evaluate", "generate")
        }

    @staticmethod
    def whole(verb: str) -> str:
        """Return the name of the run that a command is tried on."""
        return "unfinished" if verb == "resume" else "finished"

    def one(self, rng: random.Random, verb: str, unsealed: bool) -> tuple[Verdict, str]:
        """Damage one file of a run, run a command, and judge its result."""
        work = self.place / "work"
        shutil.rmtree(work, ignore_errors=True)
        whole = self.whole(verb)
        shutil.copytree(self.place / whole, work / "run")
        files = [file for file in sorted((work / "run").rglob("*")) if file.is_file()]
        unsealed = unsealed and verb != "resume"
        if unsealed:
            (work / "run" / "model" / SEAL).unlink(missing_ok=True)
            files = sorted(file for file in (work / "run" / "model").iterdir())
        file = rng.choice(files)
        damage = rng.choice(FORM if unsealed else DAMAGES)
        where = file.relative_to(work / "run")
        how = damage(rng, file, self.place / f"other-{whole}" / where)
        said = call(*self.command(verb, work / "run"), stdin=QUESTIONS)
        description = f"{verb}{' without seal' if unsealed else ''}: {where} {how}"
        if (work / "mark").exists():
            return "wrong", f"{description}: the pickle was opened"

        def wrong() -> str | None:
            found = self.outcome(verb, work / "run", said.out)
            return None if found == self.expected[verb] else f"another result: {str(found)[:200]}"

        verdict, reason = judge(said, wrong)
        return verdict, f"{description}: {reason}"

    @staticmethod
    def command(verb: str, folder: Path) -> list[str | Path]:
        """Return the arguments of a command."""
        if verb == "resume":
            return ["train", "--resume", folder, "--quiet"]
        return ["evaluate", folder, "--json", "--quiet"] if verb == "evaluate" else ["generate", folder]

    def result(self, verb: str, folder: Path) -> Any:
        """Run a command on a copy of an undamaged run and return its result."""
        copied = self.place / "work" / "run"
        shutil.copytree(folder, copied)
        said = call(*self.command(verb, copied), stdin=QUESTIONS)
        assert said.code == 0, said
        found = self.outcome(verb, copied, said.out)
        shutil.rmtree(self.place / "work")
        return found

    @staticmethod
    def outcome(verb: str, folder: Path, printed: str) -> Any:
        """Return the result that must be equal whenever a command succeeds."""
        if verb == "evaluate":
            return json.loads(printed)["scores"]
        if verb == "generate":
            return printed
        record = json.loads((folder / "record.json").read_text())
        weights = {name: tensor.tolist() for name, tensor in load_file(folder / "model" / "model.safetensors").items()}
        return weights, record["scores"], record["loss"], record["status"]


def _train(folder: Path, seed: int) -> None:
    """Train until all checkpoints are written, and stop before the model is written."""

    def stopped(self: Any, trainer: Any, prepared: Any) -> None:
        raise OSError("stopped")

    one_run = run_module._Run  # pyright: ignore[reportPrivateUsage]
    finish, one_run.finish = one_run.finish, stopped
    try:
        settings = [text for name, value in SETTINGS.items() for text in ("--set", f"{name}={value}")]
        said = call("train", *OPTIONS, "--seed", seed, "--output", folder, *settings)
    finally:
        one_run.finish = finish
    assert said.err == "synthattn: stopped\n", said
