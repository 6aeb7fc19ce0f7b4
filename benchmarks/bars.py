"""Acceptance bars: what records of ``synthattn bench`` must show, number by number: ``bars.py RECORD.json ...``.

Several records are merged. The bars were set before anything was measured, and some ask for more than arithmetic
allows.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from synthattn.bench.record import BenchRecord, Measurement, load, merged
from synthattn.render.numbers import digits


@dataclass(frozen=True)
class Bar:
    """One figure of a record, and the bound that it must reach."""

    number: int
    """Number of the requirement."""
    who: str
    """Contender and case."""
    quantity: str
    found: float
    bound: float
    better: str
    """Either ``at least`` or ``at most``."""

    @property
    def holds(self) -> bool:
        return self.found >= self.bound if self.better == "at least" else self.found <= self.bound

    @property
    def texts(self) -> tuple[str, str]:
        """Return found and bound with as many digits as it takes to tell them apart."""
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
    """A number that a measurement may have."""

    words: str
    of: Callable[[Measurement, BenchRecord], float | None]


def times(rival: str) -> Quantity:
    return Quantity(f"times as fast as {rival}", lambda found, record: found.ratios.get(rival))


def memory(rival: str) -> Quantity:
    """Return memory as a share of a rival's."""

    def share(found: Measurement, record: BenchRecord) -> float | None:
        theirs = found.rival_megabytes.get(rival)
        return found.megabytes / theirs if found.megabytes is not None and theirs else None

    return Quantity(f"memory as a share of {rival}'s", share)


def cache(contender: str) -> Quantity:
    """Return the cache as a share of another contender's in the same case."""

    def share(found: Measurement, record: BenchRecord) -> float | None:
        same = (m for m in record.measurements if m.contender == contender and m.case == found.case)
        theirs = next((m.cache_bytes for m in same), None)
        return found.cache_bytes / theirs if found.cache_bytes is not None and theirs else None

    return Quantity(f"cache as a share of {contender}'s", share)


GEMM_SHARE = Quantity("throughput as a share of plain matrix products'", lambda found, record: found.gemm_share)


@dataclass(frozen=True)
class Requirement:
    """A bound for measurements of one kind."""

    number: int
    quantity: Quantity
    bound: float
    kind: str
    shapes: tuple[tuple[int, int], ...]
    contenders: tuple[str, ...] = ()
    """Contenders; all that have the quantity if none is named."""
    where: Mapping[str, Sequence[object]] = field(default_factory=dict)
    """Values that attributes of the case may have."""
    better: str = "at least"

    def bars(self, record: BenchRecord) -> Iterator[Bar]:
        for found in record.of(self.kind):
            case = found.case
            meant = (case.batch, case.length) in self.shapes
            meant = meant and (not self.contenders or found.contender in self.contenders)
            meant = meant and all(getattr(case, name) in values for name, values in self.where.items())
            number = self.quantity.of(found, record) if meant else None
            if number is not None:
                who = f"{found.contender}, {case.kind} {case}"
                yield Bar(self.number, who, self.quantity.words, number, self.bound, self.better)


INPUT_INDEPENDENT = ("random", "fixed_random", "factorized_random")
KEYLESS = (*INPUT_INDEPENDENT, "dense", "factorized_dense", "random+dense")
MIXED = ("random+vanilla", "dense+vanilla", "factorized_random+vanilla")
MIDDLE, LONG = (16, 512), (4, 2048)
TRAIN, EVAL = {"mode": ("train",)}, {"mode": ("eval",)}

REQUIREMENTS = [
    *(
        Requirement(1, times(rival), bound, "layer", (MIDDLE, LONG), INPUT_INDEPENDENT, mode)
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
    Requirement(5, GEMM_SHARE, 0.75, "layer", (MIDDLE, LONG), INPUT_INDEPENDENT, EVAL | {"mask": ("full",)}),
]


def bars(record: BenchRecord) -> list[Bar]:
    """Return the bars of a record in the order of the requirements."""
    return [bar for requirement in REQUIREMENTS for bar in requirement.bars(record)]


def verdict(record: BenchRecord) -> str:
    """Return how many bars hold, and a line for each that does not."""
    found = bars(record)
    short = [f"  falls short: requirement {bar.number}: {bar}" for bar in found if not bar.holds]
    return "\n".join([f"{len(found) - len(short)} of {len(found)} bars hold", *short])


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit("usage: bars.py RECORD.json ...")
    print(verdict(merged(load(Path(path)) for path in sys.argv[1:])))


if __name__ == "__main__":
    main()
