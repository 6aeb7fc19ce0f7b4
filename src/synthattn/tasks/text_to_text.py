"""Tasks that answer with a text: translation, summarisation and dialogue."""

from collections.abc import Iterable, Sequence
from typing import Any

from synthattn.data.source import Record
from synthattn.metrics.base import Metric
from synthattn.metrics.bleu import Bleu, BleuN, ChrF, TokenizedBleu
from synthattn.metrics.cider import CiderD
from synthattn.metrics.meteor import Meteor
from synthattn.metrics.rouge import Rouge
from synthattn.tasks.base import Example, Task
from synthattn.tasks.trivial import TrivialSystem, constant_answer, copied_source, first_words


class Translation(Task):
    """Translate a text; the endings of parallel files name the columns.

    By default, English is translated into the other language.
    """

    name = "translation"

    def reads(self) -> dict[str, tuple[str, ...]]:
        return {"source": (), "target": ()}  # a record without these has two columns, and both are read

    def examples(self, record: Record) -> Iterable[Example]:
        source, target = self._columns(record)
        yield from self.answered(record, _line(self, record, source), target)

    def reading(self, record: Record) -> str:
        source, target = self._columns(record)
        said = f"{source} is translated to {target}; for the reverse, --direction {target}-{source}"
        return "" if source == "source" else said

    def metrics(self) -> Sequence[Metric]:
        return Bleu(), TokenizedBleu(), ChrF()

    def trivial_system(self, learned: Sequence[Example]) -> TrivialSystem:
        return copied_source()

    def _columns(self, record: Record) -> tuple[str, str]:
        fields = record.fields
        if "source" in fields and "target" in fields:
            return "source", "target"
        others = [name for name in fields if name != "en"]
        if "en" in fields and len(others) == 1:
            return "en", others[0]
        known = [str(name) for name in fields]
        direction = f", or say --direction {known[0]}-{known[1]}" if len(known) == 2 else ""
        raise ValueError(
            f"{record.where}: which of {', '.join(known)} is to be translated? Name them: source=COLUMN,target=COLUMN"
            f"{direction}"
        )


def _line(task: Task, record: Record, name: str) -> str:
    """Return a text as one line; tokenizers and BLEU treat line breaks as spaces anyway."""
    return " ".join(task.text(record, name).split())


class Summarization(Task):
    """Summarise a text. If a summary has several lines, each is one sentence for ROUGE-Lsum."""

    name = "summarization"
    columns = {  # noqa: RUF012
        "document": ("article", "text", "source"),
        "summary": ("highlights", "title", "headline", "target"),
    }
    prefix = "summarize: "

    def examples(self, record: Record) -> Iterable[Example]:
        yield from self.answered(record, self.prompt(_line(self, record, "document")), "summary", lines=True)

    def prompt(self, text: str) -> str:
        return self.prefix + text

    def metrics(self) -> Sequence[Metric]:
        return [Rouge(kind) for kind in ("rouge1", "rouge2", "rougeL", "rougeLsum")]

    def trivial_system(self, learned: Sequence[Example]) -> TrivialSystem:
        return first_words(learned, self.prefix)


class Dialogue(Task):
    """Reply to the last turns of a dialogue, given facts about the speaker."""

    name = "dialogue"
    columns = {  # noqa: RUF012
        "persona": ("personality", "your_persona"),
        "history": ("source", "context"),
        "reply": ("target", "response"),
    }
    compares_vectors = True

    def reads(self) -> dict[str, tuple[str, ...]]:
        return {**self.columns, "reply": (*self.columns["reply"], "candidates")}

    def examples(self, record: Record) -> Iterable[Example]:
        record = self._with_reply(record)
        said = self._lines(record, "history")
        known = self._lines(record, "persona") if self._has(record, "persona") else []
        source = " ".join([*(f"persona: {line}" for line in known), *(self.prompt(line) for line in said)])
        yield from self.answered(record, source, "reply")

    def prompt(self, text: str) -> str:
        return f"said: {text}"

    def metrics(self) -> Sequence[Metric]:
        return BleuN(1), BleuN(4), Rouge("rougeL"), Meteor(), CiderD()

    def trivial_system(self, learned: Sequence[Example]) -> TrivialSystem:
        return constant_answer(learned, "constant reply", 50)

    def _with_reply(self, record: Record) -> Record:
        """Convert records of the hub's PersonaChat, whose reply is the last of several candidates.

        Those records hold the whole history. Only the last turn is kept, as in other versions and in Tensor2Tensor.
        """
        candidates = record.fields.get("candidates")
        if self._has(record, "reply") or not candidates or not isinstance(candidates, list):
            return record
        last = self._lines(record, "history")[-1:]
        return Record({**record.fields, "history": last, "reply": candidates[-1]}, record.where)

    def _has(self, record: Record, name: str) -> bool:
        return any(candidate in record.fields for candidate in (name, *self.columns[name]))

    def _lines(self, record: Record, name: str) -> list[str]:
        value: Any = self.field(record, name)
        lines = value if isinstance(value, list) else [value]
        if not all(isinstance(line, str) for line in lines):
            raise ValueError(f"{record.where}: {name} must be a text or a list of texts, got {type(value).__name__}")
        return [" ".join(line.split()) for line in lines if line.strip()]


class Turns(Dialogue):
    """Reply to each turn of dialogues. A dialogue is a list of turns, or a text whose turns end with ``__eou__``."""

    name = "dialogue-turns"
    columns = {"text": ("dialogue", "dialog")}  # noqa: RUF012
    history = 3
    """Number of turns before the reply that the model reads."""

    def reads(self) -> dict[str, tuple[str, ...]]:
        return dict(self.columns)

    def examples(self, record: Record) -> Iterable[Example]:
        if isinstance(self.field(record, "text"), list):
            turns = self._lines(record, "text")
        else:
            turns = [" ".join(turn.split()) for turn in self.text(record, "text").split("__eou__") if turn.strip()]
        for n in range(1, len(turns)):
            said = turns[max(0, n - self.history) : n]
            yield Example(" ".join(self.prompt(turn) for turn in said), turns[n], turns[n], record.where)
