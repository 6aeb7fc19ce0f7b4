"""Studies of language models: plan, runs, record, and how rows are compared."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from synthattn.compare import statistics
from synthattn.compare.execution import Execution
from synthattn.compare.plan import PlannedRun, Study, StudyPart, StudyRow
from synthattn.compare.plan import plan as planned
from synthattn.compare.results import Difference
from synthattn.compare.verdict import CERTAIN, curve_gaps, is_moving
from synthattn.messages import suggestion
from synthattn.metrics.perplexity import Perplexity
from synthattn.paper.runs import Folders
from synthattn.paper.study import Cells, Displays
from synthattn.render.numbers import chance, digits, fixed, interval
from synthattn.render.table import Cell, Span, Text
from synthattn.training.evaluation import evaluate
from synthattn.training.floors import floors
from synthattn.training.model import load
from synthattn.training.prepare import Prepared
from synthattn.training.record import versions
from synthattn.training.settings import DataSettings, EvaluationSettings, ModelSettings, Settings, TrainingSettings

BLOCKS = 100
"""Number of blocks of neighbouring texts whose likelihoods are kept, and from which a bootstrap draws."""
METRIC = Perplexity("token")


@dataclass
class TextPlan:
    """All options of a study of language models.

    Args:
        rows: the models.
        source: data as for ``synthattn train --data``.
        seeds: runs of each row.
        steps: steps of each run.
        rates: learning rates to choose from by validation loss.
        batch_tokens: tokens of a batch.
        vocabulary: number of tokens in the vocabulary.
        length: longest input in training.
        lengths: lengths of input that are scored.
        texts: texts of the test split that are scored.
        d_model: width of the models.
        layers: number of layers.
        heads: heads of each layer.
        d_ff: width of the feed-forward layers.
    """

    rows: list[str]
    source: str = "builtin:docs"
    seeds: int = 3
    steps: int = 800
    rates: list[float] = field(default_factory=lambda: [2e-3, 5e-3])
    batch_tokens: int = 2048
    vocabulary: int = 2000
    length: int = 128
    lengths: list[int] = field(default_factory=lambda: [128])
    texts: int = 600
    d_model: int = 128
    layers: int = 3
    heads: int = 4
    d_ff: int = 512

    def __post_init__(self) -> None:
        for name in ("seeds", "steps", "texts"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not self.rows or not self.rates:
            raise ValueError("the study needs at least one row and one learning rate")

    @property
    def settings(self) -> Settings:
        fields = {"d_model": self.d_model, "num_heads": self.heads, "d_ff": self.d_ff, "decoder_layers": self.layers}
        fields |= {"max_position_embeddings": self.length, "dropout": 0.0}  # no text is read twice
        training = TrainingSettings(
            steps=self.steps, batch_tokens=self.batch_tokens, schedule="linear", warmup=max(1, self.steps // 10),
            evaluate_tokens=10_000, precision="fp32",
        )  # fmt: skip
        data = DataSettings(self.source, "language-modeling", vocab_size=self.vocabulary)
        return Settings(data, ModelSettings("cpu", fields=fields), training, EvaluationSettings(limit=self.texts))


@dataclass
class TextRun:
    """One run of a row.

    Args:
        perplexity: per token, by the length of the input; lengths that the model cannot take are missing.
        nats: negative log-likelihood of each block of texts, at the length of training.
        curve: pairs of step and validation loss.
        numbers: what else was measured on the model.
        maps: heat maps, as base64 of a byte for each cell.
        map_size: rows and columns of each map.
    """

    row: str
    seed: int
    rate: float
    parameters: int
    perplexity: dict[str, float]
    nats: list[float]
    curve: list[list[float]]
    seconds: float
    numbers: list[dict[str, float]] = field(default_factory=list)
    maps: list[str] = field(default_factory=list)
    map_size: int = 0


@dataclass
class TextRecord:
    """All runs of a study of language models so far.

    Args:
        plan: all options; the source is named without its folder.
        runs: runs in the order of the plan.
        blocks: tokens, words and bytes of each block of texts.
        floors: perplexity of trivial systems on the same texts.
        rates: for each row that chose its own learning rate, the validation loss with each that was tried.
        data: hashes of the texts.
        beside: numbers of other work to show beside these.
        versions: of libraries.
    """

    plan: TextPlan
    runs: list[TextRun] = field(default_factory=list)
    blocks: list[list[float]] = field(default_factory=list)
    floors: dict[str, float] = field(default_factory=dict)
    rates: dict[str, dict[str, float]] = field(default_factory=dict)
    data: dict[str, str] = field(default_factory=dict)
    beside: dict[str, list[float]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    version: int = 1

    def of(self, row: str) -> list[TextRun]:
        """Return the runs of a row, by seed."""
        return sorted((one for one in self.runs if one.row == row), key=lambda one: one.seed)

    @property
    def complete(self) -> bool:
        return all(len(self.of(row)) == self.plan.seeds for row in self.plan.rows)

    def perplexities(self, row: str, length: int | None = None) -> list[float]:
        """Return the perplexity of each seed; empty where a model cannot take the length."""
        name = str(length or self.plan.length)
        return [one.perplexity[name] for one in self.of(row) if name in one.perplexity]


def study_of(name: str, plan: TextPlan, rows: Sequence[StudyRow], tuned: Sequence[str]) -> Study:
    """Return a study with a part for each row; rows that are not tuned take the learning rate of the last that is."""
    parts = []
    for row in rows:
        own = row.name in tuned
        choice: dict[str, Any] = {"rates": tuple(plan.rates)} if own else {"rate_of": slug_of(tuned[-1])}
        parts.append(StudyPart(row.key, plan.source, plan.settings, (replace(row, seeds=plan.seeds),), **choice))
    return Study(name, "", tuple(parts))


def slug_of(name: str) -> str:
    return StudyRow(name, "").key


def check_rows(rows: Sequence[str], known: Sequence[str]) -> None:
    for one in rows:
        if one not in known:
            raise ValueError(f"the study has no row {one!r}{suggestion(one, known)}")


@dataclass
class TextCells(Cells):
    """Trains and scores language models, and looks at each when it is done."""

    def done(self, run: PlannedRun) -> bool:
        return Execution.done(self, run) and (run.rate is not None or super().done(run))

    def run(self, run: PlannedRun) -> None:
        if not Execution.done(self, run):
            super().run(run)
        found = self.load(run)
        if run.rate is None and found is not None and found.record.status == "done":
            self.keep(run, self._cell(run))

    def prepared(self, part: StudyPart, settings: Settings) -> Prepared:
        return super().prepared(self.study.parts[0], settings)  # the texts are the same for all

    def look(self, model: Any, settings: Settings, prepared: Prepared, found: TextRun) -> None:
        """Add what else is measured on a trained model."""

    def _cell(self, run: PlannedRun) -> TextRun:
        found = self.load(run)
        assert found is not None
        settings = self.settings(run)
        prepared = self.prepared(run.part, settings)
        model: Any = load(self.model(run))
        rows = blocks(found.rows[METRIC.name])
        scores = {str(self.plan.length): METRIC.value(rows)}
        longest = model.base_model.decoder.longest
        for length in self.plan.lengths:
            if length != self.plan.length and (longest is None or length <= longest):
                scores[str(length)] = perplexity(model, settings, prepared, length)
        cell = TextRun(
            run.row.name, run.seed, found.rate, found.record.model["parameters"],
            {length: round(value, 4) for length, value in scores.items()}, [round(one, 2) for one in rows[:, 0]],
            [[float(step), round(float(loss), 5)] for step, loss in found.record.validation],
            round(found.record.times["training_seconds"], 1),
        )  # fmt: skip
        self.look(model, settings, prepared, cell)
        return cell


def blocks(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum the rows of neighbouring texts, which are of one article, so that a bootstrap draws them together."""
    return np.array([part.sum(0) for part in np.array_split(rows, min(BLOCKS, len(rows)))])


