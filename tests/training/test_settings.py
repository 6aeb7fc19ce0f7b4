"""Settings: what is written is what is meant, and every mistake is one line that says what to write instead."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from synthattn.training.settings import Settings, as_dict, from_dict, read_settings


def read(text: str, *overrides: str, folder: Path) -> Settings:
    file = folder / "settings.yaml"
    file.write_text(text)
    return from_dict(read_settings(file, overrides))


def test_nothing_said_is_the_default(tmp_path: Path):
    assert from_dict({}) == read("", folder=tmp_path) == read("training:\nmodel: {}\n", folder=tmp_path) == Settings()


def test_a_file_then_overrides(tmp_path: Path):
    found = read(
        "training: {steps: 7, learning_rate: 1e-3, compile: true}\ndata: {task: classification}\n",
        "training.steps=9",
        "data.columns=label=0,text=1+2",
        "evaluation.beams=4",
        folder=tmp_path,
    )
    assert (found.training.steps, found.training.learning_rate, found.training.compile) == (9, 0.001, True)
    assert (found.data.task, found.data.columns) == ("classification", "label=0,text=1+2")
    assert found.evaluation.beams == 4


@pytest.mark.parametrize(("text", "number"), [("1e-3", 0.001), ("2", 2.0), ("0.5", 0.5), ("1E2", 100.0)])
def test_numbers_in_any_notation(text: str, number: float):
    found = from_dict(read_settings(None, [f"training.learning_rate={text}"]))
    assert found.training.learning_rate == number
    assert isinstance(found.training.learning_rate, float)


def test_null_takes_a_setting_back(tmp_path: Path):
    assert read("training: {steps: 7}\n", "training.steps=null", folder=tmp_path).training.steps is None


def test_fields_of_the_model_need_no_group(tmp_path: Path):
    found = read("model: {preset: tiny, d_model: 48}\n", "model.fields.d_ff=96", "model.dropout=0", folder=tmp_path)
    assert found.model.preset == "tiny"
    assert found.model.fields == {"d_model": 48, "d_ff": 96, "dropout": 0}
    found = read("model: {fields: {d_model: 48}}\n", "model.d_ff=96", folder=tmp_path)
    assert found.model.fields == {"d_model": 48, "d_ff": 96}


def test_an_override_fills_a_group_that_is_empty_in_the_file(tmp_path: Path):
    assert read("training:\n", "training.steps=9", folder=tmp_path).training.steps == 9


def test_numbers_can_be_names():
    assert from_dict({"data": {"source": 2014}}).data.source == "2014"


def test_changed_names_settings_by_group():
    found = Settings().changed(training__seed=3, model__attention="dense")
    assert (found.training.seed, found.model.attention) == (3, "dense")
    assert found.changed(training__seed=0, model__attention="random+vanilla") == Settings()


def some(kind: Any) -> st.SearchStrategy[Settings]:
    numbers = st.floats(1e-9, 1e9)
    return st.builds(
        Settings().changed,
        training__steps=st.none() | st.integers(1, 10**6),
        training__learning_rate=numbers,
        training__label_smoothing=st.none() | st.floats(0.0, 0.99),
        training__schedule=st.sampled_from(["inverse_sqrt", "cosine"]),
        training__compile=st.booleans(),
        data__source=kind,
        data__columns=kind,
        model__fields=st.dictionaries(kind, st.integers() | numbers | kind, max_size=3),
        evaluation__length_penalty=numbers,
    )


@given(some(st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=12)))
@limits(max_examples=50, deadline=None)
def test_settings_survive_dictionaries_and_files(settings: Settings):
    assert from_dict(as_dict(settings)) == settings
    assert from_dict(yaml.safe_load(yaml.safe_dump(as_dict(settings), sort_keys=False))) == settings


def one_line(found: dict[str, Any]) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        from_dict(found)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ({"trainning": {}}, "there are no settings 'trainning'; did you mean training?"),
        ({"training": {"step": 3}}, "there is no setting training.step; did you mean steps?"),
        ({"training": {7: 3}}, "there is no setting training.7; choose from"),
        ({"training": 3}, "training must be a group of settings, got 3"),
        ({"training": {"steps": "many"}}, "training.steps must be a whole number or null, got 'many'"),
        ({"training": {"steps": 2.5}}, "training.steps must be a whole number or null, got 2.5"),
        ({"training": {"steps": True}}, "training.steps must be a whole number or null, got true"),
        ({"training": {"learning_rate": "fast"}}, "training.learning_rate must be a number, got 'fast'"),
        ({"training": {"learning_rate": None}}, "training.learning_rate must be a number, got null"),
        ({"training": {"compile": 1}}, "training.compile must be true or false, got 1"),
        ({"data": {"source": ["a"]}}, "data.source must be a text, got a list of 1"),
        ({"model": {"fields": 3}}, "model.fields must be an object, got 3"),
        (
            {"training": {"schedule": "cosin"}},
            "schedule must be 'inverse_sqrt' or 't5' or 'linear' or 'cosine' or 'constant', got 'cos",
        ),
        ({"training": {"optimizer": "sgd"}}, "training.optimizer must be 'adam' or 'adafactor', got 'sgd'"),
        ({"data": {"tokenizer": 3}}, "data.tokenizer must be 'unigram' or 'bytes' or 'words', got 3"),
        (
            {"training": {"steps": 3, "tokens": 9}},
            "a run ends after steps, tokens or minutes, got steps and tokens; leave one",
        ),
        ({"training": {"steps": 0}}, "training.steps must be at least 1, got 0"),
        ({"training": {"clip": -1}}, "training.clip must be at least 0, got -1"),
        ({"training": {"clip": float("nan")}}, "training.clip must be a number, got 'nan'"),
        ({"training": {"epsilon": -1}}, "training.epsilon must be at least 0, got -1"),
        ({"training": {"minutes": 0}}, "training.minutes must be above 0, got 0"),
        ({"training": {"learning_rate": 0}}, "training.learning_rate must be above 0, got 0"),
        ({"training": {"beta2": 1}}, "training.beta2 must be at least 0 and below 1, got 1"),
        ({"training": {"label_smoothing": -0.1}}, "training.label_smoothing must be at least 0 and below 1, got -0.1"),
        (
            {"training": {"minutes": 3, "schedule": "cosine"}},
            "schedule=cosine needs to know the last step, which minutes do not say; give steps, or use inverse_sqrt",
        ),
        (
            {"training": {"save_every": 15, "log_every": 10}},
            "training.save_every must be a multiple of training.log_every=10, got 15",
        ),
        ({"data": {"vocab_size": 0}}, "data.vocab_size must be at least 1, got 0"),
        ({"data": {"read_examples": 0}}, "data.read_examples must be at least 1, got 0"),
        ({"evaluation": {"beams": 0}}, "evaluation.beams must be at least 1, got 0"),
    ],
)
def test_mistakes_in_settings(found: dict[str, Any], message: str):
    assert message in one_line(found)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("training: {steps: 3", "is not YAML: while parsing a flow mapping"),
        ("- 1\n- 2\n", "must have settings such as 'training:', got a list"),
        ("just words", "must have settings such as 'training:', got a str"),
        (b"\xff\xfe\x00\x01", "is not YAML"),
    ],
)
def test_mistakes_in_files(tmp_path: Path, text: str | bytes, message: str):
    file = tmp_path / "settings.yaml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(ValueError, match=str(file)) as caught:
        read_settings(file)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.steps", "--set needs NAME=VALUE, such as training.steps=500, got 'training.steps'"),
        ("=3", "--set needs NAME=VALUE, such as training.steps=500, got '=3'"),
        ("training.steps=[3", "--set training.steps: '[3' is not a value: while parsing"),
        ("training.steps.more=3", "--set training.steps.more: steps is a value, not a group of settings"),
    ],
)
def test_mistakes_in_overrides(tmp_path: Path, override: str, message: str):
    file = tmp_path / "settings.yaml"
    file.write_text("training: {steps: 3}\n")
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        read_settings(file, [override])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_setting_can_be_said_in_yaml():
    for group in dataclasses.fields(Settings):
        default = getattr(Settings(), group.name)
        for field in dataclasses.fields(default):
            value = getattr(default, field.name)
            text = yaml.safe_dump(value, default_flow_style=True).removesuffix("...\n").strip()
            found = from_dict(read_settings(None, [f"{group.name}.{field.name}={text}"]))
            assert found == Settings(), field.name
