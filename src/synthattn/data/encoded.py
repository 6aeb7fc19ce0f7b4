"""Encoded texts in two memory-mapped files: the token ids of all texts, and the end of each text."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

CHUNK = 1 << 18


class Encoded(Sequence[NDArray[np.int64]]):
    """A sequence of texts as token ids that are read from disk on access."""

    def __init__(self, folder: Path, name: str) -> None:
        try:
            self.ends = _mapped(folder / f"{name}.ends", np.dtype(np.int64))
            self.ids = _mapped(folder / f"{name}.ids", np.dtype((folder / f"{name}.dtype").read_text()))
        except (OSError, ValueError, TypeError) as error:
            raise ValueError(f"{folder} is damaged ({error}); remove it, and it is made again") from error
        if len(self.ids) != (int(self.ends[-1]) if len(self.ends) else 0):
            raise ValueError(f"{folder} is damaged ({name} is cut short); remove it, and it is made again")

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, n: int) -> NDArray[np.int64]:  # type: ignore[override]
        n = range(len(self))[n]
        start = int(self.ends[n - 1]) if n else 0
        return self.ids[start : int(self.ends[n])].astype(np.int64)

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.ends, prepend=0)


def _mapped(path: Path, dtype: np.dtype[Any]) -> NDArray[Any]:
    # An empty file cannot be mapped.
    return np.memmap(path, dtype=dtype, mode="r") if path.stat().st_size else np.empty(0, dtype)


class Writer:
    """Write encoded texts one by one while keeping few of them in memory."""

    def __init__(self, folder: Path, name: str, vocab_size: int) -> None:
        self.folder, self.name = folder, name
        self.dtype = np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.uint32)
        self.ids, self.ends = ((folder / f"{name}.{kind}").open("wb") for kind in ("ids", "ends"))
        self.pending_ids: list[int] = []
        self.pending_ends: list[int] = []
        self.texts = self.tokens = 0

    def add(self, text: Sequence[int]) -> None:
        self.texts += 1
        self.tokens += len(text)
        self.pending_ends.append(self.tokens)
        self.pending_ids.extend(text)
        if len(self.pending_ids) + len(self.pending_ends) >= CHUNK:
            self._flush()

    def close(self) -> None:
        self._flush()
        self.ids.close()
        self.ends.close()
        (self.folder / f"{self.name}.dtype").write_text(self.dtype.name)

    def _flush(self) -> None:
        self.ids.write(np.asarray(self.pending_ids, self.dtype).tobytes())
        self.ends.write(np.asarray(self.pending_ends, np.int64).tobytes())
        self.pending_ids, self.pending_ends = [], []


def write(folder: Path, name: str, texts: Iterable[Sequence[int]], vocab_size: int) -> int:
    """Write all texts and return their number."""
    writer = Writer(folder, name, vocab_size)
    for text in texts:
        writer.add(text)
    writer.close()
    return writer.texts


class Pieces(Sequence[NDArray[np.int64]]):
    """Consecutive pieces of the texts: piece n holds the tokens from ``starts[n]`` up to ``starts[n + 1]``."""

    def __init__(self, texts: Encoded, starts: NDArray[np.int64]) -> None:
        self.texts, self.starts = texts, np.append(starts, len(texts.ids))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, n: int) -> NDArray[np.int64]:  # type: ignore[override]
        n = range(len(self))[n]
        return self.texts.ids[int(self.starts[n]) : int(self.starts[n + 1])].astype(np.int64)

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.starts)


def packed(texts: Encoded, length: int) -> Pieces:
    """Concatenate all texts and cut them into pieces of equal length; the shorter last piece is kept."""
    return Pieces(texts, np.arange(0, len(texts.ids), length))


def cut(texts: Encoded, length: int) -> Pieces:
    """Take every text by itself; texts longer than ``length`` are cut into several pieces."""
    lengths = texts.lengths
    pieces = -(-lengths // length)
    first = np.repeat(texts.ends - lengths, pieces)
    number = np.arange(len(first)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    return Pieces(texts, first + number * length)
