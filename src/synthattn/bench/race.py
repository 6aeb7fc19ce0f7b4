"""Contenders of one case, timed in the same rounds: who is timed beside whom, and what comes out for each."""

import dataclasses
import gc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from synthattn.bench import memory
from synthattn.bench.products import Operands, Products, Shape, products
from synthattn.bench.record import Case, Measurement, UnsupportedError
from synthattn.bench.room import BUDGET, held_bytes
from synthattn.bench.timing import Run, Times, interleaved
from synthattn.messages import out_of_memory

LEAST_SECONDS = 0.3
"""Short calls are repeated until the median rests on that much time."""
MOST_ROUNDS = 51
GEMM = "matrix products alone"


@dataclass(frozen=True)
class Entry:
    """A contender, and whom it is compared with: the name in the results, and the contender it stands for."""

    contender: str
    rivals: dict[str, str]
    with_products: bool = False
    """Whether to time its matrix products alone as well."""
    with_memory: bool = False
    with_rival_memory: tuple[str, ...] = ()


@dataclass(frozen=True)
class Race:
    """All contenders of one case. Whoever is the rival of several runs once in a round, for all of them."""

    case: Case
    entries: tuple[Entry, ...]

    def without(self, done: Iterable[tuple[str, Case]]) -> "Race":
        """For those that are not done yet; their rivals still run beside them."""
        known = set(done)
        kept = (entry for entry in self.entries if (entry.contender, self.case) not in known)
        return dataclasses.replace(self, entries=tuple(kept))

    def without_memory(self) -> "Race":
        unweighed = (dataclasses.replace(e, with_memory=False, with_rival_memory=()) for e in self.entries)
        return dataclasses.replace(self, entries=tuple(unweighed))

    def heats(self, budget: int = BUDGET) -> list["Race"]:
        """Parts, in the same order, of which each fits into memory with all rivals; or one contender that does not."""
        sizes: dict[str, int] = {}
        heats: list[list[Entry]] = []
        together: set[str] = set()
        for entry in self.entries:
            names = {entry.contender, *entry.rivals.values()}
            sizes |= {name: held_bytes(name, self.case) for name in names - sizes.keys()}
            if heats and sum(sizes[name] for name in together | names) <= budget:
                heats[-1].append(entry)
                together |= names
            else:
                heats.append([entry])
                together = names
        return [dataclasses.replace(self, entries=tuple(heat)) for heat in heats]


@dataclass
class _Field:
    """Those who are ready to run."""

    runs: dict[str, Run] = field(default_factory=dict)
    errors: dict[str, float | None] = field(default_factory=dict)
    """Of contenders, from the reference."""
    reasons: dict[str, str] = field(default_factory=dict)
    """Why others are not."""
    executed: dict[str, Products] = field(default_factory=dict)
    alone: dict[str, str] = field(default_factory=dict)
    """By contender, under which name its products run. Those with the same products share one."""

    def beside(self, entry: Entry) -> dict[str, str]:
        """The rivals of a contender that are there."""
        return {shown: rival for shown, rival in entry.rivals.items() if rival not in self.reasons}

    def needed(self, entries: Iterable[Entry]) -> dict[str, Run]:
        """All that contenders are compared with, and themselves."""
        names = [entry.contender for entry in entries]
        names += [name for entry in entries for name in self.beside(entry).values()]
        names += [self.alone[entry.contender] for entry in entries if entry.contender in self.alone]
        return {name: self.runs[name] for name in dict.fromkeys(names)}


def measure(race: Race, rounds: int, say: Callable[[str], None] = print) -> Iterator[tuple[str, Measurement | str]]:
    """Check, time and weigh all contenders, or why one could not be; ``say`` is told what else is missing.

    What a contender cannot do (a mask that it does not know, more memory than there is) leaves out that contender, or
    as a rival the ratio to it. All are timed before the first is weighed.
    """
    ready, times = _Field(), {}
    crowded: BaseException | None = None
    try:
        ready = _prepared(race)
        there = [entry for entry in race.entries if entry.contender in ready.runs]
        times = _timed(there, ready, rounds) if there else {}
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        crowded = error.with_traceback(None)
    ready.runs.clear()
    gc.collect()  # models with cycles would wait, in memory, for the next time
    if crowded is not None:
        if len(race.entries) == 1:
            yield race.entries[0].contender, _reason(crowded)
        else:  # each for itself takes less
            for entry in race.entries:
                yield from measure(dataclasses.replace(race, entries=(entry,)), rounds, say)
        return
    for rival in dict.fromkeys(name for entry in race.entries for name in entry.rivals.values()):
        if rival in ready.reasons and rival not in {entry.contender for entry in race.entries}:
            say(f"{rival}, {race.case}: {ready.reasons[rival]}")
    for entry in race.entries:
        name = entry.contender
        yield name, ready.reasons[name] if name in ready.reasons else _result(race.case, entry, ready, times[name], say)


