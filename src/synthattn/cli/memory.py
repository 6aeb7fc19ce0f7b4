"""Memory for training on a CPU."""

import ctypes
import os
import sys

# Numbers and names of glibc.
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_", "GLIBC_TUNABLES", "LD_PRELOAD")


def keep_memory(size: int = 2**30) -> bool:
    """Have freed memory kept for the next tensor; returns whether that could be asked for.

    glibc gives blocks of over 32 MB back to the system as soon as they are free, and logits are that large. With every
    step the system then has to find and clear the same pages anew, which takes longer than the product that fills
    them.

    Args:
        size: blocks up to this are kept, in bytes.
    """
    if not sys.platform.startswith("linux") or any(name in os.environ for name in VARIABLES):
        return False  # who chose an allocator, or how it works, shall have it
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other libraries have none
    if mallopt is None:
        return False
    return bool(mallopt(MMAP_THRESHOLD, size)) and bool(mallopt(TRIM_THRESHOLD, 2**31 - 1))
