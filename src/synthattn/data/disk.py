"""What is on the disk, and not only on its way there."""

import contextlib
import os
from pathlib import Path


def sync(folder: Path) -> None:
    """Have the files of a folder on the disk before anything else happens, and the folder with their names."""
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
