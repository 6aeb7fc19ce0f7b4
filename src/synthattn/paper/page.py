"""The page of a reproduced table, and the same as Markdown: what to show, in blocks."""

import math
from collections.abc import Iterator, Mapping, Sequence

from synthattn.compare.page import spread_charts
from synthattn.compare.results import FILE, Results, Run, Variant
from synthattn.paper import learning
from synthattn.paper.claims import read_beside
from synthattn.paper.outcome import JUDGEMENTS, ClaimVerdict, Judgement, Outcome
from synthattn.paper.part_table import anchor, part_table, published_base
from synthattn.paper.words import (
    about_rates,
    about_scale,
    agreement,
    contradicts_itself,
    counted,
    direction,
    heading,
    how_certain,
    link,
    runs_done,
)
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
    JudgedClaim,
    JudgedClaims,
    Listing,
    MarkdownOnly,
    PageOnly,
    Paragraph,
    Section,
)
from synthattn.render.html import page as html
from synthattn.render.numbers import digits, duration, signed
from synthattn.render.table import Span, Text

PAGE, TABLE = "page.html", "table.md"
"""Files in the folder of each table, which has its name, in the folder of all results."""
ROOT = "../"
"""The way from there to the folder of all results."""
KINDS: dict[Judgement, str] = dict.fromkeys(JUDGEMENTS, "none")
KINDS |= {
    "holds": "good", "does not hold": "bad", "moving": "open", "undecided": "open"
}  # fmt: skip
"""Classes of the style sheet."""


def page(outcome: Outcome, root: str = ROOT) -> str:
    """Return the page as one HTML file.

    Args:
        outcome: the outcome of one table.
        root: the way from the page to the folder of all results.
    """
    return html(document(outcome, root))


def table(outcome: Outcome) -> str:
    """Return the document as Markdown, without charts."""
    return md.markdown(document(outcome, ROOT), title=outcome.title)


def document(outcome: Outcome, root: str = ROOT) -> Document:
    """Return all that there is to show of a table."""
    several = len({part.scale for part in outcome.parts}) > 1
    sections = [Section("claims", "The paper's claims", list(_verdicts(outcome)))]
    for part in outcome.parts:
        title = f"{heading(part)} ({part.scale})" if several else heading(part)
        sections.append(Section(anchor(part), title, list(_part(part, root))))
    made: list[Block] = [Listing(outcome.notes)] if outcome.notes else []
    made += [Paragraph(f"Made with {', '.join(outcome.versions)}.", "note")] if outcome.versions else []
    sections.append(Section("made", "Notes and versions", made))
    command = f"synthattn reproduce {outcome.table}"
    ways = (Span("with plots", link=PAGE), ", and ", Span("as data", link=FILE))
    said = ("Written by ", Span(command, "code"), ", not by hand; the same ", *ways, ".")
    lead: list[Block] = [MarkdownOnly([Paragraph(said)]), Paragraph(_about(outcome, command), "soft")]
    lead += [Paragraph(counted(outcome.verdicts), "answer")] if outcome.verdicts else []
    return Document(f"{outcome.title}: reproduced", "synthattn reproduce", lead, sections, outcome.title, places=9)


def _about(outcome: Outcome, command: str) -> str:
    rows = [row for part in outcome.parts for row in part.rows]
    failed = sum(row.status == "failed" for row in rows)
    texts = [runs_done(outcome)] if rows else []
    texts += [f"{failed} row{'s' if failed > 1 else ''} failed"] if failed else []
    return " · ".join([command, *texts])


def _verdicts(outcome: Outcome) -> Iterator[Block]:
    if outcome.verdicts:
        places = {(part.name, part.scale): f"#{anchor(part)}" for part in outcome.parts}
        yield JudgedClaims([_verdict(each, places) for each in outcome.verdicts])


def _verdict(found: ClaimVerdict, places: Mapping[tuple[str, str], str]) -> JudgedClaim:
    flag = agreement(found)
    theirs: list[str | Span] = [f"{found.in_paper} "] if found.in_paper else []
    theirs += [Span(flag, "flag") if contradicts_itself(found) else f"({flag})"] if flag else []
    where = Span(f"{found.part}, {found.scale}", link=places.get((found.part, found.scale), ""))
    reason: Text = (f"{found.because} (", where, ")")
    kind = KINDS[found.judgement]
    return JudgedClaim(found.judgement, kind, "", found.claim, found.where, theirs, reason)


