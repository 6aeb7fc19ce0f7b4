"""Charts as static SVG, drawn by Altair: data and a kind in, a drawing without script out.

Colours are of middling lightness, readable on white and on black. The style sheet of the pages replaces them by lighter
or darker ones of the same hue. Every series has a place, which decides its colour and its shape everywhere.
"""

import math
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from synthattn.messages import printable
from synthattn.render.numbers import Number, shortened

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
FONTS = "system-ui, -apple-system, Segoe UI, Roboto, Helvetica, Arial, sans-serif"
SVG = "http://www.w3.org/2000/svg"


def colour(place: int) -> str:
    return COLOURS[place % len(COLOURS)]


def shape(place: int) -> str:
    return SHAPES[place % len(SHAPES)]


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


@dataclass(frozen=True)
class Scatter:
    """Named points with vertical intervals; dashed lines pass through the point of the baseline."""

    title: str
    across: str
    up: str
    points: Sequence[Point]
    base: str
    width: int = 380
    height: int = 300
    caption: str = ""
    note: str = ""
    legend: Sequence[Key] = ()

    def svg(self) -> str:
        if not self.points:
            return _message(self.title, "nothing to draw: no variant has been measured", self.width)
        import altair as alt

        width, height = self.width - 75, self.height - 60
        ends = [end for p in self.points for end in (p.low, p.high) if end is not None]
        heights = [float(p.y) for p in self.points]
        across, up = _Scale([p.x for p in self.points]), _Scale(heights + ends)
        x, y = alt.X("x:Q").title(self.across).scale(across.made()), alt.Y("y:Q").title(self.up).scale(up.made())
        every = _rows(self.points)
        base = alt.Data(values=[row for row in every if row["name"] == self.base])
        pixels = [
            (
                width * across.share(p.x),
                height * (1 - up.share(y)),
                height * (1 - up.share(y if p.high is None else p.high)),
                height * (1 - up.share(y if p.low is None else p.low)),
                p.name,
            )
            for p, y in zip(self.points, heights, strict=True)
        ]
        boxes = place_labels(pixels, width, height)
        words = [
            {
                "x": across.value((left + right) / 2 / width),
                "y": up.value(1 - (top + bottom) / 2 / height),
                "name": p.name,
                "weight": 700 if p.name == self.base else 400,
            }
            for (left, top, right, bottom), p in zip(boxes, self.points, strict=True)
        ]
        layers = [
            alt.Chart(base).mark_rule(strokeDash=[5, 4], color=GREY).encode(y=y),
            alt.Chart(base).mark_rule(strokeDash=[5, 4], color=GREY).encode(x=x),
            _marked(alt.Chart(alt.Data(values=[row for row in every if "low" in row])).mark_rule(size=1.5)).encode(
                x=x, y=alt.Y("low:Q").title(self.up), y2="high:Q"
            ),
            _dots(alt.Chart(alt.Data(values=every))).encode(x=x, y=y),
            *(
                alt.Chart(alt.Data(values=[row for row in words if row["weight"] == weight]))
                .mark_text(color=GREY, fontSize=12, baseline="middle", fontWeight=weight)
                .encode(x=x, y=y, text="name:N")
                for weight in (400, 700)
            ),
        ]
        return _drawn(_spec(alt.layer(*layers), width, height, grid="both"), self.title)


@dataclass(frozen=True)
class Line:
    """Points of one series, with words for each."""

    name: str
    place: int
    points: Sequence[tuple[Number, Number]]
    tips: Sequence[str] = ()
    tip: str = ""
    """Said of the line as a whole."""


