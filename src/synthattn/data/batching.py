"""Batches with about equal numbers of tokens, made of texts with about equal lengths.

The order depends only on the seed and the epoch, not on workers or models. Every model of a comparison therefore sees
the same batches in the same order.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

Order = Callable[[int, int], NDArray[np.int64]]
"""A function that maps a seed and an epoch to the indices of the examples of that epoch, in any order."""


class TokenBatches:
    """A batch sampler for ``torch.utils.data.DataLoader`` that yields lists of example indices.

    Args:
        lengths: number of tokens of each example; the longer text counts where there are two.
        tokens: maximum number of tokens in a batch, padding included.
        seed: seed of the order; None sorts by length and involves no chance.
        window: number of batches whose examples are sorted by length together. A larger window means less padding,
            and less chance which examples share a batch.
        order: function that chooses the examples of an epoch; by default all of them, shuffled.
    """

    def __init__(
        self,
        lengths: Sequence[int] | NDArray[np.int64],
        tokens: int,
        seed: int | None,
        window: int = 64,
        order: Order | None = None,
    ) -> None:
        self.lengths = np.asarray(lengths, np.int64)
        if len(self.lengths) == 0:
            raise ValueError("there are no examples to make batches of")
        longest = int(self.lengths.max())
        if longest > tokens:
            raise ValueError(
                f"an example has {longest} tokens, a batch may have {tokens}; allow more or shorten the examples"
            )
        self.tokens, self.seed, self.window, self.order = tokens, seed, window, order
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        yield from self.batches()

    def __len__(self) -> int:
        return len(self.batches())

    def batches(self) -> list[list[int]]:
        """Return all batches of this epoch."""
        if self.seed is None:
            return self._cut(np.argsort(self.lengths, kind="stable"))
        rng = np.random.default_rng([self.seed, self.epoch])
        order = rng.permutation(len(self.lengths)) if self.order is None else self.order(self.seed, self.epoch)
        typical = max(1, round(self.window * self.tokens / max(1.0, float(self.lengths.mean()))))
        batches: list[list[int]] = []
        for start in range(0, len(order), typical):
            part = order[start : start + typical]
            batches += self._cut(part[np.argsort(self.lengths[part], kind="stable")])
        return [batches[n] for n in rng.permutation(len(batches))]

    def padding_share(self) -> float:
        """Return the fraction of padding in all batches, from 0 to 1."""
        kept = padded = 0
        for batch in self.batches():
            lengths = self.lengths[batch]
            kept += int(lengths.sum())
            padded += len(batch) * int(lengths.max())
        return 1.0 - kept / max(1, padded)

    def _cut(self, ordered: NDArray[np.int64]) -> list[list[int]]:
        batches: list[list[int]] = []
        batch: list[int] = []
        for n in ordered.tolist():  # sorted by length, so the newest example is the longest
            if batch and (len(batch) + 1) * int(self.lengths[n]) > self.tokens:
                batches.append(batch)
                batch = []
            batch.append(n)
        return [*batches, batch]


def pad(texts: Sequence[NDArray[np.int64]], value: int) -> NDArray[np.int64]:
    """Return texts of different lengths as one array, padded on the right."""
    width = max(len(text) for text in texts)
    result = np.full((len(texts), width), value, np.int64)
    for row, text in zip(result, texts, strict=True):
        row[: len(text)] = text
    return result
