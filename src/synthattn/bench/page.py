"""The page of a benchmark, and the same as Markdown without charts."""

from collections.abc import Callable, Iterator

from synthattn.bench.growth import Fit, Growth, measurable
from synthattn.bench.record import BenchRecord, Measurement
from synthattn.bench.tables import (
    HOW_TO_READ,
    about,
    certainty,
    compared,
    contenders,
    label,
    name_of,
    rivals,
    series,
    series_name,
    tables,
    values,
)
from synthattn.render import markdown as md
from synthattn.render.charts import Chart, ForestPlot, Key, Line, Lines, Point
from synthattn.render.document import Block, Command, Document, Figures, Heading, Listing, Paragraph, Section
from synthattn.render.html import page as html
from synthattn.render.numbers import NOTHING, TIMES, digits, fixed, ratio
from synthattn.render.table import Span

TITLE = "Speed and memory, side by side"


def page(record: BenchRecord) -> str:
    """Return the page as one HTML file."""
    return html(document(record))


def markdown(record: BenchRecord, title: str = TITLE) -> str:
    """Return the document as Markdown, without charts."""
    return md.markdown(document(record), md.joined_table, title)


def document(record: BenchRecord) -> Document:
    places = {name: place for place, name in enumerate(contenders(record.measurements))}
    sections = []
    for key, (title, note, found) in tables(record).items():
        blocks: list[Block] = [Paragraph(note, "note")]
        charts = list(_charts(record, key, places))
        blocks += [Figures(charts)] if charts else []
        for table in found:
            blocks += [Heading(table.title), table]
        sections.append(Section(key, title, blocks))
    written = ("Written by ", Span("synthattn bench", "code"), f", not by hand: {about(record)}.")
    lead: list[Block] = [Paragraph(written, "soft"), Paragraph(HOW_TO_READ, "note")]
    lead += [Paragraph(line, "note") for line in certainty(record)]
    lead += [Command(record.command)] if record.command else []
    lead += [Paragraph("Left out:", "note"), Listing(record.skipped)] if record.skipped else []
    return Document(f"Attention: {TITLE.lower()}", "synthattn bench", lead, sections, places=max(len(places), 9))


def _charts(record: BenchRecord, key: str, places: dict[str, int]) -> Iterator[Chart]:
    if key.startswith("growth-"):
        for group in series(record, key.removeprefix("growth-")):
            yield from _growth_charts(group, places)
        return
    for group in compared(record, key):
        name = name_of(group[0].case)
        if key == "layer":
            found = [(m, m.case.mask, "vanilla") for m in group if "vanilla" in m.ratios]
            yield from _ratio_chart(f"{name}: {TIMES} vanilla", found, [label(value) for value in values(group)])
            continue
        for value in values(group):
            here = [m for m in group if value in (m.case.mask, m.case.beams)]
            found = [(m, rival, rival) for m in here for rival in rivals(group) if rival in m.ratios]
            yield from _ratio_chart(f"{name}, {label(value)}: times as fast as", found, rivals(group))


def _ratio_chart(title: str, found: list[tuple[Measurement, str, str]], kinds: list[str]) -> Iterator[Chart]:
    """Yield a chart of measurements, each with the name of its series and the rival whose ratio is drawn."""
    points = [
        Point(kind, kinds.index(kind) + 1, m.ratios[rival], m.contender,
              f"{m.contender}\n{m.case}\n{ratio(m.ratios[rival])}{TIMES} {rival}")
        for m, kind, rival in found if m.ratios[rival] > 0
    ]  # fmt: skip
    drawn = {point.name for point in points}
    keys = [Key(place, kind) for place, kind in enumerate(kinds, 1) if kind in drawn]
    if points:
        yield ForestPlot(title, "", points, 1.0, log=True, caption=title, legend=keys if len(keys) > 1 else [])


def _growth_charts(group: list[Growth], places: dict[str, int]) -> Iterator[Chart]:
    """Yield charts of time and memory, each in all modes."""
    quantities: list[tuple[str, str, Callable[[Measurement], float | None], Callable[[Growth], Fit | None]]] = [
        ("Time", "ms", lambda m: 1000 * m.seconds if m.seconds > 0 else None, lambda growth: growth.time),
        ("Memory", "MB", measurable, lambda growth: growth.memory),
    ]
    over = group[0].over
    for what, unit, of, fitted in quantities:
        for mode in dict.fromkeys(growth.held.mode for growth in group):
            lines, keys = [], []
            for growth in group:
                points = [(float(growth.size(m)), y) for m in growth.points if (y := of(m)) is not None]
                if growth.held.mode != mode or not points:
                    continue
                fit, name, place = fitted(growth), growth.contender, places[growth.contender]
                tips = [f"{name}\n{over} {size:.0f}: {digits(y)} {unit}" for size, y in points]
                lines.append(Line(name, place, points, tips))
                exponent = fixed(fit.exponent, 2) if fit else NOTHING
                keys.append((points[-1][1], Key(place, name, f"{digits(points[-1][1])} {unit}", exponent)))
            if lines:
                title = f"{what}, {mode}: {series_name(group[0])}"
                last = max(line.points[-1][0] for line in lines)
                note = f"Dotted: linear and quadratic. At {over} {last:.0f}, and the exponent:"
                # In the order in which the lines end, from the top.
                legend = [key for _, key in sorted(keys, key=lambda pair: -pair[0])]
                yield Lines(title, over, unit, lines, growth=True, caption=title, note=note, legend=legend)
