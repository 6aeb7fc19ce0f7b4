"""Write data that is in memory as a folder of JSON lines: lists, pandas and polars frames, ``datasets``."""

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from synthattn.data.cache import cache_folder, cached_folder

SPLITS = ("train", "validation", "test")
NAMES = {"valid": "validation", "dev": "validation", "eval": "validation"}
"""Other names of splits."""


def as_source(data: Any) -> str:
    """Return the name of a source with some data, as options and settings have it.

    Args:
        data: a path or a name of a source, which is returned; or records: a list of dicts, a pandas or polars frame,
            a ``datasets.Dataset``; or these by split, such as ``{"train": frame, "test": frame}`` or a
            ``datasets.DatasetDict``. Records without a split are those of training. They are written into the cache,
            in a folder that is named after their content.
    """
    if isinstance(data, str | Path):
        return str(data)
    splits = {NAMES.get(str(name), str(name)): found for name, found in _splits(data).items()}
    unknown = sorted(splits.keys() - set(SPLITS))
    if unknown or "train" not in splits:
        raise ValueError(f"data needs a split train, and may have validation and test; got {', '.join(sorted(splits))}")
    digest = hashlib.sha256()
    for name, found in splits.items():
        for line in _lines(found, name):
            digest.update(f"{name}\t{line}".encode())
    return str(cached_folder("data", digest.hexdigest()[:24], lambda folder: _write(folder, splits)))


def readable_source(source: str) -> str:
    """Return the name of a source for readers, to whom a folder of the cache would say nothing."""
    return "data in memory" if Path(source).parent == cache_folder() / "data" else source


def _splits(data: Any) -> Mapping[str, Any]:
    columns = isinstance(data, Mapping) and any(isinstance(value, list | tuple) for value in data.values())
    if not isinstance(data, Mapping):
        return {"train": data}
    # Of a dict of lists, splits have records, and columns have texts or numbers.
    if columns and not all(isinstance(one, Mapping) for value in data.values() for one in value[:1]):
        return {"train": [dict(zip(data, row, strict=True)) for row in zip(*data.values(), strict=True)]}
    return data


def _write(folder: Path, splits: Mapping[str, Any]) -> None:
    for name, found in splits.items():
        with (folder / f"{name}.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(_lines(found, name))


def _lines(records: Any, split: str) -> Iterator[str]:
    for number, record in enumerate(_records(records, split), 1):
        if not isinstance(record, Mapping):
            raise ValueError(f"data, {split}, record {number}: a record must be a dict, got a {type(record).__name__}")
        try:
            yield json.dumps({str(name): _plain(value) for name, value in record.items()}, ensure_ascii=False) + "\n"
        except (TypeError, ValueError) as error:
            raise ValueError(f"data, {split}, record {number}: {error}") from error


def _records(data: Any, split: str) -> Iterable[Any]:
    """Return the rows of a frame, or the records themselves."""
    if hasattr(data, "iter_rows"):  # polars
        return data.iter_rows(named=True)
    if hasattr(data, "to_dict") and hasattr(data, "columns"):  # pandas
        return data.to_dict("records")
    if isinstance(data, Iterable) and not isinstance(data, str | bytes | Mapping):
        return data
    raise ValueError(
        f"data, {split}: got a {type(data).__name__}; give a path, a list of dicts, a pandas or polars frame, or a "
        "datasets.Dataset"
    )


def _plain(value: Any) -> Any:
    """Return a value that JSON can hold; numbers of NumPy and missing values of pandas become those of Python."""
    if hasattr(value, "item") and not isinstance(value, str | bytes) and getattr(value, "shape", None) == ():
        value = value.item()
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value
