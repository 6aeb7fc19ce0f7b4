"""Similarity of texts by word vectors."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synthattn.metrics.base import MeanMetric, Rows
from synthattn.metrics.texts import checked_texts, lowered_words

Vectors = NDArray[np.floating[Any]]


class EmbeddingSimilarity(MeanMetric):
    """Embedding average, vector extrema or greedy matching (Liu et al. 2016, "How NOT To Evaluate ...").

    Args:
        kind: ``average``: cosine of the mean vectors. ``extrema``: cosine of the vectors of values farthest from zero
            in each dimension, negative in a tie. ``greedy``: for each word the greatest cosine with a word of the other
            text, averaged over words, then over both directions.
        vectors: vectors by word. Words without a vector are left out; a text without any vector scores 0.
        origin: origin of the vectors, for the definition.
    """

    def __init__(self, kind: str, vectors: Mapping[str, Vectors], origin: str) -> None:
        if kind not in KINDS:
            raise ValueError(f"unknown embedding similarity {kind!r}; choose from {', '.join(KINDS)}")
        if not vectors:
            raise ValueError(f"embedding similarity needs vectors of words, {origin} has none")
        self.score, described = KINDS[kind]
        self.vectors, self.name = vectors, f"embedding-{kind}"
        self.definition = (
            f"embedding {kind} (Liu et al. 2016): {described}, lower-cased words between spaces, words without vector "
            f"left out, best of several references, mean over examples, x 100; vectors: {origin}"
        )

    def rows(self, predictions: Sequence[Any], references: Sequence[Any]) -> Rows:
        pairs = checked_texts(self.name, predictions, references)
        scores = [max(self._score(prediction, text) for text in texts) for prediction, texts in pairs]
        return np.array(scores, dtype=np.float64)[:, None]

    def _score(self, prediction: str, reference: str) -> float:
        mine, theirs = self._found(prediction), self._found(reference)
        return self.score(np.array(mine, float), np.array(theirs, float)) if mine and theirs else 0.0

    def _found(self, text: str) -> list[Vectors]:
        return [self.vectors[word] for word in lowered_words(text) if word in self.vectors]


def _cosines(a: Rows, b: Rows) -> Rows:
    """Return the cosines of all rows of a with all rows of b; a zero vector has cosine 0."""
    norms = np.linalg.norm(a, axis=1)[:, None] * np.linalg.norm(b, axis=1)
    return np.divide(a @ b.T, norms, out=np.zeros_like(norms), where=norms > 0)


def _average(a: Rows, b: Rows) -> float:
    return float(_cosines(a.mean(0, keepdims=True), b.mean(0, keepdims=True))[0, 0])


def _extrema(a: Rows, b: Rows) -> float:
    return float(_cosines(_extreme(a), _extreme(b))[0, 0])


def _extreme(vectors: Rows) -> Rows:
    high, low = vectors.max(0, keepdims=True), vectors.min(0, keepdims=True)
    return np.where(high > -low, high, low)


def _greedy(a: Rows, b: Rows) -> float:
    cosines = _cosines(a, b)
    return float((cosines.max(0).mean() + cosines.max(1).mean()) / 2)


KINDS: dict[str, tuple[Callable[[Rows, Rows], float], str]] = {
    "average": (_average, "cosine of the mean vectors"),
    "extrema": (_extrema, "cosine of the vectors of extreme values"),
    "greedy": (_greedy, "mean of the greatest cosines of words, mean of both directions"),
}
"""Each kind of similarity with its definition."""
