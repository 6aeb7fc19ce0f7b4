"""The study of positions: whether Random + Vanilla is more than a bias that depends on the distance of two tokens."""

import base64
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from statistics import mean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from synthattn.compare.plan import Study, StudyRow
from synthattn.compare.verdict import MARGIN
from synthattn.paper import text_study
from synthattn.paper.runs import Folders
from synthattn.paper.study import Displays, StudyKind
from synthattn.paper.text_study import Gap, TextCells, TextPlan, TextRecord, TextRun, listed, spread
from synthattn.render.charts import Line, Lines
from synthattn.render.document import Block, Document, Folded, Listing, MarkdownOnly, Paragraph, Section
from synthattn.render.images import ImageRow, image_grid
from synthattn.render.numbers import fixed, signed
from synthattn.render.table import Cell, Column, Row, Span, Table
from synthattn.synthesizers.mixture import Mixture
from synthattn.synthesizers.random import RandomSynthesizer
from synthattn.training.model import build, configuration
from synthattn.training.prepare import Prepared
from synthattn.training.run import decided_fields
from synthattn.training.settings import Settings

ROWS = ["random+vanilla", "toeplitz+vanilla", "relative+vanilla", "vanilla", "random", "toeplitz", "relative"]
PAIRS = [
    ("random+vanilla", "toeplitz+vanilla"),
    ("random+vanilla", "relative+vanilla"),
    ("random+vanilla", "vanilla"),
    ("toeplitz+vanilla", "vanilla"),
    ("random", "toeplitz"),
    ("random", "relative"),
]
LEARNED = ("random+vanilla", "random")
"""Rows with a matrix R to look at."""
CELLS = 64
"""Rows and columns of a heat map."""
DISTANCE, EVEN = "distance", "even"
"""What R is replaced by in a trained model: a function of distance, or a number that is the same for all tokens."""
MEASURES = {
    "distance": "by distance",
    "rank 1": "by rank 1",
    "rank 8": "by rank 8",
    "within 1": "weight within distance 1",
    "within 8": "weight within distance 8",
}
Weights = NDArray[np.float64]


@dataclass
class PositionPlan(TextPlan):
    """All options of the study of positions."""

    rows: list[str] = field(default_factory=lambda: list(ROWS))
    lengths: list[int] = field(default_factory=lambda: [128, 256, 512, 1024])

    def __post_init__(self) -> None:
        super().__post_init__()
        text_study.check_rows(self.rows, ROWS)


class PositionCells(TextCells):
    """Looks at R of the models that have one."""

    def look(self, model: Any, settings: Settings, prepared: Prepared, found: TextRun) -> None:
        if found.row not in LEARNED:
            return
        weights = attention(model)
        new = build(configuration(settings.model, **decided_fields(prepared)), "causal-lm", settings.training.seed)
        found.numbers += _by_head(weights, 1.0, correlations(model, new))
        if found.seed == 0:
            found.numbers += _by_head(attention(new), 0.0, np.ones(weights.shape[:2]))
            found.map_size = min(CELLS, weights.shape[-1])
            for layer in weights[:, 0]:
                found.maps += [heat_map(layer, found.map_size), heat_map(by_distance(layer)[0], found.map_size)]
        for name in (DISTANCE, EVEN):
            with replaced(model, name):
                found.perplexity[name] = round(text_study.perplexity(model, settings, prepared, self.plan.length), 4)


def tables(model: Any) -> Iterator[tuple[RandomSynthesizer, torch.Tensor]]:
    """Yield R of each layer, with the weights that it has in a mixture."""
    for block in model.base_model.decoder.layers:
        made = block.attention.synthesizer
        terms, weights = [made], iter([torch.ones(1, 1, 1)])
        if isinstance(made, Mixture):
            terms, weights = made.synthesizers, iter(() if made.weights is None else made.weights())
        for term in terms:
            weight = next(weights, torch.ones(1, 1, 1))
            if isinstance(term, RandomSynthesizer):
                yield term, weight.detach()


