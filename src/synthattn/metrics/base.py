"""What a metric is: rows of statistics, one for each unit that is scored, and a number from any set of rows.

So uncertainty needs nothing more: a bootstrap draws rows and computes the number again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float64]


@dataclass(frozen=True)
class MetricValue:
    """A number and what exactly it is."""

    name: str
    value: float
    """On the scale in which papers print it: BLEU, ROUGE, accuracy, F1 and correlations from 0 to 100."""
    definition: str
    """All that another implementation must know to get the same number."""
    higher_is_better: bool = True
    parts: dict[str, float] = field(default_factory=dict)
    """What the number was made of, such as BLEU's precisions."""


class Metric:
    """A metric of a list of predictions against a list of references."""

    name: str
    higher_is_better: ClassVar[bool] = True

    @property
    def definition(self) -> str:
        raise NotImplementedError

    def rows(self, predictions: Sequence[Any], references: Sequence[Any]) -> Rows:
        """Statistics, one row for each unit: an example, or a group of examples that count as one."""
        raise NotImplementedError

    def value(self, rows: Rows) -> float:
        """The number for these units."""
        raise NotImplementedError

    def parts(self, rows: Rows) -> dict[str, float]:
        return {}

    def __call__(self, predictions: Sequence[Any], references: Sequence[Any]) -> MetricValue:
        if len(predictions) != len(references):
            raise ValueError(f"{self.name}: {len(predictions)} predictions for {len(references)} references")
        if len(predictions) == 0:
            raise ValueError(f"{self.name}: nothing to score")
        rows = self.rows(predictions, references)
        return MetricValue(self.name, self.value(rows), self.definition, self.higher_is_better, self.parts(rows))
