"""Tables of a benchmark: contenders side by side, and their growth with length and batch."""

import dataclasses
import statistics
from collections.abc import Callable, Iterable

from synthattn.bench.growth import SERIES, Growth, growths, measurable
from synthattn.bench.record import SHAPES, BenchRecord, Case, Measurement
from synthattn.render.numbers import TIMES, Number, digits, duration, fixed, megabytes, ratio, whole
from synthattn.render.table import Cell, Column, Row, Span, Table, number_cell

TITLES = {
    "layer": "The attention layer",
    "model": "A whole encoder, forward",
    "train": "A whole encoder, training step",
    "decode": "Generation",
}
ACROSS = {"layer": "mask", "model": "mask", "train": "mask", "decode": "beams"}
"""The field of a case, by kind, that varies within a table."""
FIRST_RIVALS = ["vanilla", "nn.MultiheadAttention", "straightforward", "Hugging Face T5", "dynamicconv"]
HOW_TO_READ = (
    "A ratio above 1 means faster; ratios are medians of ratios within a round. "
    "Absolute times are noise between machines and are shown for growth within a run only."
)
Figure = Callable[[Measurement], Number | None]
Format = Callable[[Number], str]


def tables(record: BenchRecord) -> dict[str, tuple[str, str, list[Table]]]:
    """Return title, note and tables of each section that the record has data for, by the section's key."""
    found = {
        kind: (title, _ratio_note(record, kind), [_compared(group) for group in compared(record, kind)])
        for kind, title in TITLES.items()
    }
    for over in SERIES:
        note = (
            "Exponents of power laws, by least squares on logarithms"
            + (", from length 512 on where there are enough points" if over == "length" else "")
            + "; in brackets that of the last doubling alone. Milliseconds are comparable within one run only."
        )
        grown = [table for group in series(record, over) for table in _growth_tables(group)]
        found[f"growth-{over}"] = (f"Growth with the {over}", note, grown)
    return {key: section for key, section in found.items() if section[2]}


def about(record: BenchRecord) -> str:
    """Describe machine, versions, rounds and duration in one line."""
    versions = [f"{name} {version}" for name, version in record.versions.items()]
    parts = [record.machine or "unknown machine", f"{record.threads} threads", *versions]
    parts.append(f"medians of {record.rounds} interleaved rounds or more")
    parts += [f"started {record.started}"] if record.started else []
    parts += [f"took {duration(record.seconds)}"] if record.seconds else []
    return ", ".join(parts)


def certainty(record: BenchRecord) -> list[str]:
    """Describe spread of the times and errors of the checks, in sentences."""
    spreads = [found.spread for found in record.measurements]
    checked = [(found.error, found) for found in record.measurements if found.error is not None]
    lines = []
    if spreads:
        middle, most = 100 * statistics.median(spreads), 100 * max(spreads)
        lines.append(
            f"Times of one contender spread by {digits(middle, 2)} % in the median case and {digits(most, 2)} % at "
            "most (interquartile range over median)."
        )
    if checked:
        error, found = max(checked, key=lambda each: each[0])
        lines.append(
            f"Checked before they were timed: {len(checked)} of {len(record.measurements)} measurements; the largest "
            f"relative difference from the reference is {error:.1e} ({found.contender}, {found.case.kind} "
            f"{found.case})."
        )
    return lines


def contenders(found: Iterable[Measurement]) -> list[str]:
    return list(dict.fromkeys(each.contender for each in found))


def rivals(found: Iterable[Measurement]) -> list[str]:
    """Return the rivals that ratios refer to, well-known ones first."""
    known = list(dict.fromkeys(name for each in found for name in each.ratios))
    return sorted(known, key=lambda name: FIRST_RIVALS.index(name) if name in FIRST_RIVALS else len(FIRST_RIVALS))


def compared(record: BenchRecord, kind: str) -> list[list[Measurement]]:
    """Group measurements into tables: cases of a table differ only in the mask, or in the beams.

    Shapes that were measured only for growth are left to the tables of growth.
    """
    groups: dict[Case, list[Measurement]] = {}
    for found in record.of(kind):
        groups.setdefault(dataclasses.replace(found.case, mask="", beams=0), []).append(found)
    growing = {point.case for over in SERIES for growth in growths(record, over) for point in growth.points}
    return [
        group
        for case, group in groups.items()
        if (case.batch, case.length) in SHAPES[kind]
        or not {found.case for found in group} <= growing
        or len(values(group)) > 1
    ]


def values(group: list[Measurement]) -> list[str | int]:
    """Return the masks of a group, or its numbers of beams."""
    return list(dict.fromkeys(_value(found.case) for found in group))


def _value(case: Case) -> str | int:
    return getattr(case, ACROSS[case.kind])


