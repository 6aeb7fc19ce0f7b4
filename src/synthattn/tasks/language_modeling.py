"""Language modelling tasks, in which the text itself is predicted."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from synthattn.data.source import Record
from synthattn.metrics.base import Metric
from synthattn.metrics.perplexity import BitsPerByte, Perplexity
from synthattn.tasks.base import Example, Task


@dataclass(frozen=True)
class Size:
    """Numbers of words and bytes of a text, the denominators of perplexities."""

    words: int
    bytes: int

    @classmethod
    def of(cls, text: str) -> "Size":
        return cls(len(text.split()), len(text.encode()))


class LanguageModeling(Task):
    """Predict each token from the tokens before it; texts are concatenated and cut at the longest input."""

    name = "language-modeling"
    kind = "causal-lm"
    packed = True
    columns = {"text": ("sentence", "paragraph", "content", "document", "article")}  # noqa: RUF012

    def examples(self, record: Record) -> Iterable[Example]:
        text = self.text(record, "text").strip()
        yield Example("", text, Size.of(text), record.where)

    def metrics(self) -> Sequence[Metric]:
        return Perplexity("token"), Perplexity("word"), BitsPerByte()


class SentenceModeling(LanguageModeling):
    """Predict each token from the tokens before it; every text stands by itself."""

    name = "sentence-modeling"
    packed = False


class SpanCorruption(LanguageModeling):
    """Predict hidden spans of a text, T5's masked language modelling.

    Tokens are hidden when batches are made, see :mod:`synthattn.data.spans`.
    """

    name = "span-corruption"
    kind = "span-corruption"

    def metrics(self) -> Sequence[Metric]:
        return (Perplexity("token"),)