def attention(model: Any) -> Weights:
    """Return the weights that R alone gives to earlier tokens, ``(layers, heads, n, n)``."""
    found = []
    for term, weight in tables(model):
        logits = (term.matrix.detach() * weight).double()
        future = torch.ones(logits.shape[-2:], dtype=torch.bool).triu(1)
        found.append(logits.masked_fill(future, -torch.inf).softmax(-1).numpy())
    return np.stack(found)


def by_distance(weights: Weights, rounds: int = 300) -> tuple[Weights, Weights]:
    """Return the nearest attention that depends on distance alone, and its logit for each distance.

    Of all softmax(f(i - j)) it has the lowest divergence from the weights, which is where both give each distance the
    same weight in sum (iterative proportional fitting).
    """
    n = len(weights)
    distance = np.subtract.outer(np.arange(n), np.arange(n))
    past = distance >= 0
    wanted = np.bincount(distance[past], weights[past], n)
    share, made = np.ones(n), np.zeros((n, n))
    for _ in range(rounds):
        made = np.where(past, share[np.abs(distance)], 0.0)
        made /= made.sum(1, keepdims=True)
        share *= wanted / np.maximum(np.bincount(distance[past], made[past], n), 1e-300)
        share /= share.max()
    return made, np.log(np.maximum(share, 1e-30))


def measures(weights: Weights) -> dict[str, float]:
    """Return how much of an attention is a function of distance, how much of low rank, and how much of it is near.

    The share by distance is that of the divergence from even attention; the share of a rank that of the squared
    singular values.
    """
    n = len(weights)
    past = np.tril(np.ones((n, n)))
    apart = _divergence(weights, past / past.sum(1, keepdims=True))
    energy = np.linalg.svd(weights, compute_uv=False) ** 2
    distance = np.subtract.outer(np.arange(n), np.arange(n))
    found = {"distance": 1 - _divergence(weights, by_distance(weights)[0]) / apart if apart > 0 else 1.0}
    found |= {f"rank {rank}": float(energy[:rank].sum() / energy.sum()) for rank in (1, 8)}
    found |= {f"within {far}": float(weights[(distance >= 0) & (distance <= far)].sum() / n) for far in (1, 8)}
    return {name: round(value, 5) for name, value in found.items()}


def correlations(model: Any, other: Any) -> Weights:
    """Return how R of two models correlates, ``(layers, heads)``: its numbers for earlier tokens."""
    pairs = zip(tables(model), tables(other), strict=True)
    found = []
    for one, two in ((a.matrix.detach(), b.matrix.detach()) for (a, _), (b, _) in pairs):
        past = torch.ones(one.shape[-2:], dtype=torch.bool).tril()
        found.append(
            [float(torch.corrcoef(torch.stack([a[past], b[past]]))[0, 1]) for a, b in zip(one, two, strict=True)]
        )
    return np.array(found)


def _by_head(weights: Weights, trained: float, start: Weights) -> Iterator[dict[str, float]]:
    for place in product(*map(range, weights.shape[:2])):
        names = {"layer": float(place[0]), "head": float(place[1]), "trained": trained, "start": round(start[place], 5)}
        yield {**names, **measures(weights[place])}


def _divergence(one: Weights, other: Weights) -> float:
    some = one > 0
    return float((one[some] * np.log(one[some] / np.maximum(other[some], 1e-300))).sum())


@contextmanager
def replaced(model: Any, by: str) -> Iterator[None]:
    """Replace R in all layers until the block ends."""
    kept = [(term, term.matrix.detach().clone()) for term, _ in tables(model)]
    weights = attention(model)
    try:
        for (term, weight), heads in zip(tables(model), weights, strict=True):
            n = heads.shape[-1]
            logits = torch.zeros(heads.shape)
            if by == DISTANCE:
                steps = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
                logits = torch.tensor(np.stack([by_distance(head)[1][steps] for head in heads]), dtype=torch.float32)
            with torch.no_grad():
                term.matrix.copy_(logits / weight)
        yield
    finally:
        for term, matrix in kept:
            with torch.no_grad():
                term.matrix.copy_(matrix)


def heat_map(weights: Weights, size: int) -> str:
    """Return the weights in so many rows and columns; the largest of each row is the brightest."""
    edges = np.linspace(0, len(weights), size + 1).astype(int)[:-1]
    small = np.add.reduceat(np.add.reduceat(weights, edges, 0), edges, 1)
    return base64.b64encode((255 * small / small.max(1, keepdims=True)).astype(np.uint8).tobytes()).decode()