def label(value: str | int) -> str:
    """Return a mask, or a number of beams, in words."""
    return value if isinstance(value, str) else f"{value} beam{'s' if value > 1 else ''}"


def name_of(case: Case) -> str:
    """Return the shape of a case and, for a layer, its mode."""
    return f"{case.batch}x{case.length}" + (f", {case.mode}" if case.kind == "layer" else "")


def series(record: BenchRecord, over: str) -> list[list[Growth]]:
    """Group contenders whose growth was measured side by side, in all modes."""
    groups: dict[Case, list[Growth]] = {}
    for growth in growths(record, over):
        groups.setdefault(dataclasses.replace(growth.held, mode=""), []).append(growth)
    return list(groups.values())


def series_name(growth: Growth) -> str:
    held = growth.held
    size = f"length {held.length}" if growth.over == "batch" else f"batch {held.batch}"
    return f"{held.kind}, {size}, {held.mask}" + (f", {label(held.beams)}" if held.kind == "decode" else "")


def _ratio_note(record: BenchRecord, kind: str) -> str:
    found = record.of(kind)
    parts = [f"{TIMES} means: times as fast as"]
    parts += ["MB: peak memory above that of weights and input"] if any(m.megabytes is not None for m in found) else []
    if any(m.gemm_share is not None for m in found):
        parts.append("GEMM share: throughput as a share of plain matrix products of the same shapes")
    parts += ["cache: of self-attention"] if any(m.cache_bytes is not None for m in found) else []
    return "; ".join(parts) + "."


def _compared(group: list[Measurement]) -> Table:
    names, across = contenders(group), values(group)
    found = {(m.contender, _value(m.case)): m for m in group}

    def column(head: str, value: str | int, of: Figure, text: Format, title: str) -> Column:
        return _column(head, [found.get((name, value)) for name in names], of, text, title)

    columns = [
        column(f"{TIMES} {rival}", value, lambda m, rival=rival: m.ratios.get(rival), ratio, label(value))
        for value in across
        for rival in rivals(group)
    ]
    weighed = list(dict.fromkeys(name for m in group for name in m.rival_megabytes))
    for value in across if weighed else []:
        title = f"MB, {label(value)}"
        columns.append(column("its own", value, lambda m: m.megabytes, _megabytes, title))
        columns += [
            column(name, value, lambda m, name=name: m.rival_megabytes.get(name), _megabytes, title) for name in weighed
        ]
    figures: list[tuple[str, Figure, Format]] = [
        *([] if weighed else [("MB", lambda m: m.megabytes, _megabytes)]),
        ("Cache, bytes per token", lambda m: m.cache_bytes, whole),
        ("GFLOP", lambda m: m.gigaflop, digits),
        ("GEMM share", lambda m: m.gemm_share, ratio),
    ]
    columns += [column(label(value), value, of, text, title) for title, of, text in figures for value in across]
    return _named(name_of(group[0].case), names, columns)


def _growth_tables(group: list[Growth]) -> list[Table]:
    over, name = group[0].over, series_name(group[0])
    names = list(dict.fromkeys(growth.contender for growth in group))
    modes = list(dict.fromkeys(growth.held.mode for growth in group))
    by = {(growth.contender, growth.held.mode): growth for growth in group}
    exponents = []
    for what in ("time", "memory"):
        for mode in modes:
            fits = [getattr(by.get((name, mode)), what, None) for name in names]
            cells = [
                Cell(f"{fixed(fit.exponent, 2)} ({fixed(fit.last, 2)})", key=fit.exponent) if fit else Cell()
                for fit in fits
            ]
            exponents.append(Column(f"{what}, {mode}", cells))
    found = [_named(f"{name}: exponents", names, exponents)]
    figures: list[tuple[str, Figure, Format]] = [
        ("ms", lambda m: 1000 * m.seconds, digits),
        (f"{TIMES} vanilla", lambda m: m.ratios.get("vanilla"), ratio),
        ("MB", measurable, _megabytes),
    ]
    for mode in modes:
        grown = [growth for growth in group if growth.held.mode == mode]
        points = {(growth.contender, growth.size(point)): point for growth in grown for point in growth.points}
        columns = [
            _column(head, [points.get((name, size)) for name in names], of, text, f"{over} {size}")
            for size in sorted({size for _, size in points})
            for head, of, text in figures
        ]
        found.append(_named(f"{name}: {mode}", names, columns))
    return [table for table in found if table.columns]


def _column(head: str, measured: list[Measurement | None], of: Figure, text: Format, title: str) -> Column:
    return Column(head, [Cell() if m is None else number_cell(of(m), text) for m in measured], group=title)


def _named(title: str, names: list[str], columns: list[Column]) -> Table:
    return Table(title, "Attention", [Row((Span(name, "code"),)) for name in names], columns).filled()


def _megabytes(value: Number) -> str:
    return megabytes(1e6 * value)
