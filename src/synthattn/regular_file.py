"""Open files that must be regular files, not pipes or devices."""

import io
import stat
from pathlib import Path

_KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}


def open_regular(path: Path) -> io.BufferedReader:
    """Open a regular file for reading bytes.

    Pipes and devices are refused: reading them would block, and they cannot be read twice.
    """
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "a device")
        raise OSError(f"it is {kind}, not a file; write the data to a file and give its path")
    return open(path, "rb")