def perplexity(model: Any, settings: Settings, prepared: Prepared, length: int) -> float:
    """Score the texts in pieces of another length."""
    before, model.config.max_position_embeddings = model.config.max_position_embeddings, length
    try:
        scored = evaluate(model, prepared.tokenizer, prepared.parts, settings.evaluation).scored
    finally:
        model.config.max_position_embeddings = before
    return scored[METRIC.name].score.value


def open_cells(kind: type[TextCells], study: Study, plan: TextPlan, folders: Folders, display: Displays) -> TextCells:
    hidden = replace(folders, data=Path(plan.source) if Path(plan.source).is_dir() else None)
    return kind(study, hidden, display, lambda run: "", "name another --output and --work", plan=plan)


def collect(cells: TextCells) -> TextRecord:
    """Return the record of the runs that are done."""
    plan: TextPlan = cells.plan
    found = TextRecord(replace(plan, source=Path(plan.source).name), list(cells.cells(TextRun)), versions=versions())
    first = next((run for run in planned(cells.study) if run.rate is None and cells.done(run)), None)
    if first is None:
        raise ValueError("no run is done yet")
    entry, prepared = cells.load(first), cells.prepared(first.part, plan.settings)
    assert entry is not None
    found.blocks = blocks(entry.rows[METRIC.name])[:, 1:].tolist()
    trivial = floors(prepared.parts, plan.settings.evaluation, prepared.tokenizer, prepared.longest)
    found.floors = {name: round(one.scored[METRIC.name].score.value, 4) for name, one in trivial.items()}
    found.data = {name: value[:16] for name, value in prepared.facts["sources"].items()}
    for part in cells.study.parts:
        tried = [entry for run in planned(cells.study) if run.part is part and run.rate and (entry := cells.load(run))]
        losses = {f"{one.rate:g}": one.validation_loss for one in tried}
        if part.rates:
            found.rates[part.baseline.name] = {name: round(v, 5) for name, v in losses.items() if v is not None}
    return found


