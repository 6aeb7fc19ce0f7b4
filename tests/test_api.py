"""The verbs as Python functions."""

import html
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import synthattn
from synthattn import api
from synthattn.compare.comparison import choose_run, with_chosen_start
from synthattn.training.progress import Display
from synthattn.training.settings import from_dict

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
    assert result.answer.startswith("No answer yet: the models have not learned the task.")
    assert [row.attention for row in result.results.models] == ["vanilla", "random"]
    assert str(result.folder / "report.html") in repr(result)
    assert "srcdoc=" in result._repr_html_()
    assert result.results.data == "data in memory", "not a folder of the cache"


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
    (row,) = [row for row in result.results.models if row.attention == "random"]
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
    (row,) = [row for row in result.results.models if row.attention == "random"]
    assert "# classification with `random` attention" in text
    assert f"| accuracy | {row.scores['accuracy'].value:,.4g} | " in text
    code = text.partition("```python\n")[2].partition("```")[0]
    scope: dict[str, Any] = {}
    exec(code.replace("path of this folder", str(result.folder / "runs" / "random-0" / "model")), scope)
    assert type(scope["model"]) is type(result.load("random"))
    assert len(scope["tokenizer"]) == len(result.tokenizer())


def test_the_best_run_of_a_comparison_is_used_or_the_one_that_is_named(result, capsys):
    values = {row.attention: row.scores["accuracy"].value for row in result.results.models}
    best = max(values, key=lambda name: (values[name], name == "random"))
    place, said = choose_run(result.folder)
    assert place == result.folder / "runs" / f"{best}-0"
    (other,) = {"vanilla", "random"} - {best}
    assert said.startswith(f"{result.folder} is a comparison; {best}-0 is used, the best by accuracy (")
    assert said.endswith(f"; --run chooses another: {other}-0")
    assert synthattn.evaluate(result.folder)["accuracy"]["value"] == values[best]
    assert capsys.readouterr().err == f"synthattn: {said}\n"
    texts = ["the red cat", "the blue car"]
    named = list(synthattn.generate(result.folder, texts, run=f"{other}-0"))
    assert named == list(synthattn.generate(result.folder / "runs" / f"{other}-0", texts))
    assert choose_run(result.folder, str(result.folder / "runs" / "random-0"))[0].name == "random-0"
    assert capsys.readouterr().err == ""
    with pytest.raises(ValueError, match=r"has no finished run 'rnadom-0'; did you mean random-0\?"):
        synthattn.evaluate(result.folder, run="rnadom-0")
    assert choose_run(result.folder / "runs") == (result.folder / "runs", "")


@pytest.mark.parametrize("part", ["", "runs/random-0", "runs/random-0/model"])
def test_a_run_starts_from_a_comparison_a_run_or_a_model(result, part):
    start, said = with_chosen_start(from_dict({"model": {"start": str(result.folder / part)}}))
    expected = choose_run(result.folder)[0] if not part else result.folder / "runs" / "random-0"
    assert start.model.start == str(expected / "model")
    assert ("--start FOLDER/runs/NAME takes another" in said) == (not part)


def test_a_comparison_without_models(result, tmp_path):
    (tmp_path / "compare.yaml").write_text("")
    with pytest.raises(ValueError, match="is a comparison without a trained model; go on with synthattn compare"):
        choose_run(tmp_path)


def test_a_result_is_shown_whole_and_escaped(result):
    """The page is in an attribute, from which no quotation mark may break out."""
    shown = result._repr_html_()
    page = (result.folder / "report.html").read_text()
    attribute = re.fullmatch(r'<iframe srcdoc="([^"]*)" style="[^"]*" sandbox="allow-scripts"></iframe>', shown)
    assert attribute is not None
    assert html.unescape(attribute[1]) == page
    assert re.findall(r'(?:src|href)="(?!#|data:)', page) == [], "nothing is loaded from elsewhere"


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


def test_ctrl_c_says_how_to_go_on_if_there_is_something_to_go_on_with(tmp_path, monkeypatch):
    def stop(comparison: Any, folder: Path, *rest: Any) -> None:
        if folder.name == "begun":
            comparison.save(folder)
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "run_comparison", stop)
    for name in ("new", "begun"):
        (tmp_path / name).mkdir()
    with pytest.raises(api.Interrupted, match=r"^stopped$"):
        api.compare("classification", RECORDS, output=tmp_path / "new", progress=False)
    again = f"Go on with: synthattn.compare(resume={str(tmp_path / 'begun')!r})"
    with pytest.raises(KeyboardInterrupt, match=re.escape(again)):
        api.compare("classification", RECORDS, output=tmp_path / "begun", progress=False)


def test_a_resumed_comparison_takes_no_other_settings(tmp_path):
    others: list[dict[str, Any]] = [{"task": "x"}, {"seeds": 2}, {"training__steps": 5}, {"control": True}]
    for other in others:
        with pytest.raises(ValueError, match="--resume takes all settings from"):
            api.compare(resume=tmp_path, **other)
    with pytest.raises(ValueError, match="--budget chooses the number of steps; leave --steps out"):
        api.compare("classification", RECORDS, budget="1h", training__steps=5)


def test_displays_end_with_the_comparison():
    assert Display().overall(0.5, "") is None
