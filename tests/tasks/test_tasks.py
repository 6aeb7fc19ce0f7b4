"""Tasks: one golden example each, gold answers score 100, and what cannot be understood is counted, not fatal."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from synthattn.data.holdout import HeldOut
from synthattn.data.open import open_source
from synthattn.data.source import Record
from synthattn.data.tokenizers import train_tokenizer
from synthattn.tasks import GLUE, SUPERGLUE, TASKS, Example, find_task
from synthattn.tasks.classification import Classification
from synthattn.tasks.encoding import Limits, encode, examples
from synthattn.tasks.report import examine

# Records and their first examples. The forms are those of the T5 paper's appendix D.
ROWS = [json.loads(line) for line in Path(__file__).with_name("golden.jsonl").read_text().splitlines()]
GOLDEN: dict[str, dict[str, Any]] = {row.pop("task"): row for row in ROWS}
PASSAGE = GOLDEN["multirc"]["fields"]


def record(fields: dict[str, Any]) -> Record:
    return Record(fields, "here, line 3")


def test_every_task_has_a_golden_example():
    assert set(GOLDEN) | {"language-modeling", "sentence-modeling", "span-corruption"} == set(TASKS)
    assert len(GLUE) == 9
    assert len(SUPERGLUE) == 8


@pytest.mark.parametrize("name", GOLDEN)
def test_golden(name):
    row = GOLDEN[name]
    example = next(iter(find_task(name).examples(record(row["fields"]))))
    reference = tuple(row["reference"]) if isinstance(row["reference"], list) else row["reference"]
    assert example == Example(row["source"], row["target"], reference, "here, line 3", example.trained)


@pytest.mark.parametrize("name", TASKS)
def test_what_is_held_out_depends_on_all_that_a_task_reads_and_on_nothing_else(name, tmp_path):
    fields = GOLDEN[name]["fields"] if name in GOLDEN else {"text": "A dog runs ."}
    (tmp_path / "only.jsonl").write_text(json.dumps(fields) + "\n")
    only = open_source(str(tmp_path / "only.jsonl"))
    assert HeldOut(only, columns=find_task(name).reads()).fingerprint() == HeldOut(only).fingerprint()
    if name == "translation":  # which of three columns is to be translated is then said
        fields = {"source": fields["en"], "target": fields["de"]}
    lines = (json.dumps(fields | {"idx": n}) + "\n" for n in range(20))
    (tmp_path / "numbered.jsonl").write_text("".join(lines))
    held = HeldOut(open_source(str(tmp_path / "numbered.jsonl")), every=2, columns=find_task(name).reads())
    assert len(list(held.read("train"))) in (0, 20)


@pytest.mark.parametrize("name", [task.name for task in (*GLUE, *SUPERGLUE)])
def test_what_a_user_writes_is_what_was_trained(name):
    """One text gets the words of its task; of several the user is told how to write them."""
    task = find_task(name)
    fields, source = GOLDEN[name]["fields"], GOLDEN[name]["source"]
    if name in ("cola", "sst2"):
        assert (task.prompt(f"  {fields['sentence']}\n"), task.form()) == (source, "")
        return
    form = re.escape(task.form()).replace(r"\ \.\.\.", ".+").replace("pronoun", ".+").replace(r"\[pos:.+\]\ ", "")
    assert re.fullmatch(form, source)
    with pytest.raises(ValueError, match=f"^{name} reads more than one text; write all of them: "):
        task.prompt("a text")


@pytest.mark.parametrize("name", GOLDEN)
def test_gold_answers_score_a_hundred(name):
    task = find_task(name)
    fields = GOLDEN[name]["fields"]
    examples = list(task.examples(record(fields))) * 3
    if name == "stsb":
        pairs = [{"sentence1": "A", "sentence2": "B", "score": str(n)} for n in range(6)]
        examples = [e for pair in pairs for e in task.examples(record(pair))]
    if name in ("cola", "mrpc", "qqp", "cb"):  # all labels must occur
        labels = task.labels.names  # type: ignore[attr-defined]
        examples = [
            e for label in labels for e in task.examples(record(fields | {"label": label, "is_duplicate": label}))
        ]
    if name == "wsc":
        wrong = fields | {"label": False}
        found = list(task.examples(record(wrong)))
        assert not found[0].trained
        assert task.parse("Pete", found[0]) == 0
    predictions = [task.parse(example.target, example) for example in examples]
    for metric in task.metrics():
        score = metric(predictions, [example.reference for example in examples])
        if metric.name in ("cider", "meteor"):
            continue  # of one's own text: CIDEr depends on the other texts, METEOR on the length
        assert score.value > 99.0, f"{score.name}: {score.value}"
        assert score.definition


@pytest.mark.parametrize("name", [n for n in GOLDEN if n not in ("multirc",)])
def test_nonsense_is_not_fatal(name):
    task = find_task(name)
    examples = list(task.examples(record(GOLDEN[name]["fields"]))) * 2
    for text in ("", "   ", "entailmentment <unk>", "5.7.1", "\u00e9"):
        predictions = [task.parse(text, example) for example in examples]
        for metric in task.metrics():
            assert metric(predictions, [example.reference for example in examples]).value <= 100.0


def test_nonsense_is_none_for_labels():
    for name, text in (("cola", "perhaps"), ("stsb", "many"), ("stsb", "7"), ("boolq", "true"), ("record", " ")):
        task = find_task(name)
        assert task.parse(text, next(iter(task.examples(record(GOLDEN[name]["fields"]))))) is None


def test_multirc_groups_answers_by_question():
    examples = list(find_task("multirc").examples(record(PASSAGE)))
    assert [e.reference for e in examples] == [
        ("here, line 3, question 0", 1),
        ("here, line 3, question 0", 0),
        ("here, line 3, question 1", 1),
    ]


def test_multirc_of_the_hub_groups_answers_by_question():
    """One of two questions counts as right, though three of four answers are right."""
    task = find_task("multirc")
    asked = []
    for question, answer in ((0, 0), (0, 1), (1, 0), (1, 1)):
        numbers = {"paragraph": 5, "question": question, "answer": answer}
        texts = {"paragraph": "Ann met Bob.", "question": f"Q{question}?", "answer": f"A{answer}"}
        asked += task.examples(record(texts | {"idx": numbers, "label": answer}))
    said = [task.parse(text, example) for text, example in zip(("False", "True", "True", "True"), asked, strict=True)]
    scores = {metric.name: metric(said, [example.reference for example in asked]).value for metric in task.metrics()}
    assert scores["em"] == pytest.approx(50.0)
    assert scores["f1a"] == pytest.approx(80.0)


def test_record_is_trained_on_every_answer_and_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Every spelling of an entity is learned, and a question is scored once against all of them, as in T5."""
    monkeypatch.setenv("SYNTHATTN_CACHE", str(tmp_path / "cache"))
    fields = {
        "passage": "Costa scored.",
        "query": "@placeholder scored",
        "entities": ["Costa", "Diego Costa"],
        "answers": ["Costa", "Diego Costa", "Costa"],
    }
    for split in ("train", "validation"):
        (tmp_path / f"{split}.jsonl").write_text(json.dumps(fields) + "\n")
    task, source = find_task("record"), open_source(str(tmp_path))
    learned, asked = (list(examples(task, source, "train", training)) for training in (True, False))
    assert [example.target for example in learned] == ["Costa", "Diego Costa"]
    assert len({example.source for example in learned}) == 1
    assert [(example.target, example.reference) for example in asked] == [("Costa", ("Costa", "Diego Costa"))]
    tokenizer = train_tokenizer("words", (text for one in learned for text in (one.source, one.target)), 130)
    counts = [encode(task, source, "train", tokenizer, Limits(50, 50), training).counts for training in (True, False)]
    assert [(count.examples, count.not_trained) for count in counts] == [(2, 0), (1, 0)]
    report = examine(source, task, "words", 130)
    assert {split.name: split.examples for split in report.splits} == {"train": 2, "validation": 1}


