"""Metrics that sacrebleu computes, as rows of its own statistics."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from synthattn.metrics.base import Metric, Rows
from synthattn.metrics.texts import checked_texts


class SacreMetric(Metric):
    """A row holds sacrebleu's counts for a sentence; the counts of a set of sentences are their sum.

    So the value of all rows is exactly sacrebleu's score of the corpus.
    """

    def scorer(self) -> Any:
        """A new metric object of sacrebleu."""
        raise NotImplementedError

    def prepared(self, text: str) -> str:
        """A text as sacrebleu shall see it."""
        return text

    @property
    def signature(self) -> str:
        """sacrebleu's signature; the number of references is in it once rows were computed."""
        return self._scorer.get_signature().format()

    @cached_property
    def _scorer(self) -> Any:
        scorer = self.scorer()
        # sacrebleu refuses to sign before it has seen references, and leaves out what is None.
        scorer.num_refs = None
        return scorer

    def rows(self, predictions: Sequence[Any], references: Sequence[Any]) -> Rows:
        pairs = checked_texts(self.name, predictions, references)
        most = max(len(texts) for _, texts in pairs)
        # sacrebleu wants the first references of all sentences, then the second ones, None where there is none.
        streams = [[self.prepared(texts[n]) if n < len(texts) else None for _, texts in pairs] for n in range(most)]
        # Private, but sacrebleu has no public way to the counts of each sentence; a test compares with corpus scores.
        counts = self._scorer._extract_corpus_statistics([self.prepared(text) for text, _ in pairs], streams)
        return np.array(counts, dtype=np.float64)

    def value(self, rows: Rows) -> float:
        return float(self._score(rows).score)

    def _score(self, rows: Rows) -> Any:
        return self._scorer._compute_score_from_stats(rows.sum(0).tolist())