@dataclass(frozen=True)
class Lines:
    """A line for every series."""

    title: str
    across: str
    up: str
    lines: Sequence[Line]
    log: bool = False
    """Of the axis that goes up."""
    growth: bool = False
    """Both axes are logarithmic, and dotted guides show linear and quadratic growth."""
    rule: Number | None = None
    top: Number | None = None
    """Where the axis ends; lines that come from above are cut off there."""
    width: int = 380
    height: int = 300
    caption: str = ""
    note: str = ""
    legend: Sequence[Key] = ()

    def svg(self) -> str:
        import altair as alt

        # Lines that come from above the end of the axis begin where they come in.
        inside = [(line, [p for p in line.points if self.top is None or p[1] <= self.top]) for line in self.lines]
        values = [y for _, points in inside for _, y in points]
        sizes = sorted({x for _, points in inside for x, _ in points})
        scale = alt.Scale(type="log", nice=False, padding=6) if self.growth else alt.Scale(nice=False, zero=False)
        x = alt.X("x:Q").title(self.across).scale(scale)
        rule = [] if self.rule is None else [self.rule]
        up = _Scale(values + rule, self.log or self.growth)
        y = alt.Y("y:Q").title(self.up).scale(up.made())
        if self.growth:
            x = x.axis(values=sizes, tickCount=len(sizes), format=",d", grid=True, labelOverlap=True)
        if up.log and up.high - up.low > 2:
            decades = [10.0**n for n in range(math.ceil(up.low), math.floor(up.high) + 1)]
            y = y.axis(values=decades, tickCount=len(decades), format="~g")
        paths, dots = [], []
        for line, points in inside:
            said = _said(line.place, line.tip or line.name)
            paths += [{"x": a, "y": b, "s": line.place, "colour": colour(line.place), "tip": said} for a, b in points]
            tips = dict(zip(line.points, line.tips, strict=False))
            dots += _rows(Point(line.name, line.place, *p, tips[p]) for p in points if p in tips)
        layers = [alt.Chart(alt.Data(values=[{"y": end} for end in rule])).mark_rule(color=GREY).encode(y=y)]
        if self.growth:
            dotted = alt.Chart(alt.Data(values=_guides(sizes, values))).mark_line(strokeDash=[2, 4], color=GREY)
            layers.append(dotted.encode(x=x, y=y, detail="s:N"))
        drawn = alt.Chart(alt.Data(values=paths)).mark_line(size=1.6)
        layers.append(_marked(drawn).encode(x=x, y=y, detail="s:N"))
        layers.append(_dots(alt.Chart(alt.Data(values=dots)), 34).encode(x=x, y=y))
        return _drawn(_spec(alt.layer(*layers), self.width - 75, self.height - 60), self.title)


@dataclass(frozen=True)
class Rows:
    """A row for every name, with the dots and intervals of all series, and a line at what they are compared with."""

    title: str
    across: str
    points: Sequence[Point]
    """Their ``y`` is the name of the row, their ``name`` that of the series."""
    line: Number
    log: bool = False
    width: int = 380
    caption: str = ""
    note: str = ""
    legend: Sequence[Key] = ()
    keyed: bool = False
    """Series are named above the rows, for a file that stands alone."""

    def svg(self) -> str:
        import altair as alt

        names = list(dict.fromkeys(str(p.y) for p in self.points))
        series = list(dict.fromkeys(p.name for p in self.points))
        short = {name: shortened(name) for name in names}
        ends = [end for p in self.points for end in (p.x, p.low, p.high) if end is not None]
        left = int(16 + 6.3 * max(map(len, short.values())))
        span = _Scale([self.line, *ends], self.log)
        x = alt.X("x:Q").title(self.across or None).scale(span.made())
        above = series if self.keyed else []
        top = -0.5 - len(above)
        # Numbers as heights, so that two rows may have the same shortened name.
        labels = " : ".join(f"datum.value == {n} ? {_quoted(short[name])}" for n, name in enumerate(names)) + " : ''"
        y = alt.Y("row:Q").title(None).scale(domain=[len(names) - 0.5, top], nice=False, zero=False)
        y = y.axis(
            values=list(range(len(names))),
            tickCount=len(names),
            labelExpr=labels,
            minExtent=left,
            maxExtent=left,
            gridOpacity=0.12,
        )
        rows = _rows(self.points)
        for point, row in zip(self.points, rows, strict=True):
            # Series that found nearly the same would hide each other on one line.
            row["row"] = names.index(str(point.y)) + 0.17 * (series.index(point.name) - (len(series) - 1) / 2)
        data = alt.Data(values=rows)
        with_bar = alt.Data(values=[row for row in rows if "low" in row])
        layers = [
            alt.Chart(alt.Data(values=[{"x": self.line}])).mark_rule(color=GREY).encode(x=x),
            _marked(alt.Chart(with_bar).mark_rule(size=2)).encode(
                x=alt.X("low:Q").title(self.across or None), x2="high:Q", y=y
            ),
            _dots(alt.Chart(data), 45).encode(x=x, y=y),
        ]
        if above:
            # A name for each series, to the right of its mark.
            places = {p.name: p.place for p in self.points}
            keys = _rows(Point(name, places[name], span.value(0.02), "", name) for name in above)
            for n, row in enumerate(keys):
                row["row"] = top + 0.5 + n
            layers.append(_dots(alt.Chart(alt.Data(values=keys)), 45).encode(x=x, y=y))
            words = alt.Chart(alt.Data(values=keys)).mark_text(align="left", dx=9, color=GREY, fontSize=12)
            layers.append(words.encode(x=x, y=y, text="name:N"))
        height = 23 * (len(names) + len(above))
        spec = _spec(alt.layer(*layers), max(120, self.width - left - 22), height, grid="both")
        return _drawn(spec, self.title)


