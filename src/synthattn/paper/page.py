"""The page of a reproduced table: one HTML file that asks for nothing else and needs no script."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from synthattn.bench.plots import ROW, WIDTH, shortened
from synthattn.compare.results import Difference, Histogram, Run
from synthattn.compare.results import Results as Part
from synthattn.compare.results import Variant as Row
from synthattn.paper import learning
from synthattn.paper.markdown import (
    ROOT,
    TABLE1_HEADS,
    TABLE1_NOTES,
    TABLE1_TITLE,
    Measure,
    about_rates,
    about_scale,
    agreement,
    basis,
    better,
    contradicts_itself,
    counted,
    ended,
    footnotes,
    heading,
    how_certain,
    link,
    measures,
    own_words,
    published_base,
    runs_done,
    seeds,
    table1_rows,
    trouble,
)
from synthattn.paper.outcome import Judgement, Outcome
from synthattn.paper.table1 import Synthesized
from synthattn.render.document import document, escape, text_file
from synthattn.render.picture import COLOURS, GREY, LETTER, Axis, shape, svg_frame, svg_line, svg_text
from synthattn.render.tables import NOTHING, Cell, digits, duration, signed

WORDS: dict[Judgement, str] = {"holds": "holds", "does not hold": "not", "undecided": "undecided", "not run": "unrun"}
"""Classes of the style, which gives each a colour and a sign."""
PACKAGES = ("synthattn.render", "synthattn.bench", "synthattn.paper")


def page(outcome: Outcome, root: str = ROOT) -> str:
    """The whole file.

    Args:
        outcome: of one table.
        root: the way from the page to the folder of all results.
    """
    several = len({part.scale for part in outcome.parts}) > 1
    sections = {"claims": ("The paper's claims", _verdicts(outcome))}
    for part in outcome.parts:
        title = heading(part)
        sections[_id(part)] = (f"{title} ({part.scale})" if several else title, _part(part, root))
    sections["made"] = ("Notes and versions", _made(outcome))
    above = [f"<h1>{escape(outcome.title)}</h1>", f'<p class="soft">{escape(_about(outcome))}</p>']
    if outcome.verdicts:
        above.append(f'<div class="answer"><p>{escape(counted(outcome.verdicts))}</p></div>')
    return document(
        f"{outcome.title}: reproduced",
        "synthattn reproduce",
        "\n".join(above),
        sections,
        _style(),
    )


def page_of_table1(rows: Sequence[Synthesized]) -> str:
    """The whole file, of what each synthesizing function looks at."""
    heads = "".join(
        f'<th scope="col"{" class=stays" if not n else ""}>{head}</th>' for n, head in enumerate(TABLE1_HEADS)
    )
    body = "".join(
        f'<tr><th scope="row" class="stays">{escape(name)}<small class="name">{_breakable(row.attention)}</small></th>'
        f"{''.join(f'<td>{escape(text)}</td>' for text in texts)}</tr>\n"
        for row, (name, *texts) in zip(rows, table1_rows(rows), strict=True)
    )
    table = f'<table class="data part"><thead><tr>{heads}</tr></thead>\n<tbody>\n{body}</tbody></table>'
    notes = "".join(f"<p>{escape(note)}</p>" for note in TABLE1_NOTES)
    return document(
        TABLE1_TITLE,
        "synthattn reproduce",
        f'<h1>{TABLE1_TITLE}</h1>\n<p class="soft">synthattn reproduce table1</p>',
        {"table": ("What was found", f'{_scroll(TABLE1_TITLE, table)}\n<div class="note">{notes}</div>')},
        _style(),
    )


def _style() -> str:
    return "".join(text_file(package, "page.css") for package in PACKAGES)


def _scroll(name: str, table: str) -> str:
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(name)}">{table}</div>'


def _id(*parts: Part | Row | str) -> str:
    """For links within the page."""
    names = [p if isinstance(p, str) else f"{p.name}-{p.scale}" if isinstance(p, Part) else p.key for p in parts]
    return "-".join(re.sub("[^a-z0-9+.]+", "-", name.lower()).strip("-") for name in names)


def _about(outcome: Outcome) -> str:
    rows = [row for part in outcome.parts for row in part.rows]
    failed = sum(row.status == "failed" for row in rows)
    texts = [runs_done(outcome)] if rows else []
    texts += [f"{failed} row{'s' if failed > 1 else ''} failed"] if failed else []
    return " · ".join([f"synthattn reproduce {outcome.table}", *texts])


def _verdicts(outcome: Outcome) -> str:
    places = {(part.name, part.scale): _id(part) for part in outcome.parts}
    items = []
    for verdict in outcome.verdicts:
        flag = agreement(verdict)
        if flag:
            flag = f'<span class="flag">{flag}</span>' if contradicts_itself(verdict) else f"({flag})"
        theirs = ": </b>" if verdict.in_paper or flag else "</b>"
        theirs += f"{escape(verdict.in_paper)} {flag}".strip()
        scale = escape(f"{verdict.part}, {verdict.scale}")
        if place := places.get((verdict.part, verdict.scale)):
            scale = f'<a href="#{place}">{scale}</a>'
        single = f"<small>{basis(verdict)}</small>" if basis(verdict) else ""
        items.append(
            f'<li><span class="word {WORDS[verdict.judgement]}">{verdict.judgement}{single}</span>\n'
            f'<p class="claim">{escape(verdict.claim)}</p>\n'
            f'<p class="theirs"><b>The paper, {escape(verdict.where)}{theirs}</p>\n'
            f'<p class="here"><b>Here:</b>{escape(verdict.because)} ({scale})</p></li>\n'
        )
    return f'<ul class="verdicts">\n{"".join(items)}</ul>' if items else ""


def _part(part: Part, root: str) -> str:
    badge = f'<span class="badge {_id(part.scale)}">scale {escape(part.scale)}</span>'
    lines = [f'<p class="scale">{badge}{escape(about_scale(part.scale, [part]))}</p>']
    lines += [f"<p>{escape(part.note)}</p>"] if part.note else []
    lines += [_facts(part.facts)] if part.facts else []
    lines += [_rates(part, root), _table(part), _plots(part), _learning(part), _runs(part, root), _looks(part)]
    return "\n".join(filter(None, lines))


def _facts(facts: dict[str, str]) -> str:
    pairs = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts.items())
    return f'<dl class="facts">{pairs}</dl>'


def _rates(part: Part, root: str) -> str:
    words, rates = about_rates(part)
    if not rates:
        return ""
    texts = []
    for rate, loss, record, best in rates:
        linked = f'<a href="{escape(link(record, root))}">{loss}</a>' if record else loss
        text = f"{escape(rate)}: {linked}"
        texts.append(f"<strong>{text}</strong>" if best else text)
    return f'<p class="note">{escape(words)} {", ".join(texts)}.</p>'


def _table(part: Part) -> str:
    found = measures(part)
    if not found and not any(map(trouble, part.rows)):
        return ""
    notes = footnotes(found)
    above, heads = [], []
    grouped = any(each.differences or each.paper for each in found)
    tall = ' rowspan="2"' if grouped else ""
    for each in found:
        columns = ["here", *["difference"] * bool(each.differences), *["paper"] * bool(each.paper)]
        unit = f"<small>{escape(each.unit)}</small>" if each.unit else ""
        if len(columns) == 1:
            above.append(f'<th scope="col" class="here"{tall}>{escape(each.head)}{unit}</th>')
            continue
        above.append(f'<th scope="colgroup" colspan="{len(columns)}" class="group here">{escape(each.head)}{unit}</th>')
        for column in columns:
            more = ""
            if column == "paper":
                more = _mark(part, notes, ended(each.source))
                more += f"<small>{escape(each.paper_head)}</small>" if each.paper_head else ""
            heads.append(f'<th scope="col" class="{column}">{column}{more}</th>')
    second = f"<tr>{''.join(heads)}</tr>" if grouped else ""
    body = "".join(_row(part, row, n, found, notes) for n, row in enumerate(part.rows))
    table = (
        f'<table class="data part">\n<thead><tr><th scope="col" class="stays"{tall}>Model</th>{"".join(above)}'
        f'<th scope="col" class="here"{tall}>Seeds</th></tr>\n{second}</thead>\n<tbody>\n{body}</tbody></table>'
    )
    return f"{_scroll(f'Table of results: {part.title}', table)}\n{_below(part, notes)}"


def _mark(part: Part, notes: list[str], text: str) -> str:
    """A number that leads to a footnote, which a pointer shows where it is."""
    if not text:
        return ""
    number = notes.index(text) + 1
    return f'<sup><a href="#{_id(part, f"note-{number}")}" title="{escape(text)}">{number}</a></sup>'


def _row(part: Part, row: Row, n: int, found: list[Measure], notes: list[str]) -> str:
    said = trouble(row)
    # Else the main metric has no number, and in its place there is room.
    early = any(each.main and not each.ours[n].text for each in found)
    late = f'<small class="trouble">{escape(said)}</small>' if said and not early else ""
    base = row.name == part.baseline
    words = f'<small><span class="name">{_breakable(own_words(row))}</span>{", baseline" if base else ""}</small>'
    cells = []
    for each in found:
        if each.main and said and not each.ours[n].text:
            # Reasons are longer than numbers.
            wide = ' colspan="2"' if each.differences else ""
            cells.append(f'<td class="here trouble {escape(row.status)}"{wide}>{escape(said)}</td>')
        else:
            cells.append(f'<td class="here">{_cell(each.ours[n], _id(part, row) if row.runs else "")}</td>')
            cells += [f'<td class="difference">{_cell(each.differences[n])}</td>'] if each.differences else []
        if each.paper:
            cells.append(f'<td class="paper">{_cell(each.paper[n], note=_mark(part, notes, each.notes[n]))}</td>')
    count = f'<a href="#{_id(part, row)}">{seeds(row)}</a>' if row.runs else seeds(row)
    return (
        f'<tr{" class=base" if base else ""}><th scope="row" class="stays">{escape(row.name)}{words}{late}</th>'
        f'{"".join(cells)}<td class="here">{count}</td></tr>\n'
    )


def _breakable(name: str) -> str:
    """A name that may go on in the next line where its parts end."""
    return "".join(f"{escape(letter)}<wbr>" if letter in "_+(." else escape(letter) for letter in name)


def _cell(cell: Cell, target: str = "", note: str = "") -> str:
    text = escape(cell.text)
    text = f'<a href="#{target}">{text}</a>' if target and text else text or NOTHING
    mark = f'<span class="mark {cell.mark}"> {cell.mark}</span>' if cell.mark else ""
    detail = f"<small>{escape(cell.detail)}</small>" if cell.detail else ""
    return f"{text}{note}{mark}{detail}"


def _below(part: Part, notes: list[str]) -> str:
    """What a reader must know to read the table."""
    items = "".join(f'<li id="{_id(part, f"note-{n}")}">{escape(note)}</li>' for n, note in enumerate(notes, 1))
    lines = [f'<ol class="footnotes">{items}</ol>'] if items else []
    texts = [f"{name}: {metric.definition} ({better(part, name)})." for name, metric in part.metrics.items()]
    texts += how_certain(part)
    texts += [f"The paper's experiment: {part.published_note}"] if part.published_note else []
    lines += [f'<div class="note">{"".join(f"<p>{escape(text)}</p>" for text in texts)}</div>'] if texts else []
    if part.published_doubt:
        doubt = f"<strong>Doubt about the published numbers:</strong> {escape(part.published_doubt)}"
        lines.append(f'<p class="warning">{doubt}</p>')
    return "\n".join(lines)


@dataclass(frozen=True)
class Gap:
    """Of a row from the baseline: ours and the paper's."""

    name: str
    ours: Difference | None
    theirs: float | None


