"""Runs a benchmark: case after case, all contenders of one beside each other."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, runtime_checkable

from synthattn.bench import race as racing
from synthattn.bench.race import Entry, Race
from synthattn.bench.record import Case, Measurement, Record


@runtime_checkable
class Listener(Protocol):
    """Is told how far the benchmark has come."""

    def begins(self, race: Race) -> None: ...

    def found(self, contender: str, found: Measurement | str) -> None:
        """What was measured, or why nothing was."""


def layer_races(
    names: Sequence[str],
    shapes: Iterable[tuple[int, int]],
    masks: Iterable[str],
    modes: Iterable[str],
    rivals: Sequence[str] = ("nn.MultiheadAttention",),
    straightforward: bool = True,
) -> list[Race]:
    """Every layer against our vanilla, against the rivals, and against the straightforward way to write the same."""
    from synthattn.bench import layers

    masks, modes, races = list(masks), list(modes), []
    for batch, length in shapes:
        for mode in modes:
            for mask in masks:
                entries = []
                for name in names:
                    beside = {rival: rival for rival in ("vanilla", *rivals) if rival != name}
                    own = straightforward and layers.has_straightforward(name)
                    if own:
                        beside[layers.STRAIGHTFORWARD] = f"{layers.STRAIGHTFORWARD} {name}"
                    full = mask == "full"
                    weighed = (layers.STRAIGHTFORWARD,) if own and full else ()
                    entries.append(Entry(name, beside, full, full, weighed))
                races.append(Race(Case("layer", batch, length, mode, mask), tuple(entries)))
    return races


def model_races(kind: str, names: Sequence[str], shapes: Iterable[tuple[int, int]], masks: Iterable[str]) -> list[Race]:
    """Whole encoders: against our vanilla, dynamic convolutions, and T5."""
    mode, masks = "train" if kind == "train" else "eval", list(masks)
    rivals = ("vanilla", "dynamicconv", "Hugging Face T5")
    return [
        Race(
            Case(kind, batch, length, mode, mask),
            tuple(Entry(name, {r: r for r in rivals if r != name}, mask == "full", True) for name in names),
        )
        for batch, length in shapes
        for mask in masks
    ]


def decode_races(names: Sequence[str], shapes: Iterable[tuple[int, int]], beams: Iterable[int]) -> list[Race]:
    rivals, beams = ("vanilla", "Hugging Face T5"), list(beams)
    entries = tuple(Entry(name, {r: r for r in rivals if r != name}) for name in names)
    return [Race(Case("decode", batch, length, beams=width), entries) for batch, length in shapes for width in beams]


def run(races: Sequence[Race], record: Record, rounds: int, listener: Listener, keep: Callable[[Record], None]) -> None:
    """Measure all, adding to the record; ``keep`` is called after each, so that nothing is lost when it is stopped.

    What a contender cannot do is noted and left out.
    """
    start = time.monotonic()
    before = record.seconds
    for race in races:
        listener.begins(race)
        for heat in race.heats():
            for contender, found in racing.measure(heat, rounds, record.leave_out):
                if isinstance(found, str):
                    record.leave_out(f"{contender}, {race.case}: {found}")
                else:
                    record.measurements.append(found)
                record.seconds = before + time.monotonic() - start
                keep(record)
                listener.found(contender, found)
