"""What a recipe would cost, before anything is run: parameters, operations, and hours of an accelerator."""

import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from synthattn.compare.plan import Study, StudyPart, StudyRow
from synthattn.models.configuration import SynthesizerConfig
from synthattn.models.describe import describe
from synthattn.tasks import find_tasks
from synthattn.tasks.base import Kind
from synthattn.training.model import MODEL_OF, configuration, matched_control
from synthattn.training.settings import ModelSettings

PEAK_TERAFLOPS, SHARE = 312.0, 0.4
"""Of an A100 in bfloat16, and how much of it training usually reaches."""
CORE_GIGAFLOPS = 50.0
"""Operations per second of one core in training, in billions: the median of the records of the scale ``cpu``."""
LABELS = {"ag_news": 4, "imdb": 2, "text": 2, "listops": 10, "heads": 10, "snli": 3}
"""Classes of the data, which nobody has looked at yet."""


@dataclass(frozen=True)
class Cost:
    """The cost of all runs of a row."""

    part: str
    row: str
    attention: str
    parameters: int
    runs: int
    tokens: float
    """That each run learns from, padding included."""
    exaflop: float
    """Of training, all runs together: a backward pass takes twice as long as a forward pass."""

    @property
    def core_hours(self) -> float:
        """Hours of one core, as fast as those that made the records of the scale ``cpu``."""
        return self.exaflop * 1e9 / CORE_GIGAFLOPS / 3600

    @property
    def hours(self) -> float:
        """Hours of one accelerator, at the share of its peak that training usually reaches."""
        return self.exaflop * 1e18 / (PEAK_TERAFLOPS * 1e12 * SHARE) / 3600


def costs(chosen: Study) -> Iterator[Cost]:
    """Estimate the cost of every model from shapes alone."""
    for part in chosen.parts:
        for row in part.rows:
            if row.trained:
                yield _cost(chosen, part, row)


@functools.cache
def _described(configuration: str, kind: Kind) -> tuple[int, float]:
    """Parameters, and operations for each token; many rows have the same model."""
    found = describe(SynthesizerConfig(**json.loads(configuration)), MODEL_OF[kind])
    return found["parameters"]["total"], found["flops"]["per_token"]


def _figures(chosen: Study, part: StudyPart, row: StudyRow) -> tuple[int, float]:
    return _described(json.dumps(config(chosen, part, row).to_dict(), sort_keys=True), _kind(part))


def _cost(chosen: Study, part: StudyPart, row: StudyRow) -> Cost:
    kind = _kind(part)
    parameters, per_token = _figures(chosen, part, row)
    training = part.settings.training
    tokens = float((training.steps or 0) * training.batch_tokens * training.accumulation)
    # A batch of pairs is counted by its longer side, and each stack reads one side.
    stacks = 2 if kind in ("seq2seq", "span-corruption") else 1
    # The run with the rate that was chosen is the baseline's first.
    runs = row.seeds + max(0, len(part.rates) - 1) * (row == part.baseline)
    flops = 3 * per_token * stacks * tokens * runs
    return Cost(part.name, row.name, row.attention, parameters, runs, tokens, flops / 1e18)


def config(chosen: Study, part: StudyPart, row: StudyRow) -> Any:
    """The configuration of a row, with a vocabulary of the size that was asked for."""
    if part.before is not None:
        other, name = part.before
        source = other.part(name)
        return config(other, source, source.like(row))
    kind, settings = _kind(part), part.settings
    fields: dict[str, Any] = {"vocab_size": settings.data.vocab_size}
    if kind == "classification":
        fields["num_labels"] = LABELS[getattr(part, "experiment", "") or part.name]
    model = settings.model
    own = ModelSettings(model.preset, row.attention, None, model.fields | row.fields)
    if row.control:
        sizes = [_figures(chosen, part, other)[0] for other in part.rows if other.trained and not other.control]
        own = matched_control(model, kind, max(sizes), **fields)
    return configuration(own, **fields)


def _kind(part: StudyPart) -> Kind:
    return find_tasks(part.settings.data.task)[0].kind


def show(chosen: Study, console: Any) -> None:
    """A table for the terminal."""
    from rich import box
    from rich.table import Table

    table = Table(title=f"{chosen.name}, scale {chosen.scale}", title_justify="left", box=box.SIMPLE_HEAD)
    for name in ("part", "row"):
        table.add_column(name)
    # Nobody would train the small ones on an accelerator.
    large = chosen.scale == "paper"
    for name in ("parameters", "runs", "tokens", "FLOPs", "device-hours" if large else "core-hours"):
        table.add_column(name, justify="right")
    total = 0.0
    with torch.device("meta"):
        for one in costs(chosen):
            total += one.hours if large else one.core_hours
            table.add_row(
                one.part,
                one.row,
                f"{one.parameters / 1e6:,.1f} M",
                str(one.runs),
                f"{one.tokens / 1e9:,.3g} G",
                f"{one.exaflop * 1e18:.2g}",
                f"{one.hours if large else one.core_hours:,.3g}",
            )
    console.print(table)
    if not large:
        console.print(
            f"{total:,.3g} core-hours of training in all, at {CORE_GIGAFLOPS:g} GFLOP/s per core; scoring is extra"
        )
        return
    console.print(
        f"{total:,.3g} hours in all on one A100 at {SHARE:.0%} of its {PEAK_TERAFLOPS:g} TFLOP/s in bfloat16; "
        f"torchrun --nproc-per-node N -m synthattn reproduce {chosen.name} --scale {chosen.scale} shares them among N",
        soft_wrap=True,
    )
