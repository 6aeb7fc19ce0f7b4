"""Show how far all runs of a plan are together, and how long the rest takes."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from synthattn.render.numbers import duration
from synthattn.training.progress import Display

EXPECTED = 10.0
"""Seconds for which the expected pace counts."""


@dataclass
class Overall:
    """Progress of several runs, some of them at the same time.

    Args:
        inner: returns the display of one run, from its label.
        seconds: expected time of each run that is still to be made, by its label.
        afterwards: seconds of what comes after the last run.
        jobs: number of runs at the same time.
    """

    inner: Callable[[str], Display]
    seconds: Mapping[str, float]
    afterwards: float
    jobs: int = 1
    done: dict[str, float] = field(default_factory=dict)
    """Finished part of each run, from 0 to 1."""
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.shown = self.inner("all runs")

    def display(self, label: str) -> Display:
        """Return a display of one run that counts in the total, too."""
        return _Counted(self, label, self.inner(label))

    def update(self, label: str, part: float) -> None:
        if label not in self.seconds:
            return
        self.done[label] = part
        total = sum(self.seconds.values())
        if not total:  # no model could be timed
            return
        behind = sum(self.seconds[name] * done for name, done in self.done.items())
        passed = time.monotonic() - self.began
        # Little has been seen at first: trust what was expected then, and what was seen later.
        pace = (passed + EXPECTED) / (behind + EXPECTED * self.jobs)
        self.shown.overall(behind / total, f"about {duration((total - behind) * pace + self.afterwards)} left")

    def close(self) -> None:
        self.shown.close()


@dataclass
class _Counted(Display):
    """The display of a run that is part of a total."""

    overall_progress: Overall
    label: str
    inner: Display

    def note(self, text: str) -> None:
        self.inner.note(text)

    def step(self, step: int, steps: int, facts: dict[str, str]) -> None:
        self.inner.step(step, steps, facts)
        if steps:
            self.overall_progress.update(self.label, step / steps)

    def scored(self, done: int, total: int) -> None:
        self.inner.scored(done, total)

    def close(self) -> None:
        self.inner.close()
        self.overall_progress.update(self.label, 1.0)
