"""BLEU in the variants that papers report, and chrF, all by sacrebleu."""

import re
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

    described: str
    """The definition without sacrebleu's signature."""

    @property
    def definition(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The definition; its signature includes the number of references after rows were computed."""
        return f"{self.described}, {self._scorer.get_signature().format()}"

    def scorer(self) -> Any:
        """Return a new metric object of sacrebleu."""
        raise NotImplementedError

    def prepared(self, text: str) -> str:
        """Return a text in the form that sacrebleu should score."""
        return text

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


class ChrF(SacrebleuMetric):
    """Corpus chrF2 by sacrebleu: F-score of character n-grams. A reference is one text or several."""

    name = "chrf"
    described = "chrF2 by sacrebleu"

    def scorer(self) -> Any:
        from sacrebleu.metrics.chrf import CHRF

        return CHRF()


class Bleu(SacrebleuMetric):
    """Corpus BLEU by sacrebleu on plain text. A reference is one text or several."""

    name = "bleu"
    described = "BLEU by sacrebleu"

    def __init__(self, tokenize: str = "13a", **options: Any) -> None:
        self.tokenize, self.options = tokenize, options

    def scorer(self) -> Any:
        from sacrebleu.metrics.bleu import BLEU

        if self.tokenize not in BLEU.TOKENIZERS:
            known = ", ".join(BLEU.TOKENIZERS)
            raise ValueError(f"sacrebleu has no tokenizer {self.tokenize!r}; choose from {known}")
        # The definition says if texts are tokenised already, so sacrebleu's warning is turned off.
        return BLEU(tokenize=self.tokenize, force=True, **self.options)

    def parts(self, rows: Rows) -> dict[str, float]:
        score = self._score(rows)
        precisions = {f"precision-{n}": float(value) for n, value in enumerate(score.precisions, start=1)}
        return {**precisions, "brevity-penalty": float(score.bp)}


class TokenizedBleu(Bleu):
    """BLEU of tokens with split compounds, as in papers from before sacrebleu.

    Tensor2Tensor's ``get_ende_bleu.sh`` tokenises with Moses, splits words at hyphens, and counts without smoothing.
    This class uses the tokens of mteval-v13a, since Moses is not available. The tokens of mteval-v14 do not fit,
    because they split at hyphens in another way.
    """

    name = "tokenized-bleu"
    described = (
        "tokenised BLEU with split compounds: predictions and references are tokenised by sacrebleu's 13a (not "
        r"Moses), s/(\S)-(\S)/\1 ##AT##-##AT## \2/g, then scored without further tokenisation or smoothing; sacrebleu"
    )

    def __init__(self) -> None:
        super().__init__("none", smooth_method="none")

    def prepared(self, text: str) -> str:
        return re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", self._tokenizer(text.rstrip()))

    @cached_property
    def _tokenizer(self) -> Any:
        return Bleu().scorer().tokenizer


class BleuN(Bleu):
    """BLEU of n-grams up to n instead of 4, as reported for dialogue."""

    def __init__(self, n: int) -> None:
        if n < 1:
            raise ValueError(f"n must be at least 1, got {n}")
        super().__init__(max_ngram_order=n)
        self.name = f"bleu-{n}"
        self.described = (
            f"BLEU-{n}: geometric mean of the precisions of 1- to {n}-grams of the corpus, brevity penalty included; "
            "sacrebleu"
        )
