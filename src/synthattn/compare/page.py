"""The page of a comparison, its Markdown and its picture: what to show, in blocks."""

import base64
import difflib
import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from synthattn.compare.results import Heads, Histogram, MixtureWeights, Results, Variant
from synthattn.compare.table import definitions, direction, legend, table
from synthattn.render import markdown as md
from synthattn.render.charts import Key, Line, Lines, Point, Scatter, Shares
from synthattn.render.document import (
    Answers,
    Block,
    Command,
    Document,
    Facts,
    Figures,
    Folded,
    Heading,
    Images,
    Listing,
    Paragraph,
    Section,
)
from synthattn.render.html import page as html
from synthattn.render.images import heat_map
from synthattn.render.numbers import TIMES, Number, digits, duration, fixed, megabytes, quantity, times
from synthattn.render.table import Cell, Column, Row, Span, Table, Text

CURVE_POINTS = 80
"""Longer curves are drawn as means of neighbours: less noise, and a smaller file."""


@dataclass(frozen=True)
class Cost:
    """An axis that quality is drawn against."""

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


def page(results: Results) -> str:
    """Return the whole file."""
    return html(document(results))


def markdown(results: Results) -> str:
    """Return the table, and below it what a reader must know to read it."""
    below = [f"{name}: {said}." for name, said in definitions(results).items()] + legend(results) + results.notes
    return "\n".join([*md.table(table(results)), "", *(f"- {md.safe(text)}" for text in below)]) + "\n"


def answer_page(results: Results) -> str:
    """Return the answer with the table below it, as Markdown."""
    headline, *rest = results.answer
    return "\n\n".join([f"# {md.safe(headline)}", *map(md.safe, rest), markdown(results)])


def picture(results: Results) -> str:
    """Return quality against training speed as a file of its own, which needs no background."""
    return scatter(results, COSTS["speed"], 680, 400).svg()


def document(results: Results) -> Document:
    samples = list(_samples(results))
    return Document(
        f"{results.task} on {results.data}: attention compared",
        "synthattn compare",
        list(_lead(results)),
        [
            Section("table", "Results", [table(results), *(Paragraph(text, "note") for text in legend(results))]),
            Section("costs", "Quality and cost", list(_costs(results))),
            Section("learning", "Learning curves", list(_learning(results))),
            Section("attention", "Attention", list(_attention(results))),
            Section("samples", "Samples", samples),
            Section("made", "How it was made", list(_made(results))),
        ],
        heading=[f"{results.task.capitalize()} on", f"{results.data}:", "which attention?"],
        scripted=True,
        places=len(results.variants),
    )


def _lead(results: Results) -> Iterator[Block]:
    done, every = sum(variant.status == "done" for variant in results.variants), len(results.variants)
    about = [f"{every} kinds of attention" if done == every else f"{done} of {every} kinds of attention done"]
    about += [f"baseline {results.baseline}"]
    about += [f"started {results.started}"] if results.started else []
    about += [f"took {duration(results.seconds)}"] if results.seconds else []
    yield Paragraph(" · ".join(about), "soft")
    yield from (Paragraph(text, "answer" if n else "answer headline") for n, text in enumerate(results.answer))
    parts: list[str | Span] = []
    for status, words in (("failed", "Failed"), ("running", "Still running"), ("waiting", "Still to come")):
        names = [variant.attention for variant in results.variants if variant.status == status]
        parts += [Span(f"{words}:", "strong"), f" {', '.join(names)}. "] if names else []
    if parts:
        yield Paragraph(parts, "warning")


def scatter(results: Results, cost: Cost, width: int = 380, height: int = 320) -> Scatter:
    """Return the main metric of all variants that have it, with intervals, against a cost."""
    metric, better = results.main_metric, direction(results, results.main_metric)
    points = []
    for place, variant in enumerate(results.variants):
        score, x = variant.scores.get(metric), cost.of(variant)
        if score is None or x is None or not all(map(math.isfinite, (score.value, score.low, score.high, x))):
            continue
        interval = f"{digits(score.value, 4)} [{digits(score.low, 4)}, {digits(score.high, 4)}]"
        tip = f"{variant.attention}\n{metric} {interval}\n{cost.label.split(',')[0]} {cost.text(x)}"
        points.append(Point(variant.attention, place, x / cost.per, score.value, tip, score.low, score.high))
    up = f"{metric} ({better} is better)" if better else metric
    title = f"{metric} against {cost.label.split(' (')[0]}"
    return Scatter(title, cost.label, up, points, results.baseline, width, height)


