"""The command: what it prints, how fast it answers, and how it says no."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from model_helpers import make
from synthattn.cli.app import app
from synthattn.models import SynthesizerForCausalLM, SynthesizerForMaskedLM

pytestmark = pytest.mark.unchecked

COMMAND = Path(sys.executable).parent / "synthattn"


def start(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([COMMAND, *arguments], capture_output=True, text=True)


def test_help_answers_at_once():
    code = "import synthattn.cli, sys; print(*[m for m in ('torch', 'transformers', 'numpy') if m in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert loaded == [], "what makes the command slow to answer"
    assert "describe" in start("--help").stdout
    assert start("--version").stdout.startswith("synthattn ")


def test_describe_as_json(command):
    result = command("describe", "c4_base", "--attention", "random", "--json", "--length", "5")
    assert result.returncode == 0, result.stderr
    figures = json.loads(result.stdout)
    assert figures["parameters"]["total"] == 254_360_576
    assert figures["attention"] == {"encoder": "random", "decoder": "random", "cross": "vanilla"}
    assert figures["flops"]["length"] == 5


def test_describe_as_a_table(command):
    result = command("describe", "transformer_base", "--attention", "fixed_random", "--kind", "masked-lm")
    assert result.returncode == 0, result.stderr
    for text in ("SynthesizerForMaskedLM", "fixed_random", "feed forward", "fixed numbers, not trained", "3.15 M"):
        assert text in result.stdout
    assert "length x length" in result.stdout
    assert "For long inputs take toeplitz or factorized_random" in " ".join(result.stdout.split())


@pytest.mark.parametrize(("attention", "tables"), [("toeplitz", 0), ("factorized_random", 0), ("random+vanilla", 1)])
def test_describe_counts_tables_of_length_times_length(attention, tables, command):
    figures = json.loads(command("describe", "tiny", "--attention", attention, "--json").stdout)
    assert figures["length_squared"] == tables * 4 * 4 * 32 * 32  # four layers of four heads
    said = "For long inputs take" in " ".join(command("describe", "tiny", "--attention", attention).stdout.split())
    assert said == (tables > 0)


@pytest.mark.parametrize("kind", [SynthesizerForCausalLM, SynthesizerForMaskedLM])
def test_describe_a_saved_model(kind, tmp_path, command):
    model = make(kind, ["random", "vanilla"]).float()
    model.save_pretrained(tmp_path)
    figures = json.loads(command("describe", str(tmp_path), "--json").stdout)
    assert figures["model"] == kind.__name__
    assert figures["parameters"]["total"] == sum(p.numel() for p in model.parameters())
    assert list(figures["attention"].values()) == [["random", "vanilla"]]
    assert (figures["cache"] is None) == (kind is SynthesizerForMaskedLM)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["c4_bas"], "no preset and no folder 'c4_bas'; did you mean c4_base"),
        (["tiny", "--attention", "ramdom"], "unknown attention 'ramdom'; did you mean random?"),
        (["tiny", "--kind", "seq2sec"], "unknown kind of model 'seq2sec'; did you mean seq2seq?"),
        (["tiny", "--length", "0"], "--length must be at least 1, got 0"),
        (["tiny", "--length", "99"], "input has 99 positions, random was built for max_length=32"),
        (["lm1b_base", "--kind", "seq2seq"], "this model has an encoder, but encoder_layers=0; it must be at least 1"),
    ],
)
def test_a_mistake_gets_one_line(arguments, message, command):
    result = command("describe", *arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "holds no config.json, so it is not a saved model"),
        ('{"model_type": "bert"}', "holds a bert model, not a synthesizer one"),
        ("{", "config.json is not valid JSON"),
        ("[]", "config.json must hold an object, got a list"),
        ('{"model_type": "synthesizer", "d_model": "wide"}', "Field 'd_model' expected int, got str"),
    ],
)
def test_folders_that_hold_no_model(content, message, tmp_path, command):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    result = command("describe", str(tmp_path))
    assert result.returncode == 2
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_saved_model_keeps_its_attention(tmp_path, command):
    make(SynthesizerForCausalLM).save_pretrained(tmp_path)
    result = command("describe", str(tmp_path), "--attention", "random")
    assert "its attention cannot be changed; leave --attention out" in result.stderr


VERBS = {
    "compare": [],
    "train": [],
    "evaluate": ["run"],
    "generate": ["run"],
    "export": ["run"],
    "describe": ["tiny"],
    "probe": ["model", "--data", "texts.txt"],
    "convert": ["model", "--data", "texts.txt"],
    "bench": [],
    "reproduce": ["glue"],
    "study": ["abilities"],
    "data": ["texts", "--task", "translation"],
}
"""Arguments that each verb needs."""


def test_ctrl_c_ends_every_verb_with_one_line(command, monkeypatch):
    """Some catch it and say how to go on; none leaves it to Python, wherever it comes."""

    def stop(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    assert {verb.callback.__name__ for verb in app.registered_commands if verb.callback} == VERBS.keys()
    for verb, arguments in VERBS.items():
        monkeypatch.setattr(f"synthattn.cli.{verb}.run", stop)
        result = command(verb, *arguments)
        assert (result.returncode, result.stdout, result.stderr) == (130, "", "synthattn: stopped\n"), verb
