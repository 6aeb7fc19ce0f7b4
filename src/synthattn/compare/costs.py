"""Measures of a model besides its scores: size, speeds beside the baseline, memory, and attention weights."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from synthattn.compare.inputs import described, with_row
from synthattn.compare.measure import heaviest, measure, training_memory, typical
from synthattn.compare.pictures import pictures
from synthattn.compare.plan import StudyPart, StudyRow
from synthattn.compare.records import StudyRecord
from synthattn.training.model import build, configuration, load, placed
from synthattn.training.prepare import Prepared
from synthattn.training.run import decided_fields
from synthattn.training.settings import Settings

SPEEDS = ("training_speed", "inference_speed", "generation_speed")


def add_costs(
    found: StudyRecord, part: StudyPart, row: StudyRow, settings: Settings, prepared: Prepared, model: Path
) -> None:
    """Add to the record of a row all that its part asks for.

    Args:
        found: is filled.
        part: says what is measured.
        row: the row of the record.
        settings: of its first run.
        prepared: the data.
        model: the folder of the trained model.
    """
    figures = described(settings.model, prepared)
    found.gigaflop = figures["flops"]["forward"] / 1e9
    if figures["cache"]:
        found.cache_bytes_per_token = figures["cache"]["bytes_per_token"]
    batches = typical(prepared.train, settings.training.batch_tokens)
    build = builder(settings, prepared)
    if part.looks:
        batch = {name: value[:8] for name, value in batches[0].items()}
        found.heads, found.after, found.mixture = pictures(load(model), batch)
        if part.looks == "histograms":
            found.before, found.heads, found.mixture = pictures(build(), batch)[1], [], []
    if part.speed_rounds and row != part.baseline:
        baseline = dataclasses.replace(settings, model=with_row(part.settings.model, part.baseline))
        measured = measure(build, builder(baseline, prepared), batches, part.speed_rounds)
        found.speeds = {name: [one.value, one.low, one.high, one.rounds] for name, one in measured.speeds.items()}
        found.training_memory = measured.training_memory
    elif part.speed_rounds:
        writes = prepared.kind != "classification"
        found.speeds = {name: [1.0, 1.0, 1.0] for name in SPEEDS[: 3 if writes else 2]}
        found.training_memory = training_memory(build, heaviest(batches))


def builder(settings: Settings, prepared: Prepared) -> Callable[[], Any]:
    """Return what builds a new model of these settings."""
    config = configuration(settings.model, **decided_fields(prepared))

    def new() -> Any:
        model = placed(build(config, prepared.kind, settings.training.seed))
        if settings.training.gradient_checkpointing:
            model.gradient_checkpointing_enable()
        return model

    return new
