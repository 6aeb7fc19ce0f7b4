"""``synthattn bench`` as a command."""

import json
import sys

import pytest
import torch

from synthattn.bench import layers, models, side_by_side, suite
from synthattn.cli import bench as verb
from synthattn.cli.app import main

pytestmark = pytest.mark.unchecked


def call(capsys, monkeypatch, *arguments: object) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["synthattn", "bench", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        main()
    shown = capsys.readouterr()
    return int(stop.value.code or 0), shown.out, shown.err


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(layers, "D_MODEL", 32)
    monkeypatch.setattr(layers, "HEADS", 4)
    monkeypatch.setattr(side_by_side, "LEAST_SECONDS", 0.0)


SHORT = ("layer", "--shapes", "2x16", "--attention", "random,dense+vanilla", "--rounds", 1, "--no-memory")


def test_measures_keeps_and_reports(capsys, monkeypatch, tmp_path):
    file, page, text = tmp_path / "r.json", tmp_path / "r.html", tmp_path / "r.md"
    code, out, _ = call(capsys, monkeypatch, *SHORT, "--json", file, "--report", page, "--markdown", text)
    assert code == 0
    assert "layer, 2x16, train, causal" in out
    found = json.loads(file.read_text())
    cases = {(m["contender"], m["case"]["mode"], m["case"]["mask"]) for m in found["measurements"]}
    assert len(cases) == 2 * 2 * 3
    assert all(m["error"] < 1e-4 for m in found["measurements"])
    for made in (page, text):
        assert "dense+vanilla" in made.read_text()
    # From the record alone, the same.
    again = tmp_path / "again.md"
    code, out, _ = call(capsys, monkeypatch, "--show", file, "--markdown", again)
    assert (code, again.read_text()) == (0, text.read_text())


def test_goes_on_where_it_was_stopped(capsys, monkeypatch, tmp_path):
    file = tmp_path / "r.json"
    honest, calls = side_by_side.measure, []

    def interrupted(plan, rounds, say):
        calls.append([entry.name for entry in plan.contenders])
        for number, found in enumerate(honest(plan, rounds, say)):
            if len(calls) == 2 and number == 1:
                raise KeyboardInterrupt
            yield found

    monkeypatch.setattr(side_by_side, "measure", interrupted)
    code, _, err = call(capsys, monkeypatch, *SHORT, "--json", file)
    assert code == 130
    assert f"stopped; {file} is kept, --resume goes on" in err
    assert len(json.loads(file.read_text())["measurements"]) == 3
    code, _, err = call(capsys, monkeypatch, *SHORT, "--json", file)
    assert code == 2
    assert "is there already; go on with it by --resume" in err
    code, _, _ = call(capsys, monkeypatch, *SHORT, "--json", file, "--resume")
    assert code == 0
    both = ["random", "dense+vanilla"]
    assert calls == [both, both, ["dense+vanilla"], *4 * [both]], "what was measured is not measured again"
    found = json.loads(file.read_text())["measurements"]
    assert len(found) == 12
    assert all(set(m["ratios"]) == {"vanilla", "nn.MultiheadAttention", "straightforward"} for m in found)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("layers",), "there is no benchmark 'layers', only layer, model, train, decode; did you mean layer?"),
        (("layer", "--shapes", "16"), "--shapes are written BATCHxLENGTH, such as 16x512, got '16'"),
        (("layer", "--shapes", "16xa"), "--shapes takes whole numbers, got 'a'"),
        (("layer", "--lengths", "0"), "--lengths must be at least 1, got 0"),
        (("layer", "--masks", "half"), "--masks are full, causal, padded, got 'half'"),
        (("layer", "--modes", "evil"), "--modes are eval, train, got 'evil'"),
        (("layer", "--attention", "randon"), "randon"),
        (("layer", "--rounds", "0"), "--rounds must be at least 1, got 0"),
        (("train", "--masks", "causal"), "--masks causal is for layers; encoders see the whole text"),
        (("layer", "--json", "nowhere/x.json"), "nowhere/x.json: there is no folder nowhere"),
        (("layer", "--resume"), "--resume goes on with what --json wrote; there is no such file yet"),
        (("--show", "nowhere.json"), "nowhere.json"),
        (("layer", "--show", "x.json"), "--show measures nothing"),
    ],
)
def test_mistakes_get_one_line(capsys, monkeypatch, tmp_path, arguments, message):
    monkeypatch.chdir(tmp_path)
    code, out, err = call(capsys, monkeypatch, *arguments)
    assert code == 2
    assert out == ""
    assert err.startswith("synthattn: ")
    assert err.count("\n") == 1
    assert message in err


def test_everything_is_planned_unless_said():
    plans = verb.plan(verb.Wanted())
    cases = [plan.case for plan in plans]
    assert len(set(cases)) == len(cases), "all contenders of a case are in one plan"
    assert {case.kind for case in cases} == {"layer", "model", "train", "decode"}
    assert len([case for case in cases if case.kind == "layer"]) == 2 * 2 * 3
    assert {case.beams for case in cases if case.kind == "decode"} == {1, 4}
    (trained,) = ({e.name: e.rivals for e in plan.contenders} for plan in plans if plan.case.kind == "train")
    assert set(trained["random"]) == {"vanilla", "dynamicconv", "Hugging Face T5"}
    assert set(trained) == set(models.contenders(peers=False))


def test_growth_is_measured_beside_vanilla_alone():
    plans = verb.plan(verb.Wanted("layer", "random", lengths="128,256", batches="1,4"))
    assert [(p.case.batch, p.case.length) for p in plans if p.case.mode == "eval"] == [
        (1, 128),
        (1, 256),
        (1, 512),
        (4, 512),
    ]
    assert all(set(entry.rivals) == {"vanilla"} for plan in plans for entry in plan.contenders)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("layer", "--device", "cuda"), "--device cuda needs a GPU and a build of torch for it"),
        (("train", "--device", "cuda"), "--device cuda measures layers alone"),
        (("layer", "--device", "gpu"), "--device is cpu or cuda, got 'gpu'"),
    ],
)
def test_a_device_that_cannot_be_used_is_one_line(capsys, monkeypatch, arguments, message):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    code, out, error = call(capsys, monkeypatch, *arguments)
    assert code == 2
    assert out == ""
    assert message in error
    assert len(error.strip().splitlines()) == 1


def test_cases_on_an_accelerator_name_it():
    (plan,) = suite.layer_plans(["random"], [(2, 16)], ["full"], ["eval"], device="cuda")
    assert str(plan.case) == "2x16, eval, full, on cuda"
    assert not plan.contenders[0].with_products


def test_a_run_waits_for_the_accelerator(monkeypatch):
    """Or the time of launching kernels would be measured."""
    order: list[str] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: order.append("synchronized"))
    layers._waiting(lambda: order.append("ran"), torch.device("cuda"))()
    assert order == ["ran", "synchronized"]
