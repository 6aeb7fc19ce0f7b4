"""Texts as numbers, kept in two flat files that are mapped into memory: one of tokens, one of where each text ends."""

from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

CHUNK = 1 << 20


class Encoded(Sequence[NDArray[np.int64]]):
    """A list of texts as token ids, read from disk where they are needed."""

    def __init__(self, folder: Path, name: str) -> None:
        ends = np.load(folder / f"{name}.ends.npy", mmap_mode="r")
        self.ends: NDArray[np.int64] = ends
        dtype = np.dtype((folder / f"{name}.dtype").read_text())
        total = int(ends[-1]) if len(ends) else 0
        path = folder / f"{name}.ids"
        self.ids = np.memmap(path, dtype=dtype, mode="r", shape=(total,)) if total else np.empty(0, dtype)

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, n: int) -> NDArray[np.int64]:  # type: ignore[override]
        n = range(len(self))[n]
        start = int(self.ends[n - 1]) if n else 0
        return self.ids[start : int(self.ends[n])].astype(np.int64)

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.ends, prepend=0)


class Writer:
    """Writes texts one after the other, with little of them in memory."""

    def __init__(self, folder: Path, name: str, vocab_size: int) -> None:
        self.folder, self.name = folder, name
        self.dtype = np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.uint32)
        self.file = (folder / f"{name}.ids").open("wb")
        self.ends = array("q")
        self.pending: list[int] = []
        self.total = 0

    def add(self, text: Sequence[int]) -> None:
        self.total += len(text)
        self.ends.append(self.total)
        self.pending.extend(text)
        if len(self.pending) >= CHUNK:
            self._flush()

    def close(self) -> None:
        self._flush()
        self.file.close()
        np.save(self.folder / f"{self.name}.ends.npy", np.asarray(self.ends, np.int64))
        (self.folder / f"{self.name}.dtype").write_text(self.dtype.name)

    def _flush(self) -> None:
        self.file.write(np.asarray(self.pending, self.dtype).tobytes())
        self.pending = []


def write(folder: Path, name: str, texts: Iterable[Sequence[int]], vocab_size: int) -> int:
    """Write all texts; their number."""
    writer = Writer(folder, name, vocab_size)
    for text in texts:
        writer.add(text)
    writer.close()
    return len(writer.ends)


class Packed(Sequence[NDArray[np.int64]]):
    """All texts one after the other, cut into pieces of the same length; the last, shorter piece is kept."""

    def __init__(self, texts: Encoded, length: int) -> None:
        if length < 1:
            raise ValueError(f"length must be at least 1, got {length}")
        self.ids, self.length = texts.ids, length

    def __len__(self) -> int:
        return -(-len(self.ids) // self.length)

    def __getitem__(self, n: int) -> NDArray[np.int64]:  # type: ignore[override]
        n = range(len(self))[n]
        return self.ids[n * self.length : (n + 1) * self.length].astype(np.int64)
