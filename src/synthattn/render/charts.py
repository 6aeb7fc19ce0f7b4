"""Charts as static SVG, drawn by Altair: data and a kind in, a drawing without script out.

Colours are of middling lightness, readable on white and on black. The style sheet of the pages replaces them by lighter
or darker ones of the same hue. Every series has a place, which decides its colour and its shape everywhere.
"""

import math
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from synthattn.messages import printable
from synthattn.render.numbers import Number

# After Okabe and Ito. Shapes repeat after another number than colours, so that a pair is unique for more series.
COLOURS = ["#707b87", "#2f86c6", "#d9621f", "#0f9d73", "#bf6aa3", "#c98a00", "#7a63c9", "#8f8528", "#c23b5a"]
SHAPES = [
    "M-.85,0a.85,.85 0 1,0 1.7,0a.85,.85 0 1,0 -1.7,0Z",
    "M-.75,-.75h1.5v1.5h-1.5Z",
    "M0,-.95L.93,.73H-.93Z",
    "M0,-1L1,0L0,1L-1,0Z",
    "M0,.95L.93,-.73H-.93Z",
    "M-.33,-.92h.67v.58h.58v.67h-.58v.58h-.67v-.58h-.58v-.67h.58Z",
    "M0,-1L.3,-.32L.98,-.32L.43,.15L.63,.87L0,.43L-.63,.87L-.43,.15L-.98,-.32L-.3,-.32Z",
]
GREY = "#717b87"
LETTER = 6.8
"""About the mean width of a letter, in pixels."""
LONGEST = 27
"""Letters of a name in a chart; the rest is in the tip."""
FONTS = "system-ui, -apple-system, Segoe UI, Roboto, Helvetica, Arial, sans-serif"
SVG = "http://www.w3.org/2000/svg"


@dataclass(frozen=True)
class Key:
    """One entry of a legend."""

    place: int
    name: str
    value: str = ""
    note: str = ""


@dataclass(frozen=True)
class Point:
    """One dot, with an interval where it has one. ``y`` is the name of a row in a chart of rows."""

    name: str
    place: int
    x: Number
    y: Number | str
    tip: str
    low: Number | None = None
    high: Number | None = None
    hollow: bool = False


@dataclass(frozen=True)
class Line:
    """Points of one series, with words for each."""

    name: str
    place: int
    points: Sequence[tuple[Number, Number]]
    tips: Sequence[str] = ()
    tip: str = ""
    """Said of the line as a whole."""
    band: Sequence[tuple[Number, Number, Number]] = ()
    """For each step the lowest and the highest value."""


@dataclass(frozen=True)
class Chart:
    """A drawing with a caption, a note and a legend around it."""

    title: str
    caption: str = field(default="", kw_only=True)
    note: str = field(default="", kw_only=True)
    legend: Sequence[Key] = field(default=(), kw_only=True)
    width: int = field(default=380, kw_only=True)
    height: int = field(default=300, kw_only=True)

    def svg(self) -> str:
        """Return the drawing."""
        raise NotImplementedError