def _costs(results: Results) -> Iterator[Block]:
    found = [scatter(results, cost) for cost in COSTS.values()]
    if charts := [chart for chart in found if chart.points]:
        yield Paragraph("Bars are intervals of 95 %. The dashed lines pass through the baseline.", "note")
        yield Figures(charts)


def _learning(results: Results) -> Iterator[Block]:
    charts = []
    for title, kind in (("Validation loss", "validation_curve"), ("Training loss", "loss_curve")):
        lines = []
        for place, variant in enumerate(results.variants):
            if points := thinned(getattr(variant, kind)):
                tips = [f"{variant.attention}\nstep {x:,.0f}: {digits(y, 4)}" for x, y in points]
                tip = f"{variant.attention}: {digits(points[-1][1], 4)} at the end"
                lines.append(Line(variant.attention, place, points, tips if len(points) <= 25 else [], tip))
        if lines:
            ends = {line.name: line.points[-1][1] for line in lines}
            legend = [Key(line.place, line.name, digits(ends[line.name], 4)) for line in lines]
            top, log = _later(lines)
            caption = f"{title} by step{', logarithmic' if log else ''}"
            charts.append(Lines(title, "step", "loss", lines, log=log, top=top, caption=caption, legend=legend))
    if charts:
        yield Paragraph("Of the first seed. Point at a name to see its curve alone.", "note")
        yield Figures(charts)


def _later(lines: Sequence[Line]) -> tuple[float, bool]:
    """Return where the axis of a loss ends and whether it is logarithmic.

    The first steps fall from so high that they would leave no room for what differs later.
    """
    last = max(x for line in lines for x, _ in line.points)
    later = [y for line in lines for x, y in line.points if x >= 0.1 * last]
    least = min(y for line in lines for _, y in line.points)
    return max(later), least > 0 and max(later) / least > 3


def thinned(curve: list[list[float]]) -> list[tuple[float, float]]:
    """Return a curve without what is not a number, and with neighbours put together."""
    known = [(x, y) for x, y in curve if math.isfinite(x) and math.isfinite(y)]
    each = math.ceil(len(known) / CURVE_POINTS) or 1
    groups = [known[start : start + each] for start in range(0, len(known), each)]
    return [(sum(x for x, _ in group) / len(group), sum(y for _, y in group) / len(group)) for group in groups]


def _attention(results: Results) -> Iterator[Block]:
    shown = [v for v in results.variants if v.heads or v.histograms or v.mixture]
    base = next((variant for variant in results.variants if variant.attention == results.baseline), None)
    for n, variant in enumerate(shown):
        others = base.histograms if base is not None and base is not variant else []
        yield Folded(variant.attention, list(_looks(variant, others, results.baseline)), not n, "attention")


def _looks(variant: Variant, base: Sequence[Histogram], baseline: str) -> Iterator[Block]:
    drawn = [layer for layer in variant.heads if layer.maps]
    if drawn:
        left_out = " Some layers are left out, to keep the page small." if len(drawn) < len(variant.heads) else ""
        note = "Each head has its own scale, from 0 (dark) to its largest weight, which is the number below it."
        yield Heading("Maps")
        yield Paragraph(f"{note} Rows look at columns. Point at a map to enlarge it.{left_out}", "note")
        yield Images("Maps of all heads", [(_where(layer), list(_maps(layer))) for layer in drawn])
    if variant.histograms:
        yield Heading("How large the weights are")
        beside = f"; the line is {baseline}" if base else ""
        yield Paragraph(f"Shares of all weights of a layer, by size, on a logarithmic axis{beside}.", "note")
        yield Figures(spread_charts([(_where(each), each, _same(each, base)) for each in variant.histograms]), "small")
    if measured := [layer for layer in variant.heads if layer.entropy]:
        yield Heading("How spread the weights are")
        note = "Entropy by layer and head, divided by that of even weights: 0 is one token, 1 is all alike."
        yield Paragraph(note, "note")
        yield _by_head("Entropy by head", [(_where(layer), layer.entropy) for layer in measured])
    if variant.mixture:
        yield Heading("What the mixture weighs")
        for term in dict.fromkeys(term for layer in variant.mixture for term in layer.terms):
            layers = [layer for layer in variant.mixture if term in layer.terms]
            yield Paragraph((Span(term, "code"), ", by head"), "note")
            yield _by_head(f"{term}, by head", [(_where(one), one.weights[one.terms.index(term)]) for one in layers])


