"""Mix several tasks in proportion to their sizes, up to a limit, as the paper co-trains GLUE and SuperGLUE."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


class MixedOrder:
    """Order of the examples of an epoch; examples are numbered one task after the other.

    An epoch holds all examples of each task, but at most ``limit``. T5 draws the same number only on average. A task
    with more than ``limit`` examples is read over several epochs, in shuffled rounds.
    """

    def __init__(self, sizes: Sequence[int], limit: int | None) -> None:
        if not sizes:
            raise ValueError("nothing to mix: no task was given")
        for size in sizes:
            if size < 1:
                raise ValueError(f"cannot mix a task of {size} examples")
        if limit is not None and limit < 1:
            raise ValueError(f"the limit must be at least 1, got {limit}")
        self.sizes, self.limit = list(sizes), limit

    @property
    def shares(self) -> list[float]:
        """Share of each task in an epoch."""
        counts = [self._count(size) for size in self.sizes]
        return [count / sum(counts) for count in counts]

    def __call__(self, seed: int, epoch: int) -> NDArray[np.int64]:
        start = 0
        chosen = []
        for task, size in enumerate(self.sizes):
            chosen.append(start + self._part(task, size, seed, epoch))
            start += size
        together = np.concatenate(chosen)
        return together[np.random.default_rng([seed, epoch]).permutation(len(together))]

    def _count(self, size: int) -> int:
        return size if self.limit is None else min(size, self.limit)

    def _part(self, task: int, size: int, seed: int, epoch: int) -> NDArray[np.int64]:
        """Return examples ``epoch * count`` to ``(epoch + 1) * count`` of the endless shuffled rounds."""
        count = self._count(size)
        first, last = epoch * count // size, ((epoch + 1) * count - 1) // size
        rounds = [np.random.default_rng([seed, task, n]).permutation(size) for n in range(first, last + 1)]
        begin = epoch * count - first * size
        return np.concatenate(rounds)[begin : begin + count]