@dataclass(frozen=True)
class Scatter(Chart):
    """Named points with vertical intervals; dashed lines pass through the point of the baseline."""

    across: str
    up: str
    points: Sequence[Point]
    base: str
    rule: Number | None = None
    """A dotted line, drawn where it is not far from the points."""
    rule_name: str = ""

    def svg(self) -> str:
        import altair as alt

        if not self.points:
            data = alt.Data(values=[{"text": "nothing to draw: no variant has been measured"}])
            empty = alt.Chart(data).mark_text(color=GREY, fontSize=12).encode(text="text:N")
            return _drawn(self.title, [empty], self.width, 60)
        width, height = self.width - 75, self.height - 60
        across, up = _Scale([p.x for p in self.points]), self._up()
        x, y = across.axis("x", self.across), up.axis("y", self.up)
        every = _rows(self.points)
        base = alt.Data(values=[row for row in every if row["name"] == self.base])
        pixels = []
        for p in self.points:
            middle = float(p.y)
            at, high, low = (
                height * (1 - up.share(end))
                for end in (middle, middle if p.high is None else p.high, middle if p.low is None else p.low)
            )
            pixels.append((width * across.share(p.x), at, high, low, p.name))
        words = [
            {
                "x": across.value((left + right) / 2 / width),
                "y": up.value(1 - (top + bottom) / 2 / height),
                "name": p.name,
                "weight": 700 if p.name == self.base else 400,
            }
            for (left, top, right, bottom), p in zip(
                place_labels(pixels, width, height, self._taken(up, width, height)), self.points, strict=True
            )
        ]
        dashed = alt.Chart(base).mark_rule(strokeDash=[5, 4], color=GREY)
        text = [alt.Chart(alt.Data(values=[w for w in words if w["weight"] == weight])) for weight in (400, 700)]
        layers = [
            *(_rule(y, self.rule, self.rule_name) if self._near() else ()),
            dashed.encode(y=y),
            dashed.encode(x=x),
            *_dots(every, x, y, alt.Y("low:Q").title(self.up), "y2"),
            *(
                one.mark_text(color=GREY, fontSize=12, baseline="middle", fontWeight=weight).encode(
                    x=x, y=y, text="name:N"
                )
                for one, weight in zip(text, (400, 700), strict=True)
            ),
        ]
        return _drawn(self.title, layers, width, height, grid=True)

    def _taken(self, up: "_Scale", width: Number, height: Number) -> list["Box"]:
        """Return where the name of the rule stands."""
        if self.rule is None or not self.rule_name or not self._near():
            return []
        at = height * (1 - up.share(self.rule))
        return [(width - LETTER * len(self.rule_name), at - 16, width, at)]

    def _up(self) -> "_Scale":
        values = [end for p in self.points for end in (float(p.y), p.low, p.high) if end is not None]
        return _Scale([*values, self.rule] if self.rule is not None and self._near() else values)

    def _near(self) -> bool:
        """Return True if the rule is drawn: near the points, or where all are zero, so that it hides no difference."""
        values = [float(p.y) for p in self.points]
        reach = 2 * (max(values) - min(values)) or 0.1 * abs(values[0])
        near = self.rule is not None and min(values) - reach <= self.rule <= max(values) + reach
        return near or (self.rule is not None and not any(values))


@dataclass(frozen=True)
class Lines(Chart):
    """A line for every series."""

    across: str
    up: str
    lines: Sequence[Line]
    log: bool = False
    """Of the axis that goes up."""
    growth: bool = False
    """Both axes are logarithmic, and dotted guides show linear and quadratic growth."""
    rule: Number | None = None
    rule_name: str = ""
    top: Number | None = None
    """Where the axis ends; lines that come from above are cut off there."""
    keyed: bool = False
    """Lines are named to their right, for a file that stands alone."""

    def svg(self) -> str:
        import altair as alt

        # Lines that come from above the end of the axis begin where they come in.
        inside = [(line, [p for p in line.points if self.top is None or p[1] <= self.top]) for line in self.lines]
        values = [y for _, points in inside for _, y in points]
        sizes = sorted({x for _, points in inside for x, _ in points})
        up = _Scale(values if self.rule is None else [*values, self.rule], self.log or self.growth)
        scale = alt.Scale(type="log", nice=False, padding=6) if self.growth else alt.Scale(nice=False, zero=False)
        room = LETTER * max((len(line.name) for line in self.lines), default=0) + 20
        if self.keyed:
            end = sizes[-1] + (sizes[-1] - sizes[0]) * room / max(1, self.width - 75 - room)
            scale = alt.Scale(domain=[sizes[0], end], nice=False, zero=False)
        x, y = alt.X("x:Q").title(self.across).scale(scale), up.axis("y", self.up)
        if self.growth or self.keyed:
            x = x.axis(values=sizes, tickCount=len(sizes), format=",d", grid=True, labelOverlap=True)
        if up.log and up.high - up.low > 2:
            decades = [10.0**n for n in range(math.ceil(up.low), math.floor(up.high) + 1)]
            y = y.axis(values=decades, tickCount=len(decades), format="~g")
        paths, bands, dots = [], [], []
        for line, points in inside:
            look = {"s": line.place, **_look(line.place, line.tip or line.name)}
            paths += [{"x": a, "y": b, **look} for a, b in points]
            bands += [
                {"x": a, "low": b, "high": min(c, up.value(1)), **look} for a, b, c in line.band if b < up.value(1)
            ]
            tips = dict(zip(line.points, line.tips, strict=False))
            dots += _rows(Point(line.name, line.place, *p, tips[p]) for p in points if p in tips)
        layers = list(_rule(y, self.rule, self.rule_name))
        if self.growth:
            dotted = alt.Chart(alt.Data(values=_guides(sizes, values))).mark_line(strokeDash=[2, 4], color=GREY)
            layers.append(dotted.encode(x=x, y=y, detail="s:N"))
        areas = _marked(alt.Chart(alt.Data(values=bands)).mark_area(opacity=0.18))
        layers.append(areas.encode(x=x, y=alt.Y("low:Q").title(self.up), y2="high:Q", detail="s:N"))
        drawn = _marked(alt.Chart(alt.Data(values=paths)).mark_line(size=1.6))
        layers += [drawn.encode(x=x, y=y, detail="s:N"), *_dots(dots, x, y, size=34)]
        if self.keyed:
            layers += self._names(inside, up, x, y)
        return _drawn(self.title, layers, self.width - 75, self.height - 60)

    def _names(
        self, inside: "Sequence[tuple[Line, list[tuple[Number, Number]]]]", up: "_Scale", x: Any, y: Any
    ) -> list[Any]:
        """Return a layer of names in the colours of the lines, beside their ends, and none over another."""
        import altair as alt

        height, rows = self.height - 60, []
        ends: dict[Number, Number] = {}
        """How far down each column of names is taken."""
        for line, points in sorted(inside, key=lambda pair: -pair[1][-1][1] if pair[1] else 0):
            if points:
                across, value = points[-1]
                top = max(height * (1 - up.share(value)), ends.get(across, 0.0) + 15)
                ends[across] = top
                at = {"x": across, "y": up.value(1 - top / height), "name": line.name}
                rows.append(at | _look(line.place, line.tip or line.name))
        words = alt.Chart(alt.Data(values=rows)).mark_text(align="left", baseline="middle", dx=9, fontSize=12)
        return [_marked(words).encode(x=x, y=y, text="name:N")]


