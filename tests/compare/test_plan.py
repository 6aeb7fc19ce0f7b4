"""A plan names every run once, in the order in which runs are worth having, with the runs that each needs."""

import pytest

from synthattn.compare.plan import ONE_ANSWER, PlannedRun, Study, StudyPart, StudyRow, plan, slug
from synthattn.training.settings import Settings

VANILLA, RANDOM = StudyRow("Vanilla", "vanilla", seeds=2), StudyRow("Random", "random", seeds=3)
LEARNED = StudyPart("learned", "", Settings(), (VANILLA, RANDOM), rates=(0.1, 0.2))
OTHER = StudyPart("other", "", Settings(), (StudyRow("V", "vanilla"), ONE_ANSWER), rate_of="learned")
FIRST = Study("first", "tiny", (LEARNED, OTHER))
TUNED = StudyPart("tuned", "", Settings(), (StudyRow("T5", "vanilla"), ONE_ANSWER), before=(FIRST, "learned"))
SECOND = Study("second", "tiny", (TUNED,))


def names(found) -> list[str]:
    return [f"{run.part.name} {run.name}" for run in found]


def test_rates_first_then_every_row_once_then_further_seeds():
    assert names(plan(FIRST)) == [
        "learned rates/0.1",
        "learned rates/0.2",
        "learned vanilla-0",
        "learned random-0",
        "other v-0",
        "other one-answer-for-all-0",
        "learned vanilla-1",
        "learned random-1",
        "learned random-2",
    ]


def test_what_rows_are_compared_with_comes_along():
    found = names(plan(FIRST, ["random"], seeds=1))
    assert found[2:] == ["learned vanilla-0", "learned random-0", "other v-0", "other one-answer-for-all-0"]


def test_the_runs_that_a_run_needs():
    run = {f"{run.part.name} {run.name}": run for study in (FIRST, SECOND) for run in plan(study)}
    for name in ("learned random-2", "learned vanilla-0", "other v-0"):
        assert names(run[name].candidates) == ["learned rates/0.1", "learned rates/0.2"]
        assert run[name].start is None
    for name in ("learned rates/0.1", "other one-answer-for-all-0", "tuned t5-0"):
        assert run[name].candidates == ()
    assert run["tuned t5-0"].start == run["learned vanilla-0"]
    assert run["tuned one-answer-for-all-0"].start is None
    assert [name for name, one in run.items() if one.shares_candidate] == ["learned vanilla-0"]


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("Syn (R+V)", "syn-r+v"),
        ("Random + Vanilla", "random+vanilla"),
        ("T5 (Base)", "t5-base"),
        ("dense(window=15)+fixed_random", "dense-window=15-+fixed_random"),
        ("vanilla (control)", "vanilla-control"),
    ],
)
def test_names_of_folders(name, key):
    assert slug(name) == key
    assert PlannedRun(FIRST, LEARNED, StudyRow(name, "vanilla"), 1).name == f"{key}-1"
