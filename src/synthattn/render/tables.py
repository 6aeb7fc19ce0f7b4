"""The table of a comparison: as Markdown and CSV, and as cells for the page."""

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from synthattn.compare.results import Difference, Published, Results, Score, Variant
from synthattn.messages import printable

MINUS, TIMES, NOTHING = "\N{MINUS SIGN}", "\N{MULTIPLICATION SIGN}", "\N{EN DASH}"
Number = int | float

SIGNIFICANT = 0.05
"""Differences with a smaller p-value are called better or worse."""


@dataclass
class Cell:
    """What a table says about one thing of one variant."""

    text: str = ""
    detail: str = ""
    """How certain it is: less important than the text, and after it."""
    mark: str = ""
    """``better`` or ``worse``, where that is significant."""
    key: Number | None = None
    """What to sort by."""


@dataclass
class Column:
    """One thing about all variants."""

    head: str
    unit: str
    cells: list[Cell]
    main: bool = False
    """Whether it is the main metric, where variants without a score say why."""
    paper: bool = False
    """Whether the numbers are not ours."""


def columns(results: Results) -> list[Column]:
    """All columns that have something to say, but for the first, which has the names."""
    variants = results.variants
    found = [Column("Parameters", "", [number_cell(variant.parameters, quantity) for variant in variants])]
    for name in metric_names(results):
        main = name == results.main_metric
        scores = [variant.scores.get(name) for variant in variants]
        places = decimals(scores)
        # Before the first variant is scored it is not known what the main metric is.
        found.append(
            Column(name or "Score", direction(results, name), [score_cell(score, places) for score in scores], main)
        )
        if main:
            cells = [difference_cell(score, higher_is_better(results, name), places) for score in scores]
            found.append(Column("Difference", f"{name}, from {results.baseline}", cells))
        for table in published(results, name):
            typed = typed_alike(table.values.values())
            cells = [number_cell(table.values.get(variant.attention), typed) for variant in variants]
            found.append(Column(f"{name} in the paper", table.table, cells, paper=True))
    relative = f"{TIMES} baseline"
    found += [
        Column("Training speed", relative, [number_cell(variant.training_speed, times) for variant in variants]),
        Column("Inference speed", relative, [number_cell(variant.inference_speed, times) for variant in variants]),
        Column(
            "Generation speed",
            f"{TIMES} baseline",
            [number_cell(variant.generation_speed, times) for variant in variants],
        ),
        Column("Training memory", "MB", [number_cell(variant.training_memory, megabytes) for variant in variants]),
        Column("Cache", "bytes per token", [number_cell(variant.cache_bytes_per_token, whole) for variant in variants]),
    ]
    return [column for column in found if column.main or any(cell.text for cell in column.cells)]


def trouble(variant: Variant) -> str:
    """What a row says of a variant that is not done, and nothing otherwise."""
    if variant.status == "done":
        return ""
    return f"{variant.status}: {variant.reason}" if variant.reason else variant.status


def metric_names(results: Results) -> list[str]:
    """The main metric first, then those that are defined, then those that only a variant has."""
    scored = (name for variant in results.variants for name in variant.scores)
    return list(dict.fromkeys([results.main_metric, *results.metrics, *scored]))


def higher_is_better(results: Results, name: str) -> bool:
    return name not in results.metrics or results.metrics[name].higher_is_better


def direction(results: Results, name: str) -> str:
    """In words, and nothing where it is not known."""
    if name not in results.metrics:
        return ""
    return "higher is better" if higher_is_better(results, name) else "lower is better"


def published(results: Results, name: str) -> list[Published]:
    """The paper's tables that have a number for one of the variants."""
    ours = {variant.attention for variant in results.variants}
    return [table for table in results.published if table.metric == name and ours & table.values.keys()]


