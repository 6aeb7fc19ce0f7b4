"""Plans of benchmarks, and their execution case by case."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, runtime_checkable

from synthattn.bench import layers, side_by_side
from synthattn.bench.record import BenchRecord, Case, Measurement
from synthattn.bench.side_by_side import CasePlan, Contender

Sizes = Iterable[tuple[int, int]]
"""Pairs of batch and length."""


@runtime_checkable
class Listener(Protocol):
    """Receives messages about the progress of a benchmark."""

    def begins(self, plan: CasePlan) -> None: ...

    def found(self, contender: str, found: Measurement | str) -> None:
        """Take the measurement of a contender, or the reason why there is none."""


def layer_plans(
    names: Sequence[str],
    shapes: Sizes,
    masks: Sequence[str],
    modes: Sequence[str],
    rivals: Sequence[str] = ("nn.MultiheadAttention",),
    straightforward: bool = True,
    device: str = "",
) -> list[CasePlan]:
    """Plan layers beside our vanilla, beside rivals, and beside the straightforward way to write the same layer."""

    def contender(name: str, mask: str) -> Contender:
        beside = {rival: rival for rival in ("vanilla", *rivals) if rival != name}
        own = straightforward and layers.has_straightforward(name)
        if own:
            beside[layers.STRAIGHTFORWARD] = f"{layers.STRAIGHTFORWARD} {name}"
        full = mask == "full"
        # Products alone are those of the libraries for processors.
        return Contender(name, beside, full and not device, full, (layers.STRAIGHTFORWARD,) if own and full else ())

    return [
        CasePlan(
            Case("layer", batch, length, mode, mask, device=device), tuple(contender(name, mask) for name in names)
        )
        for batch, length in shapes
        for mode in modes
        for mask in masks
    ]


def model_plans(kind: str, names: Sequence[str], shapes: Sizes, masks: Sequence[str]) -> list[CasePlan]:
    """Plan whole encoders beside our vanilla, dynamic convolutions, and T5."""
    beside = ("vanilla", "dynamicconv", "Hugging Face T5")
    mode = "train" if kind == "train" else "eval"
    return [
        CasePlan(
            Case(kind, batch, length, mode, mask),
            tuple(Contender(name, _others(beside, name), mask == "full", True) for name in names),
        )
        for batch, length in shapes
        for mask in masks
    ]


def decode_plans(names: Sequence[str], shapes: Sizes, beams: Sequence[int]) -> list[CasePlan]:
    """Plan generation beside our vanilla and T5."""
    contenders = tuple(Contender(name, _others(("vanilla", "Hugging Face T5"), name)) for name in names)
    return [
        CasePlan(Case("decode", batch, length, beams=width), contenders) for batch, length in shapes for width in beams
    ]


def _others(rivals: Sequence[str], name: str) -> dict[str, str]:
    return {rival: rival for rival in rivals if rival != name}


def run(
    plans: Sequence[CasePlan],
    record: BenchRecord,
    rounds: int,
    listener: Listener,
    keep: Callable[[BenchRecord], None],
) -> None:
    """Measure all plans, and add the figures to the record.

    ``keep`` is called after each contender, so that a run that is stopped loses nothing.
    """
    start = time.monotonic() - record.seconds
    for plan in plans:
        listener.begins(plan)
        for batch in plan.batches():
            for contender, found in side_by_side.measure(batch, rounds, record.leave_out):
                if isinstance(found, str):
                    record.leave_out(f"{contender}, {plan.case}: {found}")
                else:
                    record.measurements.append(found)
                record.seconds = time.monotonic() - start
                keep(record)
                listener.found(contender, found)