def _part(part: Results, root: str) -> Iterator[Block]:
    yield Paragraph((Span(f"scale {part.scale}", "badge"), " ", about_scale(part.scale, [part])))
    if part.note:
        yield Paragraph(part.note)
    if part.facts:
        yield Facts({"": part.facts})
    words, rates = about_rates(part)
    if rates:
        spans: list[str | Span] = [f"{words} "]
        for n, (rate, loss, record, best) in enumerate(rates):
            kind, target = "strong" if best else "", link(record, root) if record else ""
            spans += [", " if n else "", Span(f"{rate}:", kind), " ", Span(loss, kind, target)]
        yield Paragraph([*spans, "."], "note")
    found = part_table(part)
    if found.columns:
        yield found
        texts = [
            f"{name}: {metric.definition} ({direction(part, name)} is better)." for name, metric in part.metrics.items()
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
    yield from _spreads(part)


def _plots(part: Results) -> Iterator[Block]:
    """Yield charts of the main metric and of the first one that the paper has; the others behind a click."""
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
    if turned := list(_changed_sides(part)):
        yield Paragraph("On the other side of the baseline than in the paper, where chance does not explain it:")
        yield Listing(turned)


def _gaps(part: Results, metric: str) -> Iterator[Point]:
    """Yield differences from the baseline: ours and the paper's."""
    base = published_base(part, metric)
    for row in part.models:  # the best constant answer may be so far away that models could not be told apart
        score, theirs = row.scores.get(metric), row.published.get(metric)
        ours = score.difference if score else None
        if ours is not None and all(map(math.isfinite, (ours.value, ours.low, ours.high))):
            interval = f"[{signed(ours.low, 2)}, {signed(ours.high, 2)}]"
            tip = f"{row.name}, ours: {signed(ours.value, 2)} {interval}"
            yield Point("ours", 1, ours.value, row.name, tip, ours.low, ours.high)
        if theirs and base is not None and row.name != part.baseline:
            gap = theirs.value - base
            yield Point("published", 0, gap, row.name, f"{row.name}, published: {signed(gap, 2)}")


def _changed_sides(part: Results) -> Iterator[str]:
    """Yield rows that are better than the baseline here and worse in the paper, or the other way round."""
    main = next(iter(part.metrics), "")
    beside = read_beside(main, list(part.published_metrics))
    base = published_base(part, beside)
    for row in part.rows if base is not None and part.learned(main) else []:
        score, printed = row.scores.get(main), row.published.get(beside)
        if score is None or score.difference is None or printed is None or base is None:
            continue
        ours, theirs = score.difference, printed.value - base
        if (ours.low > 0 and theirs < 0) or (ours.high < 0 and theirs > 0):
            interval = f"[{signed(ours.low, 2)}, {signed(ours.high, 2)}]"
            called = part.published_metrics.get(beside, beside)
            yield f"{row.name}: {main} {signed(ours.value, 2)} {interval}; in the paper {signed(theirs, 2)} ({called})."


def differences(part: Results, metric: str, points: Sequence[Point]) -> ForestPlot:
    """Return a chart with a row for each model, and a line at zero, where the baseline is."""
    # Which side is better differs from metric to metric.
    left, right = ("worse", "better") if part.metrics[metric].higher_is_better else ("better", "worse")
    across = f"\N{LEFTWARDS ARROW} {left}, {right} \N{RIGHTWARDS ARROW}"
    return ForestPlot(
        f"{metric}: difference from {part.baseline}", across, points, 0.0, caption=f"Difference in {metric}"
    )


def _runs(part: Results, root: str) -> Iterator[Block]:
    """Yield every row with the scores of each seed; numbers of the table link to them."""
    lists = [
        Listing([_run(part, row, n, run, root) for n, run in enumerate(row.runs)], anchor(part, row), row.name)
        for row in part.rows
        if row.runs
    ]
    if lists:
        yield Heading("Runs")
        yield Box(f"Runs: {part.title}", lists)


def _run(part: Results, row: Variant, n: int, run: Run, root: str) -> Text:
    scores = {name: row.scores[name].by_seed for name in part.metrics if name in row.scores}
    texts = [f"{name} {digits(values[n], 4)}" for name, values in scores.items() if len(values) == len(row.runs)]
    texts += [f"trained for {duration(run.seconds)}"] if run.seconds else []
    said = f": {', '.join(texts)} " if texts else " "
    return (Span(f"seed {run.seed}", link=link(run.record, root)), said, Span(run.command, "code"))


def _spreads(part: Results) -> Iterator[Block]:
    """Yield a small chart for each layer, with the sizes of its attention weights, all on the same axes."""
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
