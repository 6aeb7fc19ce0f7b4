"""The page of a benchmark: one HTML file that asks for nothing else and needs no script."""

import re
from collections.abc import Callable
from itertools import groupby

from synthattn.bench.bars import Bar, bars, outcomes, verdict
from synthattn.bench.growth import Fit, Growth, measurable
from synthattn.bench.plots import Dot, Line, curves, dots
from synthattn.bench.record import Measurement, Record
from synthattn.bench.tables import (
    HOW_TO_READ,
    Section,
    Table,
    about,
    certainty,
    compared,
    contenders,
    label,
    name_of,
    ratio,
    rivals,
    sections,
    series,
    series_name,
    values,
)
from synthattn.render.document import document, escape, text_file
from synthattn.render.picture import COLOURS, shape
from synthattn.render.tables import NOTHING, TIMES, digits, fixed

BAR_HEADS = ["", "", "Wanted", "Found", "Bar"]
LEAST_MARGIN = "Of each requirement, the bar with the least margin; all bars that fall short are below."


def page(record: Record) -> str:
    """The whole file."""
    places = {name: place for place, name in enumerate(contenders(record.measurements))}
    found = bars(record)
    parts = {"bars": ("Bars", _bars(found))} if found else {}
    for section in sections(record):
        parts[section.key] = (section.title, _section(section, _plots(record, section.key, places)))
    parts["made"] = ("How it was made", _made(record))
    own = text_file("synthattn.bench", "page.css")
    return document(
        "Attention: speed and memory, side by side",
        "synthattn bench",
        _heading(record, found),
        parts,
        text_file("synthattn.render", "page.css") + own + _highlights(len(places)),
    )


def _highlights(count: int) -> str:
    """Who points at a line or at its name sees that line alone; a finger does so by a tap."""
    return "".join(
        f"figure:has(.k{n}:hover, .k{n}:focus) .series:not(.k{n}) {{ opacity: .12; }}\n" for n in range(count)
    )


def _heading(record: Record, found: list[Bar]) -> str:
    lines = [
        "<h1>Attention: <span>speed and memory,</span> <span>side by side</span></h1>",
        f'<p class="soft">{escape(about(record))}.</p>',
    ]
    if found:
        lines.append(f'<div class="answer"><p>{escape(verdict(record).splitlines()[0])}.</p></div>')
    lines.append(f'<p class="note">{escape(HOW_TO_READ)}</p>')
    lines += [f'<p class="note">{escape(line)}</p>' for line in certainty(record)]
    return "\n".join(lines)


def _bars(found: list[Bar]) -> str:
    every = [(bar, "") for bar in found]
    narrowest = [(outcome.worst, f"{outcome.held} of {len(outcome.bars)}") for outcome in outcomes(found)]
    lines = [
        f'<p class="note">{LEAST_MARGIN}</p>',
        _bar_table("Requirements", narrowest),
    ]
    if short := [(bar, "") for bar in found if not bar.holds]:
        lines += ["<h3>These fall short</h3>", _bar_table("Bars that fall short", short)]
    lines.append(f"<details><summary>Every bar</summary>{_bar_table('Every bar', every)}</details>")
    return "\n".join(lines)


def _bar_table(name: str, found: list[tuple[Bar, str]]) -> str:
    """Bars alone, or each as the narrowest of so many, with the words of all of them."""
    counted = any(count for _, count in found)
    lines = []
    for bar, count in found:
        value, bound = bar.texts
        # A requirement holds when its narrowest bar does.
        kind, word = ("better", "holds") if bar.holds else ("worse", "falls short")
        cells = [f'<td class="verdict"><span class="mark {kind}">{word}</span></td>']
        cells += [f'<td class="count">{count}</td>', f'<td class="words">{escape(bar.rule)}</td>'] if counted else []
        cells.append(f'<td class="wanted">{bar.better} {escape(bound)}</td><td class="found">{escape(value)}</td>')
        cells.append(f'<td class="words who">{escape(bar.who if counted else bar.claim)}</td>')
        lines.append(f'<tr><th scope="row">{bar.number}</th>{"".join(cells)}</tr>\n')
    heads = ["", "", "Bars", "Requirement", "Wanted", "Narrowest", "Which"] if counted else BAR_HEADS
    words = {"Requirement", "Which", "Bar"}
    head = "".join(f'<th scope="col"{" class=words" if h in words else ""}>{h}</th>' for h in heads)
    body = f"<tbody>{''.join(lines)}</tbody>"
    return _scroll(name, f'<table class="data bars"><thead><tr>{head}</tr></thead>\n{body}</table>')


