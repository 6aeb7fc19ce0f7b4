"""The page of a benchmark and its Markdown: what to show, in blocks."""

from collections.abc import Callable, Iterator

from synthattn.bench.bars import Bar, bars, outcomes
from synthattn.bench.growth import Fit, Growth, measurable
from synthattn.bench.record import Measurement, Record
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
from synthattn.render.charts import Chart, Key, Line, Lines, Point, Rows
from synthattn.render.document import (
    Block,
    Command,
    Document,
    Facts,
    Figures,
    Folded,
    Heading,
    Listing,
    MarkdownOnly,
    PageOnly,
    Paragraph,
    Section,
)
from synthattn.render.html import page as html
from synthattn.render.numbers import NOTHING, TIMES, digits, fixed, ratio
from synthattn.render.table import Cell, Column, Row, Span, Table

LEAST_MARGIN = "Of each requirement, the bar with the least margin:"


def page(record: Record) -> str:
    """Return the whole file."""
    return html(document(record))


def markdown(record: Record) -> str:
    """Return the same without plots."""
    return md.markdown(document(record), md.joined_table, "Speed and memory, side by side")


def document(record: Record) -> Document:
    places = {name: place for place, name in enumerate(contenders(record.measurements))}
    sections = []
    for key, (title, note, found) in tables(record).items():
        blocks: list[Block] = [Paragraph(note, "note")]
        charts = list(_charts(record, key, places))
        blocks += [Figures(charts)] if charts else []
        for table in found:
            blocks += [Heading(table.title), table]
        sections.append(Section(key, title, blocks))
    return Document(
        "Attention: speed and memory, side by side",
        "synthattn bench",
        list(_lead(record)),
        [*sections, Section("bars", "Bars", list(_bars(bars(record)))), _made(record)],
        places=max(len(places), 9),
    )


def _lead(record: Record) -> Iterator[Block]:
    yield PageOnly([Paragraph(f"{about(record)}.", "soft")])
    yield MarkdownOnly(
        [Paragraph(("Written by ", Span("synthattn bench", "code"), f", not by hand: {about(record)}."))]
    )
    if found := bars(record):
        yield PageOnly([Paragraph(f"{_held(found)}.", "answer")])
    yield Paragraph(HOW_TO_READ, "note")
    yield from (Paragraph(line, "note") for line in certainty(record))
    if record.command:
        yield MarkdownOnly([Command(record.command)])
    if record.skipped:
        yield MarkdownOnly([Paragraph("Left out:"), Listing(record.skipped)])


def _held(found: list[Bar]) -> str:
    return f"{sum(bar.holds for bar in found)} of {len(found)} bars hold"


def _bars(found: list[Bar]) -> Iterator[Block]:
    if not found:
        return
    yield Paragraph(f"{_held(found)}. {LEAST_MARGIN}", "note")
    every = outcomes(found)
    counts = [f"{each.held} of {len(each.bars)}" for each in every]
    yield _bar_table("Requirements", [each.worst for each in every], counts)
    if short := [bar for bar in found if not bar.holds]:
        yield Heading("These fall short")
        yield _bar_table("Bars that fall short", short)
    yield Folded("Every bar", [_bar_table("Every bar", found)])


def _bar_table(title: str, found: list[Bar], counts: list[str] | None = None) -> Table:
    """Return bars alone, or each as the narrowest of so many, with the words of all of them."""
    words = {True: "holds", False: "falls short"}
    columns = [Column("Verdict", [Cell(mark=words[bar.holds]) for bar in found])]
    if counts is not None:
        columns.append(Column("Requirement", [Cell(bar.rule) for bar in found], words=True))
    else:
        columns.append(Column("Bar", [Cell(bar.claim) for bar in found], words=True))
    columns.append(Column("Wanted", [Cell(f"{bar.better} {bar.texts[1]}") for bar in found]))
    columns.append(
        Column("Found" if counts is None else "Narrowest", [Cell(bar.texts[0], key=bar.found) for bar in found])
    )
    if counts is not None:
        columns.append(Column("Which", [Cell(bar.who) for bar in found], words=True))
        columns.append(Column("Bars that hold", [Cell(count) for count in counts]))
    return Table(title, "No.", [Row(str(bar.number)) for bar in found], columns)


def _charts(record: Record, key: str, places: dict[str, int]) -> Iterator[Chart]:
    if key.startswith("growth-"):
        for group in series(record, key.removeprefix("growth-")):
            yield from _growth_charts(group, places)
        return
    for group in compared(record, key):
        name = name_of(group[0].case)
        if key == "layer":
            masks = [label(value) for value in values(group)]
            found = [(m, m.case.mask, "vanilla") for m in group if "vanilla" in m.ratios]
            yield from _ratio_chart(f"{name}: {TIMES} vanilla", found, masks)
            continue
        for value in values(group):
            here = [m for m in group if value in (m.case.mask, m.case.beams)]
            found = [(m, rival, rival) for m in here for rival in rivals(group) if rival in m.ratios]
            yield from _ratio_chart(f"{name}, {label(value)}: times as fast as", found, rivals(group))


def _ratio_chart(title: str, found: list[tuple[Measurement, str, str]], kinds: list[str]) -> Iterator[Chart]:
    """Yield a chart of measurements, each with its series and the rival whose ratio is drawn."""
    points = [
        Point(kind, kinds.index(kind) + 1, m.ratios[rival], m.contender,
              f"{m.contender}\n{m.case}\n{ratio(m.ratios[rival])}{TIMES} {rival}")
        for m, kind, rival in found if m.ratios[rival] > 0
    ]  # fmt: skip
    drawn = {point.name for point in points}
    keys = [Key(place, kind) for place, kind in enumerate(kinds, 1) if kind in drawn]
    if points:
        yield Rows(title, "", points, 1.0, log=True, caption=title, legend=keys if len(keys) > 1 else [])


def _growth_charts(group: list[Growth], places: dict[str, int]) -> Iterator[Chart]:
    """Yield time and memory, each in all modes."""
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
                # From the line that ends highest to the lowest.
                legend = [key for _, key in sorted(keys, key=lambda pair: -pair[0])]
                yield Lines(title, over, unit, lines, growth=True, caption=title, note=note, legend=legend)


def _made(record: Record) -> Section:
    facts = {"Machine": record.machine, "Threads": str(record.threads), "Rounds": str(record.rounds)} | record.versions
    blocks: list[Block] = [Command(record.command)] if record.command else []
    blocks.append(Facts({"": facts}))
    blocks += [Heading("Left out"), Listing(record.skipped)] if record.skipped else []
    return Section("made", "How it was made", [PageOnly(blocks)])
