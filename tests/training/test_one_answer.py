"""One answer for all: the most frequent of training, scored as a model is."""

import json
from pathlib import Path

import pytest

from synthattn.training.one_answer import one_answer
from synthattn.training.prepare import open_parts
from synthattn.training.settings import DataSettings, EvaluationSettings


def write(folder: Path, **splits: list[dict[str, object]]) -> str:
    folder.mkdir(parents=True)
    for name, records in splits.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(folder)


def news(labels: str) -> list[dict[str, object]]:
    return [{"text": f"text {n} of {label}", "label": label} for n, label in enumerate(labels)]


def scores(source: str, task: str, limit: int | None = None) -> dict[str, float]:
    found = one_answer(open_parts(DataSettings(source, task)), EvaluationSettings(limit=limit))
    return {name: one.score.value for name, one in found.scored.items()}


def test_the_most_frequent_class_of_training(tmp_path: Path) -> None:
    source = write(tmp_path / "news", train=news("baaabc"), validation=news("ab"), test=news("cabbccbcca"))
    # Two of ten are "a", the most frequent of training; in the test split it is not.
    assert scores(source, "classification")["accuracy"] == pytest.approx(20)
    # Of the first four it is one.
    assert scores(source, "classification", limit=4)["accuracy"] == pytest.approx(25)


def test_a_suite_has_an_answer_for_each_task(tmp_path: Path) -> None:
    def sentences(labels: list[int]) -> list[dict[str, object]]:
        return [{"sentence": f"sentence {n} of {label}", "label": label} for n, label in enumerate(labels)]

    write(tmp_path / "glue" / "sst2", train=sentences([1, 1, 0]), validation=sentences([1, 0, 0, 0]))
    write(tmp_path / "glue" / "cola", train=sentences([0, 0, 1]), validation=sentences([0, 1, 1, 1]))
    found = scores(str(tmp_path / "glue"), "glue")
    # One answer is correlated with nothing.
    assert found == pytest.approx({"mean": 12.5, "sst2 accuracy": 25, "cola matthews": 0})


def test_what_is_for_evaluation_only_is_not_counted(tmp_path: Path) -> None:
    def pronouns(nouns: list[tuple[str, bool]]) -> list[dict[str, object]]:
        return [
            {
                "text": f"The {noun} saw that it was number {n} .",
                "target": {"span1_text": noun, "span2_text": "it", "span2_index": 4},
                "label": label,
            }
            for n, (noun, label) in enumerate(nouns)
        ]

    # "cat" is the most frequent noun, "dog" the most frequent of those that are learned from.
    source = write(
        tmp_path / "wsc",
        train=pronouns([("cat", False), ("cat", False), ("cat", False), ("dog", True), ("dog", True), ("cow", True)]),
        validation=pronouns([("cat", True), ("dog", True), ("cow", False), ("dog", True)]),
    )
    # "dog" is right where it is meant, and where another noun is not: 3 of 4; "cat" would be right once.
    assert scores(source, "wsc")["accuracy"] == pytest.approx(75)