@pytest.mark.parametrize(
    ("name", "fields", "references"),
    [
        ("translation", {"en": "a", "de": ["b  c", "d"]}, ("b c", "d")),
        ("summarization", {"document": "a", "summary": ["b\nc", "d"]}, ("b\nc", "d")),
        ("dialogue", {"history": ["a"], "reply": ["b", "d"]}, ("b", "d")),
    ],
)
def test_several_references_are_all_learned_and_asked_once(name, fields, references):
    task = find_task(name)
    found = list(task.examples(record(fields)))
    assert [example.target for example in found] == [" ".join(text.split()) for text in references]
    assert [example.evaluated for example in found] == [True, False]
    assert found[0].reference == references
    assert len({example.source for example in found}) == 1
    for metric in task.metrics():
        if metric.name in ("bleu-1", "rouge1", "chrf"):
            assert metric([found[1].target] * 3, [found[0].reference] * 3).value == pytest.approx(100)
    with pytest.raises(ValueError, match=f"{list(fields)[1]} is empty; remove the example"):
        list(task.examples(record(fields | {list(fields)[1]: ["b", " "]})))


def test_wsc_is_not_trained_on_what_has_no_right_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SYNTHATTN_CACHE", str(tmp_path / "cache"))
    fields = GOLDEN["wsc"]["fields"]
    lines = [json.dumps(fields | {"label": label}) for label in (True, False, True)]
    (tmp_path / "train.jsonl").write_text("\n".join(lines) + "\n")
    task, source = find_task("wsc"), open_source(str(tmp_path))
    tokenizer = train_tokenizer("words", ["a text"], 130)
    counts = [encode(task, source, "train", tokenizer, Limits(50, 50), training).counts for training in (True, False)]
    assert [(count.examples, count.not_trained) for count in counts] == [(2, 1), (3, 0)]


