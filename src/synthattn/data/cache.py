"""Cache folder for results that are computed once: tokenizers, encoded texts, extracted prose."""

import contextlib
import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from synthattn.data.disk import os_error, sync
from synthattn.data.locks import locked_file

VARIABLE = "SYNTHATTN_CACHE"
CANNOT_WRITE = {
    getattr(errno, name)
    for name in ("ENOSPC", "EDQUOT", "EFBIG", "EROFS", "EACCES", "EPERM", "EIO", "ENOTDIR", "EEXIST")
    if hasattr(errno, name)
}
"""Error numbers that mean the cache cannot be written; other errors may come from the network."""


def cache_folder() -> Path:
    """Return the cache folder: ``SYNTHATTN_CACHE``, or ``~/.cache/synthattn``."""
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen)
    home = os.path.expanduser("~")
    if home == "~":
        raise ValueError(f"there is no home folder for the cache; set {VARIABLE} to a folder")
    return Path(home) / ".cache" / "synthattn"


def key(*parts: object) -> str:
    """Return a file name that is unique for these values."""
    return hashlib.sha256("\x1f".join(str(part) for part in parts).encode()).hexdigest()[:24]


def cached_folder(kind: str, name: str, make: Callable[[Path], None]) -> Path:
    """Return the folder ``kind/name`` in the cache; ``make`` fills it if it does not exist yet.

    The folder gets its name only when it is complete, so an interruption leaves no partial result. Other processes that
    need the same folder, such as those of torchrun, wait for it.
    """
    folder = cache_folder() / kind / name
    if folder.is_dir():
        return folder
    with _writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = folder.with_name(f".{name}.lock")
        with locked_file(lock, wait=True):
            try:
                if not folder.is_dir():
                    _make(folder, make)
            finally:
                lock.unlink(missing_ok=True)
    return folder


@contextlib.contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Name the folder and a way out in errors of a disk that is full or read-only."""
    try:
        yield
    except Exception as error:
        found = os_error(error)
        if found is None or found.errno not in CANNOT_WRITE:
            raise
        raise OSError(
            f"cannot write {folder} in the cache: {found.strerror or found}; make room for it, or choose another "
            f"folder for the cache with {VARIABLE}"
        ) from error


def _make(folder: Path, make: Callable[[Path], None]) -> None:
    unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        make(unfinished)
        # Sync before the folder gets its name: after a power cut, a named folder counts as complete.
        sync(unfinished)
        try:
            unfinished.rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise another process was faster and made the same folder
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
