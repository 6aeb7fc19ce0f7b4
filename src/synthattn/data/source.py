"""Data sources: one small interface for files, folders, the hub and built-in data."""

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from synthattn.messages import printable, suggestion


@dataclass(frozen=True, slots=True)
class Record:
    """One example as its source has it: named fields, and its place for messages."""

    fields: Mapping[str, Any]
    where: str
    """The place, such as ``train.tsv, line 17``."""


@runtime_checkable  # so that checked tests can check it
class Source(Protocol):
    """Splits of records, which can be read in order as often as needed."""

    @property
    def name(self) -> str:
        """The text that the user wrote."""
        ...

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits: ``train``, ``validation`` and ``test`` where they exist, then others."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """Decisions made for the user, such as a held-out split that was cut; one line each."""
        ...

    def read(self, split: str) -> Iterator[Record]:
        """Yield the records of a split; a broken one raises a one-line ValueError with file and line number."""
        ...

    def fingerprint(self) -> str:
        """Return a hash of the content, the key for caches and for records of runs."""
        ...


class WrappedSource:
    """Base of sources that change another source; whatever a subclass leaves out is passed through."""

    def __init__(self, source: Source) -> None:
        self.source = source

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def splits(self) -> tuple[str, ...]:
        return self.source.splits

    @property
    def notes(self) -> tuple[str, ...]:
        return self.source.notes


class FirstRecords(WrappedSource):
    """A source with the first ``count`` records of its train split, which may be too large to be read to its end."""

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


def fingerprint_of(*state: Any) -> str:
    """Return the SHA-256 of values that JSON can hold."""
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def check_split(source: Source, split: str) -> None:
    """Raise a ValueError that names the splits of a source unless it has this one."""
    if split not in source.splits:
        raise ValueError(f"{printable(source.name)} has no split {split!r}{suggestion(split, source.splits)}")