@dataclass(frozen=True)
class Shares:
    """Shares of bins along a logarithmic axis: one filled distribution, and one as an outline."""

    title: str
    filled: Sequence[tuple[Number, Number]]
    """Where a bin begins, as a power of ten, and its share; the last one ends the last bin."""
    outline: Sequence[tuple[Number, Number]]
    span: tuple[Number, Number]
    most: Number
    """Where the axis ends, so that several charts can be compared."""
    caption: str = ""
    note: str = ""
    legend: Sequence[Key] = ()
    width: int = 150

    def svg(self) -> str:
        import altair as alt

        x = alt.X("x:Q").title(None).scale(domain=list(self.span), nice=False)
        y = alt.Y("y:Q").axis(None).scale(domain=[0, self.most], nice=False)
        tens = list(range(math.ceil(self.span[0]), math.floor(self.span[1]) + 1))
        shown = [edge for edge in tens if (edge - tens[0]) % math.ceil(len(tens) / 4) == 0]
        x = x.axis(values=shown, labelExpr="datum.value == 0 ? '1' : format(pow(10, datum.value), '~g')", grid=False)
        layers = []
        if self.filled:
            area = alt.Chart(self._data(self.filled)).mark_area(interpolate="step-after", color=colour(1), opacity=0.5)
            layers.append(area.encode(x=x, y=y, description=alt.value(_said(1, self.title))))
        if self.outline:
            line = alt.Chart(self._data(self.outline)).mark_line(interpolate="step-after", color=GREY, size=1.2)
            layers.append(line.encode(x=x, y=y, description=alt.value(_said(0, self.title))))
        return _drawn(_spec(alt.layer(*layers), self.width, 62), self.title)

    def _data(self, steps: Sequence[tuple[Number, Number]]) -> Any:
        import altair as alt

        return alt.Data(values=[{"x": edge, "y": share} for edge, share in steps])


Chart = Scatter | Lines | Rows | Shares


def _said(place: int, tip: str) -> str:
    """The class and the words of a mark, as ``_tidy`` takes them apart."""
    return f"{place}|{tip}"


def _quoted(text: str) -> str:
    """A string of Vega's expression language."""
    kept = printable(text, lines=True)
    return "'" + "".join(f"\\u{ord(c):04x}" if c in "\\'\n\t" else c for c in kept) + "'"


def _rows(points: Iterable[Point]) -> list[dict[str, Any]]:
    found = []
    for p in points:
        row = {"x": p.x, "y": p.y, "name": p.name, "colour": colour(p.place), "shape": shape(p.place)}
        row["tip"] = _said(p.place, p.tip)
        found.append(row if p.low is None else row | {"low": p.low, "high": p.high})
    return found


