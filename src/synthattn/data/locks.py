"""Locks on files and folders, which end with the process that holds them, whatever it dies of."""

import contextlib
import os
import platform
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

try:
    import fcntl
except ImportError:  # not a Unix system: nothing is locked, and nothing refused
    fcntl = None

LOCK = ".lock"
"""The file in a folder that is locked while a process writes into the folder."""

_held: set[int] = set()
"""Open files of the locks that this process holds."""


class FolderInUseError(ValueError):
    """Another process writes into a folder."""


def _forget_held() -> None:
    # A forked child has the open files of its parent, and would keep the locks when the parent is dead.
    for file in _held:
        os.close(file)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_held)


@contextlib.contextmanager
def locked_folder(folder: Path, wait: bool = False) -> Iterator[None]:
    """Make the folder if there is none, and have it for this process alone until the block ends.

    A folder that was made here and has nothing in it at the end is removed. Where another process has it, the error
    says which, and nothing in the folder is changed.

    Args:
        folder: any folder.
        wait: wait for another process that has it.
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
                if os.getpid() == owner:  # not a child that was forked inside of the block
                    with contextlib.suppress(OSError):
                        path.unlink()  # before the lock is given up: afterwards it may be another's
    finally:
        if new and os.getpid() == owner:
            with contextlib.suppress(OSError):  # it is not empty
                folder.rmdir()


@contextlib.contextmanager
def locked_file(path: Path, wait: bool = False) -> Iterator[bool]:
    """Try to lock a file, which is made if there is none; the block is told whether this process holds the lock.

    Args:
        path: the file. Its text says who holds the lock.
        wait: wait for another process that holds it.
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
    """Open and lock a file; None where another process holds the lock."""
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
        os.close(file)  # whoever held the lock has removed the file: lock the one that is there now


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
