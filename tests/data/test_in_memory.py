"""Records that are in memory, as sources."""

from typing import Any

import numpy as np
import pytest

from synthattn.data.in_memory import as_source
from synthattn.data.open import open_source


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SYNTHATTN_CACHE", str(tmp_path / "cache"))


def read(data) -> dict[str, list[Any]]:
    source = open_source(as_source(data))
    return {split: [record.fields for record in source.read(split)] for split in source.splits}


RECORDS = [{"text": "A cat.", "label": "animal"}, {"text": "Ein Haus\n", "label": "thing"}]


def test_lists_of_dicts_are_training_records():
    assert read(RECORDS) == {"train": RECORDS}


def test_splits_may_have_other_names():
    assert read({"train": RECORDS, "dev": RECORDS[:1]}) == {"train": RECORDS, "validation": RECORDS[:1]}


def test_columns_are_rows():
    assert read({"text": ["a", "b"], "label": [0, 1]}) == {
        "train": [{"text": "a", "label": 0}, {"text": "b", "label": 1}]
    }


class Pandas:
    """Has what is read of a frame of pandas."""

    columns = ("text", "score")

    def to_dict(self, form):
        assert form == "records"
        return [{"text": "a", "score": np.float64(1.5)}, {"text": "b", "score": float("nan")}]


class Polars:
    """Has what is read of a frame of polars."""

    columns = ("text",)

    def iter_rows(self, named):
        assert named
        return iter([{"text": "a"}])


def test_frames():
    assert read({"train": Pandas(), "test": Polars()}) == {
        "train": [{"text": "a", "score": 1.5}, {"text": "b", "score": None}],
        "test": [{"text": "a"}],
    }


def test_equal_records_are_written_once_and_paths_are_left_alone(tmp_path):
    assert as_source(RECORDS) == as_source([dict(record) for record in RECORDS])
    assert as_source(RECORDS) != as_source(RECORDS[:1])
    assert as_source(tmp_path) == str(tmp_path)
    assert as_source("builtin:docs") == "builtin:docs"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (3, "data, train: got a int; give a path, a list of dicts"),
        (["a text"], "data, train, record 1: a record must be a dict, got a str"),
        ([{"text": {1, 2}}], "data, train, record 1: Object of type set is not JSON serializable"),
        ({"test": RECORDS}, "data needs a split train, and may have validation and test; got test"),
        ({"train": RECORDS, "extra": RECORDS}, "got extra, train"),
    ],
)
def test_other_data_is_refused(data, message):
    with pytest.raises(ValueError, match=message):
        as_source(data)