@dataclass(frozen=True)
class ForestPlot(Chart):
    """A row for every name, with the dots and intervals of all series, and a line at what they are compared with."""

    across: str
    points: Sequence[Point]
    """Their ``y`` is the name of the row, their ``name`` that of the series."""
    line: Number
    log: bool = False
    keyed: bool = False
    """Series are named above the rows, for a file that stands alone."""
    zone: Number = 0
    """Differences up to this one, to either side of the line, are on a grey ground."""
    together: bool = False
    """A row has one point, whatever its series is."""
    longest: int = LONGEST
    """Letters of the name of a row."""

    def svg(self) -> str:
        import altair as alt

        names = list(dict.fromkeys(str(p.y) for p in self.points))
        places = {p.name: p.place for p in self.points}
        series = list(places)
        most = self.longest
        short = [name if len(name) <= most else f"{name[: most - 1]}\N{HORIZONTAL ELLIPSIS}" for name in names]
        ends = [end for p in self.points for end in (p.x, p.low, p.high) if end is not None]
        span = _Scale([self.line - self.zone, self.line + self.zone, *ends], self.log)
        left = int(16 + 6.3 * max(map(len, short)))
        above = series if self.keyed else []
        top = -0.5 - len(above)
        # Numbers as heights, so that two rows may have the same shortened name.
        labels = " : ".join(f"datum.value == {n} ? {_quoted(one)}" for n, one in enumerate(short)) + " : ''"
        y = alt.Y("row:Q").title(None).scale(domain=[len(names) - 0.5, top], nice=False, zero=False)
        ticks = {"values": list(range(len(names))), "tickCount": len(names), "labelExpr": labels, "gridOpacity": 0.12}
        y, x = y.axis(minExtent=left, maxExtent=left, **ticks), span.axis("x", self.across or None)
        rows = _rows(self.points)
        for point, row in zip(self.points, rows, strict=True):
            # Series that found nearly the same would hide each other on one line.
            beside = 0.0 if self.together else 0.17 * (series.index(point.name) - (len(series) - 1) / 2)
            row["row"] = names.index(str(point.y)) + beside
        zone = [{"x": self.line - self.zone, "to": self.line + self.zone}] if self.zone else []
        layers = [
            alt.Chart(alt.Data(values=zone)).mark_rect(color=GREY, opacity=0.16).encode(x=x, x2="to:Q"),
            alt.Chart(alt.Data(values=[{"x": self.line}])).mark_rule(color=GREY).encode(x=x),
            *_dots(rows, x, y, alt.X("low:Q").title(self.across or None), "x2", size=45),
        ]
        # A name for each series, to the right of its mark.
        keys = _rows(Point(name, places[name], span.value(0.02), "", name) for name in above)
        for n, row in enumerate(keys):
            row["row"] = top + 0.5 + n
        words = alt.Chart(alt.Data(values=keys)).mark_text(align="left", dx=9, color=GREY, fontSize=12)
        layers += [*_dots(keys, x, y, size=45), words.encode(x=x, y=y, text="name:N")] if above else []
        height = 23 * (len(names) + len(above))
        return _drawn(self.title, layers, max(120, self.width - left - 22), height, grid=True)


