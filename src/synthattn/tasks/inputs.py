"""Encoded examples as model inputs, one class per kind of task, and the batches of a whole run."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from synthattn.data.batching import Order, TokenBatches, pad
from synthattn.data.encoded import Encoded, Pieces, packed
from synthattn.data.spans import corrupt, noise_mask, text_length
from synthattn.tasks.encoding import EncodedSplit

IGNORED = -100
"""The label of a position without a prediction."""

START = PADDING = 0
"""T5's ids: a decoder starts from the padding token."""

Ids = NDArray[np.int64]
Item = tuple[Ids, ...]
Key = tuple[int, int, bool]
"""The epoch and index of an example, and whether it counts; False for one that only fills a batch."""


class Inputs(Dataset[Item]):
    """Base class of model inputs by index. An example may depend on the epoch, as in span corruption."""

    lengths: Ids
    """Tokens of each example for batching; the longer text counts where there are two."""
    order: Order | None = None
    """Function that chooses the examples of an epoch; None means all."""

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, key: Key) -> Item:
        epoch, n, counts = key
        item = self.item(epoch, n)
        return item if counts else (*item[:-1], np.full_like(item[-1], IGNORED))

    def item(self, epoch: int, n: int) -> Item:
        """Return the arrays of an example: the input first, the labels last."""
        raise NotImplementedError

    def collate(self, items: Sequence[Item]) -> dict[str, Tensor]:
        """Return a batch that is padded on the right."""
        read = pad([item[0] for item in items], PADDING)
        lengths = np.array([len(item[0]) for item in items])
        mask = np.arange(read.shape[1]) < lengths[:, None]
        labels = pad([item[-1] for item in items], IGNORED)
        return {
            "input_ids": torch.from_numpy(read),
            "attention_mask": torch.from_numpy(mask.astype(np.int64)),
            "labels": torch.from_numpy(labels),
        }

    def batch(self, numbers: Sequence[int], epoch: int = 0) -> dict[str, Tensor]:
        return self.collate([self[epoch, n, True] for n in numbers])


class PairInputs(Inputs):
    """Pairs of a text to read and a text to write."""

    def __init__(self, split: EncodedSplit, limit: int | None = None) -> None:
        self.source, self.target = split.source, split.target
        self.lengths = np.maximum(self.source.lengths, self.target.lengths)[:limit]

    def item(self, epoch: int, n: int) -> Item:
        return self.source[n], self.target[n]


class TextInputs(Inputs):
    """Texts for language modelling: each token is predicted from the tokens before it."""

    def __init__(self, texts: Pieces, limit: int | None = None) -> None:
        self.texts = texts
        self.lengths = texts.lengths[:limit] + 1

    def item(self, epoch: int, n: int) -> Item:
        text = self.texts[n]
        return np.append(START, text), np.append(IGNORED, text)


class SpanInputs(Inputs):
    """Texts with hidden spans, which are the labels; the spans change with every epoch."""

    def __init__(
        self, texts: Pieces, first_sentinel: int, end: int, seed: int, density: float, mean_span: float
    ) -> None:
        self.texts, self.first_sentinel, self.end, self.seed = texts, first_sentinel, end, seed
        self.density, self.mean_span = density, mean_span
        self.lengths = texts.lengths

    def item(self, epoch: int, n: int) -> Item:
        text = self.texts[n]
        mask = noise_mask(len(text), self.density, self.mean_span, np.random.default_rng([self.seed, epoch, n]))
        return corrupt(text, mask, self.first_sentinel, self.end)


class ClassInputs(PairInputs):
    """Texts to read, each with the number of its class."""

    def collate(self, items: Sequence[Item]) -> dict[str, Tensor]:
        batch = super().collate(items)
        return {**batch, "labels": batch["labels"].squeeze(1)}


class MixedInputs(Inputs):
    """Several tasks mixed in proportion to their sizes, which count as ``limit`` at most."""

    def __init__(self, parts: Sequence[Inputs], limit: int | None) -> None:
        self.parts = list(parts)
        sizes = [len(part) for part in parts]
        self.starts = np.cumsum([0, *sizes])
        self.lengths = np.concatenate([part.lengths for part in parts])
        self.order = mixed_order(sizes, limit)

    def item(self, epoch: int, n: int) -> Item:
        part = int(np.searchsorted(self.starts, n, side="right")) - 1
        return self.parts[part].item(epoch, n - int(self.starts[part]))