def _prepared(race: Race) -> _Field:
    """Contenders that are right, then the rivals of these, each built and called once: some refuse only then."""
    home, case, ready = memory.home(race.case), race.case, _Field()
    operands: dict[Shape, Operands] = {}
    same: dict[frozenset[tuple[Shape, int]], str] = {}

    def tried(name: str, step: Callable[[], None]) -> None:
        try:
            step() if name not in ready.reasons else None
        except (MemoryError, RuntimeError, UnsupportedError) as error:
            ready.reasons[name] = _reason(error)
            ready.runs.pop(name, None)

    def check(name: str) -> None:
        ready.errors[name] = home.check(name, case)

    def build(name: str) -> None:
        run = home.build(name, case)(case)
        run()
        ready.runs[name] = run

    def record_products(name: str) -> None:
        executed = products(ready.runs[name])
        if not executed.shapes:  # torch's own fast path for whole layers shows nothing of what is in it
            return
        known = frozenset(executed.shapes.items())
        if known not in same:
            alone = executed.alone(operands)
            alone()
            same[known] = f"{GEMM}, {name}"
            ready.runs[same[known]] = alone
        ready.executed[name], ready.alone[name] = executed, same[known]

    for entry in race.entries:
        for step in (check, build, *([record_products] if entry.with_products else [])):
            tried(entry.contender, lambda step=step, name=entry.contender: step(name))
    there = [entry for entry in race.entries if entry.contender in ready.runs]
    for rival in dict.fromkeys(rival for entry in there for rival in entry.rivals.values()):
        if rival not in ready.runs:
            tried(rival, lambda name=rival: build(name))
    return ready


def _timed(entries: list[Entry], ready: _Field, rounds: int) -> dict[str, Times]:
    """The times of everyone, by the contender that they are to be compared with.

    Those whose calls are short run again, with all that they are compared with, as often as the shortest needs it.
    """
    times = interleaved(ready.needed(entries), rounds, warm_up=False)
    found = {entry.contender: times for entry in entries}
    short = [entry for entry in entries if times.median(entry.contender) * rounds < LEAST_SECONDS]
    if short:
        shortest = min(times.median(entry.contender) for entry in short)
        more = max(rounds, min(MOST_ROUNDS, int(LEAST_SECONDS / shortest) + 1))
        again = interleaved(ready.needed(short), more, warm_up=False)
        found |= {entry.contender: again for entry in short}
    return found


def _result(case: Case, entry: Entry, ready: _Field, times: Times, say: Callable[[str], None]) -> Measurement:
    name, executed = entry.contender, ready.executed.get(entry.contender)
    own, others, note = _weigh(case, entry) if entry.with_memory and memory.available() else (None, {}, None)
    if note is not None:
        say(note)
    return Measurement(
        name,
        case,
        times.median(name),
        times.spread(name),
        {shown: times.faster(name, rival) for shown, rival in ready.beside(entry).items()},
        own,
        others,
        None if executed is None else executed.gigaflop,
        None if executed is None else times.faster(name, ready.alone[name]),
        ready.errors[name],
        memory.home(case).cache_bytes(name, case) if case.kind == "decode" else None,
    )


def _weigh(case: Case, entry: Entry) -> tuple[float | None, dict[str, float], str | None]:
    """Memory of the contender and of its rivals, and what went wrong: no reason to throw away the times."""
    try:
        own = memory.peak_megabytes(entry.contender, case)
        others = {shown: memory.peak_megabytes(entry.rivals[shown], case) for shown in entry.with_rival_memory}
    except ChildProcessError as error:
        return None, {}, f"memory of {error}"
    return own, others, None


def _reason(error: BaseException) -> str:
    """Why a contender is left out; what is no reason to leave it out is raised."""
    if isinstance(error, UnsupportedError):
        return str(error)
    if out_of_memory(error):
        return "it takes more memory than there is"
    raise error