def _plots(part: Part) -> str:
    """First the main metric, and where the paper has another, that one; the others below."""
    found = {name: gaps for name in part.metrics if (gaps := _gaps(part, name))}
    first = list(found)[:1] + [name for name, gaps in found.items() if any(gap.theirs is not None for gap in gaps)][:1]
    figures = {name: _figure(part, name, gaps) for name, gaps in found.items()}
    shown = "".join(figure for name, figure in figures.items() if name in first)
    others = "".join(figure for name, figure in figures.items() if name not in first)
    if not shown:
        return ""
    hollow = any(gap.theirs is not None for gaps in found.values() for gap in gaps)
    lines = [
        f"<h3>Differences from {escape(part.baseline)}</h3>",
        '<p class="note">Dots with a bar: ours, with the interval of 95 %.'
        f"{' Hollow: the published difference.' if hollow else ''}</p>",
        f'<div class="plots wide">{shown}</div>',
    ]
    if others:
        lines.append(f'<details><summary>Other metrics</summary><div class="plots wide">{others}</div></details>')
    return "\n".join(lines)


def _learning(part: Part) -> str:
    drawn = learning.plot(part)
    if not drawn:
        return ""
    title = f"<h3>Differences from {escape(part.baseline)} while training</h3>"
    return f'{title}\n<p class="note">{escape(learning.about(part))}</p>\n<figure class="curves">{drawn}</figure>'