@dataclass(frozen=True)
class Shares(Chart):
    """Shares of bins along a logarithmic axis: one filled distribution, and one as an outline."""

    filled: Sequence[tuple[Number, Number]]
    """Where a bin begins, as a power of ten, and its share; the last one ends the last bin."""
    outline: Sequence[tuple[Number, Number]]
    span: tuple[Number, Number]
    most: Number
    """Where the axis ends, so that several charts can be compared."""
    width: int = field(default=150, kw_only=True)

    def svg(self) -> str:
        import altair as alt

        tens = list(range(math.ceil(self.span[0]), math.floor(self.span[1]) + 1))
        shown = [edge for edge in tens if (edge - tens[0]) % math.ceil(len(tens) / 4) == 0]
        x = alt.X("x:Q").title(None).scale(domain=list(self.span), nice=False)
        x = x.axis(values=shown, labelExpr="datum.value == 0 ? '1' : format(pow(10, datum.value), '~g')", grid=False)
        y = alt.Y("y:Q").axis(None).scale(domain=[0, self.most], nice=False)
        layers = []
        for place, steps in ((1, self.filled), (0, self.outline)):
            if steps:
                data = alt.Chart(alt.Data(values=[{"x": edge, "y": share} for edge, share in steps]))
                area = data.mark_area(interpolate="step-after", color=COLOURS[1], opacity=0.5)
                line = data.mark_line(interpolate="step-after", color=GREY, size=1.2)
                said = alt.value(_look(place, self.title)["tip"])
                layers.append((area if place else line).encode(x=x, y=y, description=said))
        return _drawn(self.title, layers, self.width, 62)


@dataclass(frozen=True)
class Matrix(Chart):
    """A field for every row and column, with its number, and more colour the higher its share is."""

    cells: Sequence[tuple[str, str, str, Number, str]]
    """Row, column, the number as text, a share between 0 and 1, and the tip."""

    def svg(self) -> str:
        import altair as alt

        rows, columns = (
            list(dict.fromkeys(cell[0] for cell in self.cells)),
            list(dict.fromkeys(cell[1] for cell in self.cells)),
        )
        values = []
        for row, column, text, share, tip in self.cells:
            values.append({"row": row, "column": column, "text": text, "tip": f"1|{tip}"})
            values[-1] |= {"opacity": round(0.04 + 0.9 * min(1.0, max(0.0, share)), 3)}
        base = alt.Chart(alt.Data(values=values)).encode(
            x=alt.X("column:N").sort(columns).title(None).axis(orient="top", labelAngle=0, minExtent=22, maxExtent=22),
            y=alt.Y("row:N").sort(rows).title(None).axis(minExtent=125, maxExtent=125, labelLimit=200),
        )
        opacity = alt.Opacity("opacity:Q").scale(None).legend(None)
        fields = base.mark_rect(color=COLOURS[1]).encode(opacity=opacity, description="tip:N")
        words = base.mark_text(color=GREY, fontSize=12, fontWeight=600).encode(text="text:N")
        strong = alt.condition("datum.opacity > 0.5", alt.value("#ffffff"), alt.value(GREY))
        return _drawn(self.title, [fields, words.encode(color=strong)], self.width - 140, 30 * len(rows))


def _look(place: int, tip: str) -> dict[str, str]:
    """Colour, shape, and the class and the words of a mark, as ``_tidy`` takes them apart."""
    colour, shape = COLOURS[place % len(COLOURS)], SHAPES[place % len(SHAPES)]
    return {"colour": colour, "shape": shape, "tip": f"{place}|{tip}"}


def _quoted(text: str) -> str:
    """A string of Vega's expression language."""
    kept = printable(text, lines=True)
    return "'" + "".join(f"\\u{ord(c):04x}" if c in "\\'\n\t" else c for c in kept) + "'"


def _rows(points: Iterable[Point]) -> list[dict[str, Any]]:
    return [
        {"x": p.x, "y": p.y, "name": p.name, **_look(p.place, p.tip)}
        | ({} if p.low is None else {"low": p.low, "high": p.high})
        | ({"hollow": True} if p.hollow else {})
        for p in points
    ]


def _marked(chart: Any) -> Any:
    """Give each mark its own colour and words."""
    import altair as alt

    return chart.encode(color=alt.Color("colour:N").scale(None).legend(None), description="tip:N")


