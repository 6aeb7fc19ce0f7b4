"""How time and memory grow with length and with batch: exponents of power laws."""

import dataclasses
import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from synthattn.bench.record import Case, Measurement, Record

SERIES = ("length", "batch")
"""What may grow while all else stays."""
LONG = 512
"""Shorter inputs are left out of a fit over length where enough longer ones remain: overhead is not growth."""
ENOUGH = 3
"""Points of a fit. Any two lie on a line."""
NOISE = 1.0
"""Megabytes below which the peak of a process says nothing."""


@dataclass(frozen=True)
class Fit:
    """``value ~ size ** exponent``."""

    exponent: float
    """By least squares on logarithms."""
    last: float
    """The exponent of the last doubling alone."""
    start: int
    """The smallest size that was fitted."""


@dataclass(frozen=True)
class Growth:
    """One contender in cases that differ in one size."""

    contender: str
    over: str
    """``length`` or ``batch``."""
    held: Case
    """What stays; the size that grows is 0 in it."""
    points: list[Measurement]
    """By size, at least three of them."""
    time: Fit | None
    memory: Fit | None

    def size(self, point: Measurement) -> int:
        return getattr(point.case, self.over)


def growths(record: Record, over: str) -> list[Growth]:
    """All of one series, contenders in the order of the record."""
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
    """Its megabytes, where they are more than noise."""
    return found.megabytes if found.megabytes is not None and found.megabytes >= NOISE else None


def fit(points: Iterable[tuple[int, float]], start: int = 0) -> Fit | None:
    """The exponent over the sizes from ``start`` on, or over all where those are too few."""
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