def _gaps(part: Part, metric: str) -> list[Gap]:
    base = published_base(part, metric)
    found = []
    for row in part.models:  # one answer for all may be so far away that the others could not be told apart
        score, theirs = row.scores.get(metric), row.published.get(metric)
        ours = score.difference if score else None
        known = ours is not None and all(map(math.isfinite, (ours.value, ours.low, ours.high)))
        gap = theirs.value - base if theirs and base is not None and row.name != part.baseline else None
        if known or gap is not None:
            found.append(Gap(row.name, ours if known else None, gap))
    return found


def _figure(part: Part, metric: str, gaps: list[Gap]) -> str:
    title = f"{metric}: difference from {part.baseline}"
    svg = differences(title, metric, gaps, part.metrics[metric].higher_is_better)
    return f"<figure><figcaption>{escape(metric)}</figcaption>{svg}</figure>"


def differences(title: str, metric: str, gaps: Sequence[Gap], higher_is_better: bool) -> str:
    """A line for each row, and one at zero, where the baseline is."""
    left = 18 + LETTER * max(len(shortened(gap.name)) for gap in gaps)
    top, bottom = 6.0, 6.0 + (ROW + 3) * len(gaps)
    ours = [gap.ours for gap in gaps if gap.ours]
    values = [value for each in ours for value in (each.low, each.high)]
    values += [gap.theirs for gap in gaps if gap.theirs is not None]
    axis = _axis([0.0, *values], left, WIDTH - 12.0)
    parts = []
    for tick in axis.ticks:
        parts.append(svg_line(axis(tick), top, axis(tick), bottom, "grid", ' stroke-opacity="0.25"'))
        parts.append(svg_text(axis(tick), bottom + 16, signed(tick, axis.places), "middle"))
    parts.append(svg_line(axis(0), top, axis(0), bottom, "base"))
    for n, gap in enumerate(gaps):
        y = top + (ROW + 3) * (n + 0.5)
        parts.append(svg_line(left, y, WIDTH - 12.0, y, "grid", ' stroke-opacity="0.12"'))
        parts.append(svg_text(left - 9, y + 4, shortened(gap.name), "end", ' class="name"'))
        # Apart by a little: they would hide each other on one line.
        if gap.theirs is not None:
            tip = f"{gap.name}, published: {signed(gap.theirs, 2)}"
            parts.append(f'<g class="theirs" fill="none" stroke="{GREY}">{_dot(3, axis(gap.theirs), y + 4, tip)}</g>')
        if gap.ours:
            tip = (
                f"{gap.name}, ours: {signed(gap.ours.value, 2)} [{signed(gap.ours.low, 2)}, {signed(gap.ours.high, 2)}]"
            )
            bar = f"M{axis(gap.ours.low):.1f},{y - 4:.1f}H{axis(gap.ours.high):.1f}"
            parts.append(
                f'<g class="v1" fill="{COLOURS[1]}" stroke="{COLOURS[1]}">'
                f'<path fill="none" stroke-width="2" d="{bar}"/>'
                f"{_dot(0, axis(gap.ours.value), y - 4, tip)}</g>"
            )
    # Words at both ends: which side is better differs from metric to metric.
    sides = ("worse", "better") if higher_is_better else ("better", "worse")
    parts.append(svg_text(left, bottom + 34, f"\N{LEFTWARDS ARROW} {sides[0]}"))
    parts.append(svg_text(WIDTH - 12.0, bottom + 34, f"{sides[1]} \N{RIGHTWARDS ARROW}", "end"))
    parts.append(svg_text((left + WIDTH - 12) / 2, bottom + 50, f"difference in {shortened(metric)}", "middle"))
    return svg_frame(WIDTH, bottom + 56, title, parts)


