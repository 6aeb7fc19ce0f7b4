"""One form of results for all studies: without the fields that say nothing, with a version that is checked."""

import json

import pytest

from synthattn.compare.results import (
    Difference,
    MetricInfo,
    Results,
    Run,
    Score,
    Speed,
    StudyResults,
    Variant,
    load,
    load_study,
)

SCORE = Score(1 / 3, 0.25, 0.5, [1 / 3], Difference(1 / 7, 0.0, 0.5, 0.25))


def part(name: str) -> Results:
    rows = [
        Variant("vanilla", "done", scores={"bleu": SCORE}, runs=[Run(0, "a.json", "synthattn", 2.5)]),
        Variant("random", "done", training_speed=2.0, spread={"training_speed": [1.5, 2.25]}),
    ]
    return Results("translation", "data", "vanilla", "bleu", [], rows, {"bleu": MetricInfo("BLEU", True)}, name=name)


def test_a_study_survives_being_written_and_read(tmp_path):
    study = StudyResults("both", "Two parts", [part("a"), part("b")], ["a note"])
    study.save(tmp_path / "results.json")
    assert load_study(StudyResults, tmp_path / "results.json") == study
    with pytest.raises(ValueError, match="is no result of a comparison: it has 2 parts"):
        load(tmp_path / "results.json")


def test_fields_that_say_nothing_are_left_out(tmp_path):
    part("a").save(tmp_path / "results.json")
    found = json.loads((tmp_path / "results.json").read_text())
    assert set(found) == {"name", "title", "parts", "version"}
    assert set(found["parts"][0]["rows"][1]) == {"attention", "status", "training_speed", "spread"}


def test_numbers_with_so_many_digits(tmp_path):
    StudyResults("one", "", [part("a")]).save(tmp_path / "results.json", digits=3)
    score = load(tmp_path / "results.json").rows[0].scores["bleu"]
    assert (score.value, score.by_seed, score.difference and score.difference.value) == (0.333, [0.333], 0.143)


def test_the_speed_has_its_quartiles():
    first, second = part("a").rows
    assert first.speed is None
    assert second.speed == Speed(2.0, 1.5, 2.25)


def test_results_of_an_earlier_version_are_refused(tmp_path):
    (tmp_path / "results.json").write_text('{"task": "translation", "variants": []}')
    with pytest.raises(ValueError, match=r"results\.json holds no results of version 2: it lacks version$"):
        load(tmp_path / "results.json")
