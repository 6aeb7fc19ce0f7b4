"""Time as ratios within one run: what the machine does in a slow moment, it does to all."""

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
    """Seconds of every round, by contender."""

    seconds: Mapping[str, list[float]]

    def median(self, name: str) -> float:
        return statistics.median(self.seconds[name])

    def spread(self, name: str) -> float:
        """Interquartile range divided by the median."""
        low, high = quartiles(self.seconds[name])
        return (high - low) / self.median(name)

    def faster(self, name: str, than: str) -> float:
        """How many times, as the median over rounds; neighbours in time share the machine's moods."""
        return statistics.median(self.ratios(name, than))

    def ratios(self, name: str, than: str) -> list[float]:
        pairs = zip(self.seconds[than], self.seconds[name], strict=True)
        return [theirs / ours for theirs, ours in pairs]


def interleaved(runs: Mapping[str, Run], rounds: int, warm_up: bool = True) -> Times:
    """Run each once to warm up, then all of them in every round, in another order each time: nobody always comes after
    the one that empties the cache, and nobody after itself, with its own data still there."""
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


def quartiles(found: list[float]) -> tuple[float, float]:
    if len(found) == 1:
        return found[0], found[0]
    low, _, high = statistics.quantiles(found, n=4, method="inclusive")
    return low, high


@contextmanager
def undisturbed() -> Iterator[None]:
    """The same chance every time, given back afterwards, and no collection of garbage in between."""
    collecting = gc.isenabled()
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())), torch.enable_grad():
        torch.manual_seed(0)
        gc.disable()
        try:
            yield
        finally:
            if collecting:
                gc.enable()
