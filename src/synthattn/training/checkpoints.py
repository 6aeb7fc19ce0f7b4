"""Checkpoints with a seal, which is written last and lists their files; damaged checkpoints are not used."""

import contextlib
import json
import re
import shutil
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from synthattn.data.disk import sync
from synthattn.saved_file import read_json, replacing, write_text

SEAL = "seal.json"
PREFIX = "checkpoint-"
WEIGHTS = "model.safetensors"
NEEDED = (WEIGHTS, "trainer_state.json")
"""Files that every checkpoint contains."""
_NAME = re.compile(rf"{PREFIX}(0|[1-9][0-9]{{0,17}})")


def step_of(folder: Path) -> int:
    return int(folder.name.removeprefix(PREFIX))


def checkpoints(run: Path) -> list[Path]:
    """Return all checkpoints of a run, complete or not, the newest first."""
    found = [folder for folder in run.glob(f"{PREFIX}*") if folder.is_dir() and _NAME.fullmatch(folder.name)]
    return sorted(found, key=step_of, reverse=True)


def remove(folder: Path) -> None:
    """Remove a checkpoint; if it is a link, remove only the link."""
    if folder.is_symlink():
        folder.unlink()
        return
    # Remove the seal first: after an interruption, the rest does not count as a checkpoint.
    (folder / SEAL).unlink(missing_ok=True)
    shutil.rmtree(folder)


def seal(folder: Path) -> None:
    """Mark a checkpoint as complete, after its files, and those of folders in it, are on the disk."""
    content = {}
    sync(folder)
    for file in sorted(folder.rglob("*")):
        if file.is_file() and file != folder / SEAL:
            content[file.relative_to(folder).as_posix()] = [file.stat().st_size, _checksum(file)]
    write_text(folder / SEAL, json.dumps(content))


def damage(folder: Path, needed: Iterable[str] = NEEDED) -> str | None:
    """Describe the damage of a sealed folder in a few words; return None if it is complete.

    Args:
        folder: a checkpoint, or another folder with a seal.
        needed: the files that the seal must name.
    """
    try:
        content = read_json(folder / SEAL)
        wanted = [(name, size, checksum) for name, (size, checksum) in content.items()]
    except FileNotFoundError:
        return "is only half written"
    except (OSError, ValueError, TypeError, AttributeError) as error:
        return f"cannot be read: {error}"
    missing = [name for name in needed if name not in content]
    if missing:
        return f"has a seal without {missing[0]}"
    for name, size, checksum in wanted:
        file = folder / name
        if not file.is_file():
            return f"lacks {name}"
        if file.stat().st_size != size or _checksum(file) != checksum:
            return f"has a damaged {name}"
    return None


def last_good(run: Path) -> tuple[Path | None, list[str]]:
    """Return the newest complete checkpoint, and complaints about newer ones."""
    complaints = []
    for folder in checkpoints(run):
        wrong = damage(folder)
        if wrong is None:
            return folder, complaints
        complaints.append(f"{folder.name} {wrong}, and is not used")
    return None, complaints


def prune(run: Path, keep: int, best: int | None, every: int, last: int) -> None:
    """Remove all complete checkpoints except the newest ones and the best one.

    A checkpoint of an interruption is at no multiple of ``every`` and not at the ``last`` step. It is removed as soon
    as a newer one exists, and does not count towards ``keep``. An interrupted run thus keeps the usual checkpoints.
    """
    whole = [folder for folder in checkpoints(run) if (folder / SEAL).exists()]
    planned = [folder for folder in whole if step_of(folder) % every == 0 or step_of(folder) == last]
    for folder in whole[1:]:
        if folder not in planned[:keep] and step_of(folder) != best:
            remove(folder)


@contextlib.contextmanager
def writing(what: str, run: Path, folder: Path) -> Iterator[None]:
    """Remove a folder that cannot be written, and say in one line what is kept."""
    try:
        yield
    except Exception as error:  # safetensors, tokenizers and torch raise different errors for a full disk
        left = shutil.disk_usage(run).free  # torch does not give the reason
        shutil.rmtree(folder, ignore_errors=True)
        good, _ = last_good(run)
        kept = f"{good.name} is whole" if good is not None else "there is no earlier one"
        reason = f"{' '.join(str(error).split())} ({left / 1e6:,.1f} MB were left on the disk)"
        raise OSError(f"cannot write {what}: {reason}; {kept}") from error


def average(folders: Iterable[Path], target: Path) -> int:
    """Write the mean weights of several checkpoints, and return the number of checkpoints.

    Other tensors than floating-point numbers are equal in all checkpoints, and are copied.
    """
    totals: dict[str, Tensor] = {}
    kinds: dict[str, torch.dtype] = {}
    count = 0
    for folder in folders:
        with safe_open(folder / WEIGHTS, "pt") as file:
            for name in file.keys():  # noqa: SIM118 (it is no dictionary)
                tensor = file.get_tensor(name)
                kinds[name] = tensor.dtype
                if count == 0:
                    totals[name] = tensor.double() if tensor.is_floating_point() else tensor
                elif tensor.is_floating_point():
                    totals[name] += tensor.double()
        count += 1
    if not count:
        raise ValueError("there are no checkpoints to average")
    means = {n: ((t / count).to(kinds[n]) if kinds[n].is_floating_point else t).contiguous() for n, t in totals.items()}
    with replacing(target) as beside:
        save_file(means, beside, metadata={"format": "pt"})
    return count


def _checksum(file: Path) -> int:
    value = 0
    with file.open("rb") as handle:
        while block := handle.read(1 << 20):
            value = zlib.crc32(block, value)
    return value
