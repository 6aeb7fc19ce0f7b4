"""Data sources: one small interface for files, folders, the hub and built-in data."""

import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from synthattn.messages import printable, suggestion


@dataclass(frozen=True, slots=True)
class Record:
    """One example as its source has it: named fields, and its place for messages."""

    fields: Mapping[str, Any]
    where: str
    """The place, such as ``train.tsv, line 17``."""


class Source:
    """Base class of sources: splits of records, which can be read in order as often as needed.

    Args:
        name: the text that the user wrote.
        splits: names of the splits: ``train``, ``validation`` and ``test`` where they exist, then others.
        notes: decisions made for the user, such as a held-out split that was cut; one line each.
    """

    def __init__(self, name: str, splits: Iterable[str] = (), notes: Iterable[str] = ()) -> None:
        self.name, self.splits = name, tuple(splits)
        self._notes = dict.fromkeys(notes)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return the notes so far. Some are known only after a split was read to its end."""
        return tuple(self._notes)

    def note(self, text: str) -> None:
        """Add a note, unless there is an equal one."""
        self._notes[text] = None

    def read(self, split: str) -> Iterator[Record]:
        """Yield the records of a split; a broken one raises a one-line ValueError with file and line number."""
        check_split(self, split)
        return self.records(split)

    def records(self, split: str) -> Iterator[Record]:
        """Yield the records of a split that exists."""
        raise NotImplementedError

    def fingerprint(self) -> str:
        """Return a hash of the content, the key for caches and for records of runs."""
        raise NotImplementedError


class WrappedSource(Source):
    """Base class of sources that change the records of another source."""

    def __init__(self, source: Source) -> None:
        super().__init__(source.name, source.splits)
        self.source = source

    @property
    def notes(self) -> tuple[str, ...]:
        return (*self.source.notes, *super().notes)


class FirstRecords(WrappedSource):
    """A source with the first ``count`` records of its train split, which may be too large to be read to its end."""

    def __init__(self, source: Source, count: int) -> None:
        super().__init__(source)
        self.count = count
        self.note(f"of train, the first {count:,} records are read")

    def records(self, split: str) -> Iterator[Record]:
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
