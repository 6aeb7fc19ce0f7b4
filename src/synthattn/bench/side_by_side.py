"""Measure the contenders of one case side by side: check them, time them in the same rounds, and weigh their memory."""

import dataclasses
import gc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from synthattn.bench import memory
from synthattn.bench.memory_budget import BUDGET, held_bytes
from synthattn.bench.products import Operands, Products, Shape, products
from synthattn.bench.record import Case, Measurement, UnsupportedError
from synthattn.bench.timing import Run, Times, interleaved
from synthattn.messages import out_of_memory
from synthattn.models.size import available_memory

LEAST_SECONDS = 0.3
"""Short calls are repeated until the median rests on that much time."""
MOST_ROUNDS = 51
GEMM = "matrix products alone"


@dataclass(frozen=True)
class Contender:
    """A computation that is measured, and what is measured of it.

    Args:
        name: a spec, or the name of a rival.
        rivals: names in the results, and the contender that each stands for.
        with_products: whether its matrix products are timed alone as well.
        with_memory: whether its peak memory is measured.
        with_rival_memory: names of the rivals whose peak memory is measured.
    """

    name: str
    rivals: dict[str, str]
    with_products: bool = False
    with_memory: bool = False
    with_rival_memory: tuple[str, ...] = ()


@dataclass(frozen=True)
class CasePlan:
    """All contenders of one case. A rival of several contenders runs once in a round, for all of them."""

    case: Case
    contenders: tuple[Contender, ...]

    def without(self, done: Iterable[tuple[str, Case]]) -> "CasePlan":
        """Leave out contenders that have been measured; as rivals of the others they still run."""
        known = set(done)
        return self._with(each for each in self.contenders if (each.name, self.case) not in known)

    def without_memory(self) -> "CasePlan":
        """Measure times alone."""
        return self._with(
            dataclasses.replace(each, with_memory=False, with_rival_memory=()) for each in self.contenders
        )

    def _with(self, contenders: Iterable[Contender]) -> "CasePlan":
        return dataclasses.replace(self, contenders=tuple(contenders))

    def batches(self, budget: int = BUDGET) -> list["CasePlan"]:
        """Divide the contenders, in order, into plans that fit into memory with all rivals.

        A contender that is too large by itself gets a plan of its own.
        """
        sizes: dict[str, int] = {}
        batches: list[list[Contender]] = []
        together: set[str] = set()
        for each in self.contenders:
            names = {each.name, *each.rivals.values()}
            sizes |= {name: held_bytes(name, self.case) for name in names - sizes.keys()}
            if batches and sum(sizes[name] for name in together | names) <= budget:
                batches[-1].append(each)
                together |= names
            else:
                batches.append([each])
                together = names
        return [self._with(batch) for batch in batches]


@dataclass
class _Prepared:
    """Contenders whose warm-up is finished."""

    runs: dict[str, Run] = field(default_factory=dict)
    errors: dict[str, float | None] = field(default_factory=dict)
    """Differences from the reference, by contender."""
    reasons: dict[str, str] = field(default_factory=dict)
    """Why other contenders and rivals cannot run."""
    executed: dict[str, Products] = field(default_factory=dict)
    products_alone: dict[str, str] = field(default_factory=dict)
    """By contender, the name of the run of its products; contenders with equal products share one."""

    def rivals(self, contender: Contender) -> dict[str, str]:
        """Return the rivals of a contender that can run."""
        return {shown: rival for shown, rival in contender.rivals.items() if rival not in self.reasons}

    def needed(self, contenders: Iterable[Contender]) -> dict[str, Run]:
        """Return the runs of contenders, of their rivals, and of their products."""
        contenders = list(contenders)
        names = [each.name for each in contenders]
        names += [name for each in contenders for name in self.rivals(each).values()]
        names += [self.products_alone[each.name] for each in contenders if each.name in self.products_alone]
        return {name: self.runs[name] for name in dict.fromkeys(names)}


def measure(plan: CasePlan, rounds: int, say: Callable[[str], None] = print) -> Iterator[tuple[str, Measurement | str]]:
    """Yield each contender with its figures, or with the reason why it could not be measured.

    A contender is left out if it cannot do what the case asks for, or needs more memory than there is. Of a rival that
    cannot run, the ratio is left out, and ``say`` is told why. All are timed before memory is measured.
    """
    prepared, times = _Prepared(), {}
    crowded: BaseException | None = None
    try:
        prepared = _prepare(plan)
        ready = [each for each in plan.contenders if each.name in prepared.runs]
        times = _timed(ready, prepared, rounds) if ready else {}
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        crowded = error.with_traceback(None)
    prepared.runs.clear()
    gc.collect()  # models with cycles would stay in memory
    if crowded is not None:
        if len(plan.contenders) == 1:
            yield plan.contenders[0].name, _reason(crowded)
        else:  # one at a time needs less
            for each in plan.contenders:
                yield from measure(dataclasses.replace(plan, contenders=(each,)), rounds, say)
        return
    for rival in dict.fromkeys(name for each in plan.contenders for name in each.rivals.values()):
        if rival in prepared.reasons and rival not in {each.name for each in plan.contenders}:
            say(f"{rival}, {plan.case}: {prepared.reasons[rival]}")
    for each in plan.contenders:
        if each.name in prepared.reasons:
            yield each.name, prepared.reasons[each.name]
        else:
            yield each.name, _result(plan.case, each, prepared, times[each.name], say)


