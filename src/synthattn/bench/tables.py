"""The tables of a benchmark, the same in Markdown and on the page."""

import dataclasses
import statistics
from collections.abc import Callable, Iterable

from synthattn.bench.bars import judged_shapes
from synthattn.bench.growth import SERIES, Growth, growths, measurable
from synthattn.bench.record import KINDS, Case, Measurement, Record
from synthattn.render.numbers import TIMES, Number, digits, duration, fixed, megabytes, ratio, whole
from synthattn.render.table import Cell, Column, Row, Span, Table, number_cell

TITLES = {
    "layer": "The attention layer",
    "model": "A whole encoder, forward",
    "train": "A whole encoder, training step",
    "decode": "Generation",
}
ACROSS = {"layer": "mask", "model": "mask", "train": "mask", "decode": "beams"}
"""What tells the columns of a table apart."""
ANY = {"mask": "", "beams": 0}
"""Stands for all of them."""
Text = Callable[[Number], str]
RIVALS = ["vanilla", "nn.MultiheadAttention", "straightforward", "Hugging Face T5", "dynamicconv"]
"""These come first, in this order."""


def tables(record: Record) -> dict[str, tuple[str, str, list[Table]]]:
    """Return all that the record has data for: by the key of a section, its title, a note and its tables."""
    found = {
        kind: (TITLES[kind], _ratio_note(record, kind), [_compared(m) for m in compared(record, kind)])
        for kind in KINDS
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


def about(record: Record) -> str:
    """What was measured where, and how."""
    versions = [f"{name} {version}" for name, version in record.versions.items()]
    parts = [record.machine or "unknown machine", f"{record.threads} threads", *versions]
    parts.append(f"medians of {record.rounds} interleaved rounds or more")
    parts += [f"started {record.started}"] if record.started else []
    parts += [f"took {duration(record.seconds)}"] if record.seconds else []
    return ", ".join(parts)


HOW_TO_READ = (
    "A ratio above 1 means faster; ratios are medians of ratios within a round. "
    "Absolute times are noise between machines and are shown for growth within a run only."
)


def certainty(record: Record) -> list[str]:
    """How far the numbers can be trusted, in sentences."""
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
    """Return the contenders that someone was timed beside."""
    known = list(dict.fromkeys(name for each in found for name in each.ratios))
    return [name for name in RIVALS if name in known] + [name for name in known if name not in RIVALS]


def compared(record: Record, kind: str) -> list[list[Measurement]]:
    """What stands in one table: cases that differ in the mask only, or in the beams.

    Shapes that were measured for growth alone are in the tables of growth.
    """
    groups: dict[Case, list[Measurement]] = {}
    for found in record.of(kind):
        groups.setdefault(dataclasses.replace(found.case, **{ACROSS[kind]: ANY[ACROSS[kind]]}), []).append(found)
    growing = {point.case for over in SERIES for growth in growths(record, over) for point in growth.points}
    judged = judged_shapes(kind)
    return [
        group
        for case, group in groups.items()
        if (case.batch, case.length) in judged or not {m.case for m in group} <= growing or len(values(group)) > 1
    ]


def values(group: list[Measurement]) -> list[str | int]:
    """The masks of a group that is compared, or the beams."""
    return list(dict.fromkeys(getattr(found.case, ACROSS[found.case.kind]) for found in group))


def label(value: str | int) -> str:
    """A mask, or a number of beams, in words."""
    return value if isinstance(value, str) else f"{value} beam{'s' if value > 1 else ''}"


def name_of(case: Case) -> str:
    """Shape and, for a layer, mode: what a group that is compared has in common."""
    return f"{case.batch}x{case.length}" + (f", {case.mode}" if case.kind == "layer" else "")


def series(record: Record, over: str) -> list[list[Growth]]:
    """Contenders that grew side by side, in all modes."""
    groups: dict[Case, list[Growth]] = {}
    for growth in growths(record, over):
        groups.setdefault(dataclasses.replace(growth.held, mode=""), []).append(growth)
    return list(groups.values())


def series_name(growth: Growth) -> str:
    held = growth.held
    size = f"length {held.length}" if growth.over == "batch" else f"batch {held.batch}"
    return f"{held.kind}, {size}, {held.mask}" + (f", {label(held.beams)}" if held.kind == "decode" else "")


def _ratio_note(record: Record, kind: str) -> str:
    found = record.of(kind)
    parts = [f"{TIMES} means: times as fast as"]
    parts += ["MB: peak memory above that of weights and input"] if any(m.megabytes is not None for m in found) else []
    if any(m.gemm_share is not None for m in found):
        parts.append("GEMM share: throughput as a share of plain matrix products of the same shapes")
    parts += ["cache: of self-attention"] if any(m.cache_bytes is not None for m in found) else []
    return "; ".join(parts) + "."


def _compared(group: list[Measurement]) -> Table:
    names = contenders(group)
    found = {(m.contender, getattr(m.case, ACROSS[m.case.kind])): m for m in group}
    across = values(group)

    def column(
        head: str, value: str | int, of: Callable[[Measurement], Number | None], text: Text, title: str
    ) -> Column:
        measured = [found.get((name, value)) for name in names]
        return Column(head, [Cell() if m is None else number_cell(of(m), text) for m in measured], group=title)

    columns = [
        column(f"{TIMES} {rival}", value, lambda m, rival=rival: m.ratios.get(rival), ratio, label(value))
        for value in across
        for rival in rivals(group)
    ]
    weighed = list(dict.fromkeys(name for m in group for name in m.rival_megabytes))
    for value in across if weighed else []:
        columns.append(column("its own", value, lambda m: m.megabytes, _megabytes, f"MB, {label(value)}"))
        columns += [
            column(name, value, lambda m, name=name: m.rival_megabytes.get(name), _megabytes, f"MB, {label(value)}")
            for name in weighed
        ]
    alone = [] if weighed else [("MB", "megabytes", _megabytes)]
    for title, attribute, text in (
        *alone,
        ("Cache, bytes per token", "cache_bytes", whole),
        ("GFLOP", "gigaflop", digits),
        ("GEMM share", "gemm_share", ratio),
    ):
        columns += [
            column(label(value), value, lambda m, attribute=attribute: getattr(m, attribute), text, title)
            for value in across
        ]
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
    quantities: list[tuple[str, Callable[[Measurement], Number | None], Text]] = [
        ("ms", lambda m: 1000 * m.seconds, digits),
        (f"{TIMES} vanilla", lambda m: m.ratios.get("vanilla"), ratio),
        ("MB", measurable, _megabytes),
    ]
    for mode in modes:
        grown = [growth for growth in group if growth.held.mode == mode]
        points = {(growth.contender, growth.size(point)): point for growth in grown for point in growth.points}
        columns = []
        for size in sorted({size for _, size in points}):
            measured = [points.get((name, size)) for name in names]
            columns += [
                Column(
                    head, [Cell() if m is None else number_cell(of(m), text) for m in measured], group=f"{over} {size}"
                )
                for head, of, text in quantities
            ]
        found.append(_named(f"{name}: {mode}", names, columns))
    return [table for table in found if table.columns]


def _named(title: str, names: list[str], columns: list[Column]) -> Table:
    return Table(title, "Attention", [Row((Span(name, "code"),)) for name in names], columns).filled()


def _megabytes(value: Number) -> str:
    return megabytes(1e6 * value)
