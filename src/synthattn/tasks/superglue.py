"""The tasks of SuperGLUE in T5's form."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from synthattn.data.source import Record
from synthattn.metrics.base import Metric
from synthattn.metrics.classification import Accuracy, MacroF1
from synthattn.metrics.superglue import MultiRcExactMatch, MultiRcF1, ReCoRDExactMatch, ReCoRDF1
from synthattn.tasks.base import Example
from synthattn.tasks.glue import BenchmarkTask, LabelledTask
from synthattn.tasks.labels import Labels

TRUTH = Labels("False", "True")
SPANS = ("span1_text", "span2_text", "span2_index")
"""Fields of WSC for the noun and the pronoun."""


class WordInContext(LabelledTask):
    """Decide if a word has one meaning in two sentences. T5 adds the part of speech where the data has it."""

    def reads(self) -> dict[str, tuple[str, ...]]:
        return {**super().reads(), "pos": ()}

    def written(self, record: Record) -> str:
        text = super().written(record)
        if "pos" not in record.fields:
            return text
        return text.replace("wic ", f"wic pos: {record.fields['pos']} ", 1)

    def form(self) -> str:
        return super().form().replace("wic ", "wic [pos: ...] ", 1)


class Wsc(BenchmarkTask):
    """Name the noun that a pronoun refers to; asterisks mark the pronoun.

    Training uses only examples whose given noun is right, because the data does not name the right one otherwise. All
    examples are evaluated. A prediction means "yes" if it names the given noun, apart from articles and other words.
    """

    name = "wsc"

    def reads(self) -> dict[str, tuple[str, ...]]:
        return dict.fromkeys(("text", "label", "target", *SPANS), ())

    def examples(self, record: Record) -> Iterable[Example]:
        words = self.text(record, "text").split()
        target = self._spans(record)
        index, pronoun = target["span2_index"], str(target["span2_text"]).split()
        marked = list(words)
        if not isinstance(index, int) or not 0 <= index <= len(words) - len(pronoun):
            raise ValueError(f"{record.where}: span2_index={index} is outside of the {len(words)} words of the text")
        # The last word of the pronoun may end in punctuation.
        last = index + len(pronoun) - 1
        core = re.match(r"(\W*)(.*?)(\W*)$", marked[last])
        assert core is not None
        marked[last] = f"{core[1]}{core[2]}*{core[3]}"
        marked[index] = f"*{marked[index]}"
        label = TRUTH.number(self.field(record, "label"), record.where)
        yield Example("wsc: " + " ".join(marked), str(target["span1_text"]), label, record.where, trained=bool(label))

    def form(self) -> str:
        return "wsc: ... *pronoun* ..."

    def parse(self, text: str, example: Example) -> int | None:
        words, noun = _content(text), _content(example.target)
        if not words:
            return None
        return int(words == noun or set(words) <= set(noun) or set(noun) <= set(words))

    def metrics(self) -> Sequence[Metric]:
        return (Accuracy(),)

    def _spans(self, record: Record) -> dict[str, Any]:
        # The data set of the hub has the spans as separate fields.
        found = record.fields.get("target", record.fields)
        missing = [n for n in SPANS if not isinstance(found, dict) or n not in found]
        if missing:
            raise ValueError(f"{record.where}: no {', '.join(missing)} for {self.name}")
        return found


ARTICLES = {"a", "an", "the", "his", "her", "its", "their", "my", "our", "your"}


def _content(text: str) -> list[str]:
    words = [word.strip(".,;:!?\"'").lower() for word in text.split()]
    words = [word.removesuffix("'s") for word in words]
    return [word for word in words if word and word not in ARTICLES] or [w for w in words if w]


class PassageTask(BenchmarkTask):
    """Base class of tasks whose files hold all questions about a text; the hub has a record for each."""

    def examples(self, record: Record) -> Iterable[Example]:
        passage = record.fields.get("passage")
        if not isinstance(passage, dict):
            yield from self.from_hub(record)
            return
        try:
            yield from self.nested(record, passage)
        except (KeyError, TypeError) as error:
            raise ValueError(f"{record.where}: not in the form of {self.name}: {error!r} is missing") from error

    def from_hub(self, record: Record) -> Iterable[Example]:
        """Yield the examples of a record of the hub."""
        raise NotImplementedError

    def nested(self, record: Record, passage: dict[str, Any]) -> Iterable[Example]:
        """Yield the examples of all questions about a text."""
        raise NotImplementedError


class MultiRc(PassageTask):
    """Decide if an answer to a question about a text is right; a question may have several right answers."""

    name = "multirc"

    def reads(self) -> dict[str, tuple[str, ...]]:
        return dict.fromkeys(("passage", "paragraph", "question", "answer", "label"), ())

    def from_hub(self, record: Record) -> Iterable[Example]:
        idx = record.fields.get("idx", record.where)
        if isinstance(idx, dict):  # numbers of the paragraph, the question and the answer
            idx = {name: number for name, number in idx.items() if name != "answer"}
        question, answer, paragraph = (
            self._clean(self.text(record, name)) for name in ("question", "answer", "paragraph")
        )
        yield self._example(record, question, answer, paragraph, self.field(record, "label"), str(idx))

    def nested(self, record: Record, passage: dict[str, Any]) -> Iterable[Example]:
        text = self._clean(passage["text"])
        for n, question in enumerate(passage["questions"]):
            asked, where = self._clean(question["question"]), f"{record.where}, question {n}"
            for answer in question["answers"]:
                yield self._example(record, asked, self._clean(answer["text"]), text, answer.get("label"), where)

    def _example(
        self, record: Record, question: str, answer: str, paragraph: str, label: Any, question_id: str
    ) -> Example:
        number = TRUTH.number(label, record.where)
        source = f"multirc question: {question} answer: {answer} paragraph: {paragraph}"
        return Example(source, TRUTH.names[number], (question_id, number), record.where)

    def form(self) -> str:
        return "multirc question: ... answer: ... paragraph: ..."

    def parse(self, text: str, example: Example) -> tuple[str, int | None]:
        return example.reference[0], TRUTH.parse(text)

    def metrics(self) -> Sequence[Metric]:
        return MultiRcF1(), MultiRcExactMatch()

    def _clean(self, text: str) -> str:
        return " ".join(re.sub(r"</?b>", "", text.replace("<br>", " ")).split())


class ReCoRD(PassageTask):
    """Name the entity of a text that fills the gap in a sentence; several spellings are right."""

    name = "record"

    def reads(self) -> dict[str, tuple[str, ...]]:
        return dict.fromkeys(("passage", "qas", "query", "entities", "answers"), ())

    def from_hub(self, record: Record) -> Iterable[Example]:
        entities, answers = self.field(record, "entities"), self.field(record, "answers")
        text = self._clean(self.text(record, "passage"))
        yield from self._questions(record, text, entities, self.text(record, "query"), answers)

    def nested(self, record: Record, passage: dict[str, Any]) -> Iterable[Example]:
        text = passage["text"]
        # Spans include their ends.
        spans = sorted(passage["entities"], key=lambda span: span["start"])
        entities = list(dict.fromkeys(text[span["start"] : span["end"] + 1] for span in spans))
        for question in record.fields["qas"]:
            answers = [answer["text"] for answer in question.get("answers", [])]
            yield from self._questions(record, self._clean(text), entities, question["query"], answers)

    def _questions(
        self, record: Record, passage: str, entities: list[str], query: str, answers: list[str]
    ) -> Iterable[Example]:
        """Yield one training example per answer; the first one is evaluated against all answers."""
        source = f"record query: {' '.join(query.split())} entities: {', '.join(entities)} passage: {passage}"
        distinct = list(dict.fromkeys(answers))
        if not distinct:
            raise ValueError(f"{record.where}: a question without an answer; remove it")
        for n, answer in enumerate(distinct):
            yield Example(source, answer, tuple(distinct), record.where, evaluated=n == 0)

    def form(self) -> str:
        return "record query: ... entities: ..., ... passage: ..."

    def parse(self, text: str, example: Example) -> str | None:
        return text.strip() or None

    def metrics(self) -> Sequence[Metric]:
        return ReCoRDF1(), ReCoRDExactMatch()

    def _clean(self, text: str) -> str:
        text = re.sub(r"([.?!\"'])\n@highlight\n", r"\1 ", text)
        return " ".join(re.sub(r"\n@highlight\n", ". ", text).split())


PAIR = ("hypothesis", "premise")
BOOLQ = LabelledTask("boolq", ("passage", "question"), TRUTH)
CB = LabelledTask("cb", PAIR, Labels("entailment", "contradiction", "neutral"), metrics=(MacroF1, Accuracy))
COPA = LabelledTask("copa", ("choice1", "choice2", "premise", "question"), Labels("choice1", "choice2"))
# T5's names for the fields differ from those of GLUE's RTE.
RTE = LabelledTask(
    "superglue-rte",
    PAIR,
    Labels("entailment", "not_entailment"),
    {"hypothesis": ("sentence2",), "premise": ("sentence1",)},
    prefix="rte",
)
WIC = WordInContext("wic", ("sentence1", "sentence2", "word"), TRUTH)

SUPERGLUE = (BOOLQ, CB, COPA, MultiRc(), ReCoRD(), RTE, WIC, Wsc())