def mixed_order(sizes: Sequence[int], limit: int | None) -> Order:
    """Return an order that mixes tasks in proportion to their sizes, as the paper co-trains GLUE and SuperGLUE.

    Examples are numbered one task after the other. An epoch holds all examples of each task, but at most ``limit``; T5
    draws the same number only on average. A task with more than ``limit`` examples is read over several epochs, in
    shuffled rounds.
    """
    starts = np.cumsum([0, *sizes])

    def chosen(task: int, size: int, seed: int, epoch: int) -> Ids:
        """Return examples ``epoch * count`` to ``(epoch + 1) * count`` of the endless shuffled rounds."""
        count = size if limit is None else min(size, limit)
        first, last = epoch * count // size, ((epoch + 1) * count - 1) // size
        rounds = [np.random.default_rng([seed, task, n]).permutation(size) for n in range(first, last + 1)]
        begin = epoch * count - first * size
        return starts[task] + np.concatenate(rounds)[begin : begin + count]

    def order(seed: int, epoch: int) -> Ids:
        together = np.concatenate([chosen(task, size, seed, epoch) for task, size in enumerate(sizes)])
        return together[np.random.default_rng([seed, epoch]).permutation(len(together))]

    return order


def span_inputs(
    texts: Encoded, inputs: int, tokenizer: Any, seed: int, density: float = 0.15, mean_span: float = 3.0
) -> SpanInputs:
    """Return inputs for span corruption of packed texts, with at most ``inputs`` tokens each."""
    length, answer = text_length(inputs, density, mean_span)
    sentinels = round(round(length * density) / mean_span)  # rounded twice, as in noise_mask
    if sentinels > 100:
        raise ValueError(
            f"inputs of {inputs} tokens need {sentinels} sentinels, the vocabulary has 100; make inputs shorter"
        )
    if answer > inputs:
        raise ValueError(f"answers of span corruption would have {answer} tokens, the model takes {inputs}")
    return SpanInputs(
        packed(texts, length), tokenizer.convert_tokens_to_ids("<extra_id_0>"), tokenizer.eos_token_id, seed, density,
        mean_span,
    )  # fmt: skip


class RunBatches:
    """Batch sampler for ``torch.utils.data.DataLoader`` that yields the batches of all epochs of a run.

    Args:
        batches: the batches of one epoch.
        count: total number of batches.
        rank: index of this process; each process takes its share of every batch.
        world: number of processes.
    """

    def __init__(self, batches: TokenBatches, count: int, rank: int = 0, world: int = 1) -> None:
        self.batches, self.count, self.rank, self.world = batches, count, rank, world
        self._whole: list[tuple[int, int]] = []  # batches and tokens of each epoch that was counted

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[list[Key]]:
        left = self.count
        epoch = 0
        while left:
            self.batches.set_epoch(epoch)
            for batch in self.batches.batches()[:left]:
                # All processes must take part: one without an example computes an example that does not count.
                mine = batch[self.rank :: self.world]
                yield [(epoch, n, True) for n in mine] or [(epoch, batch[0], False)]
                left -= 1
            epoch += 1

    def until(self, tokens: int) -> int:
        """Return the number of batches that hold this many tokens."""
        seen = count = epoch = 0
        while seen < tokens:
            self.batches.set_epoch(epoch)
            for batch in self.batches.batches():
                seen += int(self.batches.lengths[batch].sum())
                count += 1
                if seen >= tokens:
                    break
            epoch += 1
        return count

    def seen(self, count: int) -> tuple[int, float]:
        """Return the number of tokens and of epochs in the first ``count`` batches."""
        tokens, left = 0, count
        for length, inside in self._whole:
            if left < length:
                break
            tokens, left = tokens + inside, left - length
        epoch = sum(1 for _ in itertools.takewhile(lambda done: done <= count, self._ends()))
        while True:
            self.batches.set_epoch(epoch)
            batches = self.batches.batches()
            inside = sum(int(self.batches.lengths[batch].sum()) for batch in batches[:left])
            if left < len(batches):
                return tokens + inside, epoch + left / len(batches)
            self._whole.append((len(batches), inside))
            tokens, left, epoch = tokens + inside, left - len(batches), epoch + 1

    def _ends(self) -> Iterator[int]:
        return itertools.accumulate(length for length, _ in self._whole)
