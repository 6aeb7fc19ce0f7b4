"""The page of a comparison: one HTML file that asks for nothing else and can be read without JavaScript, but for curves
and attention maps."""

import dataclasses
import difflib
import json
import math
import textwrap
from typing import Any

from synthattn.compare.results import Results, Variant
from synthattn.render import tables
from synthattn.render.document import document, escape, text_file
from synthattn.render.picture import COLOURS, COSTS, scatter, shape

CURVE_POINTS = 80
"""Longer curves are drawn as means of neighbours: less noise, and a smaller file."""
DASHES = ["", "7 3", "2 3", "9 3 2 3"]


def page(results: Results) -> str:
    """The whole file."""
    return document(
        f"{results.task} on {results.data}: attention compared",
        "synthattn compare",
        _heading(results),
        {
            "table": ("Results", _table(results)),
            "costs": ("Quality and cost", _costs(results)),
            "learning": ("Learning curves", _learning(results)),
            "attention": ("Attention", _attention(results)),
            "samples": ("Samples", _samples(results)),
            "made": ("How it was made", _made(results)),
        },
        text_file("synthattn.render", "page.css"),
        text_file("synthattn.render", "page.js"),
        _data(results),
    )


def _heading(results: Results) -> str:
    done = sum(variant.status == "done" for variant in results.variants)
    everything = len(results.variants)
    about = [
        f"{everything} kinds of attention" if done == everything else f"{done} of {everything} kinds of attention done"
    ]
    about += [f"baseline {results.baseline}"]
    about += [f"started {results.started}"] if results.started else []
    about += [f"took {tables.duration(results.seconds)}"] if results.seconds else []
    lines = [
        f"<h1>{escape(results.task.capitalize())} on <span>{escape(results.data)}:</span> which attention?</h1>",
        f'<p class="soft">{escape(" · ".join(about))}</p>',
    ]
    if results.answer:
        lines.append(f'<div class="answer">{"".join(f"<p>{escape(text)}</p>" for text in results.answer)}</div>')
    unfinished = []
    for status, words in (("failed", "Failed"), ("running", "Still running"), ("waiting", "Still to come")):
        names = [variant.attention for variant in results.variants if variant.status == status]
        unfinished += [f"<strong>{words}:</strong> {escape(', '.join(names))}."] if names else []
    if unfinished:
        lines.append(f'<p class="warning">{" ".join(unfinished)}</p>')
    return "\n".join(lines)


def _table(results: Results) -> str:
    columns = tables.columns(results)
    heads = ['<th scope="col">Attention</th>']
    for column in columns:
        unit = f"<small>{escape(column.unit)}</small>" if column.unit else ""
        heads.append(f'<th scope="col"{_kind(column)}>{escape(column.head)}{unit}</th>')
    rows = [_row(results, columns, place, variant) for place, variant in enumerate(results.variants)]
    below = "".join(f"<p>{escape(text)}</p>" for text in tables.how_intervals(results))
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Table of results"><table>\n'
        f"<thead><tr>{''.join(heads)}</tr></thead>\n<tbody>\n{''.join(rows)}</tbody>\n</table></div>\n"
        f'<div class="note">{below}{_paper(results)}</div>'
    )


def _kind(column: tables.Column) -> str:
    return ' class="paper"' if column.paper else ""


