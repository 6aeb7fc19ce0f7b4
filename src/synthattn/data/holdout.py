"""Cut held-out splits for sources that have none."""

import functools
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from synthattn.data.source import Record, Source, WrappedSource, fingerprint_of


class HeldOut(WrappedSource):
    """A source whose missing splits are cut from its train split.

    A record is held out by the CRC-32 of its used columns (as JSON with sorted keys), modulo ``every``: 0 is the first
    missing split, 1 the second. The cut depends neither on the order of the records nor on a seed, and records that are
    added later do not move others. Equal records land in one split, even if they differ in an unused column.

    Args:
        source: where the records come from.
        splits: names of the required splits. A source that has them, or has no train split, is not changed.
        every: each missing split gets about one in ``every`` records.
        columns: used columns, each with alternative names; the first name that a record has counts. All columns
            of a record that has none of them are used; by default, all columns.
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
        super().__init__(source)
        have = (*self.splits, *missing)
        self.splits = tuple(dict.fromkeys((*(one for one in ("train", "validation", "test") if one in have), *have)))
        self.every = every
        self._names = [(name, *others) for name, others in (columns or {}).items()]
        self._bucket = {split: bucket for bucket, split in enumerate(missing)}
        self._counts: dict[str, int] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes of the source, and the splits that were cut; their sizes are known after they were read."""
        cut = []
        for split in self._bucket:
            count = f", {self._counts[split]} records" if split in self._counts else ""
            cut.append(f"no {split} split: every {self.every}th of train by hash{count}")
        return (*super().notes, *cut)

    def records(self, split: str) -> Iterator[Record]:
        if split in self._bucket:
            return self._held_out(split)
        return self._kept() if split == "train" and self._bucket else self.source.read(split)

    def fingerprint(self) -> str:
        if not self._bucket:
            return self.source.fingerprint()
        # If every column is used, the cut equals a cut by all columns, and so must its fingerprint.
        names = [self._names] if self._names and self._leaves_out else []
        return fingerprint_of(self.source.fingerprint(), self.every, list(self._bucket), *names)

    @functools.cached_property
    def _leaves_out(self) -> bool:
        """True if some column is not used, judged by the first record: in nearly all files the others are alike."""
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
    """Return the CRC-32 of fields in any order; values unknown to JSON are printed first."""
    text = json.dumps(fields, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str)
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))
