"""The METEOR metric with exact words and stems."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from synthattn.metrics.base import MeanMetric, Rows
from synthattn.metrics.texts import checked_texts, lowered_words

ALPHA, BETA, GAMMA = 0.9, 3.0, 0.5


class Meteor(MeanMetric):
    """METEOR (exact+stem): ``(1 - gamma (chunks / m)^beta) P R / (alpha P + (1 - alpha) R)`` for m matched words.

    Equal words are matched first, then equal stems among the remaining words. Matching runs from the last word to the
    first, each with the last free word. A chunk is a run of matches that are adjacent in both texts. Synonyms are left
    out, since no package contains WordNet. A perfect prediction of m words is one chunk and scores
    ``100 (1 - gamma / m^beta)``.
    """

    name = "meteor"
    definition = (
        "METEOR (exact+stem): Lavie and Agarwal 2007 as in nltk without synonyms, Porter stems, lower-cased words "
        f"between spaces, alpha={ALPHA}, beta={BETA}, gamma={GAMMA}, best of several references, mean over "
        "examples, x 100"
    )

    def rows(self, predictions: Sequence[Any], references: Sequence[Any]) -> Rows:
        pairs = checked_texts(self.name, predictions, references)
        scores = [max(self._score(lowered_words(p), lowered_words(text)) for text in texts) for p, texts in pairs]
        return np.array(scores, dtype=np.float64)[:, None]

    @cached_property
    def _stem(self) -> Callable[[str], str]:
        from nltk.stem.porter import PorterStemmer

        return lru_cache(maxsize=2**16)(PorterStemmer().stem)

    def _score(self, prediction: list[str], reference: list[str]) -> float:
        aligned = self._aligned(prediction, reference)
        if not aligned:
            return 0.0
        precision, recall = len(aligned) / len(prediction), len(aligned) / len(reference)
        mean = precision * recall / (ALPHA * precision + (1 - ALPHA) * recall)
        # A chunk begins at a match that does not continue another one.
        chunks = sum(aligned.get(i - 1) != j - 1 for i, j in aligned.items())
        return (1 - GAMMA * (chunks / len(aligned)) ** BETA) * mean

    def _aligned(self, prediction: list[str], reference: list[str]) -> dict[int, int]:
        """Return matched words, from positions in the prediction to positions in the reference."""
        exact = _matches(dict(enumerate(prediction)), dict(enumerate(reference)))
        used = set(exact.values())
        left = {i: self._stem(word) for i, word in enumerate(prediction) if i not in exact}
        free = {j: self._stem(word) for j, word in enumerate(reference) if j not in used}
        return exact | _matches(left, free)


def _matches(left: dict[int, str], right: dict[int, str]) -> dict[int, int]:
    """Match words from last to first, each with the last free position of an equal word."""
    places: dict[str, list[int]] = defaultdict(list)
    for j, word in right.items():
        places[word].append(j)
    return {i: places[word].pop() for i, word in reversed(left.items()) if places[word]}
