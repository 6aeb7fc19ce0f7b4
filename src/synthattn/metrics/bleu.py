"""BLEU in the variants that papers report."""

import re
from functools import cached_property
from typing import Any

from synthattn.metrics.base import Rows
from synthattn.metrics.sacrebleu_metric import SacrebleuMetric


class Bleu(SacrebleuMetric):
    """Corpus BLEU by sacrebleu on plain text. A reference is one text or several."""

    name = "bleu"

    def __init__(self, tokenize: str = "13a") -> None:
        self.tokenize = tokenize

    @property
    def definition(self) -> str:
        return f"BLEU by sacrebleu, {self.signature}"

    def scorer(self) -> Any:
        from sacrebleu.metrics.bleu import BLEU

        if self.tokenize not in BLEU.TOKENIZERS:
            known = ", ".join(BLEU.TOKENIZERS)
            raise ValueError(f"sacrebleu has no tokenizer {self.tokenize!r}; choose from {known}")
        # The definition says if texts are tokenised already, so sacrebleu's warning is turned off.
        return BLEU(tokenize=self.tokenize, force=True)

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

    def __init__(self) -> None:
        super().__init__("none")

    @property
    def definition(self) -> str:
        return (
            "tokenised BLEU with split compounds: predictions and references are tokenised by sacrebleu's 13a (not "
            r"Moses), s/(\S)-(\S)/\1 ##AT##-##AT## \2/g, then scored without further tokenisation or smoothing; "
            f"sacrebleu, {self.signature}"
        )

    def scorer(self) -> Any:
        from sacrebleu.metrics.bleu import BLEU

        return BLEU(tokenize="none", smooth_method="none", force=True)

    def prepared(self, text: str) -> str:
        return re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", self._tokenizer(text.rstrip()))

    @cached_property
    def _tokenizer(self) -> Any:
        from sacrebleu.metrics.bleu import BLEU

        return BLEU(tokenize="13a").tokenizer


class BleuN(Bleu):
    """BLEU of n-grams up to n instead of 4, as reported for dialogue."""

    def __init__(self, n: int) -> None:
        if n < 1:
            raise ValueError(f"n must be at least 1, got {n}")
        super().__init__()
        self.n = n
        self.name = f"bleu-{n}"

    @property
    def definition(self) -> str:
        return (
            f"BLEU-{self.n}: geometric mean of the precisions of 1- to {self.n}-grams of the corpus, brevity penalty "
            f"included; sacrebleu, {self.signature}"
        )

    def scorer(self) -> Any:
        from sacrebleu.metrics.bleu import BLEU

        return BLEU(tokenize=self.tokenize, max_ngram_order=self.n, force=True)
