"""Batches of about the same number of tokens, of texts of about the same length.

The order depends on the seed and the epoch alone, not on workers or models: every model of a comparison sees the same
batches in the same order.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

Order = Callable[[int, int], NDArray[np.int64]]
"""From a seed and an epoch to the numbers of the examples that make the epoch, in any order."""


class TokenBatches:
    """A batch sampler for ``torch.utils.data.DataLoader``: lists of numbers of examples.

    Args:
        lengths: tokens of each example; for two texts the longer one, since both are padded.
        tokens: no batch has more, padding included.
        seed: of the order; None for the order of the lengths, without chance.
        window: how many batches' worth of examples are sorted by length together. More means less padding and less
            chance in which examples meet.
        order: which examples make an epoch, and in which order they come to be sorted; all, shuffled, unless given.
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
        """All batches of this epoch."""
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
        """How much of the batches is padding, from 0 to 1."""
        kept = padded = 0
        for batch in self.batches():
            lengths = self.lengths[batch]
            kept += int(lengths.sum())
            padded += len(batch) * int(lengths.max())
        return 1.0 - kept / max(1, padded)

    def _cut(self, ordered: NDArray[np.int64]) -> list[list[int]]:
        batches: list[list[int]] = []
        batch: list[int] = []
        for n in ordered.tolist():  # from short to long: the newest is the longest
            if batch and (len(batch) + 1) * int(self.lengths[n]) > self.tokens:
                batches.append(batch)
                batch = []
            batch.append(n)
        return [*batches, batch]


def pad(texts: Sequence[NDArray[np.int64]], value: int) -> NDArray[np.int64]:
    """Texts of several lengths as one array, padded on the right."""
    width = max(len(text) for text in texts)
    result = np.full((len(texts), width), value, np.int64)
    for row, text in zip(result, texts, strict=True):
        row[: len(text)] = text
    return result
