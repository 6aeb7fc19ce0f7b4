"""The ROUGE metrics by rouge_score."""

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from synthattn.metrics.base import Metric, Rows
from synthattn.metrics.texts import checked_texts

KINDS = ("rouge1", "rouge2", "rougeL", "rougeLsum")


class Rouge(Metric):
    """Mean F-measure by rouge_score. A reference is one text or several, of which the best counts.

    Args:
        kind: ``rouge1``, ``rouge2``, ``rougeL`` or ``rougeLsum``, in which each line is a sentence.
        stemmer: compare words by their Porter stems.
    """

    def __init__(self, kind: str, stemmer: bool = True) -> None:
        if kind not in KINDS:
            raise ValueError(f"unknown ROUGE {kind!r}; choose from {', '.join(KINDS)}")
        self.name, self.stemmer = kind, stemmer
        words = "Porter stems" if stemmer else "words without stemming"
        sentences = ", sentences are lines" if kind == "rougeLsum" else ""
        self.definition = (
            f"{kind} by rouge_score {version('rouge-score')}: F-measure of {words}{sentences}, best of several "
            "references, mean over examples, x 100"
        )

    def rows(self, predictions: Sequence[Any], references: Sequence[Any]) -> Rows:
        from rouge_score.rouge_scorer import RougeScorer

        scorer = RougeScorer([self.name], use_stemmer=self.stemmer)
        pairs = checked_texts(self.name, predictions, references)
        scores = [scorer.score_multi(texts, prediction)[self.name] for prediction, texts in pairs]
        return np.array([(s.fmeasure, s.precision, s.recall) for s in scores], dtype=np.float64)

    def value(self, rows: Rows) -> float:
        return 100.0 * float(rows[:, 0].mean())

    def parts(self, rows: Rows) -> dict[str, float]:
        _, precision, recall = 100.0 * rows.mean(0)
        return {"precision": float(precision), "recall": float(recall)}
