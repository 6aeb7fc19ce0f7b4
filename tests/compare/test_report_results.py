"""What a comparison found survives being written and read."""

import pytest
from report_helpers import sample_results

from synthattn.compare.results import Results, Variant, load


@pytest.mark.parametrize(
    "results",
    [
        sample_results(layers=1, count=2, size=3),
        Results("classification", "nothing", "vanilla", "accuracy", [], [Variant("vanilla")], {}),
    ],
    ids=["full", "bare"],
)
def test_round_trip(results, tmp_path):
    path = tmp_path / "results.json"
    results.save(path)
    assert load(path) == results
    assert [file.name for file in tmp_path.iterdir()] == ["results.json"]