# Comparing rows -------------------------------------------------------------------------------------------------------


class Gap(NamedTuple):
    """Two rows on the same texts and seeds."""

    row: str
    than: str
    values: tuple[float, float]
    difference: Difference
    """In perplexity; its p-value is adjusted for all pairs that are compared with it (Holm)."""
    moving: bool
    clears: bool
    """Whether the better row clears the floor in its worst seed."""

    @property
    def certain(self) -> bool:
        return self.clears and not self.moving and self.difference.p_value < CERTAIN

    @property
    def said(self) -> str:
        apart, (ours, theirs) = self.difference, self.values
        shown = interval(apart.value, apart.low, apart.high)
        notes = [chance(apart.p_value)]
        notes += ["the gap was still moving at the end of training"] * self.moving
        notes += ["neither clears the floor"] * (not self.clears)
        return f"{self.row} {fixed(ours, 2)}, {self.than} {fixed(theirs, 2)}, difference {shown}, {'; '.join(notes)}"


def compare(found: TextRecord, pairs: Sequence[tuple[str, str]]) -> list[Gap]:
    """Compare pairs of rows by the house's rules; pairs of which a row is missing or has one run are left out.

    Intervals join the variance of seeds, pooled over all rows, and that of blocks of texts.
    """
    whole = {row: found.of(row) for row in found.plan.rows if len(found.of(row)) == found.plan.seeds > 1}
    variance = statistics.seed_variance([found.perplexities(row) for row in whole])
    if variance is None:
        return []
    draw = statistics.remembered()
    counts = np.array(found.blocks)
    rows = {row: [np.column_stack([np.array(run.nats), counts]) for run in runs] for row, runs in whole.items()}
    floor = min(found.floors.values(), default=float("inf"))
    gaps = []
    for row, than in pairs:
        if row not in whole or than not in whole:
            continue
        made = statistics.estimate(METRIC, rows[row], rows[than], variance, draw=draw)
        trend = curve_gaps(_curve(whole[row]), _curve(whole[than]))
        ours, theirs = found.perplexities(row), found.perplexities(than)
        values = sum(ours) / len(ours), sum(theirs) / len(theirs)
        moving = trend is not None and is_moving(trend, whole[than][0].curve[-1][1])
        apart = Difference(made.value, *made.interval, made.p_value())
        gaps.append(Gap(row, than, values, apart, moving, min(max(ours), max(theirs)) < floor))
    statistics.adjust([one.difference for one in gaps])
    return gaps