def _row(results: Results, columns: list[tables.Column], place: int, variant: Variant) -> str:
    keys = json.dumps([variant.attention, *(column.cells[place].key for column in columns)])
    base = variant.attention == results.baseline
    said = tables.trouble(variant)
    name = f'{_glyph(place)}<span class="name">{_breakable(variant.attention)}</span>'
    cells, skip = [], False
    for column, after in zip(columns, [*columns[1:], None], strict=True):
        cell = column.cells[place]
        if skip:
            skip = False
        elif column.main and said and not cell.text:
            # Two cells wide where the next one is as empty: reasons are longer than numbers.
            skip = after is not None and not after.cells[place].text
            cells.append(
                f'<td class="trouble {escape(variant.status)}"{" colspan=2" if skip else ""}>{escape(said)}</td>'
            )
        else:
            late = f"<small>{escape(said)}</small>" if column.main and said else ""
            mark = f'<span class="mark {cell.mark}">{cell.mark}</span>' if cell.mark else ""
            detail = f"<small>{escape(cell.detail)}</small>" if cell.detail else ""
            cells.append(f"<td{_kind(column)}>{escape(cell.text) or tables.NOTHING}{mark}{detail}{late}</td>")
    return (
        f'<tr{" class=base" if base else ""} data-keys="{escape(keys)}"><th scope="row">{name}'
        f"{'<small> baseline</small>' if base else ''}</th>{''.join(cells)}</tr>\n"
    )


def _glyph(place: int) -> str:
    return (
        f'<svg class="glyph v{place % len(COLOURS)}" viewBox="-7 -7 14 14" aria-hidden="true">'
        f'<path stroke="none" d="{shape(place)}"/></svg>'
    )


def _paper(results: Results) -> str:
    tables_of_paper = [table for table in results.published if table in tables.published(results, table.metric)]
    return "".join(f"<p>In the paper: {escape(table.table)}. {escape(table.note)}</p>" for table in tables_of_paper)


def _costs(results: Results) -> str:
    scored = [variant for variant in results.variants if results.main_metric in variant.scores]
    kinds = [cost for cost in COSTS.values() if any(cost.of(variant) is not None for variant in scored)]
    if not kinds:
        return ""
    figures = "".join(f"<figure>{scatter(results, cost, 380, 340)}</figure>" for cost in kinds)
    return (
        '<p class="note">Bars are intervals of 95 %. The dashed lines pass through the baseline.</p>'
        f'<div class="plots">{figures}</div>'
    )


def _learning(results: Results) -> str:
    if not any(variant.loss_curve or variant.validation_curve for variant in results.variants):
        return ""
    return f'<p class="note">Of the first seed. Point at a curve for its values.</p>{_needs_script()}'


def _attention(results: Results) -> str:
    if not any(variant.heads or variant.histograms or variant.mixture for variant in results.variants):
        return ""
    return _needs_script()


def _needs_script() -> str:
    return '<div class="drawn"></div><noscript><p>This part is drawn by JavaScript.</p></noscript>'


def _samples(results: Results) -> str:
    """Each with its answers below each other, where differences are seen best."""
    written = [variant for variant in results.variants if variant.samples]
    if not results.samples or not written:
        return ""
    lines = [
        '<p class="note"><ins>Wavy lines</ins> are below words that the reference does not have there, '
        "<del>crossed out</del> are words of it that are missing. "
        "Answers that have little of it are left as they are.</p>"
    ]
    for n, sample in enumerate(results.samples):
        # Variants that wrote the same are named together: what differs is what one looks for.
        writers: dict[str, list[str]] = {}
        for variant in written:
            if n < len(variant.samples):
                writers.setdefault(variant.samples[n], []).append(variant.attention)
        answers = "".join(
            f'<dt class="name">{", ".join(map(_breakable, names))}</dt>'
            f'<dd dir="auto">{_compared(text, sample.reference)}</dd>'
            for text, names in writers.items()
        )
        short = textwrap.shorten(sample.source, 160, placeholder=" …")
        whole = f'<dt>source</dt><dd dir="auto">{escape(sample.source)}</dd>' if short.endswith(" …") else ""
        lines.append(
            f'<details{" open" if n < 3 else ""}><summary dir="auto">{escape(short)}</summary>'
            f'<dl class="answers">{whole}'
            f'<dt>reference</dt><dd dir="auto"><strong>{escape(sample.reference)}</strong></dd>{answers}</dl></details>'
        )
    return "\n".join(lines)


