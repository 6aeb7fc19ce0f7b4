"""The study of abilities: tasks whose answers follow from the question, matched models, records that go on."""

from typing import Any

import numpy as np
import pytest

from synthattn.compare.plan import PlannedRun
from synthattn.paper import abilities
from synthattn.paper.abilities import ABILITIES, FIRST, NONE, STOP, AbilityPlan, sizes
from synthattn.paper.abilities_page import STUDY, document, table
from synthattn.paper.study import RECORD, make
from synthattn.render import markdown as md

TINY = {"seeds": 2, "steps": 4, "batch": 4, "test": 7, "d_model": 8, "layers": 1, "heads": 2, "d_ff": 16}


def plan(**changes) -> AbilityPlan:
    chosen: dict[str, Any] = {"attention": ["vanilla", "random"], "abilities": ["reversal"], "rates": [1e-3, 1e-2]}
    chosen |= TINY | changes
    return AbilityPlan(**chosen)


def answers(name: str, count: int = 50) -> list[tuple[list[int], list[int], list[int]]]:
    """For each example its inputs, the places of the answers, and the answers."""
    inputs, targets = ABILITIES[name](np.random.default_rng(3), count)
    assert inputs.shape == targets.shape
    assert 0 <= inputs.min() <= inputs.max() < abilities.VOCABULARY
    return [
        (one.tolist(), np.flatnonzero(wanted != NONE).tolist(), wanted[wanted != NONE].tolist())
        for one, wanted in zip(inputs, targets, strict=True)
    ]


def question(inputs: list[int]) -> list[int]:
    return inputs[: inputs.index(STOP)]


def test_what_is_written_after_the_question():
    for inputs, places, wanted in answers("reversal"):
        assert wanted == question(inputs)[::-1]
        assert inputs[places[1] :] == wanted[:-1], "what was written so far is read"
    for inputs, _, wanted in answers("sorting"):
        assert wanted == sorted(question(inputs))
    for inputs, _, wanted in answers("selective copy"):
        assert wanted == [one for one in question(inputs) if one != abilities.BLANK]
        assert len(wanted) == 6


def test_recall_and_induction_look_things_up():
    for inputs, places, wanted in answers("recall"):
        pairs = question(inputs)
        known = dict(zip(pairs[::2], pairs[1::2], strict=True))
        assert len(known) == 5
        assert wanted == [known[inputs[place]] for place in places]
        assert {inputs[place] for place in places} == set(known)
    periods = set()
    for inputs, places, wanted in answers("induction"):
        period = places[0] - 1
        periods.add(period)
        assert wanted == [inputs[place + 1 - period] for place in places]
        assert wanted == [inputs[place + 1] for place in places]
    assert len(periods) > 3, "a fixed distance would do"


def test_what_is_said_of_each_place():
    for inputs, places, wanted in answers("duplicates"):
        assert wanted == [FIRST + (inputs[place] in inputs[:place]) for place in places]
    for inputs, places, wanted in answers("parity"):
        assert wanted == [FIRST + sum(one - FIRST for one in inputs[: place + 1]) % 2 for place in places]
    for inputs, places, wanted in answers("brackets"):
        for place, answer in zip(places, wanted, strict=True):
            text = "".join("([)]"[one - FIRST] for one in inputs[: place + 1])
            while "()" in text or "[]" in text:
                text = text.replace("()", "").replace("[]", "")
            assert answer == FIRST + ("([".index(text[-1]) if text else 2)


def test_models_are_of_one_size():
    found = sizes(AbilityPlan(), "recall")
    parameters = [size for _, size in found.values()]
    assert max(parameters) - min(parameters) < 0.01 * max(parameters)
    assert found["vanilla"][0] > found["dense+vanilla"][0] == 128


def test_a_study_goes_on_where_it_was_stopped(tmp_path):
    path, work = tmp_path / "abilities" / RECORD, tmp_path / "work"

    def stop(number: int, total: int, run: PlannedRun) -> None:
        assert total == 4
        if number == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(STUDY, plan(), tmp_path, work, announce=stop)
    assert [one.seed for one in STUDY.load(path).runs] == [0, 0, 1]
    assert "This study is not complete" in (path.parent / "README.md").read_text()
    with pytest.raises(ValueError, match=r"abilities was begun in .*; go on with --resume"):
        make(STUDY, plan(), tmp_path, work)
    with pytest.raises(ValueError, match=r"plan\.json is another plan"):
        make(STUDY, plan(steps=5), tmp_path, work, resume=True)
    with pytest.raises(ValueError, match="is there already, but not its runs"):
        make(STUDY, plan(), tmp_path, tmp_path / "other")
    made: list[int] = []
    whole = make(STUDY, plan(), tmp_path, work, resume=True, announce=lambda number, total, run: made.append(total))
    assert made == [1]
    assert whole.complete
    again = make(STUDY, plan(), tmp_path / "again", tmp_path / "new", jobs=2)
    assert [(one.accuracy, one.loss, one.rate) for one in again.runs] == [
        (one.accuracy, one.loss, one.rate) for one in whole.runs
    ]
    for one in whole.runs:
        assert (set(one.rates) == {"0.001", "0.01"}) == (one.seed == 0)
        chosen = whole.run(one.ability, one.attention, 0)
        assert chosen is not None
        assert f"{one.rate:g}" == min(chosen.rates, key=chosen.rates.__getitem__)
    page = (tmp_path / "abilities" / "README.md").read_text()
    assert "2 seeds, 4 steps of 4 examples" in page
    assert (tmp_path / "abilities" / "picture.svg").read_text().startswith("<svg")
    values = [whole.run("reversal", "random", seed) for seed in (0, 1)]
    middle = sum(one.accuracy[-1] for one in values if one is not None) / 2
    assert table(whole).columns[0].cells[1].key == middle
    whole.runs.pop()
    assert "This study is not complete" in md.markdown(document(whole))


def test_a_mistake_is_named():
    with pytest.raises(ValueError, match="there is no ability 'recal'; did you mean recall"):
        plan(abilities=["recal"])
    with pytest.raises(ValueError, match="seeds must be at least 1, got 0"):
        plan(seeds=0)
