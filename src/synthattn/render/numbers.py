"""Numbers as people read them, the same on pages, in Markdown and in a terminal."""

import math
import re
from collections.abc import Callable, Iterable

MINUS, TIMES, NOTHING = "\N{MINUS SIGN}", "\N{MULTIPLICATION SIGN}", "\N{EN DASH}"
Number = int | float
LONGEST = 27
"""Letters of a name in a chart; the rest is in the tip."""


def fixed(value: Number, places: int) -> str:
    text = f"{value:,.{places}f}"
    return text.replace("-", MINUS) if any(digit in text for digit in "123456789") else text.replace("-", "")


def signed(value: Number, places: int) -> str:
    text = fixed(value, places)
    return text if text.startswith(MINUS) or not any(digit in text for digit in "123456789") else f"+{text}"


def interval(value: Number, low: Number, high: Number) -> str:
    """Return a difference with the ends of its interval, with as many digits as the interval needs, at least cents."""
    half = (high - low) / 2
    places = min(6, max(2, 1 - math.floor(math.log10(half)))) if 0 < half < math.inf else 2
    return f"{signed(value, places)} [{signed(low, places)}, {signed(high, places)}]"


def digits(value: Number, count: int = 3) -> str:
    """Return a number with so many significant digits, without an exponent for sizes that people read."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    # Rounded first: 999.6 has one digit more than it seems.
    value = float(f"{value:.{count - 1}e}")
    return fixed(value, max(0, count - 1 - math.floor(math.log10(abs(value)))))


def quantity(value: Number) -> str:
    for size, letter in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size * 0.9995:
            return f"{digits(value / size)} {letter}"
    return whole(value)


def times(value: Number) -> str:
    return (fixed(value, 2) if 0.1 <= value < 10 else digits(value)) + TIMES


def ratio(value: Number) -> str:
    return fixed(value, 2) if value < 10 else digits(value)


def megabytes(value: Number) -> str:
    return whole(value / 1e6) if value >= 1e8 else digits(value / 1e6)


def whole(value: Number) -> str:
    return fixed(value, 0)


def chance(p_value: float) -> str:
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.2g}"


def duration(seconds: Number) -> str:
    """Return a time in its two largest units."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} days {hours % 24} h"


def typed_alike(values: Iterable[Number]) -> Callable[[Number], str]:
    """Return a format with as many decimals as the longest has: 27.3 stands beside 27.67 as 27.30."""
    places = max(len(f"{value:.6f}".rstrip("0").split(".")[1]) for value in values)
    return lambda value: fixed(value, places)


def unbroken(text: str) -> str:
    """Keep numbers and their units on one line."""
    return re.sub(r"(\d) (%|MB)", "\\1\N{NO-BREAK SPACE}\\2", text)


def shortened(name: str) -> str:
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "\N{HORIZONTAL ELLIPSIS}"