def _breakable(name: str) -> str:
    """A name that may go on in the next line where its parts end."""
    return "".join(f"{escape(letter)}<wbr>" if letter in "_+(" else escape(letter) for letter in name)


def _compared(text: str, reference: str) -> str:
    """An answer, with what differs from the reference, unless that is most of it."""
    if text == reference:
        return f'{escape(text)} <small class="soft">(as the reference)</small>'
    ours, theirs = text.split(), reference.split()
    if not ours:
        return '<small class="soft">(nothing)</small>'
    matcher = difflib.SequenceMatcher(None, theirs, ours, autojunk=False)
    if matcher.ratio() < 0.5:
        return escape(text)
    parts = []
    for what, a, b, c, d in matcher.get_opcodes():
        missing, found = escape(" ".join(theirs[a:b])), escape(" ".join(ours[c:d]))
        if what == "equal":
            parts.append(found)
        else:
            parts += [f"<del>{missing}</del>"] * bool(missing) + [f"<ins>{found}</ins>"] * bool(found)
    return " ".join(parts)


def _made(results: Results) -> str:
    lines = []
    if results.command:
        lines.append(
            f'<div class="command"><pre><code id="command">{escape(results.command)}</code></pre>'
            '<button type="button" id="copy" hidden>Copy</button></div>'
        )
    metrics = {
        name: f"{results.metrics[name].definition} ({tables.direction(results, name)})"
        for name in tables.metric_names(results)
        if name in results.metrics
    }
    lists = {
        "The same for all": results.facts,
        "Metrics": metrics,
        "Hardware": results.hardware,
        "Versions": results.versions,
        "Hashes of the data": results.data_hashes,
    }
    boxes = "".join(f"<div><h3>{title}</h3>{_facts(facts)}</div>" for title, facts in lists.items() if facts)
    lines += [f'<div class="lists">{boxes}</div>'] if boxes else []
    if results.notes:
        lines.append(f"<h3>Notes</h3><ul>{''.join(f'<li>{escape(note)}</li>' for note in results.notes)}</ul>")
    return "\n".join(lines)


def _facts(facts: dict[str, str]) -> str:
    pairs = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts.items())
    return f'<dl class="facts">{pairs}</dl>'


def _data(results: Results) -> str:
    """What the script draws, as JSON that cannot end the element that it is in."""
    variants = []
    for place, variant in enumerate(results.variants):
        # As picture.py has it for the other drawings.
        marks = {
            "colour": f"v{place % len(COLOURS)}",
            "shape": shape(place),
            "dash": DASHES[place % len(DASHES)],
            "attention": variant.attention,
        }
        curves = {kind: _thinned(getattr(variant, kind)) for kind in ("loss_curve", "validation_curve")}
        parts = {
            kind: [dataclasses.asdict(part) for part in getattr(variant, kind)]
            for kind in ("heads", "histograms", "mixture")
        }
        variants.append(marks | curves | parts)
    found = _rounded({"baseline": results.baseline, "variants": variants})
    return json.dumps(found, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _thinned(curve: list[list[float]]) -> list[list[float]]:
    """Without what is not a number, and with neighbours put together."""
    known = [point for point in curve if all(map(math.isfinite, point))]
    each = math.ceil(len(known) / CURVE_POINTS)
    groups = [known[start : start + each] for start in range(0, len(known), each)] if each else []
    return [[sum(values) / len(group) for values in zip(*group, strict=True)] for group in groups]


def _rounded(found: Any) -> Any:
    """Five digits are more than a drawing shows; what is not a number is drawn as nothing."""
    if isinstance(found, dict):
        return {key: _rounded(value) for key, value in found.items()}
    if isinstance(found, list):
        return [_rounded(value) for value in found]
    if isinstance(found, float):
        return float(f"{found:.5g}") if math.isfinite(found) else 0.0
    return found
