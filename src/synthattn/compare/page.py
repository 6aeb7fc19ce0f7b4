"""The page of a comparison, its Markdown and its picture: what to show, in blocks."""

import base64
import difflib
import math
import textwrap
from collections.abc import Callable, Iterator, Sequence

from synthattn.compare.results import Heads, Histogram, MixtureShares, Results, Variant
from synthattn.compare.table import definitions, direction, higher_is_better, legend, tables
from synthattn.compare.verdict import LEAD, MARGIN, moving_gaps
from synthattn.metrics.labels import label
from synthattn.render import markdown as md
from synthattn.render.charts import ForestPlot, Key, Line, Lines, Point, Scatter, Shares
from synthattn.render.document import (
    Answers,
    Beside,
    Block,
    Command,
    Document,
    Facts,
    Figures,
    Folded,
    Heading,
    Images,
    Listing,
    Menu,
    Paragraph,
    Section,
)
from synthattn.render.html import page as html
from synthattn.render.images import heat_map
from synthattn.render.numbers import (
    TIMES,
    Number,
    chance,
    digits,
    duration,
    fixed,
    megabytes,
    quantity,
    signed,
    times,
    unbroken,
)
from synthattn.render.table import Cell, Column, Row, Span, Table, Text

CURVE_POINTS = 80
"""Longer curves are drawn as means of neighbours: less noise, and a smaller file."""


COSTS: dict[str, tuple[str, str, Callable[[Number], str], float]] = {
    "training speed": ("training_speed", f"{TIMES} baseline (right is faster)", times, 1.0),
    "memory": ("training_memory", "MB in training (left is less)", lambda v: f"{megabytes(v)} MB", 1e6),
    "parameters": ("parameters", "M (left is smaller)", quantity, 1e6),
}
"""What quality is drawn against: the attribute of a variant, its unit, its digits, and what the axis divides by."""


def page(results: Results) -> str:
    """Return the whole file."""
    return html(document(results))


def markdown(results: Results) -> str:
    """Return the tables, and below them what a reader must know to read them."""
    found = [md.table(table) for table in tables(results) if table.columns]
    below = [f"{name}: {said}." for name, said in definitions(results).items()] + legend(results) + results.notes
    return (
        "\n".join([*(line for lines in found for line in (*lines, "")), *(f"- {md.safe(text)}" for text in below)])
        + "\n"
    )


def answer_page(results: Results) -> str:
    """Return the answer with the tables below it, as Markdown."""
    headline, *rest = results.answer
    return "\n\n".join([f"# {md.safe(headline)}", *map(md.safe, rest), markdown(results)])


def picture(results: Results) -> str:
    """Return quality against training speed as a file of its own, which needs no background."""
    return scatter(results, "training speed", 680, 400).svg()


def document(results: Results) -> Document:
    """Return the page in blocks: the answer, the table, and below them what they rest on."""
    title = f"{label(results.task)} on {results.data}: attention compared"
    table, more = tables(results)
    notes = [Paragraph(text, "note") for text in legend(results)]
    rest = [Folded("More metrics and costs", [more])] if more.columns else []
    return Document(
        title,
        "synthattn compare",
        list(_lead(results)),
        [
            Section("table", "Results", [table, *rest, *notes]),
            Section("costs", "Quality and cost", list(_costs(results))),
            Section("learning", "Learning curves", list(_learning(results))),
            Section("attention", "Attention", list(_attention(results))),
            Section("samples", "Samples", list(_samples(results))),
            Section("made", "How it was made", list(_made(results))),
        ],
        heading=results.answer[0] if results.answer else title,
        scripted=True,
        places=len(results.models),
    )


def _lead(results: Results) -> Iterator[Block]:
    yield from (Paragraph(unbroken(text), "answer") for text in results.answer[1:LEAD])
    if details := results.answer[LEAD:]:
        yield Listing(details)
    parts: list[str | Span] = []
    for status, words in (("running", "Still running"), ("waiting", "Still to come")):
        names = [variant.attention for variant in results.models if variant.status == status]
        parts += [Span(f"{words}:", "strong"), f" {', '.join(names)}. "] if names else []
    if parts:
        yield Paragraph(parts, "warning")
    done, every = sum(variant.status == "done" for variant in results.models), len(results.models)
    about = [f"{results.task} on {results.data}"]
    about += [f"{every} kinds of attention" if done == every else f"{done} of {every} kinds of attention done"]
    about += [f"baseline {results.baseline}"]
    about += [f"started {results.started[:16].replace('T', ' ')}"] if results.started else []
    about += [f"took {duration(results.seconds)}"] if results.seconds else []
    yield Paragraph(" · ".join(about), "soft")


