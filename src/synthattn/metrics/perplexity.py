"""How well a text is predicted: perplexity and bits per byte."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from synthattn.metrics.base import Metric, Rows


class LikelihoodMetric(Metric):
    """A row is the negative log-likelihood of an example in nats, then its tokens, words and bytes.

    Predictions are such rows. References are not looked at, and may all be None.
    """

    higher_is_better = False

    def __init__(self, unit: str) -> None:
        self.unit = unit

    def rows(self, predictions: Sequence[Any], references: Sequence[Any]) -> Rows:
        rows = np.array([_checked(self.name, n, prediction) for n, prediction in enumerate(predictions)], np.float64)
        if rows[:, COLUMNS[self.unit]].sum() == 0:
            raise ValueError(f"{self.name}: {len(rows)} examples without a {self.unit}; nothing to divide by")
        return rows

    def nats(self, rows: Rows) -> float:
        """For each unit. Sums first: a long example counts more than a short one."""
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
    """``exp(nll / tokens)``, or for each word, which models with other tokens can be compared by."""

    def __init__(self, per: str = "token") -> None:
        if per not in ("token", "word"):
            raise ValueError(f"per must be 'token' or 'word', got {per!r}")
        super().__init__(per)
        self.name = f"{per}-perplexity"

    @property
    def definition(self) -> str:
        units = "tokens of the model" if self.unit == "token" else "words between spaces"
        return f"perplexity per {self.unit}: exp(sum of negative log-likelihoods in nats / sum of {units})"

    def value(self, rows: Rows) -> float:
        # Models that diverge have perplexities beyond all numbers.
        with np.errstate(over="ignore"):
            return float(np.exp(self.nats(rows)))


class BitsPerByte(LikelihoodMetric):
    """``nll / (ln 2 bytes)``, which models with any tokens can be compared by."""

    name = "bits-per-byte"

    def __init__(self) -> None:
        super().__init__("byte")

    @property
    def definition(self) -> str:
        return "bits per byte: sum of negative log-likelihoods in nats / (ln 2 x sum of bytes of the text in UTF-8)"

    def value(self, rows: Rows) -> float:
        return self.nats(rows) / math.log(2)
