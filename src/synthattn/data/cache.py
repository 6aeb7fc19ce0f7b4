"""A folder for what is made once and used again: tokenizers, encoded texts, extracted prose."""

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from synthattn.data.disk import sync


def cache_folder() -> Path:
    """``SYNTHATTN_CACHE``, or ``~/.cache/synthattn``."""
    chosen = os.environ.get("SYNTHATTN_CACHE")
    return Path(chosen) if chosen else Path.home() / ".cache" / "synthattn"


def key(*parts: object) -> str:
    """A name for what is made of these parts, and of nothing else."""
    return hashlib.sha256("\x1f".join(str(part) for part in parts).encode()).hexdigest()[:24]


def made_once(kind: str, name: str, make: Callable[[Path], None]) -> Path:
    """The folder ``kind/name`` in the cache, filled by ``make`` if it is not there yet.

    It appears under its name only when it is complete, so that an interruption leaves nothing half made behind. Other
    processes that want the same, as those of torchrun do, wait for it.
    """
    folder = cache_folder() / kind / name
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _alone(folder.with_name(f".{name}.lock")):
        if not folder.is_dir():
            _make(folder, make)
    return folder


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    with lock.open("w") as file:
        # Where there are no locks, as in some network file systems, all make the same, and the first one counts.
        with contextlib.suppress(ImportError, OSError):
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            # Those that wait have the file open; they look first whether there is anything left to do.
            lock.unlink(missing_ok=True)


def _make(folder: Path, make: Callable[[Path], None]) -> None:
    unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        make(unfinished)
        # Before it has its name: after a power cut, what has one is taken for whole, and never made again.
        sync(unfinished)
        try:
            unfinished.rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise another process was faster, and made the same
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
