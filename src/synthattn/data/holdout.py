"""Held-out parts for sources that come without them."""

import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from synthattn.data.source import Record, Source
from synthattn.messages import suggestion


class HeldOut:
    """A source with the splits that it lacks cut from its train split.

    A record is held out by the CRC-32 of its fields (as JSON with sorted keys), modulo ``every``: 0 is the first split
    that is missing, 1 the second. So the cut does not depend on the order of the records or on a seed, a record that
    occurs twice is on one side only, and records that are added later move no other.

    Args:
        source: where the records come from.
        splits: those that there shall be. A source that has them, or has no train split, stays as it is.
        every: each missing split gets about one record of this many.
    """

    def __init__(self, source: Source, splits: Sequence[str] = ("validation",), every: int = 50) -> None:
        missing = [split for split in splits if split not in source.splits] if "train" in source.splits else []
        if every <= len(missing):
            raise ValueError(f"every={every} leaves nothing to train on; it must be at least {len(missing) + 1}")
        if "train" in missing:
            raise ValueError("train cannot be held out; choose from validation, test")
        self.source, self.every = source, every
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
        cut = json.dumps([self.source.fingerprint(), self.every, list(self._bucket)])
        return hashlib.sha256(cut.encode()).hexdigest()

    def _kept(self) -> Iterator[Record]:
        held_out = set(self._bucket.values())
        return (r for r in self.source.read("train") if content_hash(r.fields) % self.every not in held_out)

    def _held_out(self, split: str) -> Iterator[Record]:
        count = seen = 0
        for record in self.source.read("train"):
            seen += 1
            if content_hash(record.fields) % self.every == self._bucket[split]:
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
