"""The verbs as Python functions."""

from pathlib import Path
from typing import Any

import pytest
import yaml

import synthattn
from synthattn.training.progress import Display

pytestmark = pytest.mark.unchecked

COLOURS = ("red", "blue", "green", "white")
RECORDS = [
    {"review": f"the {COLOURS[n % 4]} {('cat', 'car')[n % 2]} is number {n}", "label": ("animal", "thing")[n % 2]}
    for n in range(48)
]
TINY = {
    "model__preset": "tiny",
    "data__tokenizer": "words",
    "data__columns": "text=review",
    "training__steps": 4,
    "training__batch_tokens": 128,
    "training__evaluate_every": 4,
}


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("api")
        patch.setenv("SYNTHATTN_CACHE", str(folder / "cache"))
        splits = {"train": RECORDS, "validation": RECORDS[:8], "test": RECORDS[8:16]}
        yield synthattn.compare(  # pyright: ignore[reportCallIssue] (a package that can be called)
            task="classification",
            data=splits,
            attention=["vanilla", "random"],
            output=folder / "new",
            progress=False,
            **TINY,
        )


def test_a_comparison_answers(result):
    assert "one seed" in result.answer
    assert [row.attention for row in result.results.variants] == ["vanilla", "random"]
    assert str(result.folder / "report.html") in repr(result)
    assert "srcdoc=" in result._repr_html_()


def test_a_report_is_copied(result, tmp_path):
    path = result.report(tmp_path / "page.html")
    assert path.read_bytes() == (result.folder / "report.html").read_bytes()


def test_a_model_is_loaded_and_answers(result):
    model = result.load("random")
    assert str(model.config.encoder_attention) == "random"
    assert len(result.tokenizer()) == model.config.vocab_size
    answers = list(synthattn.generate(result.folder / "runs" / "random-0", ["the red cat", "the blue car"]))
    assert len(answers) == 2
    assert set(answers) <= {"animal", "thing"}
    with pytest.raises(ValueError, match=r"there is no trained model 'rnadom'; did you mean random\?"):
        result.load("rnadom")


def test_scores_of_a_saved_run(result):
    found = synthattn.evaluate(result.folder / "runs" / "random-0")
    (row,) = [row for row in result.results.variants if row.attention == "random"]
    assert {name: one["value"] for name, one in found.items()} == {
        name: score.value for name, score in row.scores.items()
    }


def test_a_model_has_a_card(result):
    _, head, text = (result.folder / "runs" / "random-0" / "model" / "README.md").read_text().split("---\n", 2)
    assert yaml.safe_load(head) == {
        "license": "unknown",
        "library_name": "synthattn",
        "tags": ["synthattn", "synthesizer", "classification"],
        "pipeline_tag": "text-classification",
    }
    (row,) = [row for row in result.results.variants if row.attention == "random"]
    assert "# classification with `random` attention" in text
    assert f"| accuracy | {row.scores['accuracy'].value:,.4g} | " in text
    code = text.partition("```python\n")[2].partition("```")[0]
    scope: dict[str, Any] = {}
    exec(code.replace("path of this folder", str(result.folder / "runs" / "random-0" / "model")), scope)
    assert type(scope["model"]) is type(result.load("random"))
    assert len(scope["tokenizer"]) == len(result.tokenizer())


def test_a_comparison_is_not_one_model(result):
    choice = rf"is a comparison of several models; choose one: {result.folder}/runs/random-0, \S+/runs/vanilla-0$"
    with pytest.raises(ValueError, match=choice):
        list(synthattn.generate(result.folder, ["a text"]))
    with pytest.raises(ValueError, match=choice):
        synthattn.evaluate(result.folder)
    with pytest.raises(ValueError, match=choice):
        synthattn.train("classification", RECORDS, model__start=str(result.folder), output=result.folder / "next")


def test_a_comparison_is_opened_again(result):
    again = synthattn.open_comparison(result.folder)
    assert again.answer == result.answer
    with pytest.raises(ValueError, match=r"holds no compare\.yaml, so it is not the folder of a comparison"):
        synthattn.open_comparison(result.folder / "runs")


def test_a_frame_has_a_row_for_each_variant(result):
    pandas = pytest.importorskip("pandas")
    frame = result.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert {"vanilla", "random"} <= set(frame["attention"])


def test_a_run_is_trained(tmp_path, monkeypatch):
    monkeypatch.setenv("SYNTHATTN_CACHE", str(tmp_path / "cache"))
    run = synthattn.train("classification", RECORDS, "random", output=tmp_path / "run", progress=False, **TINY)
    assert run.folder == Path(tmp_path / "run")
    assert run.load().config.id2label == {0: "animal", 1: "thing"}
    assert len(run.tokenizer()) == run.load().config.vocab_size
    assert 0 <= run.scores["accuracy"]["value"] <= 100


def test_a_mistake_is_a_value_error(tmp_path):
    with pytest.raises(ValueError, match="classificaton"):
        synthattn.compare("classificaton", RECORDS, output=tmp_path / "new")  # pyright: ignore[reportCallIssue]
    with pytest.raises(ValueError, match="--budget takes a time"):
        synthattn.compare("classification", RECORDS, budget="soon")  # pyright: ignore[reportCallIssue]


def test_displays_end_with_the_comparison():
    assert Display().overall(0.5, "") is None