def markdown(results: Results) -> str:
    """A table, and below it what a reader must know to read it."""
    found = columns(results)
    heads = ["Attention", *(f"{column.head} ({column.unit})" if column.unit else column.head for column in found)]
    lines = [_line(heads), _line(["---", *["---:"] * len(found)])]
    for n, variant in enumerate(results.variants):
        name = f"`{variant.attention}`" + (" (baseline)" if variant.attention == results.baseline else "")
        texts = [together(column.cells[n]) for column in found]
        if said := trouble(variant):
            at = next(i for i, column in enumerate(found) if column.main)
            texts[at] = f"{texts[at]} ({said})" if texts[at] else said
        lines.append(_line([name, *(text or NOTHING for text in texts)]))
    return "\n".join([*lines, "", *(f"- {safe(text)}" for text in legend(results))]) + "\n"


def legend(results: Results) -> list[str]:
    """Metric definitions, how intervals were made, how the paper's numbers differ, and the notes of the comparison."""
    lines = []
    for name in metric_names(results):
        if name in results.metrics:
            lines.append(f"{name}: {results.metrics[name].definition} ({direction(results, name)}).")
    lines += how_intervals(results)
    for table in results.published:
        if table in published(results, table.metric):
            lines.append(f"{table.metric} in the paper: {table.table}." + (f" {table.note}" if table.note else ""))
    return lines + results.notes


def how_intervals(results: Results) -> list[str]:
    """How certain the numbers are, in sentences."""
    return certainty([score for variant in results.variants for score in variant.scores.values()], results.baseline)


def certainty(scores: list[Score], baseline: str) -> list[str]:
    """The same of any scores."""
    if not scores:
        return []
    counts = {len(score.by_seed) for score in scores}
    most = max(counts)
    if len(counts) > 1:
        lines = [
            f"Scores are means over {min(counts)} to {most} seeds. In brackets: intervals of 95 %, with one seed by "
            "bootstrap over the examples, with several of examples and of seeds."
        ]
    elif most > 1:
        lines = [f"Scores are means over {most} seeds. In brackets: intervals of 95 %, of examples and of seeds."]
    else:
        lines = [
            "In brackets: intervals of 95 %, by bootstrap over the examples. One seed: another may differ by more."
        ]
    if any(score.difference for score in scores):
        same = "examples and seeds" if len(counts) > 1 else "examples"
        lines.append(
            f"Differences are from {baseline} on the same {same}; better and worse stand where p < {SIGNIFICANT}."
        )
    return lines


