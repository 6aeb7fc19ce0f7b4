"""What a benchmark must show, number by number."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from synthattn.bench.record import Measurement, Record
from synthattn.render.numbers import digits

Shape = tuple[int, int]
"""Batch and length."""


@dataclass(frozen=True)
class Bar:
    """One number and what it must reach."""

    number: int
    """Of the requirement."""
    rule: str
    """The requirement in words: the same for all bars that it makes."""
    who: str
    """And in which case."""
    quantity: str
    found: float
    bound: float
    better: str
    """``at least`` or ``at most``."""

    @property
    def claim(self) -> str:
        return f"{self.who}: {self.quantity}"

    @property
    def holds(self) -> bool:
        return self.found >= self.bound if self.better == "at least" else self.found <= self.bound

    @property
    def margin(self) -> float:
        """More than 1 is better than the bound."""
        above, below = (self.found, self.bound) if self.better == "at least" else (self.bound, self.found)
        return above / below if below else float("inf")

    @property
    def texts(self) -> tuple[str, str]:
        """Found and bound, with so many digits that they differ where the numbers do."""
        for count in range(3, 17):
            found, bound = digits(self.found, count), digits(self.bound, count)
            if found != bound or self.found == self.bound:
                return found, f"{self.bound:g}"
        return str(self.found), str(self.bound)

    def __str__(self) -> str:
        found, bound = self.texts
        return f"{self.who}: {found} {self.quantity}, {self.better} {bound} wanted"


@dataclass(frozen=True)
class Quantity:
    """A number of a measurement, where it has it."""

    words: str
    of: Callable[[Measurement, Record], float | None]


def times(rival: str) -> Quantity:
    return Quantity(f"times as fast as {rival}", lambda found, record: found.ratios.get(rival))


def memory(rival: str) -> Quantity:
    """Shares below 1 are less memory than the rival's."""

    def share(found: Measurement, record: Record) -> float | None:
        theirs = found.rival_megabytes.get(rival)
        return found.megabytes / theirs if found.megabytes is not None and theirs else None

    return Quantity(f"memory as a share of {rival}'s", share)


def cache(contender: str) -> Quantity:
    """Return the cache as a share of another contender's in the same case."""

    def share(found: Measurement, record: Record) -> float | None:
        same = (m for m in record.measurements if m.contender == contender and m.case == found.case)
        theirs = next((m.cache_bytes for m in same), None)
        return found.cache_bytes / theirs if found.cache_bytes is not None and theirs else None

    return Quantity(f"cache as a share of {contender}'s", share)


GEMM_SHARE = Quantity("throughput as a share of plain matrix products'", lambda found, record: found.gemm_share)


@dataclass(frozen=True)
class Requirement:
    """A bound for all measurements of a kind that it is about."""

    number: int
    quantity: Quantity
    bound: float
    kind: str
    shapes: tuple[Shape, ...]
    contenders: tuple[str, ...] = ()
    """All that have the quantity, where none is named."""
    where: Mapping[str, Sequence[object]] = field(default_factory=dict)
    """Attributes of the case and what they may be; all others may be anything."""
    better: str = "at least"

    def __str__(self) -> str:
        where = [f"{self.kind} {' and '.join(f'{batch}x{length}' for batch, length in self.shapes)}"]
        for name, values in self.where.items():
            where.append(" and ".join(map(str, values)) + (" beams" if name == "beams" else ""))
        return f"{', '.join(self.contenders) or 'all'} ({', '.join(where)}): {self.quantity.words}"

    def bars(self, record: Record) -> Iterator[Bar]:
        for found in record.of(self.kind):
            case = found.case
            meant = (case.batch, case.length) in self.shapes
            meant = meant and (not self.contenders or found.contender in self.contenders)
            meant = meant and all(getattr(case, name) in values for name, values in self.where.items())
            number = self.quantity.of(found, record) if meant else None
            if number is not None:
                who = f"{found.contender}, {case.kind} {case}"
                yield Bar(self.number, str(self), who, self.quantity.words, number, self.bound, self.better)


