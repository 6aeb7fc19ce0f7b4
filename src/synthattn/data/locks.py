"""Locks on files and folders that end with the process that holds them."""

import contextlib
import os
import platform
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

try:
    import fcntl
except ImportError:  # not a Unix system: nothing is locked or refused
    fcntl = None

LOCK = ".lock"
"""Name of the lock file in a folder that a process writes to."""

_held: set[int] = set()
"""Descriptors of the locks that this process holds."""


class FolderInUseError(ValueError):
    """Raised if another process writes to a folder."""


def _forget_held() -> None:
    # A forked child inherits the open files, and would keep the locks after its parent has ended.
    for file in _held:
        os.close(file)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_held)


@contextlib.contextmanager
def locked_folder(folder: Path, wait: bool = False) -> Iterator[None]:
    """Create the folder if needed, and lock it for this process until the block ends.

    A folder that was created here and is empty at the end is removed. If another process holds the lock, the error
    names it, and the folder is not changed.

    Args:
        folder: any folder.
        wait: wait for a process that holds the lock.
    """
    new, owner = not folder.exists(), os.getpid()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / LOCK
    try:
        with locked_file(path, wait) as mine:
            if not mine:
                raise FolderInUseError(
                    f"{folder} is in use by {_holder(path)}; wait until it ends, stop it, or choose another folder"
                )
            try:
                yield
            finally:
                if os.getpid() == owner:  # not a child that was forked inside the block
                    with contextlib.suppress(OSError):
                        path.unlink()  # before unlocking: afterwards the file may belong to another process
    finally:
        if new and os.getpid() == owner:
            with contextlib.suppress(OSError):  # the folder is not empty
                folder.rmdir()


@contextlib.contextmanager
def locked_file(path: Path, wait: bool = False) -> Iterator[bool]:
    """Lock a file, which is created if needed, and yield True if this process holds the lock.

    Args:
        path: the file. Its text names the process that holds the lock.
        wait: wait for a process that holds the lock.
    """
    file = _open(path, wait)
    if file is None:
        yield False
        return
    _held.add(file)
    try:
        yield True
    finally:
        if file in _held:
            _held.remove(file)
            os.close(file)


def _open(path: Path, wait: bool) -> int | None:
    """Open and lock a file; return None if another process holds the lock."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if not _lock(file, wait):
                os.close(file)
                return None
            if _is_at(file, path):
                holder = f"process {os.getpid()} on {platform.node()} since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
                with contextlib.suppress(OSError):  # the disk may be full
                    os.ftruncate(file, 0)
                    os.write(file, holder.encode())
                return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)  # the file was removed by the previous holder: lock the one that exists now


def _lock(file: int, wait: bool) -> bool:
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # some network file systems have no locks
        return True
    return True


def _is_at(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False


def _holder(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace")[:200].strip() or "another process"
    return "another process"
