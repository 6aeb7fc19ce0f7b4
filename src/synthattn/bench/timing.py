"""Time computations in turns, so that a slow moment of the machine hits all of them."""

import gc
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch

Run = Callable[[], object]


@dataclass(frozen=True)
class Times:
    """Seconds of every round, by name."""

    seconds: Mapping[str, list[float]]

    def median(self, name: str) -> float:
        return statistics.median(self.seconds[name])

    def spread(self, name: str) -> float:
        """Interquartile range divided by the median."""
        low, high = quartiles(self.seconds[name])
        return (high - low) / self.median(name)

    def faster(self, name: str, than: str) -> float:
        """Return how many times as fast a run is as another: the median of the ratios within each round."""
        return statistics.median(self.ratios(name, than))

    def ratios(self, name: str, than: str) -> list[float]:
        pairs = zip(self.seconds[than], self.seconds[name], strict=True)
        return [theirs / ours for theirs, ours in pairs]


def interleaved(runs: Mapping[str, Run], rounds: int, warm_up: bool = True) -> Times:
    """Time all runs in every round, after a warm-up.

    The order changes from round to round, so that no run always follows one that empties the cache, and none follows
    itself with its own data still there.
    """
    if rounds < 1 or not runs:
        raise ValueError(f"timing needs at least one round and one contender, got {rounds} and {len(runs)}")
    with undisturbed():
        for run in runs.values() if warm_up else ():
            run()
        seconds: dict[str, list[float]] = {name: [] for name in runs}
        order, chance = list(runs), random.Random(0)
        for _ in range(rounds):
            last = order[-1]
            chance.shuffle(order)
            if order[0] == last:
                order.reverse()
            for name in order:
                start = time.perf_counter()
                runs[name]()
                seconds[name].append(time.perf_counter() - start)
    return Times(seconds)


WIDE = 0.25
"""A speed is uncertain if its quartiles are further apart than this share of it."""


@dataclass
class Speed:
    """A speed, as times that of the baseline, measured in turn with it; more is faster."""

    value: float
    low: float
    high: float
    """Quartiles of the rounds."""
    rounds: int = 0
    """0 where it was not recorded."""

    @property
    def uncertain(self) -> bool:
        """Whether the rounds differ so much that the speed says little."""
        return self.high - self.low > WIDE * self.value


def quartiles(found: list[float]) -> tuple[float, float]:
    if len(found) == 1:
        return found[0], found[0]
    low, _, high = statistics.quantiles(found, n=4, method="inclusive")
    return low, high


@contextmanager
def undisturbed() -> Iterator[None]:
    """Seed random numbers and stop garbage collection for a block, and restore both afterwards."""
    collecting = gc.isenabled()
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())), torch.enable_grad():
        torch.manual_seed(0)
        gc.disable()
        try:
            yield
        finally:
            if collecting:
                gc.enable()