def _axis(values: list[float], start: float, end: float) -> Axis:
    """With as many ticks as have room for their labels."""
    axis = Axis(values, start, end, 6)
    for count in (4, 3, 2, 1):
        wide = LETTER * max(len(signed(tick, axis.places)) for tick in axis.ticks) + 6
        if wide * len(axis.ticks) <= end - start:
            break
        axis = Axis(values, start, end, count)
    return axis


def _dot(form: int, x: float, y: float, tip: str) -> str:
    return (
        f'<path transform="translate({x:.1f} {y:.1f}) scale(.8)" d="{shape(form)}"><title>{escape(tip)}</title></path>'
    )


def _runs(part: Part, root: str) -> str:
    """Of every row with what each seed found: where numbers of the table lead to."""
    blocks = []
    for row in part.rows:
        items = "".join(_run(part, row, n, run, root) for n, run in enumerate(row.runs))
        if items:
            blocks.append(f'<div id="{_id(part, row)}"><h4>{escape(row.name)}</h4><ul>{items}</ul></div>\n')
    if not blocks:
        return ""
    box = (
        f'<div class="runs" tabindex="0" role="region" aria-label="Runs: {escape(part.title)}">{"".join(blocks)}</div>'
    )
    return f"<h3>Runs</h3>\n{box}"