def _where(part: Heads | Histogram | MixtureWeights) -> str:
    return f"{part.stack} {part.layer + 1}"


def _same(one: Histogram, others: Sequence[Histogram]) -> Histogram | None:
    return next((each for each in others if (each.stack, each.layer) == (one.stack, one.layer)), None)


def _maps(layer: Heads) -> Iterator[tuple[str, str, str]]:
    for head, (content, peak) in enumerate(zip(layer.maps, layer.peaks, strict=False), 1):
        span = f", {layer.span} positions" if layer.span else ""
        tip = f"{_where(layer)}, head {head}{span}, largest weight {digits(peak)}"
        yield heat_map(base64.b64decode(content), layer.size), tip, digits(peak, 2)


def spread_charts(panels: Sequence[tuple[str, Histogram | None, Histogram | None]]) -> list[Shares]:
    """Return a chart for each panel: its name, what is filled and what is an outline, all on the same axes."""
    every = [each for _, *both in panels for each in both if each is not None and each.counts]
    if not every:
        return []
    most = max(1e-9, *(share for each in every for share in each.counts))
    low, high = min(each.edges[0] for each in every), max(each.edges[-1] for each in every)
    return [Shares(name, _steps(filled), _steps(outline), (low, high), most, name) for name, filled, outline in panels]


def _steps(found: Histogram | None) -> list[tuple[float, float]]:
    return list(zip(found.edges, [*found.counts, 0.0], strict=False)) if found and found.counts else []


def _by_head(title: str, layers: Sequence[tuple[str, Sequence[float]]]) -> Table:
    widest, top = max(len(values) for _, values in layers), max(1.0, *(v for _, values in layers for v in values))
    columns = []
    for head in range(widest):
        cells = [
            Cell(fixed(values[head], 2), key=values[head], share=max(0.0, values[head]) / top)
            if head < len(values)
            else Cell()
            for _, values in layers
        ]
        columns.append(Column(f"{head + 1}" if widest > 1 else "all heads", cells))
    return Table(title, "Layer", [Row(name) for name, _ in layers], columns)


def _samples(results: Results) -> Iterator[Block]:
    """Return each sample with its answers below each other, where differences are seen best."""
    written = [variant for variant in results.variants if variant.samples]
    if not results.samples or not written:
        return
    yield Paragraph(
        (
            Span("Wavy lines", "ins"), " are below words that the reference does not have there, ",
            Span("crossed out", "del"), " are words of it that are missing. "
            "Answers that have little of it are left as they are.",
        ), "note"
    )  # fmt: skip
    for n, sample in enumerate(results.samples):
        # Variants that wrote the same are named together: what differs is what one looks for.
        writers: dict[str, list[str]] = {}
        for variant in written:
            if n < len(variant.samples):
                writers.setdefault(variant.samples[n], []).append(variant.attention)
        short = textwrap.shorten(sample.source, 160, placeholder=" …")
        pairs: list[tuple[Text, Text]] = [("source", sample.source)] if short.endswith(" …") else []
        pairs.append(("reference", (Span(sample.reference, "strong"),)))
        pairs += [
            ((Span(", ".join(names), "code"),), compared(text, sample.reference)) for text, names in writers.items()
        ]
        yield Folded(short, [Answers(pairs)], n < 3)


def compared(text: str, reference: str) -> Text:
    """Return an answer with what differs from the reference, unless that is most of it."""
    if text == reference:
        return (f"{text} ", Span("(as the reference)", "soft"))
    ours, theirs = text.split(), reference.split()
    if not ours:
        return (Span("(nothing)", "soft"),)
    matcher = difflib.SequenceMatcher(None, theirs, ours, autojunk=False)
    if matcher.ratio() < 0.5:
        return text
    parts: list[str | Span] = []
    for what, a, b, c, d in matcher.get_opcodes():
        missing, found = " ".join(theirs[a:b]), " ".join(ours[c:d])
        if what == "equal":
            parts += [found, " "]
        else:
            for words, kind in ((missing, "del"), (found, "ins")):
                parts += [Span(words, kind), " "] if words else []
    return parts


def _made(results: Results) -> Iterator[Block]:
    if results.command:
        yield Command(results.command)
    lists = {
        "The same for all": results.facts,
        "Metrics": definitions(results),
        "Hardware": results.hardware,
        "Versions": results.versions,
        "Hashes of the data": results.data_hashes,
    }
    if any(lists.values()):
        yield Facts(lists)
    if results.notes:
        yield Heading("Notes")
        yield Listing(results.notes)
