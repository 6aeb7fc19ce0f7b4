"""Several sources read as one, such as two corpora to learn from at once."""

import itertools
from collections.abc import Iterator, Sequence

from synthattn.data.source import Record, Source, fingerprint_of
from synthattn.messages import printable

TURNS = 20
"""Number of stretches in which a split takes turns: few, since texts go on across records."""


class JoinedSources(Source):
    """A source with the splits that all of several sources have.

    Training records come from the first source, then from the second, and so on. Other splits take turns, a stretch of
    each source, so that the beginning of a split is like the whole.

    Records keep the columns of their own source. Messages begin with its name, since files of different folders often
    have equal names. A split that only some sources have is left out and noted, because it would not represent the
    whole. Where no validation split remains, ``HeldOut`` cuts one from all sources.

    Args:
        name: the text that the user wrote.
        sources: one or more sources.
    """

    def __init__(self, name: str, sources: Sequence[Source]) -> None:
        first, *others = self.sources = tuple(sources)
        super().__init__(name, (split for split in first.splits if all(split in other.splits for other in others)))
        if not self.splits:
            found = "; ".join(f"{printable(source.name)} has {', '.join(source.splits)}" for source in self.sources)
            raise ValueError(f"no split is in all that is joined: {found}")
        for source in self.sources:
            left_out = [split for split in source.splits if split not in self.splits]
            if left_out:
                self.note(_of(source, f"{', '.join(left_out)} left out, not in all that is joined"))

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes of all sources, and the splits that are left out."""
        return (*(_of(source, note) for source in self.sources for note in source.notes), *super().notes)

    def fingerprint(self) -> str:
        return fingerprint_of(TURNS, *(source.fingerprint() for source in self.sources))

    def records(self, split: str) -> Iterator[Record]:
        if split == "train":  # training data is shuffled later, and may be too large to count first
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
