"""Rows of several metrics in little room: each column once, in single precision where that is exact."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synthattn.metrics.base import Rows

COLUMN, PLACES = "column-{}", "columns of {}"
"""Names in the file: a column by its number, and the numbers of the columns of a metric."""


def packed_rows(rows: Mapping[str, Rows]) -> dict[str, NDArray[Any]]:
    """Return arrays for a file; metrics of the same texts have columns in common."""
    columns: dict[bytes, int] = {}
    found: dict[str, NDArray[Any]] = {}
    for name, values in rows.items():
        if values.ndim != 2 or values.dtype != np.float64:
            found[name] = values
            continue
        places = []
        for column in values.T:
            place = columns.setdefault(column.tobytes(), len(columns))
            places.append(place)
            found[COLUMN.format(place)] = _short(np.ascontiguousarray(column))
        found[PLACES.format(name)] = np.array(places, dtype=np.int64)
    return found


def unpacked_rows(found: Mapping[str, NDArray[Any]]) -> dict[str, Rows]:
    """Return the rows by metric, also from files whose metrics have an array each."""
    start, end = PLACES.split("{}")
    rows: dict[str, Rows] = {}
    for name, values in found.items():
        if name.startswith(start):
            columns = [found[COLUMN.format(place)].astype(np.float64) for place in values]
            rows[name.removeprefix(start).removesuffix(end)] = np.stack(columns, axis=1)
        elif not name.startswith(COLUMN.split("{}")[0]):
            rows[name] = values
    return rows


def _short(column: NDArray[np.float64]) -> NDArray[Any]:
    """Return a column in the smallest type that holds it exactly."""
    for kind in (np.int16, np.int32, np.float32):
        with np.errstate(all="ignore"):
            short = column.astype(kind)
        if short.astype(np.float64).tobytes() == column.tobytes():
            return short
    return column
