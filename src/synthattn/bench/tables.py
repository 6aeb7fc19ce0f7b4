"""The tables of a benchmark, as cells: Markdown and the page write the same."""

import dataclasses
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from synthattn.bench.bars import judged_shapes
from synthattn.bench.growth import SERIES, Growth, growths, measurable
from synthattn.bench.record import KINDS, Case, Measurement, Record
from synthattn.render.tables import NOTHING, TIMES, digits, duration, fixed, megabytes, whole

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
RIVALS = ["vanilla", "nn.MultiheadAttention", "straightforward", "Hugging Face T5", "dynamicconv"]
"""These come first, in this order."""


@dataclass(frozen=True)
class Column:
    """One number of everyone in a table."""

    head: str
    cells: list[str]
    group: str = ""
    """Neighbours of one group belong together, and stand in one cell where there is little room."""


@dataclass(frozen=True)
class Table:
    """Rows by name."""

    title: str
    rows: list[str]
    columns: list[Column]
    first: str = "Attention"
    """The head of the names."""


@dataclass(frozen=True)
class Section:
    """Tables about one thing."""

    key: str
    title: str
    note: str
    tables: list[Table]


def sections(record: Record) -> list[Section]:
    """All that the record has data for."""
    found = [
        Section(kind, TITLES[kind], _ratio_note(record, kind), [_compared(m) for m in compared(record, kind)])
        for kind in KINDS
    ]
    found += [
        Section(
            f"growth-{over}",
            f"Growth with the {over}",
            "Exponents of power laws, by least squares on logarithms"
            + (", from length 512 on where there are enough points" if over == "length" else "")
            + "; in brackets that of the last doubling alone. Milliseconds are comparable within one run only.",
            [table for group in series(record, over) for table in _growth_tables(group)],
        )
        for over in SERIES
    ]
    return [section for section in found if section.tables]


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
    """Those that someone was timed beside."""
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


def ratio(value: float) -> str:
    return fixed(value, 2) if value < 10 else digits(value)


def milliseconds(seconds: float) -> str:
    return digits(1000 * seconds)


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

    def column(head: str, value: str | int, text: Callable[[Measurement], str | None], group: str) -> Column:
        measured = [found.get((name, value)) for name in names]
        return Column(head, [(text(m) if m else None) or NOTHING for m in measured], group)

    columns = [
        column(f"{TIMES} {rival}", value, lambda m, rival=rival: _text(m.ratios.get(rival), ratio), label(value))
        for value in across
        for rival in rivals(group)
    ]
    weighed = list(dict.fromkeys(name for m in group for name in m.rival_megabytes))
    for value in across if weighed else []:
        columns.append(column("its own", value, lambda m: _text(m.megabytes, _megabytes), f"MB, {label(value)}"))
        columns += [
            column(name, value, lambda m, n=name: _text(m.rival_megabytes.get(n), _megabytes), f"MB, {label(value)}")
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
            column(label(value), value, lambda m, a=attribute, t=text: _text(getattr(m, a), t), title)
            for value in across
        ]
    return Table(name_of(group[0].case), names, _filled(columns))


def _growth_tables(group: list[Growth]) -> list[Table]:
    over, name = group[0].over, series_name(group[0])
    names = list(dict.fromkeys(growth.contender for growth in group))
    modes = list(dict.fromkeys(growth.held.mode for growth in group))
    by = {(growth.contender, growth.held.mode): growth for growth in group}
    exponents = []
    for what in ("time", "memory"):
        for mode in modes:
            fits = [getattr(by.get((name, mode)), what, None) for name in names]
            cells = [f"{fixed(fit.exponent, 2)} ({fixed(fit.last, 2)})" if fit else NOTHING for fit in fits]
            exponents.append(Column(f"{what}, {mode}", cells))
    tables = [Table(f"{name}: exponents", names, _filled(exponents))]
    for mode in modes:
        points = {
            (growth.contender, growth.size(point)): point
            for growth in group
            if growth.held.mode == mode
            for point in growth.points
        }
        columns = []
        for size in sorted({size for _, size in points}):
            measured = [points.get((name, size)) for name in names]
            for head, text in (
                ("ms", lambda m: milliseconds(m.seconds)),
                (f"{TIMES} vanilla", lambda m: _text(m.ratios.get("vanilla"), ratio)),
                ("MB", lambda m: _text(measurable(m), _megabytes)),
            ):
                columns.append(Column(head, [(text(m) if m else None) or NOTHING for m in measured], f"{over} {size}"))
        tables.append(Table(f"{name}: {mode}", names, _filled(columns)))
    return [table for table in tables if table.columns]


def _text(value: float | None, text: Callable[[float], str]) -> str | None:
    return None if value is None else text(value)


def _megabytes(value: float) -> str:
    return megabytes(1e6 * value)


def _filled(columns: Iterable[Column]) -> list[Column]:
    """Without those that say nothing; a column that is left alone in its group takes over the name."""
    kept = [column for column in columns if any(cell != NOTHING for cell in column.cells)]
    sizes: dict[str, int] = {}
    for column in kept:
        sizes[column.group] = sizes.get(column.group, 0) + 1
    return [
        Column(f"{column.group}, {column.head}", column.cells) if column.group and sizes[column.group] == 1 else column
        for column in kept
    ]
