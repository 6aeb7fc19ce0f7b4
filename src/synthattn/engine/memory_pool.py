"""Memory on the CPU that is used again: what a step of training frees, the next one needs.

Large blocks that are freed go back to the system, which has to find and clear pages for the next step anew; for
attention weights that takes longer than their softmax. The allocator of CUDA keeps what is freed for this reason, that
of the CPU does not.
"""

import ctypes
import math
import threading
import weakref
from collections import deque

import torch
from torch import Tensor

MOST = 2**29
"""Maximum bytes of all blocks, in use or spare. Requests beyond get ordinary memory."""
UNIT = 2**20
"""Bytes of which blocks are multiples. Torch allocates smaller tensors, whose memory does not go back to the system."""


class Pool:
    """Blocks of memory, each leased to one tensor and its views at a time."""

    def __init__(self) -> None:
        # Storages, not tensors: who watches what torch does shall see the tensors that are made of them, once.
        self.spare: list[torch.UntypedStorage] = []
        """Blocks that nobody uses, the oldest first."""
        self._leased: dict[int, tuple[weakref.ref[ctypes.Array[ctypes.c_char]], torch.UntypedStorage]] = {}
        # Filled by C alone: Python code would run inside a deallocator, where an interrupt by the user is lost.
        self._ended: deque[weakref.ref[ctypes.Array[ctypes.c_char]]] = deque()
        self._lock = threading.RLock()

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Return what ``torch.empty`` returns on the CPU."""
        number = math.prod(shape)
        lease = self._lease(-(-number * dtype.itemsize // UNIT) * UNIT) if number * dtype.itemsize >= UNIT else None
        if lease is None:
            return torch.empty(shape, dtype=dtype, device="cpu")
        # A storage holds on to the object that it was made from, as long as any tensor uses the storage.
        storage = torch.frombuffer(lease, dtype=dtype, count=number).untyped_storage()
        # No view: what a function with a gradient of its own returns could then not be written to.
        return torch.empty(0, dtype=dtype, device="cpu").set_(storage, 0, shape)  # pyright: ignore

    def release(self) -> None:
        """Give back to the system what nobody uses."""
        with self._lock:
            self._collect()
            self.spare.clear()

    def _lease(self, size: int) -> ctypes.Array[ctypes.c_char] | None:
        with self._lock:
            self._collect()
            block = self._take(size)
            if block is None:
                return None
            lease = (ctypes.c_char * len(block)).from_address(block.data_ptr())
            ref = weakref.ref(lease, self._ended.append)
            self._leased[id(ref)] = ref, block
            return lease

    def _take(self, size: int) -> torch.UntypedStorage | None:
        """Take the smallest block that is large enough, if most of it is used, or a new one within the limit."""
        fitting = [block for block in self.spare if size <= len(block) <= 2 * size]
        if fitting:
            best = min(fitting, key=len)
            self.spare = [block for block in self.spare if block is not best]
            return best
        used = sum(len(block) for _, block in self._leased.values())
        if used + size > MOST:
            return None
        while used + size + sum(map(len, self.spare)) > MOST:  # lengths have changed: the oldest are of no use
            del self.spare[0]
        return torch.UntypedStorage(size, device="cpu")

    def _collect(self) -> None:
        while self._ended:
            _, block = self._leased.pop(id(self._ended.popleft()))
            self.spare.append(block)


_pool = Pool()
empty, release = _pool.empty, _pool.release
