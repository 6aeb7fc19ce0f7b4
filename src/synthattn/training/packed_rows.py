"""Rows of several metrics in little room: each column once, in the smallest type that holds it exactly."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synthattn.metrics.base import Rows

KINDS = (np.int8, np.int16, np.int32, np.float32, np.float64)
COLUMNS, PLACES = "columns of {} {}", "places of {}"
"""Names in the file: all columns of a length and a type, and for each column of a metric the type and the number."""


def packed_rows(rows: Mapping[str, Rows]) -> dict[str, NDArray[Any]]:
    """Return arrays for a file; metrics of the same texts have columns in common."""
    known: dict[bytes, tuple[int, int]] = {}
    columns: dict[str, list[NDArray[Any]]] = {}
    found: dict[str, NDArray[Any]] = {}
    for name, values in rows.items():
        if values.ndim != 2 or values.dtype != np.float64:
            found[name] = values
            continue
        places = []
        for column in values.T:
            content = column.tobytes()
            if content not in known:
                kind, short = _shortest(column)
                same = columns.setdefault(COLUMNS.format(len(column), kind), [])
                known[content] = kind, len(same)
                same.append(short)
            places.append(known[content])
        found[PLACES.format(name)] = np.array([[len(values), len(values)], *places], dtype=np.int32)
    return found | {name: np.stack(same) for name, same in columns.items()}


def unpacked_rows(found: Mapping[str, NDArray[Any]]) -> dict[str, Rows]:
    """Return the rows by metric, also from files whose metrics have an array each."""
    rows: dict[str, Rows] = {}
    for name, values in found.items():
        if name.startswith(PLACES.format("")):
            (length, _), *places = values.tolist()
            columns = [found[COLUMNS.format(length, kind)][n].astype(np.float64) for kind, n in places]
            rows[name.removeprefix(PLACES.format(""))] = np.stack(columns, axis=1)
        elif not name.startswith(COLUMNS.split("{}")[0]):
            rows[name] = values
    return rows


def _shortest(column: NDArray[np.float64]) -> tuple[int, NDArray[Any]]:
    for number, kind in enumerate(KINDS):
        with np.errstate(all="ignore"):
            short = column.astype(kind)
        if short.astype(np.float64).tobytes() == column.tobytes():
            return number, short
    raise AssertionError("float64 holds every column")
