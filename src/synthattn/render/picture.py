"""Quality against cost as a drawing: a file of its own, for a README, and inside the page."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from synthattn.compare.results import Results, Variant
from synthattn.render.document import escape
from synthattn.render.tables import TIMES, Number, digits, direction, fixed, megabytes, quantity, times

# Colours that most colour-blind people tell apart (after Okabe and Ito), of middling lightness: they are seen on white
# and on black. Shapes repeat after another number than colours, so that a pair is unique for more variants than fit.
COLOURS = ["#717b87", "#2f86c6", "#d9621f", "#0f9d73", "#bf6aa3", "#c98a00", "#7a63c9", "#8f8528", "#c23b5a"]
SHAPES = [
    "M-5,0a5,5 0 1,0 10,0a5,5 0 1,0 -10,0Z",
    "M-4.5,-4.5h9v9h-9Z",
    "M0,-5.8L5.6,4.4H-5.6Z",
    "M0,-6.2L6.2,0L0,6.2L-6.2,0Z",
    "M0,5.8L5.6,-4.4H-5.6Z",
    "M-2,-5.5h4v3.5h3.5v4h-3.5v3.5h-4v-3.5h-3.5v-4h3.5Z",
    "M0,-6L1.8,-1.9L5.9,-1.9L2.6,0.9L3.8,5.2L0,2.6L-3.8,5.2L-2.6,0.9L-5.9,-1.9L-1.8,-1.9Z",
]
GREY = "#717b87"
FONT = 12
LETTER = 7.0
"""About the mean width of a letter of system fonts at that size."""

Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""


@dataclass
class Cost:
    """What quality is drawn against."""

    label: str
    of: Callable[[Variant], Number | None]
    text: Callable[[Number], str]
    per: float = 1.0
    """What the axis divides by."""


COSTS = {
    "speed": Cost(f"training speed, {TIMES} baseline (right is faster)", lambda variant: variant.training_speed, times),
    "parameters": Cost("parameters, M (left is smaller)", lambda variant: variant.parameters, quantity, 1e6),
    "memory": Cost(
        "training memory, MB (left is less)",
        lambda variant: variant.training_memory,
        lambda v: f"{megabytes(v)} MB",
        1e6,
    ),
}


@dataclass
class Point:
    """A variant in the drawing, in pixels."""

    place: int
    """Among all variants: which colour and shape it has, everywhere."""
    name: str
    tip: str
    x: float
    y: float
    top: float
    bottom: float


class Axis:
    """From values to pixels, with round numbers at its ticks."""

    def __init__(self, values: list[float], start: Number, end: Number, ticks: int = 5) -> None:
        low, high = min(values), max(values)
        # Where one variant is far off, it alone would be seen on a linear axis.
        self.log = low > 0 and high / low > 8
        if high == low:
            low, high = low - (abs(low) * 0.1 or 1.0), high + (abs(high) * 0.1 or 1.0)
        low, high = (math.log10(low), math.log10(high)) if self.log else (low, high)
        margin = 0.07 * (high - low)
        self.places = 0
        self.low, self.high, self.start, self.end = low - margin, high + margin, start, end
        self.ticks = self._logarithmic() if self.log else self._linear(ticks)

    def __call__(self, value: Number) -> float:
        value = math.log10(value) if self.log else value
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def label(self, value: Number) -> str:
        return fixed(value, self.places) if not self.log or value >= 1 else digits(value, 1)

    def _linear(self, count: int) -> list[float]:
        rough = (self.high - self.low) / count
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
        self.places = max(0, -math.floor(math.log10(step * 1.001)))
        return [n * step for n in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]

    def _logarithmic(self) -> list[float]:
        decades = range(math.floor(self.low), math.ceil(self.high) + 1)
        factors = (1, 2, 5) if self.high - self.low < 3 else (1,)
        every = [factor * 10.0**power for power in decades for factor in factors]
        return [value for value in every if self.low <= math.log10(value) <= self.high]


def picture(results: Results) -> str:
    """Quality against training speed, as a standalone SVG that needs no background of its own."""
    return scatter(results, COSTS["speed"], 680, 400)


def scatter(results: Results, cost: Cost, width: int, height: int) -> str:
    """The main metric of all variants that have it, with intervals, against a cost."""
    metric = results.main_metric
    found = [
        (place, variant, variant.scores[metric], x)
        for place, variant in enumerate(results.variants)
        if metric in variant.scores and (x := cost.of(variant)) is not None
    ]
    found = [each for each in found if all(map(math.isfinite, (each[2].value, each[2].low, each[2].high, each[3])))]
    better = direction(results, metric)
    title = f"{metric} against {cost.label.split(' (')[0]}"
    if not found:
        return svg_frame(
            width, 60, title, [svg_text(width / 2, 34, "nothing to draw: no variant has been measured", "middle")]
        )
    area = (58.0, 26.0, width - 14.0, height - 44.0)
    across = Axis([x / cost.per for *_, x in found], area[0], area[2], 5)
    up = Axis([value for *_, s, _ in found for value in (s.low, s.high, s.value)], area[3], area[1], 6)
    points = [
        Point(
            place,
            variant.attention,
            f"{variant.attention}\n{metric} {digits(score.value, 4)} "
            f"[{digits(score.low, 4)}, {digits(score.high, 4)}]\n{cost.label.split(',')[0]} {cost.text(x)}",
            across(x / cost.per),
            up(score.value),
            min(up(score.low), up(score.high)),
            max(up(score.low), up(score.high)),
        )
        for place, variant, score, x in found
    ]
    parts = [
        svg_text(area[0] - 46, 14, f"{metric} ({better})" if better else metric),
        *_grid(across, up, area, cost.label),
    ]
    # To the eye, these divide what is better than the baseline from what is worse.
    base = [point for point in points if point.name == results.baseline]
    lines = [(area[0], p.y, area[2], p.y) for p in base] + [(p.x, area[1], p.x, area[3]) for p in base]
    parts += [svg_line(*line, "base", ' stroke-dasharray="5 4"') for line in lines]
    for point, box in zip(points, place_labels(points, area, lines), strict=True):
        parts += _mark(point, box, point.name == results.baseline)
    return svg_frame(width, height, title, parts)


def place_labels(points: list[Point], area: Box, lines: list[Box]) -> list[Box]:
    """Where each name is put: near its point, and over nothing else where that can be."""
    candidates = [_candidates(point) for point in points]
    chosen = [each[0] for each in candidates]
    # Markers, then intervals and lines: these may be crossed rather than other names.
    solid = [(p.x - 7, p.y - 7, p.x + 7, p.y + 7) for p in points]
    thin = [(p.x - 4, p.top, p.x + 4, p.bottom) for p in points]
    thin += [(left - 1, top - 1, right + 1, bottom + 1) for left, top, right, bottom in lines]

    def cost(n: int, box: Box) -> float:
        others = [_overlap(box, chosen[m]) for m in range(len(points)) if m != n]
        inside = _overlap(box, area)
        outside = (box[2] - box[0]) * (box[3] - box[1]) - inside
        near = max(0.0, _distance(points[n], box) - 8)
        crossed = sum(_overlap(box, each) for each in thin)
        x, y = _nearest(points[n], box)
        way = [(points[n].x + (x - points[n].x) * s / 8, points[n].y + (y - points[n].y) * s / 8) for s in range(1, 9)]
        in_the_way = [each for m in range(len(points)) if m != n for each in (solid[m], chosen[m])]
        crossed += 40 * sum(a <= x <= c and b <= y <= d for a, b, c, d in in_the_way for x, y in way)
        return 8 * sum(others) + 6 * sum(_overlap(box, each) for each in solid) + 2 * crossed + 20 * outside + 2 * near

    # Each in turn gives way to all others, until none wants to move.
    for _ in range(8):
        before = list(chosen)
        for n in range(len(points)):
            chosen[n] = min(candidates[n], key=lambda box, n=n: cost(n, box))
        if chosen == before:
            break
    return chosen


def _candidates(point: Point) -> list[Box]:
    wide, tall = LETTER * len(point.name) + 2, FONT + 2.0
    corners = [(point.x + 9, point.y - tall / 2), (point.x - 9 - wide, point.y - tall / 2)]
    for far in (10, 20, 32, 46, 62):
        for top in (point.y - far - tall, point.y + far):
            # Beside the point, and shifted over or below it.
            corners += [(point.x - wide * share, top) for share in (0.5, 0.25, 0.75, 0.0, 1.0)]
            corners += [(point.x + 10, top + tall / 2), (point.x - 10 - wide, top + tall / 2)]
    return [(left, top, left + wide, top + tall) for left, top in corners]


def _overlap(one: Box, other: Box) -> float:
    wide = min(one[2], other[2]) - max(one[0], other[0])
    tall = min(one[3], other[3]) - max(one[1], other[1])
    return wide * tall if wide > 0 and tall > 0 else 0.0


def _distance(point: Point, box: Box) -> float:
    x, y = _nearest(point, box)
    return math.hypot(x - point.x, y - point.y)


def _nearest(point: Point, box: Box) -> tuple[float, float]:
    return min(max(point.x, box[0]), box[2]), min(max(point.y, box[1] + 2), box[3] - 2)


def _grid(across: Axis, up: Axis, area: Box, label: str) -> list[str]:
    parts = []
    for value in up.ticks:
        parts.append(svg_line(area[0], up(value), area[2], up(value), "grid", ' stroke-opacity="0.25"'))
        parts.append(svg_text(area[0] - 7, up(value) + 4, up.label(value), "end"))
    for value in across.ticks:
        parts.append(svg_line(across(value), area[1], across(value), area[3], "grid", ' stroke-opacity="0.25"'))
        parts.append(svg_text(across(value), area[3] + 17, across.label(value), "middle"))
    return [*parts, svg_text((area[0] + area[2]) / 2, area[3] + 37, label, "middle")]


def _mark(point: Point, box: Box, bold: bool) -> list[str]:
    colour = COLOURS[point.place % len(COLOURS)]
    parts = []
    if _distance(point, box) > 12.5:
        parts.append(svg_line(point.x, point.y, *_nearest(point, box), "leader", ' stroke-opacity="0.6"'))
    parts += [
        f'<g class="v{point.place % len(COLOURS)}" fill="{colour}" stroke="{colour}" data-tip="{escape(point.tip)}">'
        f"<title>{escape(point.tip)}</title>",
        f'<path class="bar" fill="none" stroke-width="1.5" d="M{point.x:.1f},{point.top:.1f}V{point.bottom:.1f}'
        f'M{point.x - 4:.1f},{point.top:.1f}h8M{point.x - 4:.1f},{point.bottom:.1f}h8"/>',
        f'<path stroke="none" transform="translate({point.x:.1f} {point.y:.1f})" d="{shape(point.place)}"/>',
        # A finger is larger than a marker.
        f'<circle cx="{point.x:.1f}" cy="{point.y:.1f}" r="10" fill="none" stroke="none" pointer-events="all"/></g>',
    ]
    weight = ' font-weight="bold"' if bold else ""
    # Centred in its box: the letters may be wider or narrower than was thought.
    return [*parts, svg_text((box[0] + box[2]) / 2, box[3] - 4, point.name, "middle", f' class="name"{weight}')]


def shape(place: int) -> str:
    return SHAPES[place % len(SHAPES)]


def svg_line(x1: float, y1: float, x2: float, y2: float, kind: str, more: str = "") -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{GREY}"{more}/>'


def svg_text(x: Number, y: Number, text: str, anchor: str = "start", more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{GREY}"{more}>{escape(text)}</text>'


def svg_frame(width: Number, height: Number, title: str, parts: list[str]) -> str:
    inner = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" role="img" aria-label="{escape(title)}" font-size="{FONT}" '
        f'font-family="system-ui, -apple-system, Segoe UI, Roboto, Helvetica, Arial, sans-serif">\n{inner}\n</svg>\n'
    )