BATCH_FREE = ("random", "fixed_random", "factorized_random")
"""Their weights are the same for every example."""
KEYLESS = (*BATCH_FREE, "dense", "factorized_dense", "random+dense")
MIXED = ("random+vanilla", "dense+vanilla", "factorized_random+vanilla")
MIDDLE, LONG = (16, 512), (4, 2048)
TRAIN, EVAL = {"mode": ("train",)}, {"mode": ("eval",)}

REQUIREMENTS = [
    *(
        Requirement(1, times(rival), bound, "layer", (MIDDLE, LONG), BATCH_FREE, mode)
        for mode, bound in ((EVAL, 2.0), (TRAIN, 1.8))
        for rival in ("vanilla", "nn.MultiheadAttention")
    ),
    Requirement(2, times("vanilla"), 1.05, "layer", (MIDDLE, LONG), ("dense",), EVAL),
    Requirement(2, times("vanilla"), 0.95, "layer", (MIDDLE, LONG), ("random+vanilla",), EVAL),
    Requirement(2, times("vanilla"), 0.85, "layer", (MIDDLE,), MIXED, TRAIN),
    Requirement(2, times("vanilla"), 0.75, "layer", (LONG,), MIXED, TRAIN),
    Requirement(2, times("straightforward"), 1.0, "layer", (MIDDLE, LONG)),
    Requirement(2, memory("straightforward"), 0.40, "layer", (LONG,), MIXED, TRAIN, "at most"),
    Requirement(3, times("dynamicconv"), 1.6, "train", ((8, 512),), ("random",)),
    Requirement(3, times("vanilla"), 1.15, "train", ((8, 512),), ("random",)),
    Requirement(3, times("Hugging Face T5"), 1.0, "train", ((8, 512),), ("vanilla",)),
    *(
        Requirement(4, quantity, bound, "decode", ((8, 128),), KEYLESS, {"beams": (1, 4)}, better)
        for quantity, bound, better in (
            (times("vanilla"), 1.2, "at least"),
            (times("Hugging Face T5"), 1.5, "at least"),
            (cache("vanilla"), 0.5, "at most"),
        )
    ),
    Requirement(5, GEMM_SHARE, 0.75, "layer", (MIDDLE, LONG), BATCH_FREE, EVAL | {"mask": ("full",)}),
]


def bars(record: Record) -> list[Bar]:
    """For all that is in the record, in the order of the requirements."""
    return [bar for requirement in REQUIREMENTS for bar in requirement.bars(record)]


@dataclass(frozen=True)
class Outcome:
    """All bars of one requirement."""

    bars: list[Bar]

    @property
    def worst(self) -> Bar:
        return min(self.bars, key=lambda bar: bar.margin)

    @property
    def held(self) -> int:
        return sum(bar.holds for bar in self.bars)

    @property
    def holds(self) -> bool:
        return self.held == len(self.bars)


def outcomes(found: list[Bar]) -> list[Outcome]:
    """Requirements that have a bar, each with its bars."""
    groups: dict[tuple[int, str], list[Bar]] = {}
    for bar in found:
        groups.setdefault((bar.number, bar.rule), []).append(bar)
    return [Outcome(group) for group in groups.values()]


def verdict(record: Record) -> str:
    """How many hold, and a line for each that does not."""
    found = bars(record)
    short = [f"  falls short: requirement {bar.number}: {bar}" for bar in found if not bar.holds]
    return "\n".join([f"{len(found) - len(short)} of {len(found)} bars hold", *short])


def judged_shapes(kind: str) -> set[Shape]:
    """Return the shapes that a requirement is about."""
    return {shape for requirement in REQUIREMENTS if requirement.kind == kind for shape in requirement.shapes}
