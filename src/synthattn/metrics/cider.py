"""The CIDEr-D metric."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from synthattn.metrics.base import MeanMetric, Rows
from synthattn.metrics.texts import checked_texts, lowered_words

ORDERS = 4
SIGMA = 6.0
Ngram = tuple[str, ...]


@dataclass(frozen=True)
class TfIdfVectors:
    """The tf-idf vectors of a text, one for each order of n-grams."""

    vectors: list[dict[Ngram, float]]
    norms: list[float]
    length: int


class CiderD(MeanMetric):
    """CIDEr-D (Vedantam et al. 2015): similarity of tf-idf vectors of n-grams, for n from 1 to 4.

    Document frequencies are counted in the references of the scored set. A row is the score of one example, so a
    bootstrap sample uses the frequencies of the whole set. With a single example, every n-gram is in all references,
    and the score is 0.
    """

    name = "cider"
    definition = (
        f"pycocoevalcap CIDEr-D score x 100: n-grams of 1 to {ORDERS} lower-cased words between spaces, "
        f"sigma={SIGMA}, document frequencies from the references of the scored set, mean over references and "
        "examples; the score itself goes to 10"
    )

    def rows(self, predictions: Sequence[Any], references: Sequence[Any]) -> Rows:
        pairs = [(_counts(p), [_counts(r) for r in rs]) for p, rs in checked_texts(self.name, predictions, references)]
        frequency = Counter(ngram for _, texts in pairs for ngram in set().union(*texts))
        scores = []
        for prediction, texts in pairs:
            weighted = _weighted(prediction, frequency, len(pairs))
            similarities = [_similarity(weighted, _weighted(text, frequency, len(pairs))) for text in texts]
            scores.append(10.0 * sum(similarities) / len(similarities))
        return np.array(scores, dtype=np.float64)[:, None]


def _counts(text: str) -> Counter[Ngram]:
    words = lowered_words(text)
    return Counter(tuple(words[i : i + n]) for n in range(1, ORDERS + 1) for i in range(len(words) - n + 1))


def _weighted(counts: Counter[Ngram], frequency: Counter[Ngram], documents: int) -> TfIdfVectors:
    vectors: list[dict[Ngram, float]] = [{} for _ in range(ORDERS)]
    for ngram, count in counts.items():
        # An n-gram without a reference counts as if one reference had it.
        vectors[len(ngram) - 1][ngram] = count * math.log(documents / max(1, frequency[ngram]))
    norms = [math.sqrt(sum(value**2 for value in vector.values())) for vector in vectors]
    return TfIdfVectors(vectors, norms, sum(count for ngram, count in counts.items() if len(ngram) == 1))


def _similarity(prediction: TfIdfVectors, reference: TfIdfVectors) -> float:
    """Return the mean similarity over n; repeated n-grams are clipped, and other lengths are penalised."""
    total = 0.0
    for n in range(ORDERS):
        mine, theirs = prediction.vectors[n], reference.vectors[n]
        product = sum(min(value, theirs[ngram]) * theirs[ngram] for ngram, value in mine.items() if ngram in theirs)
        if product > 0.0:
            total += product / (prediction.norms[n] * reference.norms[n])
    return total / ORDERS * math.exp(-((prediction.length - reference.length) ** 2) / (2 * SIGMA**2))