def _marked(chart: Any) -> Any:
    """Each mark with its own colour and words."""
    import altair as alt

    return chart.encode(color=alt.Color("colour:N").scale(None).legend(None), description="tip:N")


def _dots(chart: Any, size: int = 80) -> Any:
    import altair as alt

    marks = chart.mark_point(filled=True, opacity=1, size=size)
    return _marked(marks).encode(shape=alt.Shape("shape:N").scale(None).legend(None))


class _Scale:
    """An axis from 0 to 1: logarithmic where one value is far off, since on a linear axis it alone would be seen."""

    def __init__(self, values: Sequence[Number], log: bool | None = None) -> None:
        low, high = min(values), max(values)
        self.log = bool(log) or (log is None and low > 0 and high / low > 8)
        low, high = (math.log10(low), math.log10(high)) if self.log else (low, high)
        # Where all are nearly the same, a little difference should not look like a large one.
        margin = max(0.06 * (high - low), 0.15 - (high - low) / 2) if self.log else 0.07 * (high - low)
        margin = margin or abs(low) * 0.1 or 1.0
        self.low, self.high = low - margin, high + margin

    def share(self, value: Number) -> Number:
        return ((math.log10(value) if self.log else value) - self.low) / (self.high - self.low)

    def value(self, share: Number) -> Number:
        found = self.low + share * (self.high - self.low)
        return 10**found if self.log else found

    def made(self) -> Any:
        import altair as alt

        kind = "log" if self.log else "linear"
        return alt.Scale(type=kind, zero=False, nice=False, domain=[self.value(0), self.value(1)])


def _scale(values: Sequence[Number], log: bool | None = None) -> Any:
    return _Scale(values, log).made()


def _guides(sizes: Sequence[Number], values: Sequence[Number]) -> list[dict[str, Number]]:
    """Lines with exponents 1 and 2, from the lower left corner to where they leave the drawing."""
    first, last, low, high = sizes[0], sizes[-1], min(values), max(values)
    found = []
    for exponent in (1, 2):
        end = min(last, first * (high / low) ** (1 / exponent))
        found += [{"s": exponent, "x": x, "y": low * (x / first) ** exponent} for x in (first, end)]
    return found


def _spec(chart: Any, width: Number, height: Number, grid: str = "y") -> dict[str, Any]:
    number = {"labelColor": GREY, "titleColor": GREY, "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": 400}
    line = {"domain": False, "ticks": False, "gridColor": GREY, "gridOpacity": 0.25, "tickCount": 5}
    # Extents are fixed: widths of letters differ between machines.
    axes = {
        "axis": number | line,
        "axisX": {
            "grid": grid == "both",
            "minExtent": 20,
            "maxExtent": 20,
            "labelOverlap": "greedy",
            "labelSeparation": 6,
        },
        "axisY": {"grid": True, "minExtent": 36, "maxExtent": 36, "labelLimit": 400, "labelOverlap": False},
    }
    config = axes | {"view": {"stroke": None}, "font": "Liberation Sans", "background": None}
    padding = {"left": 4, "top": 8, "right": 12, "bottom": 4}
    # Checking a specification against the schema takes longer than drawing it.
    made = chart.properties(width=width, height=height, padding=padding).to_dict(validate=False)
    return made | {"config": config}


