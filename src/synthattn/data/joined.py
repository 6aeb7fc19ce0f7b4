"""Several sources as one, such as two corpora to learn from at once."""

import hashlib
import itertools
import json
from collections.abc import Iterator, Sequence

from synthattn.data.source import Record, Source
from synthattn.messages import printable, suggestion

TURNS = 20
"""Few: a text is read on across records, and where a turn ends is another source's."""


class Joined:
    """The splits that all sources have: for training the records of the first source, then of the second, and so on;
    others in turns, a stretch of each, so that the beginning of a split, which may be all that is looked at, is like
    the whole.

    Records keep the columns of their own source. Messages begin with its name, since files of different folders are
    mostly called the same. A split that only some have is left out and noted: held-out records of one source alone
    would not be those of the whole. Where no validation split remains, ``HeldOut`` cuts one from all.

    Args:
        name: what the user wrote.
        sources: at least one.
    """

    def __init__(self, name: str, sources: Sequence[Source]) -> None:
        self.name, self.sources = name, tuple(sources)
        first, *others = self.sources
        self.splits = tuple(split for split in first.splits if all(split in other.splits for other in others))
        if not self.splits:
            found = "; ".join(f"{printable(source.name)} has {', '.join(source.splits)}" for source in self.sources)
            raise ValueError(f"no split is in all that is joined: {found}")

    @property
    def notes(self) -> tuple[str, ...]:
        """Those of all sources, and which of their splits are left out."""
        found = [_of(source, note) for source in self.sources for note in source.notes]
        for source in self.sources:
            others = [split for split in source.splits if split not in self.splits]
            if others:
                found.append(_of(source, f"{', '.join(others)} left out, not in all that is joined"))
        return tuple(found)

    def read(self, split: str) -> Iterator[Record]:
        if split not in self.splits:
            raise ValueError(f"{printable(self.name)} has no split {split!r}{suggestion(split, self.splits)}")
        return self._read(split)

    def fingerprint(self) -> str:
        state = json.dumps([TURNS, *(source.fingerprint() for source in self.sources)])
        return hashlib.sha256(state.encode()).hexdigest()

    def _read(self, split: str) -> Iterator[Record]:
        if split == "train":  # what is learned from is shuffled, and may be too much to be counted first
            for source in self.sources:
                yield from _read(source, split)
            return
        counts = [sum(1 for _ in _read(source, split)) for source in self.sources]
        readers = [_read(source, split) for source in self.sources]
        for turn in range(TURNS):
            for count, reader in zip(counts, readers, strict=True):
                yield from itertools.islice(reader, count * (turn + 1) // TURNS - count * turn // TURNS)


def _read(source: Source, split: str) -> Iterator[Record]:
    try:
        for record in source.read(split):
            yield Record(record.fields, _of(source, record.where))
    except ValueError as error:
        raise ValueError(_of(source, str(error))) from None


def _of(source: Source, text: str) -> str:
    name = printable(source.name)
    return text if text.startswith(name) else f"{name}: {text}"
