"""Base class of metrics: rows of statistics, one per scored unit, and a value computed from any rows.

A bootstrap can therefore draw rows and compute the value again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float64]


@dataclass(frozen=True)
class MetricValue:
    """The value of a metric with its exact definition."""

    name: str
    value: float
    """The value on the scale of papers: BLEU, ROUGE, accuracy, F1 and correlations from 0 to 100."""
    definition: str
    """All facts that another implementation needs to compute an equal value."""
    higher_is_better: bool = True
    parts: dict[str, float] = field(default_factory=dict)
    """Components of the value, such as BLEU's precisions."""


class Metric:
    """Base class of metrics that compare predictions with references."""

    name: str
    higher_is_better: ClassVar[bool] = True
    definition: str
    """The exact definition of the score, options and versions included."""

    def rows(self, predictions: Sequence[Any], references: Sequence[Any]) -> Rows:
        """Return statistics, one row per unit: an example, or a group of examples that counts as one."""
        raise NotImplementedError

    def value(self, rows: Rows) -> float:
        """Return the value of these rows."""
        raise NotImplementedError

    def parts(self, rows: Rows) -> dict[str, float]:
        return {}

    def bootstrap(self, rows: Rows, samples: int) -> Rows:
        """Draw rows again and again, and return the number of each sample.

        All systems with as many rows get the same draws, so that their differences are paired.
        """
        generator = np.random.default_rng(0)
        return np.array([self.value(rows[generator.integers(len(rows), size=len(rows))]) for _ in range(samples)])

    def __call__(self, predictions: Sequence[Any], references: Sequence[Any]) -> MetricValue:
        if len(predictions) != len(references):
            raise ValueError(f"{self.name}: {len(predictions)} predictions for {len(references)} references")
        if len(predictions) == 0:
            raise ValueError(f"{self.name}: nothing to score")
        return self.result(self.rows(predictions, references))

    def result(self, rows: Rows) -> MetricValue:
        """Return the value of these rows with its definition and its parts."""
        return MetricValue(self.name, self.value(rows), self.definition, self.higher_is_better, self.parts(rows))


class MeanMetric(Metric):
    """A metric whose rows are scores of examples from 0 to 1, and whose value is 100 times their mean."""

    def value(self, rows: Rows) -> float:
        return 100.0 * float(rows.mean())
