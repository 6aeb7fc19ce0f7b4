"""Where examples come from: one small interface for files, folders, the hub and built-in data."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Record:
    """One example as its source has it: named fields, and where it stands, for messages."""

    fields: Mapping[str, Any]
    where: str
    """Such as ``train.tsv, line 17``."""


@runtime_checkable  # so that checked tests can check it
class Source(Protocol):
    """Splits of records that are read in order, one at a time, as often as wanted."""

    @property
    def name(self) -> str:
        """What the user wrote."""
        ...

    @property
    def splits(self) -> tuple[str, ...]:
        """``train``, ``validation`` and ``test`` where the source has them under any usual name, then others."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What was decided for the user, such as a held-out part that was cut; one line each."""
        ...

    def read(self, split: str) -> Iterator[Record]:
        """The records of a split; a ValueError of one line with file and line number where one is broken."""
        ...

    def fingerprint(self) -> str:
        """The same if and only if the content is the same; a key for caches and for records of runs."""
        ...