def _dots(rows: list[dict[str, Any]], x: Any, y: Any, low: Any = None, to: str = "", size: int = 80) -> list[Any]:
    """Return a layer of intervals, where there are some, and one of dots."""
    import altair as alt

    bars = _marked(alt.Chart(alt.Data(values=[row for row in rows if "low" in row])).mark_rule(size=1.7))
    shown = []
    for hollow in (False, True):
        some = [row for row in rows if row.get("hollow", False) == hollow]
        if some or not hollow:
            dots = _marked(alt.Chart(alt.Data(values=some)).mark_point(filled=not hollow, opacity=1, size=size))
            shown.append(dots.encode(x=x, y=y, shape=alt.Shape("shape:N").scale(None).legend(None)))
    return [bars.encode(**{"x": x, "y": y, to[:1]: low, to: "high:Q"}), *shown] if to else shown


def _rule(y: Any, value: Number | None, name: str) -> list[Any]:
    """Return a line across the chart, with its name above its right end; dotted where it has one."""
    import altair as alt

    if value is None:
        return []
    data = alt.Chart(alt.Data(values=[{"y": value, "name": name}]))
    line = data.mark_rule(color=GREY, strokeDash=[2, 3] if name else [1, 0]).encode(y=y)
    words = data.mark_text(color=GREY, fontSize=11, align="right", baseline="bottom", dy=-2)
    return [line, words.encode(x=alt.value("width"), y=y, text="name:N")] if name else [line]


class _Scale:
    """An axis from 0 to 1: logarithmic where one value is far off, since on a linear axis it alone would be seen."""

    def __init__(self, values: Sequence[Number], log: bool | None = None) -> None:
        low, high = min(values), max(values)
        self.log = bool(log) or (log is None and low > 0 and high / low > 8)
        low, high = (math.log10(low), math.log10(high)) if self.log else (low, high)
        # Where all are nearly the same, a little difference should not look like a large one.
        margin = max(0.06 * (high - low), 0.15 - (high - low) / 2) if self.log else 0.07 * (high - low)
        margin = margin or abs(low) * 0.1 or 1.0
        # What is never below zero has no axis below zero, either.
        bottom = low - margin
        self.low, self.high = max(0.0, bottom) if low >= 0 and not self.log else bottom, high + margin

    def share(self, value: Number) -> Number:
        return ((math.log10(value) if self.log else value) - self.low) / (self.high - self.low)

    def value(self, share: Number) -> Number:
        found = self.low + share * (self.high - self.low)
        return 10**found if self.log else found

    def axis(self, name: str, title: str | None) -> Any:
        import altair as alt

        kind = "log" if self.log else "linear"
        scale = alt.Scale(type=kind, zero=False, nice=False, domain=[self.value(0), self.value(1)])
        return (alt.X if name == "x" else alt.Y)(f"{name}:Q").title(title).scale(scale)


def _guides(sizes: Sequence[Number], values: Sequence[Number]) -> list[dict[str, Number]]:
    """Lines with exponents 1 and 2, from the lower left corner to where they leave the drawing."""
    first, last, low, high = sizes[0], sizes[-1], min(values), max(values)
    found = []
    for exponent in (1, 2):
        end = min(last, first * (high / low) ** (1 / exponent))
        found += [{"s": exponent, "x": x, "y": low * (x / first) ** exponent} for x in (first, end)]
    return found


def _drawn(title: str, layers: Sequence[Any], width: Number, height: Number, grid: bool = False) -> str:
    import altair as alt
    import vl_convert

    text = {"labelColor": GREY, "titleColor": GREY, "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": 400}
    line = {"domain": False, "ticks": False, "gridColor": GREY, "gridOpacity": 0.25, "tickCount": 5}
    # Extents are fixed: widths of letters differ between machines.
    across = {"grid": grid, "minExtent": 20, "maxExtent": 20, "labelOverlap": "greedy", "labelSeparation": 6}
    up = {"grid": True, "minExtent": 36, "maxExtent": 36, "labelLimit": 400, "labelOverlap": False}
    config = {"axis": text | line, "axisX": across, "axisY": up, "view": {"stroke": None}, "font": "Liberation Sans"}
    padding = {"left": 4, "top": 8, "right": 12, "bottom": 4}
    made = alt.layer(*layers).properties(width=width, height=height, padding=padding)
    # Checking a specification against the schema takes longer than drawing it.
    spec = made.to_dict(validate=False) | {"config": config | {"background": None}}
    shown: Any = spec["layer"]
    for layer in shown:
        if "description" not in layer["encoding"]:
            # Words that Vega makes up are expressions, in which an escaped control character would be one again.
            layer["mark"]["aria"] = False
    return _tidy(vl_convert.vegalite_to_svg(_printable(spec), show_warnings=False), title)