def test_dialogue_of_the_hub():
    """PersonaChat there: all that was said, and the reply as the last of several that it could be."""
    fields = {
        "personality": ["I like  dogs.", "I run."],
        "candidates": ["Paris.", "I run a lot."],
        "history": ["Hi.", "Hello!", "You  ?"],
        "conv_id": 0,
        "utterance_idx": 1,
    }
    (example,) = find_task("dialogue").examples(record(fields))
    assert example.source == "persona: I like dogs. persona: I run. said: You ?"
    assert example.target == example.reference == "I run a lot."
    (other,) = find_task("dialogue").examples(record(fields | {"reply": "No."}))
    assert (other.target, other.source.count("said:")) == ("No.", 3), "as they are where there is a reply"
    with pytest.raises(ValueError, match="here, line 3: no column 'reply' for dialogue, there are personality"):
        list(find_task("dialogue").examples(record(fields | {"candidates": []})))


@pytest.mark.parametrize("fields", [{"text": " __eou__ ".join("abcdef")}, {"dialog": [*"abcdef", " "]}])
def test_a_turn_reads_those_before_it(fields):
    sources = [e.source for e in find_task("dialogue-turns").examples(record(fields))]
    assert sources[-1] == "said: c said: d said: e"
    assert len(sources) == 5


def test_language_modeling_counts_words_and_bytes():
    for name in ("language-modeling", "sentence-modeling", "span-corruption"):
        example = next(iter(find_task(name).examples(record({"text": " zwei Wörter "}))))
        assert (example.source, example.target) == ("", "zwei Wörter")
        assert (example.reference.words, example.reference.bytes) == (2, 12)


def test_classes_are_those_of_the_training_split():
    records = [record({"text": "x", "label": label}) for label in ("10", "9", "2", "10")]
    task = Classification().with_labels(records)
    assert task.labels is not None
    assert task.labels.names == ("2", "9", "10")
    assert next(iter(task.examples(record({"text": "x", "label": "10"})))).reference == 2
    with pytest.raises(ValueError, match="here, line 3: label '3' does not occur in the training split"):
        list(task.examples(record({"text": "x", "label": "3"})))
    with pytest.raises(ValueError, match="needs at least 2 classes, the training split has 2"):
        Classification().with_labels(records[2:3])


COLA, STSB = {"sentence": "x", "label": 1}, {"sentence1": "a", "sentence2": "b"}
WSC = {"text": "a b", "label": 1, "target": {"span1_text": "a"}}
SPAN = {"span1_text": "a", "span2_text": "b", "span2_index": 7}


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        (
            "cola",
            {"text": "x", "label": 1},
            "no column 'sentence' for cola, there are text, label; name it: --columns",
        ),
        ("cola", COLA | {"label": "maybe"}, "unknown label 'maybe'; choose from acceptable"),
        ("cola", COLA | {"label": 2}, "unknown label 2"),
        ("cola", COLA | {"sentence": " "}, "sentence is empty; remove the example"),
        ("cola", COLA | {"sentence": 5}, "sentence must be a text, got int"),
        ("mnli", {"premise": "a", "hypothesis": "b", "label": "entailed"}, "did you mean entailment"),
        ("stsb", STSB | {"score": "9"}, "score must be a number from 0 to 5, got '9'"),
        ("stsb", STSB | {"score": None}, "score must be a number from 0 to 5, got None"),
        (
            "translation",
            {"fr": "a", "de": "b"},
            "which of fr, de is to be translated? Name them: source=COLUMN,target=",
        ),
        ("translation", {"fr": "a", "de": "b"}, "COLUMN,target=COLUMN, or say --direction fr-de"),
        ("multirc", {"passage": {"text": "x"}}, "not in the form of multirc: KeyError"),
        ("record", {"passage": {"text": "x"}}, "not in the form of record: KeyError"),
        ("wsc", WSC, "no span2_text, span2_index for wsc"),
        ("wsc", WSC | {"target": SPAN}, "span2_index=7 is outside of the 2 words of the text"),
    ],
)
def test_errors(name, fields, message):
    with pytest.raises(ValueError, match="here, line 3") as caught:
        list(find_task(name).examples(record(fields)))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_task():
    with pytest.raises(ValueError, match="unknown task 'translate'; did you mean translation"):
        find_task("translate")