def _scroll(name: str, table: str) -> str:
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(name)}">{table}</div>'


def _section(section: Section, plots: str) -> str:
    lines = [f'<p class="note">{escape(section.note)}</p>', plots]
    for table in section.tables:
        lines += [f"<h3>{escape(table.title)}</h3>"] if table.title else []
        lines.append(_table(table, section.title))
    return "\n".join(lines)


def _table(table: Table, section: str) -> str:
    groups = [(name, len(list(group))) for name, group in groupby(table.columns, lambda column: column.group)]
    begins = {sum(size for _, size in groups[:n]) for n in range(len(groups)) if groups[n][0]}
    first = f'<th scope="col" class="stays"{" rowspan=2" if begins else ""}>{escape(table.first)}</th>'
    heads = "".join(
        f'<th scope="col"{_kind(column.head, n in begins)}>{_head(column.head)}</th>'
        for n, column in enumerate(table.columns)
    )
    if begins:
        above = "".join(
            f'<th scope="colgroup" colspan="{size}" class="group{" begins" if name else ""}">{escape(name)}</th>'
            for name, size in groups
        )
        head = f"<thead><tr>{first}{above}</tr><tr>{heads}</tr></thead>"
    else:
        head = f"<thead><tr>{first}{heads}</tr></thead>"
    rows = []
    for n, name in enumerate(table.rows):
        cells = "".join(
            f"<td{_kind(column.head, m in begins)}>{escape(column.cells[n])}</td>"
            for m, column in enumerate(table.columns)
        )
        rows.append(
            f'<tr><th scope="row" class="stays"><span class="name">{_breakable(name)}</span></th>{cells}</tr>\n'
        )
    name = f"{section}: {table.title}" if table.title else section
    return _scroll(name, f'<table class="data">{head}\n<tbody>{"".join(rows)}</tbody></table>')


def _kind(head: str, begins: bool) -> str:
    kinds = ["begins"] * begins + ["words"] * (head == "Note")
    return f' class="{" ".join(kinds)}"' if kinds else ""


def _head(text: str) -> str:
    """Over numbers there is little room: long names may be broken before capitals, but not after the sign."""
    text = escape(text).replace(f"{TIMES} ", f"{TIMES}&nbsp;")
    return re.sub("(?<=[a-z.])(?=[A-Z])", "<wbr>", text)


def _breakable(name: str) -> str:
    """A name that may go on in the next line where its parts end."""
    return "".join(f"{escape(letter)}<wbr>" if letter in "_+(." else escape(letter) for letter in name)


def _plots(record: Record, key: str, places: dict[str, int]) -> str:
    """All drawings of a section."""
    if key.startswith("growth-"):
        over = key.removeprefix("growth-")
        figures = [figure for group in series(record, over) for figure in _growth_figures(group, places)]
    elif key == "layer":
        figures = [
            _dot_figure(f"{name_of(group[0].case)}: {TIMES} vanilla", _by_mask(group), list(map(label, values(group))))
            for group in compared(record, key)
        ]
    else:
        figures = [
            _dot_figure(
                f"{name_of(group[0].case)}, {label(value)}: times as fast as", _by_rival(group, value), rivals(group)
            )
            for group in compared(record, key)
            for value in values(group)
        ]
    return f'<div class="plots four">{"".join(figures)}</div>\n' if any(figures) else ""


