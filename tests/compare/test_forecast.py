"""Estimates of the time of a comparison, and steps that fit into a budget."""

import pytest

from synthattn.compare.forecast import Forecast, ModelTimes, Overall, seconds_of
from synthattn.models.size import available_memory
from synthattn.training.progress import Display


def forecast(**changes) -> Forecast:
    times = {"vanilla": ModelTimes(0.5, 2.0, 10.0, 4.0), "random": ModelTimes(0.25, 1.0, 5.0, 3.0)}
    usual = {"times": times, "runs": 2, "steps": 100, "validations": 10, "minutes": None, "memory": 1, "passed": 7.0}
    return Forecast(**{**usual, **changes})


def test_times_add_up():
    found = forecast()
    assert found.run("vanilla") == 100 * 0.5 + 10 * 2 + 10
    assert found.run("random") == 100 * 0.25 + 10 * 1 + 5
    assert found.training(1) == 2 * (80 + 40)
    assert found.training(2) == 120
    assert found.training(8) == 80  # one run is not split
    assert found.total(2) == 7 + 120 + 7
    assert forecast(minutes=3.0, validations=0).run("vanilla") == 190


def test_a_budget_gives_the_most_steps_that_fit():
    found = forecast().fitting(2, 600.0)
    assert found.total(2) <= 0.9 * 600 < forecast(steps=found.steps + 1).total(2)
    assert found.steps > 500


def test_a_budget_that_is_too_short_is_refused_with_what_would_do():
    with pytest.raises(ValueError, match=r"^--budget 40 s is too short: 20 steps of each of the 4 runs take about 1 m"):
        forecast().fitting(2, 40.0)


def test_rows_that_could_not_be_timed_take_no_time():
    found = forecast(times={})
    assert (found.run("vanilla"), found.training(2), found.measuring) == (0.0, 0.0, 0)
    assert found.fitting(2, 60.0) == found


def test_the_summary_names_runs_and_times():
    assert forecast().summary(2, 1) == (
        "2 variants x 2 seeds x 100 steps, 2 at a time, 1 thread each: about 2 min (7 s so far, training and "
        "scoring 2 min, measuring speed 7 s). To fit a time: --budget 30min, fewer --steps, variants or seeds"
    )
    assert "x 3 minutes, one after another" in forecast(minutes=3.0).summary(1, 2)


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("30min", 1800), ("1.5h", 5400), (" 2 min ", 120)])
def test_times_are_read(text, seconds):
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "min", "-5min", "0s", "1e3s", "5 minutes", "9999999h"])
def test_other_texts_are_no_time(text):
    with pytest.raises(ValueError, match=r"--budget takes a time such as 90s, 30min or 1\.5h, got"):
        seconds_of(text)


def test_there_is_memory():
    memory = available_memory()
    assert memory is None or memory > 0


class _Shown(Display):
    def __init__(self) -> None:
        self.parts: list[float] = []
        self.texts: list[str] = []

    def overall(self, part: float, left: str) -> None:
        self.parts.append(part)
        self.texts.append(left)


def test_all_runs_together_count_by_their_time():
    shown = _Shown()
    progress = Overall(lambda label: shown, {"a": 30.0, "b": 10.0}, afterwards=5.0)
    a, b = progress.display("a"), progress.display("b")
    a.step(1, 2, {})
    assert shown.parts == [15 / 40]
    b.close()
    assert shown.parts[-1] == 25 / 40
    a.close()
    progress.display("another").step(1, 2, {})
    assert shown.parts[-1] == 1
    assert len(shown.parts) == 3
    assert shown.texts[-1] == "about 5 s left"
