"""Base class of metrics by sacrebleu, with its counts as rows."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from synthattn.metrics.base import Metric, Rows
from synthattn.metrics.texts import checked_texts


class SacrebleuMetric(Metric):
    """Metric by sacrebleu. A row holds the counts of a sentence, and counts of sentences are added.

    The value of all rows is therefore exactly sacrebleu's corpus score.
    """

    def scorer(self) -> Any:
        """Return a new metric object of sacrebleu."""
        raise NotImplementedError

    def prepared(self, text: str) -> str:
        """Return a text in the form that sacrebleu should score."""
        return text

    @property
    def signature(self) -> str:
        """The signature by sacrebleu; it includes the number of references after rows were computed."""
        return self._scorer.get_signature().format()

    @cached_property
    def _scorer(self) -> Any:
        scorer = self.scorer()
        # sacrebleu needs references before it gives a signature, unless this is None.
        scorer.num_refs = None
        return scorer

    def rows(self, predictions: Sequence[Any], references: Sequence[Any]) -> Rows:
        pairs = checked_texts(self.name, predictions, references)
        most = max(len(texts) for _, texts in pairs)
        # sacrebleu expects the first references of all sentences, then the second ones, None where one is missing.
        streams = [[self.prepared(texts[n]) if n < len(texts) else None for _, texts in pairs] for n in range(most)]
        # A private method: sacrebleu has no public access to counts per sentence. A test compares corpus scores.
        counts = self._scorer._extract_corpus_statistics([self.prepared(text) for text, _ in pairs], streams)
        return np.array(counts, dtype=np.float64)

    def value(self, rows: Rows) -> float:
        return float(self._score(rows).score)

    def _score(self, rows: Rows) -> Any:
        return self._scorer._compute_score_from_stats(rows.sum(0).tolist())
