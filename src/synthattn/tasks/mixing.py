"""Several tasks as one, as the paper co-trains GLUE and SuperGLUE: in proportion to their sizes, up to a limit."""

import random
from collections.abc import Iterator, Mapping, Sequence


def proportions(sizes: Mapping[str, int], limit: int | None = None) -> dict[str, float]:
    """The share of each task: its number of examples, at most ``limit``, as in T5."""
    if not sizes:
        raise ValueError("nothing to mix: no task was given")
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"cannot mix {name}: it has {size} examples")
    capped = {name: min(size, limit) if limit else size for name, size in sizes.items()}
    total = sum(capped.values())
    return {name: size / total for name, size in capped.items()}


def mix(sizes: Mapping[str, int], limit: int | None, seed: int) -> Iterator[tuple[str, int]]:
    """Endless pairs of a task, drawn by its share, and the number of an example, in shuffled rounds."""
    shares = proportions(sizes, limit)
    names: Sequence[str] = sorted(shares)
    draw = random.Random(seed)
    rounds = {name: _rounds(sizes[name], f"{seed} {name}") for name in names}
    weights = [shares[name] for name in names]
    while True:
        (name,) = draw.choices(names, weights)
        yield name, next(rounds[name])


def _rounds(size: int, seed: str) -> Iterator[int]:
    order = list(range(size))
    shuffle = random.Random(seed)
    while True:
        shuffle.shuffle(order)
        yield from order
