"""Results of a study, as plain data: written as ``results.json``; tables and pages are made from it alone."""

import dataclasses
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from synthattn.bench.timing import Speed
from synthattn.saved_file import read_dataclass, write_text
from synthattn.training.attention_weights import Heads, Histogram, MixtureShares

FILE, VERSION = "results.json", 2
SPEEDS = ("training_speed", "inference_speed", "generation_speed")


@dataclass
class Difference:
    """The difference of a variant from the baseline, with its 95 % interval and p-value."""

    value: float
    low: float
    high: float
    p_value: float


@dataclass
class Score:
    """A metric of a variant, as the mean over its seeds."""

    value: float
    low: float
    high: float
    """The interval of 95 %, of examples (bootstrap) and of seeds, where there are several."""
    by_seed: list[float]
    difference: Difference | None = None
    """From the baseline; None for the baseline itself, where there is none, and where the seeds are not the same."""


@dataclass
class Look:
    """Attention weights of a row's first run: how often each size occurs, layer by layer."""

    before: list[Histogram]
    after: list[Histogram]
    """Training."""


@dataclass
class Run:
    """Where a number comes from."""

    seed: int
    record: str
    """The path of the run's record, from the folder of all results."""
    command: str
    """Makes it again."""
    seconds: float
    """Of its training."""


@dataclass
class PublishedNumber:
    """A number that somebody has printed."""

    value: float
    source: str
    """The paper and its table."""
    doubt: str = ""
    """Why it should be read with care; nothing where there is no reason known."""


@dataclass
class Variant:
    """One row of a part: a model with its scores and its costs, or what models are to be compared with."""

    attention: str
    """The spec that builds it; empty for what is no model."""
    status: str = "waiting"
    """``waiting``, ``done`` or ``failed``; ``missing`` in a table that nobody has run."""
    reason: str = ""
    """Why it failed, in a line."""
    failed_seeds: int = 0
    """How many of its seeds failed; after the first no other is tried."""
    parameters: int | None = None
    scores: dict[str, Score] = field(default_factory=dict)
    """By metric; differences are from the part's baseline."""
    training_speed: float | None = None
    """Times that of the baseline, measured side by side; more is better. So are the next two."""
    inference_speed: float | None = None
    """Of scoring or classifying texts."""
    generation_speed: float | None = None
    """Of writing tokens, for models that do."""
    training_memory: int | None = None
    """Bytes that a training step needs at its peak."""
    cache_bytes_per_token: int | None = None
    training_seconds: float | None = None
    """Of the real training, which ran beside other things: for orientation."""
    loss_curve: list[list[float]] = field(default_factory=list)
    """Pairs of step and training loss, of the first seed."""
    validation_curve: list[list[float]] = field(default_factory=list)
    """Pairs of step and validation loss: in a comparison the mean over seeds, else of the first seed."""
    validation_band: list[list[float]] = field(default_factory=list)
    """Step, lowest and highest validation loss of several seeds."""
    heads: list[Heads] = field(default_factory=list)
    histograms: list[Histogram] = field(default_factory=list)
    mixture: list[MixtureShares] = field(default_factory=list)
    samples: list[str] = field(default_factory=list)
    """What it wrote for each of the samples of the part."""
    name: str = ""
    """What readers call it, where that is not its attention."""
    key: str = ""
    differs: str = ""
    """In what else than attention it differs from the others: ``mix=sum``; nothing where in nothing."""
    wanted_seeds: int = 1
    gigaflop: float | None = None
    """Of the matrix products of one forward pass over one example of the longest length."""
    spread: dict[str, list[float]] = field(default_factory=dict)
    """Lower and upper quartile of the rounds, by the names of the speeds."""
    rounds: dict[str, int] = field(default_factory=dict)
    """Number of rounds, by the names of the speeds."""
    histograms_before: list[Histogram] = field(default_factory=list)
    """Training."""
    runs: list[Run] = field(default_factory=list)
    published: dict[str, PublishedNumber] = field(default_factory=dict)
    """By our metric; ``parameters`` (in millions) and ``speed`` (steps per second) may be among them."""

    @property
    def speed(self) -> Speed | None:
        """The speed of a training step, with its quartiles."""
        return self.speed_of("training_speed")

    def speed_of(self, name: str) -> Speed | None:
        """Return a speed with its quartiles, by the name of its field."""
        found: float | None = getattr(self, name)
        if found is None:
            return None
        low, high = self.spread.get(name, (found, found))
        return Speed(found, low, high, self.rounds.get(name, 0))

    @property
    def look(self) -> Look | None:
        """Attention weights before and after training, where both were looked at."""
        return Look(self.histograms_before, self.histograms) if self.histograms_before else None


@dataclass
class MetricInfo:
    """What a score is."""

    definition: str
    higher_is_better: bool


@dataclass
class Sample:
    """An example whose answers are shown side by side."""

    source: str
    reference: str


@dataclass
class Published:
    """The paper's numbers for the same task, for the variants that it has."""

    table: str
    """Which table, such as ``Table 2``, and what it is about."""
    metric: str
    """Our metric that theirs is to be read beside."""
    values: dict[str, float]
    """By attention."""
    note: str = ""
    """What differs between their experiment and this one."""


