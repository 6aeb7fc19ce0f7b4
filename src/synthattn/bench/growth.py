"""Growth of time and memory with length and with batch: exponents of power laws."""

import dataclasses
import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from synthattn.bench.record import BenchRecord, Case, Measurement

SERIES = ("length", "batch")
"""Fields of a case that may grow while all others stay."""
LONG = 512
"""Shorter inputs are left out of a fit over length if enough longer ones remain, because overhead is not growth."""
ENOUGH = 3
"""Points that a fit needs; any two lie on a line."""
NOISE = 1.0
"""Megabytes below which the peak of a process says nothing."""


@dataclass(frozen=True)
class Fit:
    """A power law, ``value ~ size ** exponent``."""

    exponent: float
    """The slope, by least squares on logarithms."""
    last: float
    """The exponent of the last doubling alone."""
    start: int
    """The smallest size that was fitted."""


@dataclass(frozen=True)
class Growth:
    """Measurements of one contender in cases that differ in one size."""

    contender: str
    over: str
    """``length`` or ``batch``."""
    held: Case
    """The case with 0 in place of the size that grows."""
    points: list[Measurement]
    """Measurements by size, at least three."""
    time: Fit | None
    memory: Fit | None

    def size(self, point: Measurement) -> int:
        return getattr(point.case, self.over)


def growths(record: BenchRecord, over: str) -> list[Growth]:
    """Return all growths of one series, contenders in the order of the record."""
    groups: dict[tuple[str, Case], dict[int, Measurement]] = {}
    for found in record.measurements:
        held = dataclasses.replace(found.case, **{over: 0})
        groups.setdefault((found.contender, held), {})[getattr(found.case, over)] = found
    start = LONG if over == "length" else 0
    result = []
    for (contender, held), by_size in groups.items():
        if len(by_size) < ENOUGH:
            continue
        sizes = sorted(by_size)
        seconds = ((size, by_size[size].seconds) for size in sizes if by_size[size].seconds > 0)
        megabytes = ((size, found) for size in sizes if (found := measurable(by_size[size])) is not None)
        points = [by_size[size] for size in sizes]
        result.append(Growth(contender, over, held, points, fit(seconds, start), fit(megabytes, start)))
    return result


def measurable(found: Measurement) -> float | None:
    """Return the megabytes of a measurement, if they are more than noise."""
    return found.megabytes if found.megabytes is not None and found.megabytes >= NOISE else None


def fit(points: Iterable[tuple[int, float]], start: int = 0) -> Fit | None:
    """Fit the exponent over sizes from ``start`` on, or over all sizes if those are too few."""
    every = sorted(points)
    long = [point for point in every if point[0] >= start]
    fitted = long if len(long) >= ENOUGH else every
    if len(fitted) < ENOUGH:
        return None
    sizes, values = ([math.log(number) for number in numbers] for numbers in zip(*fitted, strict=True))
    end = every[-1]
    half = max((point for point in every if 2 * point[0] <= end[0]), default=every[0])
    last = math.log(end[1] / half[1]) / math.log(end[0] / half[0])
    return Fit(statistics.linear_regression(sizes, values).slope, last, fitted[0][0])