def _by_mask(group: list[Measurement]) -> list[Dot]:
    return [
        Dot(m.contender, m.case.mask, value, f"{m.contender}\n{m.case}\n{ratio(value)}{TIMES} vanilla")
        for m in group
        if (value := m.ratios.get("vanilla")) is not None
    ]


def _by_rival(group: list[Measurement], value: str | int) -> list[Dot]:
    here = [m for m in group if value in (m.case.mask, m.case.beams)]
    return [
        Dot(m.contender, rival, m.ratios[rival], f"{m.contender}\n{m.case}\n{ratio(m.ratios[rival])}{TIMES} {rival}")
        for m in here
        for rival in rivals(group)
        if rival in m.ratios
    ]


def _dot_figure(title: str, found: list[Dot], kinds: list[str]) -> str:
    found = [dot for dot in found if dot.value > 0]
    return f"<figure><figcaption>{escape(title)}</figcaption>{dots(title, found, kinds)}</figure>" if found else ""


def _growth_figures(group: list[Growth], places: dict[str, int]) -> list[str]:
    """Time and memory, each in all modes."""
    quantities: list[tuple[str, str, Callable[[Measurement], float | None], Callable[[Growth], Fit | None]]] = [
        ("Time", "ms", lambda m: 1000 * m.seconds if m.seconds > 0 else None, lambda growth: growth.time),
        ("Memory", "MB", measurable, lambda growth: growth.memory),
    ]
    modes = list(dict.fromkeys(growth.held.mode for growth in group))
    figures = []
    for what, unit, of, fitted in quantities:
        for mode in modes:
            lines = []
            for growth in group:
                points = [(float(growth.size(m)), y) for m in growth.points if (y := of(m)) is not None]
                if growth.held.mode != mode or not points:
                    continue
                fit = fitted(growth)
                tips = [f"{growth.contender}\n{growth.over} {size:.0f}: {digits(y)} {unit}" for size, y in points]
                note = fixed(fit.exponent, 2) if fit else ""
                lines.append(Line(places[growth.contender], growth.contender, points, tips, note))
            title = f"{what}, {mode}: {series_name(group[0])}"
            figures.append(_line_figure(title, group[0].over, unit, lines) if lines else "")
    return figures


def _line_figure(title: str, across: str, unit: str, lines: list[Line]) -> str:
    """With the names below, from the line that ends highest to the lowest."""
    ordered = sorted(lines, key=lambda line: line.points[-1][1], reverse=True)
    svg = curves(title, across, unit, lines, guides=True)
    items = "".join(
        _item(line, f"{digits(line.points[-1][1])} {unit} <b>{line.note or NOTHING}</b>") for line in ordered
    )
    last = max(line.points[-1][0] for line in lines)
    note = f"Dotted: linear and quadratic. At {across} {last:.0f}, and the exponent:"
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>{svg}"
        f'<p class="note">{note}</p><ul class="legend">{items}</ul></figure>'
    )


def _item(line: Line, value: str) -> str:
    return (
        f'<li class="k{line.place}" tabindex="0"><svg class="glyph v{line.place % len(COLOURS)}" '
        f'viewBox="-7 -7 14 14" aria-hidden="true"><path stroke="none" d="{shape(line.place)}"/></svg>'
        f'<span class="name">{_breakable(line.name)}</span><span class="value">{value}</span></li>'
    )


def _made(record: Record) -> str:
    lines = []
    if record.command:
        lines.append(f'<div class="command"><pre><code>{escape(record.command)}</code></pre></div>')
    facts = {"Machine": record.machine, "Threads": str(record.threads), "Rounds": str(record.rounds)} | record.versions
    pairs = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts.items())
    lines.append(f'<dl class="facts">{pairs}</dl>')
    if record.skipped:
        lines.append(f"<h3>Left out</h3><ul>{''.join(f'<li>{escape(line)}</li>' for line in record.skipped)}</ul>")
    return "\n".join(lines)
