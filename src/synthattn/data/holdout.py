"""Held-out parts for sources that come without them."""

import functools
import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from synthattn.data.source import Record, Source
from synthattn.messages import suggestion


class HeldOut:
    """A source with the splits that it lacks cut from its train split.

    A record is held out by the CRC-32 of what is used of it (as JSON with sorted keys), modulo ``every``: 0 is the
    first split that is missing, 1 the second. So the cut does not depend on the order of the records or on a seed, and
    records that are added later move no other. What occurs twice is on one side only, also where the two have different
    numbers in a column that nobody reads.

    Args:
        source: where the records come from.
        splits: those that there shall be. A source that has them, or has no train split, stays as it is.
        every: each missing split gets about one record of this many.
        columns: what is used of a record: names of columns, each with others under which the same may be found, of
            which the first one counts that a record has. All of a record that has none of them, and of all records
            unless given.
    """

    def __init__(
        self,
        source: Source,
        splits: Sequence[str] = ("validation",),
        every: int = 50,
        columns: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        missing = [split for split in splits if split not in source.splits] if "train" in source.splits else []
        if every <= len(missing):
            raise ValueError(f"every={every} leaves nothing to train on; it must be at least {len(missing) + 1}")
        if "train" in missing:
            raise ValueError("train cannot be held out; choose from validation, test")
        self.source, self.every = source, every
        self._names = [(name, *others) for name, others in (columns or {}).items()]
        self._bucket = {split: bucket for bucket, split in enumerate(missing)}
        self._counts: dict[str, int] = {}

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def splits(self) -> tuple[str, ...]:
        have = (*self.source.splits, *self._bucket)
        first = tuple(split for split in ("train", "validation", "test") if split in have)
        return first + tuple(split for split in have if split not in first)

    @property
    def notes(self) -> tuple[str, ...]:
        """Those of the source, and what was cut; how many records that are is known once the split was read."""
        cut = []
        for split in self._bucket:
            count = f", {self._counts[split]} records" if split in self._counts else ""
            cut.append(f"no {split} split: every {self.every}th of train by hash{count}")
        return (*self.source.notes, *cut)

    def read(self, split: str) -> Iterator[Record]:
        if split not in self.splits:
            raise ValueError(f"{self.name} has no split {split!r}{suggestion(split, self.splits)}")
        if split in self._bucket:
            return self._held_out(split)
        return self._kept() if split == "train" and self._bucket else self.source.read(split)

    def fingerprint(self) -> str:
        if not self._bucket:
            return self.source.fingerprint()
        cut = [self.source.fingerprint(), self.every, list(self._bucket)]
        # Where everything is used, the cut is that of all columns, and so is its name.
        cut += [self._names] if self._names and self._leaves_out else []
        return hashlib.sha256(json.dumps(cut).encode()).hexdigest()

    @functools.cached_property
    def _leaves_out(self) -> bool:
        """Whether there is a column that is not used, by the first record: in nearly all files the others are alike."""
        first = next(iter(self.source.read("train")), None)
        return first is not None and len(self._used(first)) < len(first.fields)

    def _used(self, record: Record) -> Mapping[str, Any]:
        fields = record.fields
        found = [next((name for name in names if name in fields), None) for names in self._names]
        return {name: fields[name] for name in found if name is not None} or fields

    def _place(self, record: Record) -> int:
        return content_hash(self._used(record)) % self.every

    def _kept(self) -> Iterator[Record]:
        held_out = set(self._bucket.values())
        return (record for record in self.source.read("train") if self._place(record) not in held_out)

    def _held_out(self, split: str) -> Iterator[Record]:
        count = seen = 0
        for record in self.source.read("train"):
            seen += 1
            if self._place(record) == self._bucket[split]:
                count += 1
                yield record
        self._counts[split] = count
        if not count:
            raise ValueError(
                f"{self.name}: train has {seen} records, and none fell into the {split} split of one in {self.every}; "
                f"add a file for {split}, or hold out more"
            )


def content_hash(fields: Mapping[str, Any]) -> int:
    """The CRC-32 of a record's fields, whatever their order; of values that JSON has no word for, what they print."""
    text = json.dumps(fields, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str)
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))
