"""The page of a reproduced table: what to show, in blocks."""

import math
import re
from collections.abc import Iterator, Sequence

from synthattn.compare.page import spread_charts
from synthattn.compare.results import FILE, Run
from synthattn.compare.results import Results as Part
from synthattn.compare.results import Variant as Row
from synthattn.paper import learning
from synthattn.paper.markdown import (
    PAGE,
    ROOT,
    TABLE1_HEADS,
    TABLE1_NOTES,
    TABLE1_TITLE,
    Measure,
    about_rates,
    about_scale,
    counted,
    ended,
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
    verdicts,
)
from synthattn.paper.outcome import Outcome
from synthattn.paper.table1 import Synthesized
from synthattn.render import markdown as md
from synthattn.render.charts import ForestPlot, Point
from synthattn.render.document import (
    Block,
    Box,
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
from synthattn.render.numbers import digits, duration, signed
from synthattn.render.table import Cell, Column, Span, Table, Text
from synthattn.render.table import Row as Head
from synthattn.render.terminal import ARROWS

SHORT = {"Parameters": "para-\nmeters", "Training speed": "train\nspeed"}
"""Heads where there is little room."""


def page(outcome: Outcome, root: str = ROOT) -> str:
    """Return the whole file.

    Args:
        outcome: of one table.
        root: the way from the page to the folder of all results.
    """
    return html(document(outcome, root))


def table(outcome: Outcome) -> str:
    """Return the same as Markdown, without charts."""
    return md.markdown(document(outcome, ROOT), title=outcome.title)


def page_of_table1(rows: Sequence[Synthesized]) -> str:
    """Return the whole file, of what each synthesizing function looks at."""
    return html(_table1(rows))


def table1(rows: Sequence[Synthesized]) -> str:
    """Return the same as Markdown."""
    return md.markdown(_table1(rows))


def _table1(rows: Sequence[Synthesized]) -> Document:
    blocks = [table_of_table1(rows), *(Paragraph(note, "note") for note in TABLE1_NOTES)]
    command = "synthattn reproduce table1"
    lead = [PageOnly([Paragraph(command, "soft")]), _written(command, Span("as a page", link=PAGE))]
    return Document(TABLE1_TITLE, command, lead, [Section("table", "What was found", blocks)])


def table_of_table1(rows: Sequence[Synthesized]) -> Table:
    texts = table1_rows(rows)
    columns = [
        Column(head, [Cell(row[n]) for row in texts], short=head.replace(" ", "\n", 1))
        for n, head in enumerate(TABLE1_HEADS)
        if n
    ]
    heads = [Head(name, row.attention) for row, (name, *_) in zip(rows, texts, strict=True)]
    return Table(TABLE1_TITLE, TABLE1_HEADS[0], heads, columns)


def _written(command: str, *ways: str | Span) -> Block:
    return MarkdownOnly([Paragraph(("Written by ", Span(command, "code"), ", not by hand; the same ", *ways, "."))])


def document(outcome: Outcome, root: str = ROOT) -> Document:
    several = len({part.scale for part in outcome.parts}) > 1
    sections = [Section("claims", "The paper's claims", list(_verdicts(outcome)))]
    for part in outcome.parts:
        title = heading(part)
        sections.append(Section(_id(part), f"{title} ({part.scale})" if several else title, list(_part(part, root))))
    sections.append(Section("made", "Notes and versions", list(_made(outcome))))
    ways = Span("with plots", link=PAGE), ", and ", Span("as data", link=FILE)
    lead: list[Block] = [_written(f"synthattn reproduce {outcome.table}", *ways)]
    lead.append(Paragraph(_about(outcome), "soft"))
    lead += [Paragraph(counted(outcome.verdicts), "answer")] if outcome.verdicts else []
    return Document(f"{outcome.title}: reproduced", "synthattn reproduce", lead, sections, outcome.title, places=9)


def _id(*parts: Part | Row | str) -> str:
    """Return a name for links within the page."""
    names = [p if isinstance(p, str) else f"{p.name}-{p.scale}" if isinstance(p, Part) else p.key for p in parts]
    return "-".join(re.sub("[^a-z0-9+.]+", "-", name.lower()).strip("-") for name in names)


def _about(outcome: Outcome) -> str:
    rows = [row for part in outcome.parts for row in part.rows]
    failed = sum(row.status == "failed" for row in rows)
    texts = [runs_done(outcome)] if rows else []
    texts += [f"{failed} row{'s' if failed > 1 else ''} failed"] if failed else []
    return " · ".join([f"synthattn reproduce {outcome.table}", *texts])


def _verdicts(outcome: Outcome) -> Iterator[Block]:
    if outcome.verdicts:
        yield verdicts(outcome.verdicts, {(part.name, part.scale): f"#{_id(part)}" for part in outcome.parts})


def _part(part: Part, root: str) -> Iterator[Block]:
    yield Paragraph((Span(f"scale {part.scale}", "badge"), " ", about_scale(part.scale, [part])))
    if part.note:
        yield Paragraph(part.note)
    if part.facts:
        yield Facts({"": part.facts})
    words, rates = about_rates(part)
    if rates:
        spans: list[str | Span] = [f"{words} "]
        for n, (rate, loss, record, best) in enumerate(rates):
            kind = "strong" if best else ""
            spans += [
                ", " if n else "",
                Span(f"{rate}:", kind),
                " ",
                Span(loss, kind, link(record, root) if record else ""),
            ]
        yield Paragraph([*spans, "."], "note")
    found = measures(part)
    if found or any(map(trouble, part.rows)):
        yield table_of(part, found)
        texts = [
            f"{name}: {metric.definition} ({_better(part, name)} is better)." for name, metric in part.metrics.items()
        ]
        texts += how_certain(part)
        texts += [f"The paper's experiment: {part.published_note}"] if part.published_note else []
        yield from (Paragraph(text, "note") for text in texts)
        if part.published_doubt:
            doubt = Span("Doubt about the published numbers:", "strong")
            yield Paragraph((doubt, f" {part.published_doubt}"), "warning")
    yield from _plots(part)
    if chart := learning.chart(part):
        yield Heading(f"Differences from {part.baseline} while training")
        yield Paragraph(learning.about(part), "note")
        yield Figures([chart])
    yield from _runs(part, root)
    yield from _looks(part)


def _better(part: Part, metric: str) -> str:
    return "higher" if part.metrics[metric].higher_is_better else "lower"


def table_of(part: Part, found: list[Measure]) -> Table:
    columns = []
    # Rows without a number of the main metric say why there; all others beside their name.
    early = [any(each.main and not each.ours[n].text for each in found) for n in range(len(part.rows))]
    for each in found:
        direction = _better(part, each.head) if each.head in part.metrics else ""
        unit = "" if direction else each.unit
        ours = []
        for row, cell in zip(part.rows, each.ours, strict=True):
            target = f"#{_id(part, row)}" if row.runs else ""
            said = trouble(row) if each.main and not cell.text else ""
            ours.append(Cell(cell.text, cell.detail, cell.mark, cell.key, trouble=said, link=target))
        group = each.head if each.differences or each.paper else ""
        short = SHORT.get(each.head, each.head.replace("-", "-\n")) + ARROWS[direction]
        columns.append(Column("here" if group else each.head, ours, unit, direction, group, short=short))
        if each.differences:
            columns.append(Column("difference", each.differences, group=group, short="differ-\nence"))
        if each.paper:
            theirs = [
                Cell(cell.text, cell.detail, key=cell.key, note=note)
                for cell, note in zip(each.paper, each.notes, strict=True)
            ]
            note = ended(each.source)
            columns.append(
                Column("paper", theirs, each.paper_head, group=group, note=note, kind="paper", short="in the\npaper")
            )
    counts = [Cell(seeds(row), link=f"#{_id(part, row)}" if row.runs else "") for row in part.rows]
    rows = [
        Head(row.name, own_words(row), "baseline" if row.name == part.baseline else "",
             trouble="" if early[n] else trouble(row))
        for n, row in enumerate(part.rows)
    ]  # fmt: skip
    return Table(f"Table of results: {part.title}", "Model", rows, [*columns, Column("Seeds", counts)], _id(part))


def _plots(part: Part) -> Iterator[Block]:
    """First the main metric, and where the paper has another, that one; the others behind a click."""
    found = {name: points for name in part.metrics if (points := list(_gaps(part, name)))}
    theirs = [name for name, points in found.items() if any(point.name == "published" for point in points)]
    first = dict.fromkeys([*list(found)[:1], *theirs[:1]])
    charts = {name: differences(part, name, points) for name, points in found.items()}
    if not first:
        return
    grey = " Grey: the published difference." if theirs else ""
    blocks: list[Block] = [Heading(f"Differences from {part.baseline}")]
    blocks.append(Paragraph(f"Dots with a bar: ours, with the interval of 95 %.{grey}", "note"))
    blocks.append(Figures([charts[name] for name in first]))
    if others := [chart for name, chart in charts.items() if name not in first]:
        blocks.append(Folded("Other metrics", [Figures(others)]))
    yield PageOnly(blocks)


def _gaps(part: Part, metric: str) -> Iterator[Point]:
    """Yield differences from the baseline: ours and the paper's."""
    base = published_base(part, metric)
    for row in part.models:  # one answer for all may be so far away that the others could not be told apart
        score, theirs = row.scores.get(metric), row.published.get(metric)
        ours = score.difference if score else None
        if ours is not None and all(map(math.isfinite, (ours.value, ours.low, ours.high))):
            interval = f"[{signed(ours.low, 2)}, {signed(ours.high, 2)}]"
            tip = f"{row.name}, ours: {signed(ours.value, 2)} {interval}"
            yield Point("ours", 1, ours.value, row.name, tip, ours.low, ours.high)
        if theirs and base is not None and row.name != part.baseline:
            gap = theirs.value - base
            yield Point("published", 0, gap, row.name, f"{row.name}, published: {signed(gap, 2)}")


def differences(part: Part, metric: str, points: Sequence[Point]) -> ForestPlot:
    """Return a chart with a row for each model, and a line at zero, where the baseline is."""
    # Words at both ends: which side is better differs from metric to metric.
    left, right = ("worse", "better") if part.metrics[metric].higher_is_better else ("better", "worse")
    across = f"\N{LEFTWARDS ARROW} {left}, {right} \N{RIGHTWARDS ARROW}"
    return ForestPlot(
        f"{metric}: difference from {part.baseline}", across, points, 0.0, caption=f"Difference in {metric}"
    )


def _runs(part: Part, root: str) -> Iterator[Block]:
    """Yield every row with what each seed found: where numbers of the table lead to."""
    lists = [
        Listing([_run(part, row, n, run, root) for n, run in enumerate(row.runs)], _id(part, row), row.name)
        for row in part.rows
        if row.runs
    ]
    if lists:
        yield Heading("Runs")
        yield Box(f"Runs: {part.title}", lists)


def _run(part: Part, row: Row, n: int, run: Run, root: str) -> Text:
    scores = {name: row.scores[name].by_seed for name in part.metrics if name in row.scores}
    texts = [f"{name} {digits(values[n], 4)}" for name, values in scores.items() if len(values) == len(row.runs)]
    texts += [f"trained for {duration(run.seconds)}"] if run.seconds else []
    said = f": {', '.join(texts)} " if texts else " "
    return (Span(f"seed {run.seed}", link=link(run.record, root)), said, Span(run.command, "code"))


def _looks(part: Part) -> Iterator[Block]:
    """Yield how attention weights are spread, by layer: a small chart for each, all on the same axes."""
    panels = []
    for row in part.rows:
        if row.look is not None:
            before, after = ({(e.stack, e.layer): e for e in each} for each in (row.look.before, row.look.after))
            panels += [
                (f"{row.name}: {stack} {layer + 1}", after.get((stack, layer)), before.get((stack, layer)))
                for stack, layer in dict.fromkeys((*before, *after))
            ]
    if charts := spread_charts(panels):
        note = (
            "How often weights of each size occur, by layer, all heads of the first run together: the line is before "
            "training, the area after. To the right are large weights; the height is the share of all weights, on the "
            "same scale everywhere."
        )
        title = Heading("Attention weights, before and after training")
        yield PageOnly([title, Paragraph(note, "note"), Figures(charts, "small")])


def _made(outcome: Outcome) -> Iterator[Block]:
    if outcome.notes:
        yield Listing(outcome.notes)
    if outcome.versions:
        yield Paragraph(f"Made with {', '.join(outcome.versions)}.", "note")
