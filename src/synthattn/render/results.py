"""What a comparison found, as plain data: written as ``results.json``; tables and the page are made from it alone."""

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path

from synthattn.saved_file import read_dataclass


@dataclass
class Difference:
    """Of a variant from the baseline on the same examples, with the interval of 95 % and how likely it is by chance."""

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
class Heads:
    """Attention of one layer, for one text, or for the mean of several."""

    stack: str
    """``encoder`` or ``decoder``."""
    layer: int
    """Counted from 0; the page counts from 1."""
    size: int
    """Each map has ``size`` rows (from) and ``size`` columns (to)."""
    span: int
    """How many positions the map covers; where it is more than ``size``, each cell is a mean of neighbours."""
    maps: list[str]
    """One for each head: base64 of ``size * size`` bytes by rows, 255 standing for ``peaks`` of the same head."""
    peaks: list[float]
    entropy: list[float]
    """Of each head, mean over positions, in nats divided by that of even weights: 0 is one token, 1 is all alike."""


@dataclass
class Histogram:
    """How often attention weights of each size occur in a layer, all heads together."""

    stack: str
    layer: int
    edges: list[float]
    """Of the bins, in powers of ten: -4 stands for 0.0001."""
    counts: list[float]
    """Shares, that sum to 1."""


@dataclass
class MixtureWeights:
    """How much each term of a mixture weighs in a layer."""

    stack: str
    layer: int
    terms: list[str]
    weights: list[list[float]]
    """For each term a number for each head, or a single one."""


@dataclass
class Variant:
    """One attention: what it is worth and what it costs."""

    attention: str
    status: str = "waiting"
    """``waiting``, ``running``, ``done`` or ``failed``."""
    reason: str = ""
    """Why it failed, in a line."""
    failed_seeds: int = 0
    """How many of its seeds failed; after the first no other is tried."""
    parameters: int | None = None
    scores: dict[str, Score] = field(default_factory=dict)
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
    """Pairs of step and validation loss, of the first seed."""
    heads: list[Heads] = field(default_factory=list)
    histograms: list[Histogram] = field(default_factory=list)
    mixture: list[MixtureWeights] = field(default_factory=list)
    samples: list[str] = field(default_factory=list)
    """What it wrote for each of the samples of the comparison."""


@dataclass
class Metric:
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
    """A whole comparison."""

    task: str
    data: str
    baseline: str
    """The attention that others are compared with; usually ``vanilla``."""
    main_metric: str
    answer: list[str]
    """What it means, in a few paragraphs."""
    variants: list[Variant]
    metrics: dict[str, Metric]
    samples: list[Sample] = field(default_factory=list)
    published: list[Published] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)
    """What was equal for all: preset, steps, batch, vocabulary, examples, seeds; in the order in which to show them."""
    one_answer: dict[str, float] = field(default_factory=dict)
    """By metric, what one answer scores at best when it is given to every question; empty where answers are not few.
    Who is not above it cannot be told from one that has learned nothing."""
    command: str = ""
    """What to type to do it again."""
    versions: dict[str, str] = field(default_factory=dict)
    hardware: dict[str, str] = field(default_factory=dict)
    data_hashes: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """What a reader must know to trust the numbers: truncated examples, failed variants, how speed was measured."""
    started: str = ""
    seconds: float = 0.0

    def save(self, path: Path) -> None:
        """Written beside and then renamed: a reader never sees half of it."""
        beside = path.with_name(path.name + ".part")
        beside.write_text(json.dumps(dataclasses.asdict(self), indent=1, allow_nan=False) + "\n")
        beside.replace(path)


def load(path: Path) -> Results:
    """Read ``results.json``."""
    return read_dataclass(Results, path, "is no result of a comparison")
