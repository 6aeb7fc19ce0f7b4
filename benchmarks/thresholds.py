"""Measure both ways around a threshold of ``synthattn.engine.thresholds``: ``thresholds.py NAME [--rounds 5]``.

For each size it prints how many times as fast the way above the threshold is as the one below: the threshold belongs
where this passes 1. Constants that are a size of their own, such as rows of a block, are compared with other values in
the same way: the time with the present value, divided by that with another. Run it on a quiet machine.
"""

import argparse
import contextlib
import functools
import math
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from synthattn import SyntheticAttention
from synthattn.engine import thresholds
from synthattn.engine.cached_weights import Snapshot
from synthattn.engine.thresholds import processor

D_MODEL, HEADS, TOKENS, SECONDS = 512, 8, 4096, 0.1


class Threshold(NamedTuple):
    """The sizes to measure at, what to run for each, and the values that send it the way below and the way above."""

    sizes: list[int]
    run: Callable[[int, bool], Callable[[], object]]
    below: Any = 2**62
    above: Any = 0


def layer(spec: str, length: int, train: bool, **masks: Any) -> Callable[[], object]:
    module = SyntheticAttention(D_MODEL, HEADS, spec, max_length=length).train(train)
    x = torch.randn(max(1, TOKENS // length), length, D_MODEL, requires_grad=train)

    def run() -> None:
        with torch.set_grad_enabled(train):
            y = module(x, **masks)
        if train:
            y.backward(torch.ones_like(y))

    return run


def by_logits(spec: str, **masks: Any) -> Callable[[int, bool], Callable[[], object]]:
    """A layer with so many logits for each example."""
    return lambda size, train: layer(spec, math.isqrt(size // HEADS), train, **masks)


def snapshot(size: int, train: bool) -> Callable[[], object]:
    table = torch.randn(size // 256, 256)

    @functools.cache
    def known(_: int) -> Snapshot:
        return Snapshot([table])

    return lambda: known(thresholds.DIGESTED_ENTRIES).is_current([table])


def around(size: int) -> list[int]:
    return [size // 4, size // 2, size, 2 * size, 4 * size]


def others(name: str, spec: str, length: int, **masks: Any) -> Threshold:
    """A constant that is compared with other values of itself; the sizes are these values."""
    values = around(getattr(thresholds, name))
    return Threshold(values, lambda _, train: layer(spec, length, train, **masks), None, None)


MEASURED = {
    "COMPILED_LOGITS": Threshold(around(thresholds.COMPILED_LOGITS), by_logits("random+vanilla")),
    "PRODUCT_LOGITS": Threshold([2**16, 2**17, 2**19, 2**21, 2**23], by_logits("vanilla"), {}, {processor(): 0}),
    "LARGE_TABLE": Threshold(around(thresholds.LARGE_TABLE), by_logits("random+dense")),
    "NARROW_FACTORS": Threshold(
        around(thresholds.NARROW_FACTORS),
        lambda size, train: layer(f"factorized_random(rank={size})+vanilla", 512, train),
    ),
    "UNWRITTEN_WEIGHTS": Threshold(around(thresholds.UNWRITTEN_WEIGHTS), by_logits("random")),
    "DIGESTED_ENTRIES": Threshold(around(thresholds.DIGESTED_ENTRIES), snapshot),
    "CHUNKED_LOGITS": Threshold(around(thresholds.CHUNKED_LOGITS), by_logits("factorized_dense")),
    "CAUSAL_ROWS": others("CAUSAL_ROWS", "random", 1024, is_causal=True),
    "LINEAR_ROWS": others("LINEAR_ROWS", "toeplitz", 4096),
    "LINEAR_SPANS": Threshold(
        [1, 2, 3, 4, 6, 8], lambda size, train: layer("toeplitz", size * (thresholds.LINEAR_ROWS + 256), train)
    ),
    "WINDOW_ROWS": others("WINDOW_ROWS", "dense(window=15)", 1024),
    "CHUNK_LOGITS": others("CHUNK_LOGITS", "factorized_dense", 512),
    "CHUNK_ROWS": others("CHUNK_ROWS", "factorized_dense", 2048),
}


@contextlib.contextmanager
def changed(name: str, value: Any) -> Iterator[None]:
    before = getattr(thresholds, name)
    setattr(thresholds, name, value)
    try:
        yield
    finally:
        setattr(thresholds, name, before)


def seconds(name: str, value: Any, run: Callable[[], object]) -> float:
    with changed(name, value):
        start, count = time.perf_counter(), 0
        while count == 0 or time.perf_counter() - start < SECONDS:
            run()
            count += 1
    return (time.perf_counter() - start) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("name", choices=MEASURED)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    sizes, make, below, above = MEASURED[given.name]
    now = getattr(thresholds, given.name)
    print(f"{given.name} on {' '.join(processor())}, {torch.get_num_threads()} threads; now {now}")
    for size in sizes:
        ways = (now, size) if above is None else (below, above)
        found = []
        for train in (False,) if make is snapshot else (False, True):
            run, ratios = make(size, train), []
            for way in ways:
                seconds(given.name, way, run)
            for number in range(given.rounds):
                order = ways if number % 2 == 0 else ways[::-1]
                times = [seconds(given.name, way, run) for way in order]
                times = times if number % 2 == 0 else times[::-1]
                ratios.append(times[0] / times[1])
            found.append(f"{'train' if train else 'eval'} {statistics.median(ratios):.3f}")
        print(f"{size:>12}  {'  '.join(found)}", flush=True)


if __name__ == "__main__":
    main()