def open_cells(plan: PositionPlan, folders: Folders, display: Displays) -> TextCells:
    return text_study.open_cells(PositionCells, plan_study(plan), plan, folders, display)


def plan_study(plan: PositionPlan) -> Study:
    return text_study.study_of("positions", plan, [StudyRow(row, row) for row in plan.rows], plan.rows)


# The page -------------------------------------------------------------------------------------------------------------


def answer(found: TextRecord) -> str:
    """Answer the question of the study in a sentence."""
    gaps = {(one.row, one.than): one for one in text_study.compare(found, PAIRS)}
    one = gaps.get(PAIRS[0])
    if one is None:
        return "No answer yet: random+vanilla and toeplitz+vanilla do not have several runs each."
    small = max(abs(one.difference.low), abs(one.difference.high)) <= MARGIN * one.values[1]
    if not one.clears or one.moving:
        word = "Not decided"
    elif not one.certain:
        word = "No difference was found" if small else "Not decided"
    elif small:
        word = f"Hardly: the difference is below {MARGIN:.0%}"
    else:
        word = "Yes" if one.difference.value < 0 else "No, a bias by distance is better"
    told = f"After {found.plan.steps:,} steps, perplexity with inputs of {found.plan.length} tokens"
    return f"{word}. {told}: {one.said}, {found.plan.seeds} seeds."


def further(found: TextRecord) -> Iterator[str]:
    """Yield what else the numbers say of the question."""
    begun = [row for row in LEARNED if _numbers(found, row, False)]
    for row in LEARNED:
        runs = [run for run in found.of(row) if DISTANCE in run.perplexity]
        if not runs:
            continue
        before, apart, even = (
            mean(run.perplexity[name] for run in runs) for name in (str(found.plan.length), DISTANCE, EVEN)
        )
        ends = [run.perplexity[DISTANCE] - run.perplexity[str(found.plan.length)] for run in runs]
        yield (
            f"When R of the trained {row} is replaced by a function of distance, without training, its perplexity goes "
            f"from {fixed(before, 2)} to {fixed(apart, 2)} (seeds: {signed(min(ends), 2)} to {signed(max(ends), 2)}); "
            f"when R is left out, to {fixed(even, 2)}."
        )
    kept = [mean(one["start"] for one in _numbers(found, row, True)) for row in begun]
    if kept:
        told = listed([f"{value:.2f} in {row}" for row, value in zip(begun, kept, strict=True)])
        yield (
            f"The trained R still correlates with the random numbers that it started from: {told}; 1 would be "
            "untouched. Each of its numbers serves one pair of places alone, and learns slowly; longer training may "
            "tell another story."
        )


def table(found: TextRecord) -> Table:
    """Return perplexity by row and length of the input: the mean over seeds, with the lowest and the highest."""
    columns = []
    for length in found.plan.lengths:
        cells = []
        for row in found.plan.rows:
            values = found.perplexities(row, length)
            nothing = Cell("cannot") if found.of(row) else Cell()
            cells.append(spread(values, 1) if values else nothing)
        columns.append(Column(f"{length} tokens", cells))
    title = f"Perplexity per token, trained at {found.plan.length}"
    return Table(title, "Attention", [Row((Span(row, "code"),)) for row in found.plan.rows], columns)


def _numbers(found: TextRecord, row: str, trained: bool) -> list[dict[str, float]]:
    return [one for run in found.of(row) for one in run.numbers if bool(one["trained"]) == trained]


def structure(found: TextRecord) -> Table:
    """Return what R is like, in percent: the mean over seeds, layers and heads, with the lowest and highest head."""
    groups = [(row, kept) for row in LEARNED for kept in (True, False) if _numbers(found, row, kept)]
    rows = [Row((Span(row, "code"), "" if kept else " before training")) for row, kept in groups]
    columns = [
        Column(title, [spread([100 * one[name] for one in _numbers(found, row, kept)], 0) for row, kept in groups])
        for name, title in MEASURES.items()
    ]
    return Table("R, in percent", "Model", rows, columns)


