"""Perplexity and bits per byte of a text."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from synthattn.metrics.base import Metric, Rows


class LikelihoodMetric(Metric):
    """Base class of likelihood metrics. A row holds the nats, tokens, words and bytes of an example.

    Nats are the negative log-likelihood. Predictions are such rows. References are ignored and may all be None.
    """

    higher_is_better = False

    unit: str

    def rows(self, predictions: Sequence[Any], references: Sequence[Any]) -> Rows:
        rows = np.array([_checked(self.name, n, prediction) for n, prediction in enumerate(predictions)], np.float64)
        if rows[:, COLUMNS[self.unit]].sum() == 0:
            raise ValueError(f"{self.name}: {len(rows)} examples without a {self.unit}; nothing to divide by")
        return rows

    def nats(self, rows: Rows) -> float:
        """Return the nats per unit: a ratio of sums, so that long examples count more than short ones."""
        count = rows[:, COLUMNS[self.unit]].sum()
        return float(rows[:, 0].sum() / count) if count > 0 else math.nan


COLUMNS = {"token": 1, "word": 2, "byte": 3}


def _checked(name: str, n: int, prediction: Any) -> tuple[float, ...]:
    numbers = tuple(float(number) for number in prediction)
    if len(numbers) != 4:
        raise ValueError(f"{name}: prediction {n} must be (nll, tokens, words, bytes), got {len(numbers)} numbers")
    if min(numbers[1:]) < 0:
        raise ValueError(f"{name}: prediction {n} has a negative number of tokens, words or bytes: {numbers[1:]}")
    return numbers


class Perplexity(LikelihoodMetric):
    """Perplexity per token, or per word to compare models with different tokens."""

    def __init__(self, per: str = "token") -> None:
        if per not in ("token", "word"):
            raise ValueError(f"per must be 'token' or 'word', got {per!r}")
        self.unit, self.name = per, f"{per}-perplexity"
        units = "tokens of the model" if per == "token" else "words between spaces"
        self.definition = f"perplexity per {per}: exp(sum of negative log-likelihoods in nats / sum of {units})"

    def value(self, rows: Rows) -> float:
        # The perplexity of a diverged model may overflow.
        with np.errstate(over="ignore"):
            return float(np.exp(self.nats(rows)))


class BitsPerByte(LikelihoodMetric):
    """Bits per byte, by which models with different tokens can be compared."""

    name, unit = "bits-per-byte", "byte"
    definition = "bits per byte: sum of negative log-likelihoods in nats / (ln 2 x sum of bytes of the text in UTF-8)"

    def value(self, rows: Rows) -> float:
        return self.nats(rows) / math.log(2)