@dataclass
class Results:
    """Results of one part of a study; a comparison has one."""

    task: str
    data: str
    baseline: str
    """The name of the row that others are compared with; usually ``vanilla``."""
    main_metric: str
    answer: list[str]
    """What it means, in a few paragraphs."""
    rows: list[Variant]
    metrics: dict[str, MetricInfo]
    """Those to show, the main one first."""
    samples: list[Sample] = field(default_factory=list)
    published: list[Published] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)
    """What was equal for all: preset, steps, batch, vocabulary, examples, seeds; in the order in which to show them."""
    command: str = ""
    """What to type to do it again."""
    versions: dict[str, str] = field(default_factory=dict)
    hardware: dict[str, str] = field(default_factory=dict)
    data_hashes: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """What a reader must know to trust the numbers: truncated examples, failed variants, how speed was measured."""
    started: str = ""
    seconds: float = 0.0
    name: str = ""
    title: str = ""
    scale: str = ""
    published_metrics: dict[str, str] = field(default_factory=dict)
    """By our metric, what the paper calls the one that is to be read beside it, with its data."""
    published_note: str = ""
    """What differs between their experiment and this one."""
    published_doubt: str = ""
    rates: dict[str, float] = field(default_factory=dict)
    """By learning rate, lowest first, the validation loss of the baseline; the best was taken for all."""
    rate_runs: dict[str, str] = field(default_factory=dict)
    """By learning rate, the path of the record."""
    note: str = ""

    @property
    def models(self) -> list[Variant]:
        """The rows that are models."""
        return [row for row in self.rows if row.attention]

    @property
    def base(self) -> Variant | None:
        """The model that others are compared with, where it is among them."""
        return next((row for row in self.models if row.attention == self.baseline), None)

    @property
    def floors(self) -> list[Variant]:
        """The rows that are no models: trivial systems, which a model must beat to count."""
        return [row for row in self.rows if not row.attention]

    def floor(self, metric: str) -> tuple[str, float] | None:
        """Return the best trivial system and its score; None where there is none."""
        found = [(row.scores[metric].value, row.name) for row in self.floors if metric in row.scores]
        if not found or metric not in self.metrics:
            return None
        value, name = max(found) if self.metrics[metric].higher_is_better else min(found)
        return name, value

    @property
    def floor_loss(self) -> float | None:
        """The loss per token of the best trivial system, for tasks that are scored by it."""
        found = self.floor("token-perplexity") if self.main_metric == "token-perplexity" else None
        return None if found is None else math.log(found[1])

    def learned(self, metric: str) -> bool:
        """Return whether the baseline is clearly above one answer for all, as far as that is known."""
        floor = next((row.scores[metric] for row in self.rows if not row.attention and metric in row.scores), None)
        if floor is None or floor.difference is None:
            return True
        return floor.difference.high < 0 if self.metrics[metric].higher_is_better else floor.difference.low > 0

    def save(self, path: Path) -> None:
        """Write ``results.json`` of a study that has this part alone."""
        StudyResults("comparison", self.title, [self]).save(path)


@dataclass
class StudyResults:
    """Results of a study: what is in ``results.json``."""

    name: str
    """``comparison``, or the name of a table on the command line."""
    title: str
    """Such as ``Table 2: machine translation``."""
    parts: list[Results]
    notes: list[str] = field(default_factory=list)
    """What a reader must know to trust the numbers."""
    versions: list[str] = field(default_factory=list)
    """Of synthattn and torch, of all records; and the processors that they were made on."""
    version: int = VERSION
    """Of the form of the file."""

    def save(self, path: Path, digits: int | None = None) -> None:
        """Write ``results.json``, with all digits of numbers, or so many of them."""
        content = compact(self, digits)
        write_text(path, json.dumps(content, separators=(",", ":"), allow_nan=False) + "\n")


Kind = TypeVar("Kind", bound=StudyResults)


def load_study(kind: type[Kind], path: Path) -> Kind:
    """Read ``results.json`` of any study."""
    return read_dataclass(kind, path, f"holds no results of version {VERSION}", ("version",))


def load(path: Path) -> Results:
    """Read ``results.json`` of a comparison, which is a study of one part."""
    found = load_study(StudyResults, path)
    if len(found.parts) != 1:
        raise ValueError(f"{path} is no result of a comparison: it has {len(found.parts)} parts")
    return found.parts[0]


def compact(value: Any, digits: int | None = None) -> Any:
    """Turn dataclasses into what JSON can hold, without the fields that have their default.

    Args:
        value: a dataclass, or what is in one.
        digits: significant digits of numbers; all unless given.
    """
    if isinstance(value, float) and digits is not None:
        return float(f"{value:.{digits}g}")
    if dataclasses.is_dataclass(value):
        fields = ((one, getattr(value, one.name)) for one in dataclasses.fields(value))
        return {
            one.name: compact(content, digits)
            for one, content in fields
            if one.name == "version" or content != _default(one)
        }
    if isinstance(value, dict):
        return {name: compact(one, digits) for name, one in value.items()}
    return [compact(one, digits) for one in value] if isinstance(value, list | tuple) else value


def _default(one: Any) -> Any:
    return one.default if one.default_factory is dataclasses.MISSING else one.default_factory()