def csv_table(results: Results) -> str:
    """All numbers as they are, one row for each variant; columns that no variant has are left out."""
    rows = [dict(_record(results, variant)) for variant in results.variants]
    heads = list(dict.fromkeys(head for row in rows for head in row)) or ["attention", "status"]
    kept = [h for h in heads if h in ("attention", "status") or any(row.get(h) not in (None, "") for row in rows)]
    text = io.StringIO()
    writer = csv.DictWriter(text, kept, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _record(results: Results, variant: Variant) -> Iterator[tuple[str, object]]:
    yield "attention", variant.attention
    yield "status", variant.status
    yield "reason", variant.reason
    yield "parameters", variant.parameters
    for name in metric_names(results):
        score = variant.scores.get(name)
        difference = score.difference if score else None
        for part in ("value", "low", "high"):
            yield name if part == "value" else f"{name} {part}", getattr(score, part, None)
        for part in ("value", "low", "high", "p_value"):
            head = f"{name} difference {part}".removesuffix(" value").replace("p_value", "p")
            yield head, getattr(difference, part, None)
        for table in published(results, name):
            yield f"{name} in the paper ({table.table})", table.values.get(variant.attention)
    for measure in (
        "training_speed",
        "inference_speed",
        "generation_speed",
        "training_memory",
        "cache_bytes_per_token",
        "training_seconds",
    ):
        yield measure, getattr(variant, measure)


def number_cell(value: Number | None, formatted: Callable[[Number], str]) -> Cell:
    return Cell() if value is None or not math.isfinite(value) else Cell(formatted(value), key=value)


def score_cell(score: Score | None, places: int) -> Cell:
    if score is None or not math.isfinite(score.value):
        return Cell("not a number" if score else "")
    return Cell(
        fixed(score.value, places), f"[{fixed(score.low, places)}, {fixed(score.high, places)}]", "", score.value
    )


def difference_cell(score: Score | None, higher_better: bool, places: int) -> Cell:
    found = score.difference if score else None
    if found is None or not math.isfinite(found.value):
        return Cell()
    interval = f"[{signed(found.low, places)}, {signed(found.high, places)}]"
    return Cell(signed(found.value, places), f"{interval}, {chance(found)}", verdict(found, higher_better), found.value)


def verdict(found: Difference, higher_better: bool) -> str:
    if not found.p_value < SIGNIFICANT or found.value == 0:
        return ""
    return "better" if (found.value > 0) == higher_better else "worse"


def decimals(scores: Iterable[Score | None]) -> int:
    """So many that the intervals have two digits, the same for a whole column; four digits where there are none."""
    known = [score for score in scores if score and math.isfinite(score.value)]
    widths = sorted(score.high - score.low for score in known if 0 < score.high - score.low < math.inf)
    if widths:
        return min(6, max(0, 1 - math.floor(math.log10(widths[len(widths) // 2] / 2))))
    largest = max((abs(score.value) for score in known), default=0.0)
    return min(6, max(0, 3 - math.floor(math.log10(largest)))) if largest else 0


def typed_alike(values: Iterable[Number]) -> Callable[[Number], str]:
    """All with as many decimals as the longest has: 27.3 stands beside 27.67 as 27.30."""
    places = max(len(f"{value:.6f}".rstrip("0").split(".")[1]) for value in values)
    return lambda value: fixed(value, places)


def together(cell: Cell) -> str:
    return " ".join(part for part in (cell.text, cell.detail, cell.mark and f"**{cell.mark}**") if part)


def _line(texts: list[str]) -> str:
    return f"| {' | '.join(safe(text) for text in texts)} |"


def safe(text: str) -> str:
    """Return text as one line of Markdown that ends no cell of a table and begins no tag or entity."""
    text = re.sub("&(?=#?[a-zA-Z0-9]+;)", "&amp;", printable(text, lines=True))
    text = re.sub("<(?=[a-zA-Z/!?])", "&lt;", text)
    # A backslash before a bar would take back the one that escapes the bar.
    return " ".join(re.sub(r"(\\*)\|", r"\1\1\|", text).split())


def fixed(value: Number, places: int) -> str:
    text = f"{value:,.{places}f}"
    return text.replace("-", MINUS) if any(digit in text for digit in "123456789") else text.replace("-", "")


def signed(value: Number, places: int) -> str:
    text = fixed(value, places)
    return text if text.startswith(MINUS) or not any(digit in text for digit in "123456789") else f"+{text}"


def digits(value: Number, count: int = 3) -> str:
    """With so many significant digits, and never with an exponent for sizes that people read."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    # Rounded first: 999.6 has one digit more than it seems.
    value = float(f"{value:.{count - 1}e}")
    return fixed(value, max(0, count - 1 - math.floor(math.log10(abs(value)))))


def quantity(value: Number) -> str:
    for size, letter in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size * 0.9995:
            return f"{digits(value / size)} {letter}"
    return whole(value)


def times(value: Number) -> str:
    return (fixed(value, 2) if 0.1 <= value < 10 else digits(value)) + TIMES


def megabytes(value: Number) -> str:
    return whole(value / 1e6) if value >= 1e8 else digits(value / 1e6)


def whole(value: Number) -> str:
    return fixed(value, 0)


def chance(found: Difference) -> str:
    return "p < 0.001" if found.p_value < 0.001 else f"p = {found.p_value:.2g}"


def duration(seconds: Number) -> str:
    """In the two largest units."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} days {hours % 24} h"
