"""Keep freed memory for reuse when training on a CPU."""

import ctypes
import os
import sys

# Constants and variables of glibc.
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_", "GLIBC_TUNABLES", "LD_PRELOAD")


def keep_memory(size: int = 2**30) -> bool:
    """Let glibc keep freed memory for the next tensor; return True if this is possible.

    By default, glibc returns freed blocks of over 32 MB to the system, and logits are that large. The system then
    clears the pages again in every step, which takes longer than the product that fills them.

    Args:
        size: maximum size of blocks that are kept, in bytes.
    """
    if not sys.platform.startswith("linux") or any(name in os.environ for name in VARIABLES):
        return False  # respects a user's choice of allocator
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other libraries have none
    if mallopt is None:
        return False
    return bool(mallopt(MMAP_THRESHOLD, size)) and bool(mallopt(TRIM_THRESHOLD, 2**31 - 1))