def _curve(runs: Sequence[TextRun]) -> list[list[float]]:
    """Return the mean validation loss over seeds."""
    return [
        [points[0][0], sum(p[1] for p in points) / len(points)] for points in zip(*(r.curve for r in runs), strict=True)
    ]


def listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def setup(found: TextRecord) -> Iterator[Text]:
    """Say how the runs were made."""
    plan = found.plan
    counts = np.array(found.blocks).sum(0)
    yield (
        f"{plan.source}: a vocabulary of {plan.vocabulary:,} tokens; scored on {int(counts[0]):,} tokens of "
        f"{plan.texts:,} texts of the test split. Hashes of the texts: {', '.join(found.data.values())}."
    )
    yield (
        f"Decoders of {plan.layers} layers, width {plan.d_model}, {plan.heads} heads, feed-forward width {plan.d_ff}, "
        f"sinusoidal positions, no dropout; {plan.steps:,} steps of {plan.batch_tokens:,} tokens in inputs of "
        f"{plan.length}. These are small models and short runs."
    )
    sizes: dict[int, list[str]] = {}
    for row in plan.rows:
        for one in found.of(row)[:1]:
            sizes.setdefault(one.parameters, []).append(row)
    yield f"Parameters: {'; '.join(f'{size:,} with {listed(names)}' for size, names in sizes.items())}."
    chosen = []
    for row, losses in found.rates.items():
        tried = ", ".join(f"{rate}: {digits(loss, 4)}" for rate, loss in losses.items())
        chosen.append(f"{row} {found.of(row)[0].rate:g} ({tried})" if found.of(row) else row)
    others = [row for row in plan.rows if row not in found.rates]
    chosen_alike = len(plan.rates) > 1 and all(one.rate == max(plan.rates) for one in found.runs)
    edge = " All rows took the highest that was tried; a still higher one may be better." if chosen_alike else ""
    taken = f" The other rows take that of {list(found.rates)[-1]}." if others and found.rates else ""
    yield (
        "Learning rates, chosen by the validation loss of whole runs with the first seed: "
        f"{'; '.join(chosen)}.{taken}{edge}"
    )
    yield (
        "Differences are paired by seed and text. Their intervals of 95 % join the variance of seeds, pooled over all "
        f"rows, with that of {len(found.blocks)} blocks of neighbouring texts; p-values are adjusted for the pairs "
        "that are compared (Holm). A gap in validation loss that changes its sign or halves in the last quarter of "
        "training is called moving, and decides nothing."
    )
    floor = ", ".join(f"{name} {fixed(value, 1)}" for name, value in found.floors.items())
    yield f"Floors, as perplexity on the same texts: {floor}."


def made(found: TextRecord, name: str) -> Text:
    """Say what to type to make a study again."""
    plan = found.plan
    words = f"synthattn study {name} --data {plan.source} --seeds {plan.seeds} --steps {plan.steps} --jobs 2"
    return "Made by ", Span(words, "code"), "."


def spread(values: Sequence[float], places: int) -> Cell:
    """Return a mean with the lowest and the highest value."""
    if not values:
        return Cell()
    detail = f"[{fixed(min(values), places)}, {fixed(max(values), places)}]" if len(values) > 1 else ""
    return Cell(fixed(mean(values), places), detail, key=mean(values))
