"""The study of layers: which layers of a language model need the dot product, if all others have Random."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import log
from pathlib import Path
from statistics import mean

from synthattn.compare.plan import Study, StudyRow
from synthattn.compare.verdict import MARGIN
from synthattn.paper import text_study
from synthattn.paper.runs import Folders
from synthattn.paper.study import Displays, StudyKind
from synthattn.paper.text_study import Gap, TextCells, TextPlan, TextRecord, listed, spread
from synthattn.render.charts import ForestPlot, Point
from synthattn.render.document import Block, Document, Listing, MarkdownOnly, Paragraph, Section
from synthattn.render.numbers import digits, fixed, signed
from synthattn.render.table import Cell, Column, Row, Table
from synthattn.saved_file import read_json

NONE, ALL = "none", "all"
ROWS = [
    NONE, "1", "2", "3", "4", "5", "6", "1+2", "3+4", "5+6", "1+6", "1+2+3", "4+5+6", "1+3+5", ALL
]  # fmt: skip
"""The layers that have the dot product, counted from 1."""


@dataclass
class LayerPlan(TextPlan):
    """All options of the study of layers.

    Args:
        probe: a file of ``tools/study_conversions.py``, to show what pretrained models lose beside these.
    """

    rows: list[str] = field(default_factory=lambda: list(ROWS))
    steps: int = 600
    layers: int = 6
    d_model: int = 96
    d_ff: int = 384
    probe: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        for row in self.rows:
            places(row, self.layers)
        if missing := [row for row in (NONE, ALL) if row not in self.rows]:
            raise ValueError(f"the study of layers needs the row {missing[0]!r}, which others are compared with")


@dataclass
class LayerRecord(TextRecord):
    """All runs of the study so far; ``beside`` has the KL of each layer of pretrained models."""

    plan: LayerPlan = field(default_factory=LayerPlan)  # pyright: ignore[reportIncompatibleVariableOverride]


def places(row: str, layers: int) -> list[int]:
    """Return the layers of a row that have the dot product, counted from 1."""
    if row in (NONE, ALL):
        return [] if row == NONE else list(range(1, layers + 1))
    found = [int(part) if part.isdecimal() else 0 for part in row.split("+")]
    if found != sorted(set(found)) or not 1 <= found[0] <= found[-1] <= layers:
        raise ValueError(
            f"{row!r} is no choice of {layers} layers; write none, all, or layers in order such as 1+{layers}"
        )
    return found


def label(row: str) -> str:
    if row in (NONE, ALL):
        return f"{row} of the layers" if row == NONE else "all layers"
    return f"layer{'s' if '+' in row else ''} {listed(row.split('+'))}"


def plan_study(plan: LayerPlan) -> Study:
    rows = []
    for row in plan.rows:
        chosen = places(row, plan.layers)
        specs = ["vanilla" if layer in chosen else "random" for layer in range(1, plan.layers + 1)]
        rows.append(StudyRow(row, "random", {"decoder_attention": specs}))
    return text_study.study_of("layers", plan, rows, [NONE, ALL])


def open_cells(plan: LayerPlan, folders: Folders, display: Displays) -> TextCells:
    return text_study.open_cells(TextCells, plan_study(plan), plan, folders, display)


def collect(cells: TextCells) -> LayerRecord:
    found = text_study.collect(cells)
    beside = {}
    if cells.plan.probe:
        for name, one in read_json(Path(cells.plan.probe))["probe"].items():
            losses = {layer["layers"][0]: layer["kl"] for layer in one["single"]}
            if len(losses) > 1:
                beside[name] = [losses[n] for n in sorted(losses)]
    found.beside = beside
    return LayerRecord(**vars(found))


# The page -------------------------------------------------------------------------------------------------------------


def from_all(found: TextRecord) -> dict[str, Gap]:
    """Return how far each row is from that with all dot products."""
    return {one.row: one for one in text_study.compare(found, [(row, ALL) for row in found.plan.rows if row != ALL])}


def share(found: TextRecord, row: str) -> float | None:
    """Return the share of the gain in nats per token from none to all that a row has."""
    values = [found.perplexities(one) for one in (NONE, row, ALL)]
    if not all(values):
        return None
    none, own, every = (mean(map(log, one)) for one in values)
    return (none - own) / (none - every) if none != every else None


def answer(found: TextRecord) -> str:
    """Answer the question of the study."""
    gaps, layers = from_all(found), found.plan.layers
    whole = gaps.get(NONE)
    if whole is None:
        return "No answer yet: models with the dot product in all layers and in none do not have several runs each."
    if not whole.certain:
        return f"Not decided: whether any layer needs the dot product. {_said(whole)}."
    if whole.difference.value < 0:
        return f"None: models do better without it. {_said(whole)}."
    near = [one for row, one in gaps.items() if row != NONE and _is_near(one)]
    if not near:
        best = min(gaps.values(), key=lambda one: one.values[0])
        return (
            f"No choice of fewer than {layers} layers that was tried surely comes within {MARGIN:.0%} of all of them; "
            f"the nearest is {label(best.row)}. {_said(best)}."
        )
    least = min(len(places(one.row, layers)) for one in near)
    fewest = [one for one in near if len(places(one.row, layers)) == least]
    tried = [row for row in gaps if len(places(row, layers)) == least]
    best = min(fewest, key=lambda one: one.values[0])
    several = f"{least} of {layers} layers {'are' if least > 1 else 'is'} enough"
    return (
        f"{several}: with the dot product in {listed([label(one.row) for one in fewest])} alone, perplexity is within "
        f"{MARGIN:.0%} of that with all ({len(fewest)} of {len(tried)} such choices). {_said(best)}; without any it is "
        f"{fixed(whole.values[0], 2)}."
    )


def _is_near(gap: Gap) -> bool:
    return gap.clears and not gap.moving and gap.difference.high <= MARGIN * gap.values[1]


def _said(gap: Gap) -> str:
    return f"Perplexity, by the layers with the dot product: {gap.said}"


def about_places(found: TextRecord) -> str:
    """Say whether it matters in which layer a single dot product is."""
    single = [row for row in found.plan.rows if len(places(row, found.plan.layers)) == 1]
    gaps = text_study.compare(found, list(combinations(single, 2)))
    if not gaps:
        return ""
    apart = [one for one in gaps if one.certain]
    values = {row: mean(found.perplexities(row)) for row in single if found.perplexities(row)}
    best, worst = min(values, key=values.__getitem__), max(values, key=values.__getitem__)
    return (
        f"One dot product does best in {label(best)} ({fixed(values[best], 2)}) and worst in {label(worst)} "
        f"({fixed(values[worst], 2)}); of {len(gaps)} pairs of places, {len(apart)} can be told apart."
    )


def table(found: TextRecord) -> Table:
    """Return perplexity by the layers that have the dot product."""
    rows, gaps = found.plan.rows, from_all(found)
    shares = [share(found, row) for row in rows]
    columns = [
        Column("Perplexity", [spread(found.perplexities(row), 2) for row in rows]),
        Column("Share of the gain", [Cell() if one is None else Cell(f"{one:.0%}", key=one) for one in shares]),
        Column("Difference from all", [_difference(gaps.get(row)) for row in rows]),
    ]
    return Table("Perplexity", "Layers with the dot product", [Row(label(row)) for row in rows], columns)


def _difference(gap: Gap | None) -> Cell:
    if gap is None:
        return Cell()
    apart = gap.difference
    return Cell(signed(apart.value, 2), f"[{signed(apart.low, 2)}, {signed(apart.high, 2)}]", key=apart.value)


def pretrained(found: TextRecord) -> Table:
    """Return what each layer of pretrained models loses, where records were given."""
    most = max(map(len, found.beside.values()), default=0)
    columns = []
    for name, losses in found.beside.items():
        cells = [Cell(digits(one, 2), key=one) for one in losses] + [Cell()] * (most - len(losses))
        columns.append(Column(name, cells))
    return Table("KL without the dot product of a layer", "Layer", [Row(str(n + 1)) for n in range(most)], columns)


def pictures(found: TextRecord) -> Mapping[str, str]:
    points = []
    for row in found.plan.rows:
        values = found.perplexities(row)
        if values:
            count = len(places(row, found.plan.layers))
            tip = f"{label(row)}: {fixed(mean(values), 2)}"
            points.append(Point(f"{count}", count, mean(values), label(row), tip, min(values), max(values)))
    if not points:
        return {}
    whole = mean(found.perplexities(ALL) or [points[-1].x])
    title = "Perplexity by the layers that have the dot product"
    return {"picture.svg": ForestPlot(title, "perplexity", points, whole, together=True, width=820).svg()}


def document(found: TextRecord) -> Document:
    lead: list[Block] = [
        Paragraph(answer(found)),
        *(Paragraph(one) for one in [about_places(found)] if one),
        MarkdownOnly([Paragraph("![Perplexity by the layers that have the dot product](picture.svg)")]),
        table(found),
        Paragraph(
            "All other layers have Random. Brackets and bars: the lowest and the highest seed; of differences, the "
            "interval of 95 %. The share of the gain is in nats per token, from no dot product to all of them."
        ),
    ]
    if not found.complete:
        lead.insert(0, Paragraph("This study is not complete: some of its planned runs are missing.", "warning"))
    sections: list[Section] = []
    if found.beside:
        told = _extremes(found.beside)
        said = (
            "`synthattn probe` replaces the attention of one layer by its mean over texts, in models that were trained "
            "with the dot product everywhere, and measures how far what they predict moves (KL). That is another "
            "question: their other layers did not learn to do without it."
        )
        link = "[More on these models](../../convert.md#a-study-on-pretrained-models)."
        blocks: list[Block] = [Paragraph(said), Paragraph(told), pretrained(found), MarkdownOnly([Paragraph(link)])]
        sections.append(Section("pretrained", "Beside pretrained models", blocks))
    command = "layers" + (f" --probe {found.plan.probe}" if isinstance(found, LayerRecord) and found.plan.probe else "")
    setup = Listing([*text_study.setup(found), text_study.made(found, command)])
    sections.append(Section("setup", "Setup", [setup]))
    return Document("Which layers need the dot product?", "synthattn study layers", lead, sections)


def _extremes(beside: Mapping[str, Sequence[float]]) -> str:
    texts = []
    for name, losses in beside.items():
        first, last = losses.index(max(losses)) + 1, losses.index(min(losses)) + 1
        texts.append(
            f"{name} loses most without that of layer {first} of {len(losses)}, least without that of layer {last}"
        )
    return f"{'; '.join(texts)}."


STUDY = StudyKind(
    "layers", "Which layers need the dot product? A study of language models", LayerPlan, LayerRecord, open_cells,
    collect, table, document, pictures,
)  # fmt: skip