def _drawn(spec: dict[str, Any], title: str) -> str:
    import vl_convert

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
    points: Sequence[tuple[Number, Number, Number, Number, str]], width: Number, height: Number
) -> list[Box]:
    """Return where each name is put: near its dot, and over nothing else where that can be.

    Args:
        points: for each x, y, the upper and the lower end of its interval, in pixels, and the name.
        width: of the area.
        height: of the area.
    """
    marks = [(x - 7, y - 7, x + 7, y + 7) for x, y, *_ in points] + [(x - 3, a, x + 3, b) for x, _, a, b, _ in points]
    chosen: list[Box] = []
    for x, y, *_, name in points:
        wide, tall = LETTER * len(name), 13.0
        corners = [(x + 9, y - tall / 2), (x - 9 - wide, y - tall / 2)]
        for far in (9, 20, 32, 46):
            for top in (y - far - tall, y + far):
                corners += [(x - wide * share, top) for share in (0.5, 0.1, 0.9)]
        boxes = [(left, top, left + wide, top + tall) for left, top in corners]

        def cost(box: Box, x: Number = x, y: Number = y) -> Number:
            outside = (box[2] - box[0]) * (box[3] - box[1]) - _overlap(box, (0, 0, width, height))
            hidden = sum(_overlap(box, each) for each in marks) + 3 * sum(_overlap(box, each) for each in chosen)
            return 5 * outside + 2 * hidden + math.hypot((box[0] + box[2]) / 2 - x, (box[1] + box[3]) / 2 - y) / 4

        chosen.append(min(boxes, key=cost))
    return chosen


def _overlap(one: Box, other: Box) -> Number:
    wide, tall = min(one[2], other[2]) - max(one[0], other[0]), min(one[3], other[3]) - max(one[1], other[1])
    return wide * tall if wide > 0 and tall > 0 else 0.0


PLAIN = {"opacity": "1", "text-anchor": "start", "font-size": "12px", "transform": "translate(0,0)", "version": "1.1"}
"""Attributes that say what is so without them."""
DROPPED = ("role", "class", "pointer-events", "font-family", "stroke-miterlimit")
POINTS = re.compile(r"(?:[ML]-?[\d.]+,-?[\d.]+)+Z?")


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
                each.attrib[name] = re.sub(r"-?\d+\.\d{2,}(e-?\d+)?", _shorter, value)
        if POINTS.fullmatch(each.get("d", "")):
            each.set("d", _path(each.attrib["d"]))
        if bar and place.isdigit():
            each.set("class", f"k{place}")
            ElementTree.SubElement(each, f"{{{SVG}}}title").text = tip
    _unwrap(root)
    facts = {"role": "img", "aria-label": printable(title), "font-family": FONTS, "font-size": "12"}
    for name, value in facts.items():
        root.set(name, value)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _unwrap(parent: ElementTree.Element) -> None:
    """Take out groups that say nothing, and shapes without any colour."""
    kept: list[ElementTree.Element] = []
    for child in parent:
        _unwrap(child)
        kind = child.tag.removeprefix(f"{{{SVG}}}")
        if kind == "g" and not child.attrib:
            kept += child
        elif not (kind == "g" and not len(child)) and not (
            kind == "path" and not {"fill", "stroke"} & set(child.attrib)
        ):
            kept.append(child)
    parent[:] = kept


def _path(d: str) -> str:
    """Return a path through the same points, with steps along an axis written as such."""
    parts: list[str] = []
    at: tuple[str, str] | None = None
    for x, y in re.findall(r"[ML](-?[\d.]+),(-?[\d.]+)", d):
        if at is None or not parts:
            parts.append(f"M{x},{y}")
        elif (x, y) != at:
            step = f"H{x}" if y == at[1] else f"V{y}" if x == at[0] else f"L{x},{y}"
            # Two steps along one axis are one where the second goes on from the first.
            if step[0] in "HV" and parts[-1][0] == step[0]:
                parts[-1] = step
            else:
                parts.append(step)
        at = x, y
    return "".join(parts) + "Z" * d.endswith("Z")


def _shorter(found: re.Match[str]) -> str:
    return f"{round(float(found[0]), 1) + 0.0:g}"


def _message(title: str, text: str, width: int) -> str:
    root = ElementTree.Element(f"{{{SVG}}}svg", {"viewBox": f"0 0 {width} 60", "width": str(width), "height": "60"})
    ElementTree.register_namespace("", SVG)
    middle = {"x": str(width // 2), "y": "34", "text-anchor": "middle", "fill": GREY, "font-size": "12"}
    ElementTree.SubElement(root, f"{{{SVG}}}text", middle).text = text
    return _tidy(ElementTree.tostring(root, encoding="unicode"), title)
