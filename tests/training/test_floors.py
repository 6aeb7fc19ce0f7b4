"""Trivial systems, scored on the same examples as models."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from synthattn.training.floors import floors
from synthattn.training.prepare import open_parts, prepare
from synthattn.training.settings import DataSettings, EvaluationSettings


def write(folder: Path, **splits: Sequence[Mapping[str, object]]) -> str:
    folder.mkdir(parents=True)
    for name, records in splits.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(folder)


def scores(source: str, task: str, **data: object) -> dict[str, dict[str, float]]:
    prepared = prepare(DataSettings(source, task, tokenizer="bytes", **data), 64, 1000)  # pyright: ignore
    found = floors(prepared.parts, EvaluationSettings(), prepared.tokenizer, prepared.longest)
    return {name: {metric: one.score.value for metric, one in floor.scored.items()} for name, floor in found.items()}


def test_translation_is_compared_with_its_source(tmp_path: Path) -> None:
    pairs = [{"en": f"one two three four five {n}", "de": f"one two three four five {n}"} for n in range(9)]
    other = [{"en": "a b c d e f", "de": "u v w x y z"}]
    same = scores(write(tmp_path / "same", train=pairs, validation=pairs[:2], test=pairs[3:]), "translation")
    assert same["source copied"]["bleu"] == pytest.approx(100)
    different = scores(write(tmp_path / "other", train=pairs, validation=pairs[:2], test=other), "translation")
    assert different["source copied"]["bleu"] == pytest.approx(0, abs=1)


def test_summaries_are_compared_with_the_first_words(tmp_path: Path) -> None:
    records = [{"document": f"w{n} x{n} y{n} z{n} the rest of it", "summary": f"w{n} x{n} y{n}"} for n in range(12)]
    # Among the training summaries a few have other lengths, so that three words are a choice.
    train = [*records[:8], {"document": "a b c d e f g", "summary": "a b c d e f"}]
    found = scores(write(tmp_path / "s", train=train, validation=records[:2], test=records[8:]), "summarization")
    assert found["first words of the source"]["rouge1"] == pytest.approx(100)


def test_a_reply_is_tuned_on_training_data(tmp_path: Path) -> None:
    def talk(replies: list[str]) -> list[dict[str, object]]:
        return [{"history": [f"question {n} ?"], "reply": reply} for n, reply in enumerate(replies)]

    train = talk(["i do not know .", "i do not know .", "go away", "you do not know ."])
    test = talk(["go away", "go away"])  # with hindsight, another reply would be the best
    found = scores(write(tmp_path / "d", train=train, validation=train[:1], test=test), "dialogue")
    assert found["constant reply"]["bleu-1"] == pytest.approx(0, abs=1e-6)


def repeated(word: str, *counts: int) -> list[dict[str, object]]:
    """Return texts that repeat a word, each time with a space before it, which makes it one token."""
    return [{"text": " ".join([word] * count)} for count in counts]


def test_language_models_are_compared_with_frequencies(tmp_path: Path) -> None:
    source = write(
        tmp_path / "lm",
        train=repeated("the", *range(11, 50)),
        validation=repeated("the", 9),
        test=repeated("the", 10),
    )
    found = scores(source, "language-modeling")
    uniform, unigram = (found[name]["token-perplexity"] for name in ("uniform model", "unigram model"))
    assert 256 <= uniform == pytest.approx(round(uniform))
    # 39 training texts have 1,170 words, of which the first of a text, without a space, is another token. Every token
    # counts once more, so that none is impossible. The test has 1 + 9 words and an end.
    total = 1170 + 39 + round(uniform)
    likelihood = 9 * math.log((1170 - 39 + 1) / total) + 2 * math.log((39 + 1) / total)
    assert unigram == pytest.approx(math.exp(-likelihood / 11))


def test_hidden_spans_are_compared_with_frequencies(tmp_path: Path) -> None:
    source = write(
        tmp_path / "spans",
        train=repeated("the", *range(30, 60)),
        validation=repeated("the", 20),
        test=repeated("the", 21, 22),
    )
    found = scores(source, "span-corruption")
    assert found["unigram model"]["token-perplexity"] < 0.2 * found["uniform model"]["token-perplexity"]


# Constant answers ----------------------------------------------------------------------------------------------------


def news(labels: str) -> list[dict[str, object]]:
    return [{"text": f"text {n} of {label}", "label": label} for n, label in enumerate(labels)]


def best_constant(source: str, task: str, limit: int | None = None, learned: int | None = None) -> dict[str, float]:
    found = floors(open_parts(DataSettings(source, task)), EvaluationSettings(limit=limit), None, 0, learned)
    return {name: one.score.value for name, one in found["best constant answer"].scored.items()}


@pytest.mark.parametrize("order", ["aaabbcd", "dcbabaa"])
def test_the_best_answer_whatever_the_order_of_training(order: str, tmp_path: Path) -> None:
    source = write(tmp_path / "news", train=news(order), validation=news("ab"), test=news("cabbccbcca"))
    assert best_constant(source, "classification")["accuracy"] == pytest.approx(50)  # "c" is right in five of ten
    assert best_constant(source, "classification", limit=4)["accuracy"] == pytest.approx(
        50
    )  # "b" in two of the first four


def test_answers_are_those_that_are_learned_from(tmp_path: Path) -> None:
    source = write(tmp_path / "news", train=news("abbccc"), validation=news("ab"), test=news("cabbccbcca"))
    # Of the first three training examples none is of "c".
    assert best_constant(source, "classification", learned=3)["accuracy"] == pytest.approx(30)


def test_a_suite_has_an_answer_for_each_task(tmp_path: Path) -> None:
    def sentences(labels: list[int]) -> list[dict[str, object]]:
        return [{"sentence": f"sentence {n} of {label}", "label": label} for n, label in enumerate(labels)]

    write(tmp_path / "glue" / "sst2", train=sentences([1, 1, 0]), validation=sentences([1, 0, 0, 0]))
    write(tmp_path / "glue" / "cola", train=sentences([0, 0, 1]), validation=sentences([0, 1, 1, 1]))
    found = best_constant(str(tmp_path / "glue"), "glue")
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
    assert best_constant(source, "wsc")["accuracy"] == pytest.approx(50)
