"""ListOps (Nangia and Bowman, 2018) as Long Range Arena generates it (Tay et al., 2021): nested lists, a digit each.

An expression is an operator with 2 to 10 arguments, each a digit or, one time in four, another expression. Those of a
wrong length are thrown away. Long Range Arena's own lengths are ``shortest=500&longest=2000``.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, product
from statistics import median

from synthattn.data.builtin.generated import GeneratedSource

VERSION = 1
_HELD_OUT = 1000
# An operator, two arguments, a bracket.
_SMALLEST = 4
# So many of a wrong length in a row: the lengths that are asked for are next to impossible.
_PATIENCE = 20_000

_OPERATORS: tuple[tuple[str, Callable[[Sequence[int]], int]], ...] = (
    ("[MIN", min),
    ("[MAX", max),
    ("[MED", lambda values: int(median(values))),
    ("[SM", lambda values: sum(values) % 10),
)
_DIGITS = "0123456789"

Arguments = tuple[bool, ...]
"""Arguments of an operator: True for each that is an expression, False for a digit."""

# All that there are: up to a factor, any number of them is as likely as any other, and one in four is an expression.
_ARGUMENTS = tuple(arguments for count in range(2, 11) for arguments in product((False, True), repeat=count))
_WEIGHTS = tuple(accumulate(0.25 ** sum(arguments) * 0.75 ** arguments.count(False) for arguments in _ARGUMENTS))


def _shape(rng: random.Random, shortest: int, longest: int, depth: int) -> list[list[Arguments]] | None:
    """Draw the arguments of all operators, level by level; return None if the length is not as wanted.

    Most shapes are thrown away, so they are drawn before operators and digits are, and a level at once.
    """
    levels: list[list[Arguments]] = []
    length, operators = 1, 1
    while operators:
        level = rng.choices(_ARGUMENTS, cum_weights=_WEIGHTS, k=operators)
        if len(levels) == depth - 2:
            level = [(False,) * len(arguments) for arguments in level]
        levels.append(level)
        # The operators are counted already, as arguments of those above; what is new are their brackets and arguments.
        length += operators + sum(map(len, level))
        operators = sum(map(sum, level))
        # Those below are counted as one token each, and cannot be that small.
        if length + operators * (_SMALLEST - 1) > longest:
            return None
    return levels if length >= shortest else None


def _write(rng: random.Random, levels: Sequence[Iterator[Arguments]], tokens: list[str]) -> int:
    """Append the tokens of an expression and return its value."""
    name, operate = rng.choice(_OPERATORS)
    tokens.append(name)
    values: list[int] = []
    for nested in next(levels[0]):
        if nested:
            values.append(_write(rng, levels[1:], tokens))
        else:
            values.append(int(rng.random() * 10))
            tokens.append(_DIGITS[values[-1]])
    tokens.append("]")
    return operate(values)


def listops_source(
    name: str,
    *,
    size: int = 5_000,
    seed: int = 0,
    shortest: int = 10,
    longest: int = 200,
    depth: int = 10,
) -> GeneratedSource:
    """Make a source of expressions, the field ``Source``, with their values, the field ``Target``.

    Args:
        name: the text that the user wrote.
        size: number of training examples.
        seed: start of the random numbers.
        shortest: fewest tokens of an expression, operators and closing brackets included.
        longest: most tokens of an expression.
        depth: most levels of an expression, the digits being the last.
    """
    if depth < 2:
        raise ValueError(f"depth of listops must be at least 2, a list of digits, got {depth}")
    if longest < _SMALLEST:
        raise ValueError(f"longest of listops must be at least {_SMALLEST}, as [MAX 1 2 ] has, got {longest}")
    if longest < shortest:
        raise ValueError(f"listops has no expressions of at least shortest={shortest} and at most longest={longest}")

    def expression(rng: random.Random) -> dict[str, str]:
        for _ in range(_PATIENCE):
            levels = _shape(rng, shortest, longest, depth)
            if levels is not None:
                tokens: list[str] = []
                value = _write(rng, [iter(level) for level in levels], tokens)
                return {"Source": " ".join(tokens), "Target": str(value)}
        raise ValueError(
            f"listops finds no expressions of {shortest} to {longest} tokens with depth={depth}; allow for more lengths"
        )

    return GeneratedSource(
        name,
        "listops",
        VERSION,
        expression,
        lambda example: example["Source"],
        size=size,
        held_out=_HELD_OUT,
        seed=seed,
        note=f"expressions of {shortest} to {longest} tokens, generated as for Long Range Arena",
        options=f"shortest={shortest} longest={longest} depth={depth}",
    )