def scatter(results: Results, cost: str, width: int = 560, height: int = 380) -> Scatter:
    """Return the main metric of all variants that have it, with intervals, against a cost."""
    metric, better = label(results.main_metric), direction(results, results.main_metric)
    attribute, unit, text, per = COSTS[cost]
    points = []
    for place, variant in enumerate(results.models):
        score, x = variant.scores.get(results.main_metric), getattr(variant, attribute)
        if score is None or x is None or not all(map(math.isfinite, (score.value, score.low, score.high, x))):
            continue
        interval = f"{digits(score.value, 4)} [{digits(score.low, 4)}, {digits(score.high, 4)}]"
        tip = f"{variant.attention}\n{metric} {interval}\n{cost} {text(x)}"
        points.append(Point(variant.attention, place, x / per, score.value, tip, score.low, score.high))
    up = f"{metric} ({better} is better)" if better else metric
    name, floor = results.floor(results.main_metric) or ("", None)
    return Scatter(
        f"{metric} against {cost}", f"{cost}, {unit}", up, points, results.baseline, floor, name,
        width=width, height=height, caption=cost,
    )  # fmt: skip


def differences(results: Results) -> ForestPlot:
    """Return a row for each variant with its difference from the baseline, and the margin for being as good."""
    metric, points = results.main_metric, []
    for place, variant in enumerate(results.models):
        score = variant.scores.get(metric)
        found = score.difference if score else None
        if found is not None and all(map(math.isfinite, (found.value, found.low, found.high))):
            ends = f"[{signed(found.low, 2)}, {signed(found.high, 2)}], {chance(found.p_value)}"
            tip = f"{variant.attention}\n{signed(found.value, 2)} {ends}"
            points.append(Point("ours", place, found.value, variant.attention, tip, found.low, found.high))
    base = results.base.scores.get(metric) if results.base is not None else None
    left, right = ("worse", "better") if higher_is_better(results, metric) else ("better", "worse")
    across = f"\N{LEFTWARDS ARROW} {left}, {right} \N{RIGHTWARDS ARROW}"
    caption = f"{label(metric)}: difference from {results.baseline}"
    note = f"Grey: within {100 * MARGIN:g} % of {results.baseline}."
    zone = MARGIN * abs(base.value) if base is not None else 0.0
    return ForestPlot(caption, across, points, 0.0, zone=zone, width=560, caption=caption, note=note)


def _costs(results: Results) -> Iterator[Block]:
    found = [chart for cost in COSTS if (chart := scatter(results, cost)).points]
    gaps = differences(results)
    charts = [Menu(f"{label(results.main_metric)} against", found)] if found else []
    # Where every difference is exactly zero, there is nothing to see.
    charts += [Figures([gaps])] if any(end for p in gaps.points for end in (p.x, p.low, p.high)) else []
    if charts:
        floor = results.floor(results.main_metric)
        said = f" The dotted line, if it is near, is the floor: {floor[0]}, {digits(floor[1])}." if floor else ""
        yield Paragraph(f"Bars are 95 % intervals. Dashed lines pass through {results.baseline}.{said}", "note")
        yield Beside(charts)


def _learning(results: Results) -> Iterator[Block]:
    charts = []
    seeds = max((len(score.by_seed) for v in results.models for score in v.scores.values()), default=1)
    for title, kind in (("Validation loss", "validation_curve"), ("Training loss", "loss_curve")):
        lines = []
        for place, variant in enumerate(results.models):
            if points := thinned(getattr(variant, kind)):
                tips = [f"{variant.attention}\nstep {x:,.0f}: {digits(y, 4)}" for x, y in points]
                tip = f"{variant.attention}: {digits(points[-1][1], 4)} at the end"
                band = [(a, b, c) for a, b, c in variant.validation_band] if kind == "validation_curve" else []
                lines.append(Line(variant.attention, place, points, tips if len(points) <= 25 else [], tip, band))
        if lines:
            ends = {line.name: line.points[-1][1] for line in lines}
            legend = [Key(line.place, line.name, digits(ends[line.name], 4)) for line in lines]
            top, log = _later(lines)
            caption = f"{title} by step{', logarithmic' if log else ''}"
            floor = results.floor_loss if kind == "validation_curve" else None
            name, _ = results.floor(results.main_metric) or ("", None)
            # A floor far above the curves would press them together.
            rule = {"rule": floor, "rule_name": name} if floor is not None and floor <= 1.5 * top else {}
            look = {"caption": caption, "legend": legend, "width": 460, "height": 330}
            charts.append(Lines(title, "step", "loss", lines, log, top=top, **look, **rule))
    if charts:
        bands = any(variant.validation_band for variant in results.models)
        said = (
            f"Validation: mean of {seeds} seeds, and the band of all. Training: first seed." if bands else "First seed."
        )
        moving = moving_gaps(results)
        said += f" The gap to {results.baseline} still moves for {', '.join(moving)}." if moving else ""
        yield Paragraph(f"{said} Point at a name to see its curve alone.", "note")
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
    shown = [v for v in results.models if v.heads or v.histograms or v.mixture]
    base = results.base
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


def _where(part: Heads | Histogram | MixtureShares) -> str:
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
    return [
        Shares(name, _steps(filled), _steps(outline), (low, high), most, caption=name)
        for name, filled, outline in panels
    ]


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
    written = [variant for variant in results.models if variant.samples]
    if not results.samples or not written:
        return
    yield Paragraph(
        (
            Span("Underlined", "ins"), ": not in the reference. ", Span("Crossed out", "del"), ": missing. "
            "Answers that share little with the reference are not marked.",
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
