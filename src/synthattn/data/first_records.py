"""Read only the beginning of a training split that is too large to be read to its end."""

import itertools
from collections.abc import Iterator

from synthattn.data.source import Record, Source, WrappedSource, fingerprint_of


class FirstRecords(WrappedSource):
    """A source with the first records of its train split; other splits stay as they are.

    Args:
        source: where the records come from.
        count: number of records that are read.
    """

    def __init__(self, source: Source, count: int) -> None:
        super().__init__(source)
        self.count = count

    @property
    def notes(self) -> tuple[str, ...]:
        return (*self.source.notes, f"of train, the first {self.count:,} records are read")

    def read(self, split: str) -> Iterator[Record]:
        return itertools.islice(self.source.read(split), self.count if split == "train" else None)

    def fingerprint(self) -> str:
        return fingerprint_of(self.source.fingerprint(), self.count)
