"""Opening files that must be files, not pipes or devices."""

import io
import stat
from pathlib import Path

_KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}


def open_regular(path: Path) -> io.BufferedReader:
    """Open a regular file to read its bytes.

    A pipe or a device is refused: the program would wait for it, and could not read it a second time.
    """
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "a device")
        raise OSError(f"it is {kind}, not a file; write the data to a file and give its path")
    return open(path, "rb")
