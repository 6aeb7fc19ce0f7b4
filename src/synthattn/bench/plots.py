"""Drawings of a benchmark: ratios as dots, growth as lines. Both axes of growth are logarithmic, as are ratios."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from synthattn.render.document import escape
from synthattn.render.picture import COLOURS, LETTER, shape, svg_frame, svg_line, svg_text

WIDTH = 380
"""So that letters are still read where a phone makes it smaller."""
ROW = 21
"""Pixels of one contender among dots."""
LONGEST = 27
"""Letters of a name; the rest is in the tip."""
FACTORS = [(1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0), (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)]
"""Ticks within a decade, from few to many."""


class Scale:
    """Logarithmic, from values to pixels, with as many round numbers as have room."""

    def __init__(self, values: Iterable[float], start: float, end: float, ticks: Iterable[float] | None = None) -> None:
        every = [math.log10(value) for value in values]
        low, high = min(every), max(every)
        # Where all are nearly the same, a little difference should not look like a large one.
        short = max(0.0, 0.3 - (high - low)) / 2
        margin = 0.06 * (high - low + 2 * short)
        self.low, self.high, self.start, self.end = low - short - margin, high + short + margin, start, end
        self.ticks = self._round(int(abs(end - start) / 34)) if ticks is None else self._apart(ticks)

    def __call__(self, value: float) -> float:
        return self.start + (math.log10(value) - self.low) / (self.high - self.low) * (self.end - self.start)

    def _round(self, most: int) -> list[float]:
        decades = range(math.floor(self.low), math.ceil(self.high) + 1)
        found: list[float] = []
        for factors in FACTORS:
            every = [float(f"{factor}e{power}") for power in decades for factor in factors]
            inside = [value for value in every if self.low <= math.log10(value) <= self.high]
            if not found or len(inside) <= most:
                found = inside
        return found

    def _apart(self, ticks: Iterable[float]) -> list[float]:
        """Those that are no nearer to the one before than its label is wide."""
        kept: list[float] = []
        for tick in sorted(ticks):
            if not kept or abs(self(tick) - self(kept[-1])) > 34:
                kept.append(tick)
        return kept


def tick_text(value: float) -> str:
    return f"{value:,.10g}"


@dataclass(frozen=True)
class Dot:
    """A number of one contender."""

    name: str
    series: str
    """Which colour and shape it has."""
    value: float
    tip: str


def dots(title: str, found: list[Dot], kinds: list[str], line: float = 1.0) -> str:
    """A row for every contender, a shape for every series, and a line at what they are compared with."""
    names = list(dict.fromkeys(dot.name for dot in found))
    drawn = {dot.series for dot in found}
    kinds = [kind for kind in kinds if kind in drawn]
    left = 14 + LETTER * 0.93 * min(LONGEST, max(len(name) for name in names))
    legend, top = _legend(kinds)
    bottom = top + ROW * len(names)
    scale = Scale([line, *(dot.value for dot in found)], left, WIDTH - 10.0)
    parts = [*legend]
    for tick in scale.ticks:
        parts.append(svg_line(scale(tick), top, scale(tick), bottom, "grid", ' stroke-opacity="0.25"'))
        parts.append(svg_text(scale(tick), bottom + 16, tick_text(tick), "middle"))
    parts.append(svg_line(scale(line), top, scale(line), bottom, "base"))
    for row, name in enumerate(names):
        y = top + ROW * (row + 0.5)
        parts.append(svg_line(left, y, WIDTH - 10.0, y, "grid", ' stroke-opacity="0.12"'))
        parts.append(svg_text(left - 9, y + 4, shortened(name), "end", ' class="name"'))
        # Series that found nearly the same would hide each other on one line.
        for dot in found:
            if dot.name == name:
                place = kinds.index(dot.series)
                shift = 3.6 * (place - (len(kinds) - 1) / 2)
                parts.append(_coloured(place + 1, _marker(place, scale(dot.value), y + shift, dot.tip, 0.8)))
    return svg_frame(WIDTH, bottom + 24, title, parts)


def _legend(kinds: list[str]) -> tuple[list[str], float]:
    """A line of marks with names, or more where they do not fit, and where it ends."""
    if len(kinds) < 2:
        return [], 6.0
    parts, x, y = [], 8.0, 10.0
    for place, kind in enumerate(kinds):
        wide = 22 + LETTER * 0.95 * len(kind)
        if x + wide > WIDTH and x > 8:
            x, y = 8.0, y + 18
        parts += [_coloured(place + 1, _marker(place, x, y, kind, 0.8)), svg_text(x + 9, y + 4, kind)]
        x += wide
    return parts, y + 14


@dataclass(frozen=True)
class Line:
    """Points of one contender, by size."""

    place: int
    """Among all contenders: which colour and shape it has, everywhere."""
    name: str
    points: list[tuple[float, float]]
    tips: list[str]
    note: str = ""
    """Beside its name in the legend."""


def curves(title: str, across: str, up: str, lines: list[Line], base: float | None = None, guides: bool = False) -> str:
    """A line for every contender; guides show what linear and quadratic growth look like."""
    area = (52.0, 24.0, WIDTH - 12.0, 270.0)
    sizes = sorted({x for line in lines for x, _ in line.points})
    values = [y for line in lines for _, y in line.points] + ([base] if base else [])
    x, y = Scale(sizes, area[0], area[2], sizes), Scale(values, area[3], area[1])
    parts = [svg_text(6, 12, up)]
    for tick in y.ticks:
        parts.append(svg_line(area[0], y(tick), area[2], y(tick), "grid", ' stroke-opacity="0.25"'))
        parts.append(svg_text(area[0] - 6, y(tick) + 4, tick_text(tick), "end"))
    for tick in x.ticks:
        parts.append(svg_line(x(tick), area[1], x(tick), area[3], "grid", ' stroke-opacity="0.25"'))
        parts.append(svg_text(x(tick), area[3] + 16, tick_text(tick), "middle"))
    parts.append(svg_text((area[0] + area[2]) / 2, area[3] + 34, across, "middle"))
    if base:
        parts.append(svg_line(area[0], y(base), area[2], y(base), "base"))
    if guides:
        parts += _guides(x, y, sizes, values)
    for line in lines:
        path = "L".join(f"{x(size):.1f},{y(value):.1f}" for size, value in line.points)
        name = escape(" ".join(filter(None, (line.name, line.note))))
        inner = [f'<path class="line" fill="none" d="M{path}"><title>{name}</title></path>']
        for (size, value), tip in zip(line.points, line.tips, strict=True):
            inner.append(_marker(line.place, x(size), y(value), tip, 0.66))
        parts.append(_coloured(line.place, "\n".join(inner), f"series k{line.place} "))
    return svg_frame(WIDTH, area[3] + 42, title, parts)


def _guides(x: Scale, y: Scale, sizes: list[float], values: list[float]) -> list[str]:
    """Dots with exponents 1 and 2, from the lower left corner to where they leave the drawing."""
    first, last, low, high = sizes[0], sizes[-1], min(values), max(values)
    parts = []
    for exponent in (1, 2):
        end = min(last, first * (high / low) ** (1 / exponent))
        top = low * (end / first) ** exponent
        parts.append(svg_line(x(first), y(low), x(end), y(top), "guide", ' stroke-dasharray="2 4"'))
    return parts


def _marker(form: int, x: float, y: float, tip: str, size: float) -> str:
    return (
        f'<path stroke="none" transform="translate({x:.1f} {y:.1f}) scale({size})" d="{shape(form)}">'
        f"<title>{escape(tip)}</title></path>"
    )


def _coloured(place: int, inner: str, kinds: str = "") -> str:
    """The style of the page may have a lighter or a darker one of the same class."""
    place %= len(COLOURS)
    return f'<g class="{kinds}v{place}" fill="{COLOURS[place]}" stroke="{COLOURS[place]}">{inner}</g>'


def shortened(name: str) -> str:
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "\N{HORIZONTAL ELLIPSIS}"