def by_head(found: TextRecord) -> Table:
    """Return the share of R by distance, layer by layer and head by head: the mean over seeds."""
    groups = [(row, layer) for row in LEARNED if found.of(row) for layer in range(found.plan.layers)]
    columns = []
    for head in range(found.plan.heads):
        cells = []
        for row, layer in groups:
            places = [one for one in _numbers(found, row, True) if (one["layer"], one["head"]) == (layer, head)]
            cells.append(spread([100 * one["distance"] for one in places], 0))
        columns.append(Column(f"head {head + 1}", cells))
    rows = [Row((Span(row, "code"), f" layer {layer + 1}")) for row, layer in groups]
    return Table("Share of R by distance, in percent", "Layer", rows, columns)


def picture(found: TextRecord) -> str:
    """Return perplexity by length of the input as SVG, with a band from the lowest to the highest seed."""
    lines = []
    for place, row in enumerate(found.plan.rows):
        values = {length: found.perplexities(row, length) for length in found.plan.lengths}
        points = [(length, mean(some)) for length, some in values.items() if some]
        band = [(length, min(some), max(some)) for length, some in values.items() if some]
        tips = [f"{row}, {length} tokens: {fixed(value, 1)}" for length, value in points]
        if points:
            lines.append(Line(row, place, points, tips, row, band))
    title = "Perplexity per token by length of the input"
    return Lines(title, "tokens of the input", "perplexity", lines, log=True, keyed=True, width=820, height=420).svg()


def pictures(found: TextRecord) -> Mapping[str, str]:
    drawn = {"picture.svg": picture(found)}
    shown = [run for row in LEARNED for run in found.of(row)[:1] if run.maps]
    rows = []
    for layer in range(found.plan.layers):
        names = [name for run in shown for name in (f"{run.row}, layer {layer + 1}: R", "its part by distance")]
        maps = [one for run in shown for one in run.maps[2 * layer : 2 * layer + 2]]
        rows.append(ImageRow(names, [base64.b64decode(one) for one in maps]))
    if shown:
        drawn["maps.svg"] = image_grid("Where R looks, and its part by distance", rows, shown[0].map_size)
    return drawn


def document(found: TextRecord) -> Document:
    gaps: list[Gap] = text_study.compare(found, PAIRS)
    lead: list[Block] = [
        Paragraph(answer(found)),
        *map(Paragraph, further(found)),
        MarkdownOnly([Paragraph("![Perplexity by length of the input](picture.svg)")]),
        table(found),
        Paragraph(
            f"A line ends at {found.plan.length} tokens where a model has a table of positions and cannot take more. "
            "Brackets hold the lowest and the highest seed, bands in the picture as well."
        ),
    ]
    if not found.complete:
        lead.insert(0, Paragraph("This study is not complete: some of its planned runs are missing.", "warning"))
    about = [
        "The weights on earlier tokens are softmax(R), R multiplied by its weight in the mixture. By distance: the "
        "share of the divergence from even attention that the nearest softmax(f(i - j)) explains. By rank: the share "
        "of the squared singular values.",
        "Numbers are means over seeds, layers and heads, with the lowest and the highest head in brackets.",
    ]
    sections = [
        Section("pairs", "Pairs of models", [Listing([one.said for one in gaps])]) if gaps else None,
        Section(
            "matrices",
            "What R has learned",
            [
                structure(found),
                Listing(about),
                MarkdownOnly([Paragraph("![R and its part by distance](maps.svg)")]),
                Paragraph("First head of each layer, first seed. Rows are queries, columns the tokens they look at."),
                Folded("The share by distance, head by head", [by_head(found)]),
            ],
        ),
        Section("setup", "Setup", [Listing([*text_study.setup(found), text_study.made(found, "positions")])]),
    ]
    kept = [one for one in sections if one is not None]
    return Document("Is Random + Vanilla more than a position bias?", "synthattn study positions", lead, kept)


STUDY = StudyKind(
    "positions", "Is Random + Vanilla more than a position bias? A study of language models", PositionPlan, TextRecord,
    open_cells, text_study.collect, table, document, pictures,
)  # fmt: skip
