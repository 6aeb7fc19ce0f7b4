"""The result of a fault campaign."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

Verdict = Literal["right", "clear", "traceback", "crash", "wrong"]
"""Verdict on a faulty input.

``right``: accepted, and the result equals an independent computation.
``clear``: refused in one line that says what is wrong.
``traceback``: a Python traceback reached the user, or an exception of an unexpected type the caller.
``crash``: the process died or did not end.
``wrong``: accepted, and the result is wrong.
"""

GOOD: tuple[Verdict, ...] = ("right", "clear")


@dataclass
class Outcome:
    """Counts of verdicts, and a description of every input that ended badly."""

    campaign: str
    counts: Counter[Verdict] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, verdict: Verdict, description: str = "") -> None:
        """Count one input. ``description`` says how to repeat a bad one."""
        self.counts[verdict] += 1
        if verdict not in GOOD:
            self.failures.append(f"{verdict}: {description}")

    @property
    def tried(self) -> int:
        return self.counts.total()

    def row(self) -> str:
        """One line of the table that ``python -m tools.faults`` prints."""
        numbers = [self.tried, *(self.counts[v] for v in ("clear", "right", "traceback", "crash", "wrong"))]
        return f"{self.campaign:<16}" + "".join(f"{number:>12,}" for number in numbers)


HEADER = f"{'campaign':<16}" + "".join(
    f"{name:>12}" for name in ("tried", "one line", "right", "tracebacks", "crashes", "wrong")
)
