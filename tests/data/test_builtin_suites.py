"""Toys in the form of tasks of GLUE and SuperGLUE: each label ends from what an example says."""

from collections import Counter
from typing import Any

import pytest

from synthattn.data.builtin import open_builtin
from synthattn.data.builtin.suites import _CAUSES, _PEOPLE, TOYS
from synthattn.tasks import SUITES, find_task
from synthattn.training.prepare import open_parts, prepare
from synthattn.training.settings import DataSettings

pytestmark = pytest.mark.unchecked


@pytest.fixture(scope="module")
def made() -> dict[str, list[Any]]:
    found = {}
    for name in TOYS:
        source = open_builtin(f"{name}?size=300")
        found[name] = [record for split in source.splits for record in source.read(split)]
    return found


@pytest.mark.parametrize("name", TOYS)
def test_tasks_read_every_example(name, made):
    suite, task = name.split("/")
    assert task in SUITES[suite]
    examples = [example for record in made[name] for example in find_task(task).examples(record)]
    assert len(examples) == 360
    assert len({example.source for example in examples}) == 360
    assert all(find_task(task).parse(example.target, example) is not None for example in examples)
    thirds = Counter(
        min(int(example.reference * 3 / 5), 2) if task == "stsb" else example.target for example in examples
    )
    assert len(thirds) == (3 if task == "stsb" else 2)
    assert min(thirds.values()) > (60 if task == "stsb" else 140)


@pytest.mark.parametrize("name", TOYS)
def test_notes_and_seeds(name):
    source = open_builtin(f"{name}?size=7")
    says = "GLUE" if name.startswith("glue") else "SuperGLUE"
    assert f"a toy generated from templates, scores on it say nothing about {says};" in source.notes[0]
    assert source.name == f"{name}?size=7"
    first = [record.fields for record in source.read("train")]
    assert [record.fields for record in open_builtin(f"{name}?size=7").read("train")] == first
    assert [record.fields for record in open_builtin(f"{name}?size=7&seed=1").read("train")] != first


def test_acceptable_sentences_are_those_of_the_grammar(made):
    sentences = {
        label: [r.fields["sentence"] for r in made["glue/cola"] if r.fields["label"] == label] for label in (0, 1)
    }
    assert all(s.endswith(".") and s[0].isupper() for kind in sentences.values() for s in kind)
    # No sentence of the grammar ends in one of these words.
    ends = Counter(label for label, kind in sentences.items() for s in kind if s.endswith((" the.", " a.", " of.")))
    assert ends[1] == 0
    assert ends[0] > 10


def test_entailed_is_what_was_said(made):
    for record in made["glue/rte"]:
        fields = record.fields
        assert (fields["sentence2"] in fields["sentence1"]) == (fields["label"] == "entailment")
        assert len(fields["sentence2"]) < len(fields["sentence1"]) or fields["label"] == "not_entailment"


def test_similarity_is_the_share_of_common_words(made):
    for record in made["glue/stsb"]:
        one, other = (
            set(record.fields[name].lower().replace(",", "").replace(".", "").split())
            for name in ("sentence1", "sentence2")
        )
        assert record.fields["score"] == pytest.approx(5 * len(one & other) / len(one | other), abs=0.01)


def test_questions_are_answered_by_the_passage(made):
    for record in made["superglue/boolq"]:
        passage, words = record.fields["passage"].lower(), record.fields["question"].split()
        (fact,) = [sentence for sentence in passage.split(".") if words[1] in sentence.split()]
        assert (words[-1] in fact) == record.fields["label"]
        assert words[-1] in passage


def test_causes_come_before_effects(made):
    pairs = {tuple(text.format(person) for text in pair) for pair in _CAUSES for person in _PEOPLE}
    for record in made["superglue/copa"]:
        fields = record.fields
        chosen = fields[f"choice{fields['label'] + 1}"]
        told = (chosen, fields["premise"]) if fields["question"] == "cause" else (fields["premise"], chosen)
        assert told in pairs


def data(task: str, source: str) -> DataSettings:
    return DataSettings(source=source, task=task, tokenizer="words", vocab_size=500)


def test_a_suite_is_prepared(tmp_path, monkeypatch):
    monkeypatch.setenv("SYNTHATTN_CACHE", str(tmp_path))
    ready = prepare(data("glue", "builtin:glue?size=60"), longest=64, evaluate_tokens=10_000)
    names = [f"builtin:glue/{task}?size=60" for task in ("cola", "stsb", "rte")]
    assert [part.source.name for part in ready.parts] == names
    assert list(ready.facts["sources"]) == names
    assert (len(ready.train), len(ready.validation)) == (180, 60)


def test_which_suite():
    parts = open_parts(data("superglue", "builtin:superglue"))
    assert [(part.task.name, part.source.name) for part in parts] == [
        ("boolq", "builtin:superglue/boolq"),
        ("copa", "builtin:superglue/copa"),
    ]
    for source in ("glue", "docs", "superglue/copa"):
        with pytest.raises(ValueError, match=f"^builtin:{source} is not superglue; write builtin:superglue$"):
            open_parts(data("superglue", f"builtin:{source}?size=7"))
    with pytest.raises(ValueError, match=r"^there is no built-in data 'glue'; did you mean glue/rte or glue/stsb"):
        open_builtin("glue")