def _printable(value: Any) -> Any:
    """Return a specification whose texts have no control characters, and can be encoded."""
    if isinstance(value, dict):
        return {name: _printable(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_printable(one) for one in value]
    return printable(value, lines=True) if isinstance(value, str) else value


Box = tuple[Number, Number, Number, Number]
"""Left, top, right, bottom, in pixels."""


def place_labels(
    points: Sequence[tuple[Number, Number, Number, Number, str]],
    width: Number,
    height: Number,
    taken: Sequence[Box] = (),
) -> list[Box]:
    """Return where each name is put: near its dot, and over nothing else where that can be.

    Args:
        points: for each x, y, the upper and the lower end of its interval, in pixels, and the name.
        width: of the area.
        height: of the area.
        taken: where other words stand.
    """
    marks = [(x - 7, y - 7, x + 7, y + 7) for x, y, *_ in points] + [(x - 3, a, x + 3, b) for x, _, a, b, _ in points]
    chosen: list[Box] = []
    for x, y, *_, name in points:
        wide, tall = LETTER * len(name), 13.0
        corners = [(x + 9, y - tall / 2), (x - 9 - wide, y - tall / 2)]
        for far in (9, 20, 32, 46):
            for top in (y - far - tall, y + far):
                corners += [(x - wide * share, top) for share in (0.5, 0.1, 0.9)]

        def cost(box: Box, x: Number = x, y: Number = y) -> Number:
            outside = (box[2] - box[0]) * (box[3] - box[1]) - _overlap(box, (0, 0, width, height))
            hidden = sum(_overlap(box, each) for each in marks) + 3 * sum(
                _overlap(box, each) for each in (*chosen, *taken)
            )
            return 5 * outside + 2 * hidden + math.hypot((box[0] + box[2]) / 2 - x, (box[1] + box[3]) / 2 - y) / 4

        chosen.append(min(((left, top, left + wide, top + tall) for left, top in corners), key=cost))
    return chosen


def _overlap(one: Box, other: Box) -> Number:
    wide, tall = min(one[2], other[2]) - max(one[0], other[0]), min(one[3], other[3]) - max(one[1], other[1])
    return wide * tall if wide > 0 and tall > 0 else 0.0


PLAIN = {"opacity": "1", "text-anchor": "start", "font-size": "12px", "transform": "translate(0,0)", "version": "1.1"}
"""Attributes that say what is so without them."""
DROPPED = ("role", "class", "pointer-events", "font-family", "stroke-miterlimit")


def _tidy(svg: str, title: str) -> str:
    """Keep what is seen, with a class and a tip for each mark, and round numbers to tenths of a pixel."""
    ElementTree.register_namespace("", SVG)
    root = ElementTree.fromstring(svg)
    for each in list(root.iter()):
        place, bar, tip = each.attrib.get("aria-label", "").partition("|")
        for name, value in list(each.attrib.items()):
            if name.startswith("aria-") or name in DROPPED or PLAIN.get(name) == value:
                del each.attrib[name]
            elif name in ("d", "transform", "x2", "y2"):
                each.attrib[name] = re.sub(r"-?\d+\.\d{2,}(e-?\d+)?", _tenths, value)
        if bar and place.isdigit():
            each.set("class", f"k{place}")
            ElementTree.SubElement(each, f"{{{SVG}}}title").text = tip
    _unwrap(root)
    facts = {"role": "img", "aria-label": printable(title), "font-family": FONTS, "font-size": "12"}
    for name, value in facts.items():
        root.set(name, value)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _tenths(found: re.Match[str]) -> str:
    return f"{round(float(found[0]), 1) + 0.0:g}"


def _unwrap(parent: ElementTree.Element) -> None:
    """Take out groups that say nothing, and shapes without any colour."""
    kept: list[ElementTree.Element] = []
    for child in parent:
        _unwrap(child)
        group = child.tag == f"{{{SVG}}}g"
        unseen = child.tag == f"{{{SVG}}}path" and not {"fill", "stroke"} & set(child.attrib)
        if group and not child.attrib:
            kept += child
        elif not unseen and (len(child) or not group):
            kept.append(child)
    parent[:] = kept
