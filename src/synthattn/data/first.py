"""The beginning of data that are too large to be read to their end."""

import hashlib
import itertools
import json
from collections.abc import Iterator

from synthattn.data.source import Record, Source


class First:
    """A source with the first records of its train split; other splits stay as they are.

    Args:
        source: where the records come from.
        count: how many are read.
    """

    def __init__(self, source: Source, count: int) -> None:
        self.source, self.count = source, count

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def splits(self) -> tuple[str, ...]:
        return self.source.splits

    @property
    def notes(self) -> tuple[str, ...]:
        return (*self.source.notes, f"of train, the first {self.count:,} records are read")

    def read(self, split: str) -> Iterator[Record]:
        return itertools.islice(self.source.read(split), self.count if split == "train" else None)

    def fingerprint(self) -> str:
        return hashlib.sha256(json.dumps([self.source.fingerprint(), self.count]).encode()).hexdigest()
