"""Which runs of two rows are compared, and that only the same examples are."""

import numpy as np
import pytest

from synthattn.compare import statistics
from synthattn.compare.collect import Scoring, all_seeds, by_row, done, over_seeds, same_seeds
from synthattn.compare.records import StudyRecord
from synthattn.compare.results import Variant
from synthattn.metrics.base import Rows
from synthattn.metrics.classification import Accuracy
from synthattn.training.record import RunRecord


def run(row: str, seed: int, status: str = "done", model: bool = True) -> StudyRecord:
    found = RunRecord(status, model={"parameters": 1} if model else {}, evaluation={"splits": {"task": "test"}})
    return StudyRecord("", "", "", row, seed, "", found)


def seeds(row: str, *statuses: str) -> dict[int, StudyRecord]:
    return {seed: run(row, seed, status) for seed, status in enumerate(statuses)}


def test_of_two_records_the_one_that_is_done_counts():
    failed, first, again = run("a", 0, "failed"), run("a", 0), run("a", 0)
    assert by_row([failed, first, again])["a"][0] is first


def test_pairs_of_seeds():
    one, other = seeds("a", "done", "done"), seeds("b", "done")
    assert [(a.seed, b.seed) for a, b in same_seeds(one, other)] == [(0, 0)]
    assert all_seeds(one, other) == [], "one of them has another seed"
    other = seeds("b", "done", "failed")
    assert all_seeds(one, other) == [], "what survives is no sample of all"
    assert len(same_seeds(one, done(other))) == 1
    assert len(all_seeds(one, seeds("b", "done", "done"))) == 2
    assert all_seeds(one, {}) == []


def test_a_row_that_is_no_model_goes_with_every_seed():
    floor = {0: run("floor", 0, model=False)}
    assert [(a.row, b.seed) for a, b in same_seeds(floor, seeds("a", "done", "done"))] == [("floor", 0), ("floor", 1)]


@pytest.mark.parametrize("sources", [{"data": "fingerprint"}, {"data": "another"}])
def test_only_the_same_examples_are_compared(monkeypatch, sources):
    rows: dict[str, Rows] = {"a": np.array([[1.0], [1.0], [0.0]]), "b": np.array([[0.0], [1.0], [0.0]])}
    monkeypatch.setattr(StudyRecord, "rows", property(lambda self: {"accuracy": rows[self.row]}))
    one, other = seeds("a", "done"), seeds("b", "done")
    one[0].record.data["sources"], other[0].record.data["sources"] = {"data": "fingerprint"}, sources
    score = Scoring({"accuracy": Accuracy()}, statistics.remembered(), same_seeds, 50, 50).score("accuracy", one, other)
    assert score is not None
    assert (score.difference is not None) == (sources == {"data": "fingerprint"})


def test_differences_share_the_seed_variance_of_all_rows(monkeypatch):
    """A row whose seeds happen to agree is judged by how much seeds do in the other rows."""
    shares = {"base": (0.50, 0.52, 0.48), "calm": (0.56, 0.58, 0.54), "wild": (0.60, 0.44, 0.61)}

    def rows(self: StudyRecord) -> dict[str, Rows]:
        return {"accuracy": (np.arange(5000) < 5000 * shares[self.row][self.seed]).astype(float)[:, None]}

    monkeypatch.setattr(StudyRecord, "rows", property(rows))
    runs = {name: seeds(name, "done", "done", "done") for name in shares}
    scoring = Scoring({"accuracy": Accuracy()}, statistics.remembered(), all_seeds, 50, 50)
    found = []
    for name in shares:
        row, score = Variant(name), scoring.score("accuracy", runs[name], {} if name == "base" else runs["base"])
        assert score is not None
        row.scores["accuracy"] = score
        found.append(row)
    before = found[1].scores["accuracy"].difference
    scoring.pool(found, runs, "base", "accuracy")
    now, other = (row.scores["accuracy"].difference for row in found[1:])
    assert before is not None
    assert now is not None
    assert other is not None
    assert found[0].scores["accuracy"].difference is None
    assert now.value == pytest.approx(before.value)
    assert now.high - now.low > 3 * (before.high - before.low)
    assert now.high - now.low == pytest.approx(other.high - other.low, rel=0.1)


def test_curves_of_seeds_have_a_mean_and_a_band():
    one, other = [[1, 4.0], [2, 3.0], [3, 2.0]], [[1, 6.0], [2, float("nan")], [3, 3.0]]
    assert over_seeds([one, other]) == ([[1.0, 5.0], [3.0, 2.5]], [[1.0, 4.0, 6.0], [3.0, 2.0, 3.0]])
    assert over_seeds([other]) == ([[1.0, 6.0], [3.0, 3.0]], [])
    assert over_seeds([[[1, 4.0]], [[2, 3.0]]]) == ([[1.0, 4.0]], []), "no step is common"
    assert over_seeds([]) == ([], [])
