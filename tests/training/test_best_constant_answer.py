"""One answer for all: the best of those that training has, scored as a model is."""

import json
from pathlib import Path

import pytest

from synthattn.training.best_constant_answer import answers_are_chosen, best_constant_answer
from synthattn.training.prepare import open_parts
from synthattn.training.settings import DataSettings, EvaluationSettings


def write(folder: Path, **splits: list[dict[str, object]]) -> str:
    folder.mkdir(parents=True)
    for name, records in splits.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(folder)


def news(labels: str) -> list[dict[str, object]]:
    return [{"text": f"text {n} of {label}", "label": label} for n, label in enumerate(labels)]


def scores(source: str, task: str, limit: int | None = None, learned: int | None = None) -> dict[str, float]:
    found = best_constant_answer(open_parts(DataSettings(source, task)), EvaluationSettings(limit=limit), learned)
    return {name: one.score.value for name, one in found.scored.items()}


@pytest.mark.parametrize("order", ["aaabbcd", "dcbabaa"])
def test_the_best_answer_whatever_the_order_of_training(order: str, tmp_path: Path) -> None:
    source = write(tmp_path / "news", train=news(order), validation=news("ab"), test=news("cabbccbcca"))
    assert scores(source, "classification")["accuracy"] == pytest.approx(50)  # "c" is right in five of ten
    assert scores(source, "classification", limit=4)["accuracy"] == pytest.approx(50)  # "b" in two of the first four


def test_answers_are_those_that_are_learned_from(tmp_path: Path) -> None:
    source = write(tmp_path / "news", train=news("abbccc"), validation=news("ab"), test=news("cabbccbcca"))
    # Of the first three training examples none is of "c".
    assert scores(source, "classification", learned=3)["accuracy"] == pytest.approx(30)


def test_a_suite_has_an_answer_for_each_task(tmp_path: Path) -> None:
    def sentences(labels: list[int]) -> list[dict[str, object]]:
        return [{"sentence": f"sentence {n} of {label}", "label": label} for n, label in enumerate(labels)]

    write(tmp_path / "glue" / "sst2", train=sentences([1, 1, 0]), validation=sentences([1, 0, 0, 0]))
    write(tmp_path / "glue" / "cola", train=sentences([0, 0, 1]), validation=sentences([0, 1, 1, 1]))
    found = scores(str(tmp_path / "glue"), "glue")
    # One answer is correlated with nothing.
    assert found == pytest.approx({"mean": 37.5, "sst2 accuracy": 75, "cola matthews": 0})


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

    # "cat" is no answer in training, where it is never the noun that is meant.
    source = write(
        tmp_path / "wsc",
        train=pronouns([("cat", False), ("cat", False), ("dog", True), ("cow", True)]),
        validation=pronouns([("cat", True), ("cat", True), ("dog", True), ("cow", False)]),
    )
    # "dog" is right where it is meant, and where another noun is not: 2 of 4; "cat" would be right in 3.
    assert scores(source, "wsc")["accuracy"] == pytest.approx(50)


def test_where_it_says_nothing(tmp_path: Path) -> None:
    source = write(tmp_path / "pairs", train=[{"en": "one", "de": "eins"}], validation=[{"en": "two", "de": "zwei"}])
    assert not answers_are_chosen(open_parts(DataSettings(source, "translation", columns="source=en,target=de")))
    source = write(tmp_path / "news", train=news("ab"), validation=news("ab"))
    assert answers_are_chosen(open_parts(DataSettings(source, "classification")))
