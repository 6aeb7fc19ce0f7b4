"""The chrF metric by sacrebleu."""

from typing import Any

from synthattn.metrics.sacrebleu_metric import SacrebleuMetric


class ChrF(SacrebleuMetric):
    """Corpus chrF2 by sacrebleu: F-score of character n-grams. A reference is one text or several."""

    name = "chrf"

    @property
    def definition(self) -> str:
        return f"chrF2 by sacrebleu, {self.signature}"

    def scorer(self) -> Any:
        from sacrebleu.metrics.chrf import CHRF

        return CHRF()
