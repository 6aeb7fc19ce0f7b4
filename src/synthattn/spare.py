"""Memory on the CPU that is used again: what a step of training frees, the next one needs.

Large blocks that are freed go back to the system, which has to find and clear pages for the next step anew; for
attention weights that takes longer than their softmax. The allocator of CUDA keeps what is freed for this reason, that
of the CPU does not.
"""

import ctypes
import math
import weakref

import torch
from torch import Tensor

MOST = 2**29
"""Bytes that are kept at the most while nobody uses them."""
LEAST = 2**20
"""Smaller tensors are left to torch: what they are made of does not go back to the system."""
ALIGNMENT = 64


class _Block:
    """Memory, and where in it tensors begin."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.memory = bytearray(size + ALIGNMENT)
        self.offset = -ctypes.addressof(ctypes.c_char.from_buffer(self.memory)) % ALIGNMENT


_spare: list[_Block] = []


def empty(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Like ``torch.empty`` on the CPU, in memory that is kept for the next one when no tensor uses it any more."""
    size = math.prod(shape) * dtype.itemsize
    if size < LEAST:
        return torch.empty(shape, dtype=dtype, device="cpu")
    block = _take(size) or _Block(size)
    # A storage holds on to the object that it was made from, as long as any tensor or view uses the storage.
    lease = (ctypes.c_char * size).from_buffer(block.memory, block.offset)
    weakref.finalize(lease, _give_back, block).atexit = False
    return torch.frombuffer(lease, dtype=dtype).view(shape)


def release() -> None:
    """Give back to the system what nobody uses."""
    _spare.clear()


def _take(size: int) -> _Block | None:
    """The smallest block that is large enough, unless most of it would lie idle."""
    fitting = [block for block in _spare if size <= block.size <= 2 * size]
    for block in sorted(fitting, key=lambda block: block.size):
        try:
            _spare.remove(block)
        except ValueError:  # another thread was faster
            continue
        return block
    return None


def _give_back(block: _Block) -> None:
    # Called whenever a tensor dies, in any thread, perhaps in the middle of the functions above: so there is no lock,
    # and what was kept longest goes first where lengths have changed and nothing fits.
    _spare.append(block)
    while sum(block.size for block in list(_spare)) > MOST:
        try:
            del _spare[0]
        except IndexError:
            return