def _prepare(plan: CasePlan) -> _Prepared:
    """Check and build contenders, then build their rivals; each is called once, because some refuse only then."""
    home, case, prepared = memory.home(plan.case), plan.case, _Prepared()
    operands: dict[Shape, Operands] = {}
    known: dict[frozenset[tuple[Shape, int]], str] = {}

    def fits(name: str) -> None:
        free, needed = available_memory(), held_bytes(name, case)
        if not case.device and free is not None and needed > free:  # the system would end this process
            gigabytes = f"about {needed / 1e9:.0f} GB, of which {free / 1e9:.0f} are free"
            raise UnsupportedError(f"it takes more memory than there is: {gigabytes}")

    def check(name: str) -> None:
        prepared.errors[name] = home.check(name, case)

    def build(name: str) -> None:
        run = home.build(name, case)(case)
        run()
        prepared.runs[name] = run

    def record_products(name: str) -> None:
        executed = products(prepared.runs[name])
        if not executed.shapes:  # torch's own fast path for whole layers hides the products in it
            return
        shapes = frozenset(executed.shapes.items())
        if shapes not in known:
            alone = executed.alone(operands)
            alone()
            known[shapes] = f"{GEMM}, {name}"
            prepared.runs[known[shapes]] = alone
        prepared.executed[name], prepared.products_alone[name] = executed, known[shapes]

    def attempt(name: str, *steps: Callable[[str], None]) -> None:
        try:
            for step in steps:
                step(name)
        except (MemoryError, RuntimeError, UnsupportedError) as error:
            prepared.reasons[name] = _reason(error)
            prepared.runs.pop(name, None)

    for each in plan.contenders:
        attempt(each.name, fits, check, build, *([record_products] if each.with_products else []))
    ready = [each for each in plan.contenders if each.name in prepared.runs]
    for rival in dict.fromkeys(rival for each in ready for rival in each.rivals.values()):
        if rival not in prepared.runs and rival not in prepared.reasons:
            attempt(rival, fits, build)
    return prepared


def _timed(contenders: list[Contender], prepared: _Prepared, rounds: int) -> dict[str, Times]:
    """Return, by contender, the times that it is to be compared in.

    Contenders whose calls are short run again, with their rivals, as often as the shortest of them needs it.
    """
    times = interleaved(prepared.needed(contenders), rounds, warm_up=False)
    found = {each.name: times for each in contenders}
    short = [each for each in contenders if times.median(each.name) * rounds < LEAST_SECONDS]
    if short:
        shortest = min(times.median(each.name) for each in short)
        more = max(rounds, min(MOST_ROUNDS, int(LEAST_SECONDS / shortest) + 1))
        again = interleaved(prepared.needed(short), more, warm_up=False)
        found |= {each.name: again for each in short}
    return found


def _result(
    case: Case, contender: Contender, prepared: _Prepared, times: Times, say: Callable[[str], None]
) -> Measurement:
    name, executed = contender.name, prepared.executed.get(contender.name)
    weighed = contender.with_memory and memory.available()
    own, others = _megabytes(case, contender, say) if weighed else (None, {})
    return Measurement(
        name,
        case,
        times.median(name),
        times.spread(name),
        {shown: times.faster(name, rival) for shown, rival in prepared.rivals(contender).items()},
        own,
        others,
        None if executed is None else executed.gigaflop,
        None if executed is None else times.faster(name, prepared.products_alone[name]),
        prepared.errors[name],
        memory.home(case).cache_bytes(name, case) if case.kind == "decode" else None,
    )


def _megabytes(case: Case, contender: Contender, say: Callable[[str], None]) -> tuple[float | None, dict[str, float]]:
    """Return peak memory of a contender and of its rivals; a failure is said, and leaves the times as they are."""
    try:
        own = memory.peak_megabytes(contender.name, case)
        shown = contender.with_rival_memory
        return own, {name: memory.peak_megabytes(contender.rivals[name], case) for name in shown}
    except ChildProcessError as error:
        say(f"memory of {error}")
        return None, {}


def _reason(error: BaseException) -> str:
    """Return why a contender is left out, or raise an error that is no reason to leave it out."""
    if isinstance(error, UnsupportedError):
        return str(error)
    if out_of_memory(error):
        return "it takes more memory than there is"
    raise error