def _run(part: Part, row: Row, n: int, run: Run, root: str) -> str:
    scores = {name: row.scores[name].by_seed for name in part.metrics if name in row.scores}
    texts = [f"{name} {digits(values[n], 4)}" for name, values in scores.items() if len(values) == len(row.runs)]
    texts += [f"trained for {duration(run.seconds)}"] if run.seconds else []
    said = f": {escape(', '.join(texts))}" if texts else ""
    return (
        f'<li><a href="{escape(link(run.record, root))}">seed {run.seed}</a>{said}'
        f"<code>{escape(run.command)}</code></li>"
    )


def _looks(part: Part) -> str:
    """How attention weights are spread, by layer: one small drawing for each, all on the same axes."""
    found = [(row, row.look) for row in part.rows if row.look]
    every = [each for _, look in found for each in (*look.before, *look.after) if each.counts]
    if not every:
        return ""
    low = min(each.edges[0] for each in every)
    high = max(each.edges[-1] for each in every)
    most = max(max(each.counts) for each in every)
    figures = []
    for row, look in found:
        before = {(each.stack, each.layer): each for each in look.before}
        after = {(each.stack, each.layer): each for each in look.after}
        panels = "".join(
            _panel(row.name, place, before.get(place), after.get(place), (low, high, most))
            for place in dict.fromkeys((*before, *after))
        )
        figures.append(f"<figure><figcaption>{escape(row.name)}</figcaption><div>{panels}</div></figure>\n")
    return (
        "<h3>Attention weights, before and after training</h3>\n"
        '<p class="note">How often weights of each size occur, by layer, all heads of the first run together: '
        '<span class="key outlined"></span>before training, <span class="key filled"></span>after. '
        "To the right are large weights; the height is the share of all weights, on the same scale everywhere.</p>\n"
        f'<div class="looks">{"".join(figures)}</div>'
    )


def _panel(
    name: str,
    place: tuple[str, int],
    before: Histogram | None,
    after: Histogram | None,
    limits: tuple[float, float, float],
) -> str:
    low, high, most = limits
    width, floor = 140, 78.0

    def outline(found: Histogram) -> str:
        def x(edge: float) -> float:
            return 8 + (edge - low) / (high - low) * (width - 16)

        path = f"M{x(found.edges[0]):.1f},{floor:.1f}"
        for end, share in zip(found.edges[1:], found.counts, strict=True):
            path += f"V{floor - share / most * 58:.1f}H{x(end):.1f}"
        return f"{path}V{floor:.1f}"

    where = f"{place[0]} {place[1] + 1}"
    parts = [svg_text(8, 13, where)]
    parts += [f'<path class="after" fill="{COLOURS[1]}" fill-opacity=".5" d="{outline(after)}"/>'] if after else []
    parts += [f'<path class="before" fill="none" stroke="{GREY}" d="{outline(before)}"/>'] if before else []
    parts.append(svg_line(8.0, floor, width - 8.0, floor, "axis"))
    parts += [svg_text(8, floor + 15, _power(low)), svg_text(width - 8, floor + 15, _power(high), "end")]
    return svg_frame(width, floor + 20, f"{name}, {where}: attention weights before and after training", parts)


def _power(exponent: float) -> str:
    return f"{10.0**exponent:.5g}" if exponent > -5 else f"{10.0**exponent:.0e}".replace("e-0", "e-")


def _made(outcome: Outcome) -> str:
    lines = []
    if outcome.notes:
        lines.append(f"<ul>{''.join(f'<li>{escape(note)}</li>' for note in outcome.notes)}</ul>")
    if outcome.versions:
        lines.append(f'<p class="note">Made with {escape(", ".join(outcome.versions))}.</p>')
    return "\n".join(lines)
