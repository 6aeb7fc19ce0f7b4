"""Tasks without an answer: the text itself is what is predicted."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from synthattn.data.source import Record
from synthattn.metrics.base import Metric
from synthattn.metrics.perplexity import BitsPerByte, Perplexity
from synthattn.tasks.base import Example, Task


@dataclass(frozen=True)
class Size:
    """What perplexities are divided by."""

    words: int
    bytes: int

    @classmethod
    def of(cls, text: str) -> "Size":
        return cls(len(text.split()), len(text.encode()))


class LanguageModeling(Task):
    """Each token from those before it; texts follow each other, and are cut where the longest input ends."""

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
    """Each token from those before it, every text on its own."""

    name = "sentence-modeling"
    packed = False


class SpanCorruption(LanguageModeling):
    """T5's masked language modelling: spans are left out of a text and named by sentinels; the answer is what they hid.

    The text is corrupted as tokens, when batches are made: see :mod:`synthattn.data.spans`.
    """

    name = "span-corruption"
    kind = "span-corruption"

    def metrics(self) -> Sequence[Metric]:
        return (Perplexity("token"),)
