"""Runs a benchmark: every contender beside its rivals, in interleaved rounds, checked before it is timed."""

import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from synthattn.bench import memory
from synthattn.bench.products import products
from synthattn.bench.record import Case, Measurement, Record, UnsupportedError
from synthattn.bench.timing import interleaved
from synthattn.messages import out_of_memory

LEAST_SECONDS = 0.3
"""Short calls are repeated until the median rests on that much time."""
MOST_ROUNDS = 51
GEMM = "matrix products alone"


@dataclass(frozen=True)
class Duel:
    """A contender, the case, and whom it is timed beside: the name in the results, and the contender it stands for."""

    contender: str
    case: Case
    rivals: dict[str, str]
    with_products: bool = False
    """Whether to time its matrix products alone as well."""
    with_memory: bool = False
    with_rival_memory: tuple[str, ...] = ()


def layer_duels(
    names: Sequence[str],
    shapes: Iterable[tuple[int, int]],
    masks: Iterable[str],
    modes: Iterable[str],
    rivals: Sequence[str] = ("nn.MultiheadAttention",),
    straightforward: bool = True,
) -> list[Duel]:
    """Every layer against our vanilla, against the rivals, and against the straightforward way to write the same."""
    from synthattn.bench import layers

    duels = []
    for batch, length in shapes:
        for mode in modes:
            for mask in masks:
                case = Case("layer", batch, length, mode, mask)
                for name in names:
                    beside = {rival: rival for rival in ("vanilla", *rivals) if rival != name}
                    own = straightforward and layers.has_straightforward(name)
                    if own:
                        beside[layers.STRAIGHTFORWARD] = f"{layers.STRAIGHTFORWARD} {name}"
                    full = mask == "full"
                    weighed = (layers.STRAIGHTFORWARD,) if own and full else ()
                    duels.append(Duel(name, case, beside, full, full, weighed))
    return duels


def model_duels(kind: str, names: Sequence[str], shapes: Iterable[tuple[int, int]], masks: Iterable[str]) -> list[Duel]:
    """Whole encoders: against our vanilla, dynamic convolutions, and T5."""
    mode = "train" if kind == "train" else "eval"
    rivals = ("vanilla", "dynamicconv", "Hugging Face T5")
    return [
        Duel(name, Case(kind, batch, length, mode, mask), {r: r for r in rivals if r != name}, mask == "full", True)
        for batch, length in shapes
        for mask in masks
        for name in names
    ]


def decode_duels(names: Sequence[str], shapes: Iterable[tuple[int, int]], beams: Iterable[int]) -> list[Duel]:
    rivals = ("vanilla", "Hugging Face T5")
    return [
        Duel(name, Case("decode", batch, length, beams=width), {r: r for r in rivals if r != name})
        for batch, length in shapes
        for width in beams
        for name in names
    ]


def measure(duel: Duel, rounds: int, say: Callable[[str], None] = print) -> Measurement:
    """Check, time, and weigh one contender; ``say`` is told what could not be weighed."""
    case, home = duel.case, memory.home(duel.case)
    error = home.check(duel.contender, case)
    prepared = {duel.contender: home.build(duel.contender, case)(case)}
    for rival in duel.rivals.values():
        prepared[rival] = home.build(rival, case)(case)
    executed = None
    if duel.with_products:
        prepared[duel.contender]()  # what is computed once and kept does not count
        executed = products(prepared[duel.contender])
        if executed.shapes:
            prepared[GEMM] = executed.alone()
        else:  # torch's own fast path for whole layers shows nothing of what is in it
            executed = None
    times = interleaved(prepared, rounds)
    if times.median(duel.contender) * rounds < LEAST_SECONDS:
        more = min(MOST_ROUNDS, int(LEAST_SECONDS / times.median(duel.contender)) + 1)
        times = interleaved(prepared, max(rounds, more))
    del prepared
    own, others, note = _weigh(duel) if duel.with_memory and memory.available() else (None, {}, None)
    if note is not None:
        say(note)
    return Measurement(
        duel.contender,
        case,
        times.median(duel.contender),
        times.spread(duel.contender),
        {shown: times.faster(duel.contender, rival) for shown, rival in duel.rivals.items()},
        own,
        others,
        None if executed is None else executed.gigaflop,
        None if executed is None else times.faster(duel.contender, GEMM),
        error,
        home.cache_bytes(duel.contender, case) if case.kind == "decode" else None,
    )


def _weigh(duel: Duel) -> tuple[float | None, dict[str, float], str | None]:
    """Memory of the contender and of its rivals, and what went wrong: no reason to throw away the times."""
    try:
        own = memory.peak_megabytes(duel.contender, duel.case)
        others = {shown: memory.peak_megabytes(duel.rivals[shown], duel.case) for shown in duel.with_rival_memory}
    except ChildProcessError as error:
        return None, {}, f"memory of {error}"
    return own, others, None


def run(
    duels: Sequence[Duel],
    record: Record,
    rounds: int,
    say: Callable[[int, Duel, Measurement | str], None],
    keep: Callable[[Record], None],
) -> None:
    """Measure all, adding to the record; ``keep`` is called after each, so that nothing is lost when it is stopped.

    What a contender cannot do (a mask that it does not know, more memory than there is) is noted and left out.
    """
    start = time.monotonic()
    before = record.seconds
    for number, duel in enumerate(duels):
        try:
            found = measure(duel, rounds, record.leave_out)
            record.measurements.append(found)
        except (MemoryError, RuntimeError, UnsupportedError) as error:
            if not isinstance(error, UnsupportedError) and not out_of_memory(error):
                raise
            found = str(error) if isinstance(error, UnsupportedError) else "it takes more memory than there is"
            record.leave_out(f"{duel.contender}, {duel.case}: {found}")
        record.seconds = before + time.monotonic() - start
        keep(record)
        say(number, duel, found)


def without_memory(duels: Iterable[Duel]) -> list[Duel]:
    return [dataclasses.replace(duel, with_memory=False, with_rival_memory=()) for duel in duels]
