"""What came of a table, as plain data: written as ``results.json``; pages and Markdown are made from it alone."""

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from synthattn.render.results import Histogram, Metric, Score
from synthattn.saved_file import read_dataclass

FILE = "results.json"

Judgement = Literal["holds", "does not hold", "undecided", "not run"]
Kind = Literal["text", "table", "elsewhere"]
JUDGEMENTS: tuple[Judgement, ...] = ("holds", "does not hold", "undecided", "not run")


@dataclass
class Published:
    """A number that somebody has printed."""

    value: float
    source: str
    """The paper and its table."""
    doubt: str = ""
    """Why it should be read with care; nothing where there is no reason known."""


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
class Speed:
    """Times that of the baseline, measured in turn with it; more is faster."""

    value: float
    low: float
    high: float
    """Quartiles of the rounds."""


@dataclass
class Look:
    """Attention weights of a row's first run: how often each size occurs, layer by layer."""

    before: list[Histogram]
    after: list[Histogram]
    """Training."""


@dataclass
class Row:
    """One model of a part, or what models are to be compared with."""

    name: str
    key: str
    attention: str
    """The spec that builds it; empty for what is no model."""
    differs: str = ""
    """In what else than attention it differs from the others: ``mix=sum``; nothing where in nothing."""
    status: str = "missing"
    """``missing``, ``failed`` or ``done``; ``done`` also where only some of the seeds are."""
    reason: str = ""
    """Why it failed, in a line."""
    wanted_seeds: int = 1
    parameters: int | None = None
    gigaflop: float | None = None
    """Of the matrix products of one forward pass over one example of the longest length."""
    scores: dict[str, Score] = field(default_factory=dict)
    """By metric; differences are from the part's baseline."""
    speed: Speed | None = None
    """Of a training step."""
    look: Look | None = None
    validation: list[list[float]] = field(default_factory=list)
    """Of the first seed: steps, and the validation loss after each."""
    runs: list[Run] = field(default_factory=list)
    published: dict[str, Published] = field(default_factory=dict)
    """By our metric; ``parameters`` (in millions) and ``speed`` (steps per second) may be among them."""


@dataclass
class Part:
    """One experiment of the table at one scale."""

    name: str
    title: str
    scale: str
    baseline: str
    """The name of a row."""
    metrics: dict[str, Metric]
    """Those to show, the main one first."""
    rows: list[Row]
    published_metrics: dict[str, str] = field(default_factory=dict)
    """By our metric, what the paper calls the one that is to be read beside it, with its data."""
    published_note: str = ""
    """What differs between their experiment and this one."""
    published_doubt: str = ""
    facts: dict[str, str] = field(default_factory=dict)
    """What was equal for all rows: data, preset, steps, batch, schedule, learning rate; in the order to show them."""
    rates: dict[str, float] = field(default_factory=dict)
    """By learning rate, lowest first, the validation loss of the baseline; the best was taken for all."""
    rate_runs: dict[str, str] = field(default_factory=dict)
    """By learning rate, the path of the record."""
    note: str = ""

    @property
    def models(self) -> list[Row]:
        return [row for row in self.rows if row.attention]

    def learned(self, metric: str) -> bool:
        """Whether the baseline is clearly above one answer for all, as far as that is known."""
        floor = next((row.scores[metric] for row in self.rows if not row.attention and metric in row.scores), None)
        if floor is None or floor.difference is None:
            return True
        below = floor.difference.high < 0 if self.metrics[metric].higher_is_better else floor.difference.low > 0
        return below


@dataclass
class Verdict:
    """A claim of the paper, and whether it holds here."""

    claim: str
    """In words a newcomer follows."""
    where: str
    """Where the paper says so: ``abstract``, ``Table 2``."""
    part: str
    scale: str
    judgement: Judgement
    because: str
    """Our numbers and the test that was used, in a sentence or two."""
    in_paper: str = ""
    """What the paper's own numbers say, which is not always what its text says."""
    in_paper_holds: bool | None = None
    """By its own numbers; None where it has none."""
    runs: int = 0
    """How many of each row it rests on; 0 where there are none, or where it is not about scores."""
    kind: Kind = "text"
    """Whether the paper says so in words, or its table does, or another paper's."""


@dataclass
class Outcome:
    """A whole table."""

    table: str
    """The name on the command line."""
    title: str
    """Such as ``Table 2: machine translation``."""
    parts: list[Part]
    verdicts: list[Verdict] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What a reader must know to trust the numbers."""
    versions: list[str] = field(default_factory=list)
    """Of synthattn and torch, of all records; and the processors that they were made on."""

    def save(self, folder: Path) -> None:
        """Written beside and then renamed: a reader never sees half of it."""
        text = json.dumps(_rounded(dataclasses.asdict(self)), indent=1, allow_nan=False, ensure_ascii=False)
        beside = folder / f"{FILE}.part"
        beside.write_text(text + "\n", encoding="utf-8")
        beside.replace(folder / FILE)


def _rounded(value: Any) -> Any:
    """To the digits that are the same on every processor."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list) else value


def load(folder: Path) -> Outcome:
    """Read ``results.json``."""
    return read_dataclass(Outcome, folder / FILE, "is damaged")
