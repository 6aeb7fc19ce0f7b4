"""Flush files to the disk, and recognise disk errors."""

import contextlib
import os
import re
from pathlib import Path

_RUST_ERROR = re.compile(r"\(os error (\d+)\)")


def sync(folder: Path) -> None:
    """Flush all files of a folder and its directory entries to the disk."""
    inside = sorted(folder.rglob("*"))
    for file in inside:
        if file.is_file():
            with file.open("rb") as handle:
                os.fsync(handle.fileno())
    for place in (*(path for path in inside if path.is_dir()), folder):
        with contextlib.suppress(OSError):  # some systems cannot open a folder, or cannot sync it
            handle = os.open(place, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


def os_error(error: Exception) -> OSError | None:
    """Return the operating system's error behind an exception; None for an exception of another kind.

    The tokenizers library, which is written in Rust, raises a plain ``Exception`` for a full disk.
    """
    if isinstance(error, OSError):
        return error
    found = _RUST_ERROR.search(str(error)) if type(error) is Exception else None
    return OSError(int(found[1]), os.strerror(int(found[1]))) if found else None
