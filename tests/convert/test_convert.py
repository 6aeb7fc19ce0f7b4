"""Converting a small model: tables from the mean attention, tuning, controls, and the command."""

import json
import subprocess
import sys
import time
from typing import Any

import pytest
import torch
import transformers
from model_families import BERT, inputs, logits, original

import synthattn
from synthattn.convert import Tuning, convert
from synthattn.convert import tuning as tuning_module
from synthattn.convert.conversion import parse_layers
from synthattn.convert.probe import MeanAttention, effects, make_batches, mean_logits, own_attention
from synthattn.convert.tuning import tune
from synthattn.data.locks import locked_folder

pytestmark = pytest.mark.unchecked

# Its annotations lack some arguments.
CONFIG: Any = transformers.BertConfig


@pytest.fixture
def tokenizer(folder):
    return transformers.AutoTokenizer.from_pretrained(folder)


@pytest.fixture
def lines(texts) -> list[str]:
    return texts.read_text().split("\n")


def classifier() -> Any:
    torch.manual_seed(1)
    model = transformers.BertForSequenceClassification(CONFIG(**BERT, num_labels=3))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


def lively() -> Any:
    """Return a model whose predictions depend much on its attention."""
    torch.manual_seed(0)
    model = original("bert").float()
    for path, parameter in model.named_parameters():
        if "LayerNorm.weight" in path:
            torch.nn.init.ones_(parameter)
        elif "query" in path or "key" in path:
            torch.nn.init.normal_(parameter, std=0.5)
    return model


def test_tables_start_at_the_mean_attention_and_the_original_stays(tokenizer, lines):
    model = original("bert").float()
    before = {path: value.clone() for path, value in model.state_dict().items()}
    found = convert(model, tokenizer, lines, layers=[1], max_length=12, batch=4)
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    assert found.layers == (1,)
    assert found.texts == (10, 5, 5)
    assert [one.name for one in found.outcomes] == [
        "original",
        "converted",
        "first layers",
        *["random layers"] * 3,
    ]
    start, converted, first = found.outcomes[:3]
    assert start.effect.kl == pytest.approx(0, abs=1e-6)
    assert converted.effect.kl > 0
    assert first.effect.layers == (0,)
    assert "the choice is " in found.sentence()
    # The same layers are measured in another way: with the means as logits of the original model.
    given = make_batches(lines[:4], None, tokenizer, "masked", 12, 4)
    kept = found.model.get_submodule(found.names[1]).synthesizer
    with own_attention(model) as modules, torch.no_grad():
        modules[1].synthesizer = MeanAttention(kept.matrix)
        expected = logits(model, given[0].inputs)
    torch.testing.assert_close(logits(found.model, given[0].inputs), expected)


def test_pairs_of_positions_without_a_text_take_the_mean_of_their_distance(tokenizer):
    model = original("bert")
    given = make_batches(["w1 w2 w3", "w4 w5"], None, tokenizer, "masked", 5, 2)
    with own_attention(model) as modules:
        tables = mean_logits(model, modules, given, 5)
        # What is never seen has the mean of its distance; the farthest distance has no text at all.
        weights = tables[0].exp()
        assert weights[:, 3, 4].allclose(weights[:, 4, 5 - 5 + 3].new_tensor(0.0) + weights[:, 2, 3])
        assert bool((weights[:, 0, 4] <= 1.01e-6).all())
        assert len(effects(model, modules, tables, given, [(), (0, 1)])) == 2


@pytest.mark.parametrize("attention", ["random", "toeplitz"])
def test_tuning_brings_a_model_closer_to_the_original(tokenizer, lines, attention):
    model = lively()
    tuning = Tuning(steps=30, hidden=attention == "random", learning_rate=3e-3)
    results = [
        convert(
            model, tokenizer, lines * 4, attention=attention, layers="first:1", max_length=12, batch=20, tuning=tuning
        )
        for _ in range(1 + (attention == "random"))
    ]
    found = results[0]
    untuned, tuned = (one.effect.kl for one in found.outcomes if one.name == "converted")
    assert untuned > 0.01
    assert tuned < 0.8 * untuned
    assert [one.tuned for one in found.named("random layers")] == [True] * 3
    assert found.named("original")[0].tuned
    if attention == "random":
        assert results[1].record() == found.record()
        torch.testing.assert_close(results[1].model.state_dict(), found.model.state_dict(), rtol=0, atol=0)


def test_the_loss_of_the_task_learns_right_answers(tokenizer, lines):
    model = classifier()
    labels = [len(line.split()) % 3 for line in lines] * 3
    tuning = Tuning(steps=20, loss="task", train="all", learning_rate=3e-3)
    found = convert(model, tokenizer, lines * 3, labels, layers="0", max_length=12, batch=16, tuning=tuning)
    before, after = (one.effect.accuracy for one in found.outcomes if one.name == "converted")
    assert before is not None
    assert after is not None
    assert after > before
    assert found.record()["tuning"]["loss"] == "task"
    assert "accuracy" in found.sentence()


@pytest.mark.parametrize("train", ["tables", "layers"])
def test_what_is_trained_is_what_was_asked_for(tokenizer, lines, train):
    model, changed = original("bert").float(), original("bert").float()
    names = synthattn.replace_attention(changed, "random", 12, layers=[1])
    before = {path: value.clone() for path, value in changed.state_dict().items()}
    given = make_batches(lines[:4], None, tokenizer, "masked", 12, 4)
    tune(changed, model, names, lambda turn: given, Tuning(steps=2, train=train))
    moved = {path for path, value in changed.state_dict().items() if not torch.equal(value, before[path])}
    table = f"{names[0]}.synthesizer.matrix"
    assert table in moved
    assert moved == {table} if train == "tables" else all(path.startswith("bert.encoder.layer.1.") for path in moved)
    assert len(moved) > 1 or train == "tables"
    assert all(parameter.requires_grad and parameter.grad is None for parameter in changed.parameters())


def test_layers_are_chosen_within_the_budget(tokenizer, lines):
    model = original("bert").float()
    with pytest.raises(ValueError, match=r"no layer can be replaced within a KL of 1e-09: the lowest is .*, of layer"):
        convert(model, tokenizer, lines, budget_kl=1e-9, max_length=12)
    found = convert(model, tokenizer, lines, budget_kl=100.0, max_length=12)
    assert found.layers == (0, 1)
    assert [len(effect.layers) for effect in found.choice] == [1, 2]
    assert found.named("first layers") == []
    assert "every layer was replaced" in found.sentence()


def test_layers_in_words():
    assert parse_layers("auto", 4) is None
    assert parse_layers("first:2", 4) == (0, 1)
    assert parse_layers("3, 1,1", 4) == (1, 3)
    for text, line in [
        ("first:5", "the model has 4 layers to replace; give first:1 to first:4"),
        ("first:0", "give first:1 to first:4"),
        ("4", "there is no layer 4: the model has 4 layers to replace, 0 to 3"),
        ("-1", "layers must be auto, first:6 or numbers such as 0,1,2; got '-1'"),
        ("", "layers must be auto"),
        ("last:2", "layers must be auto"),
    ]:
        with pytest.raises(ValueError, match=line):
            parse_layers(text, 4)
    with pytest.raises(ValueError, match="no layer is named"):
        parse_layers([], 4)
    with pytest.raises(ValueError, match="there is no layer True"):
        parse_layers([True], 4)


def test_wrong_arguments_give_one_line(tokenizer, lines):
    model = original("bert").float()
    for options, line in [
        ({"attention": "dense"}, "attention must be one of random, toeplitz; got 'dense'"),
        ({"budget_kl": 0.0}, "budget_kl must be a number above 0"),
        ({"budget_kl": float("nan")}, "budget_kl must be a number above 0"),
        ({"max_length": 1}, "max_length must be at least 2"),
        ({"max_length": 24}, "max_length is 24, but the model has 23 positions; give at most 23"),
        ({"batch": 0}, "batch at least 1"),
    ]:
        with pytest.raises(ValueError, match=line):
            convert(model, tokenizer, lines, **{"max_length": 12} | options)
    with pytest.raises(ValueError, match="there are 7 texts; a conversion needs at least 8"):
        convert(model, tokenizer, lines[:7], max_length=12)
    with pytest.raises(ValueError, match="T5ForConditionalGeneration cannot be probed"):
        convert(original("t5"), tokenizer, lines)
    with pytest.raises(ValueError, match="the loss of the task needs a label for each text"):
        convert(classifier(), tokenizer, lines, max_length=12, tuning=Tuning(steps=1, loss="task"))
    with pytest.raises(ValueError, match="there are 20 texts and 2 labels"):
        convert(classifier(), tokenizer, lines, [0, 1], max_length=12)
    with pytest.raises(ValueError, match="there is no label 3: the model has 3 labels, 0 to 2"):
        convert(classifier(), tokenizer, lines, [3] * 20, max_length=12)
    regression = transformers.BertForSequenceClassification(CONFIG(**BERT, num_labels=1))
    with pytest.raises(ValueError, match="has 1 labels and the problem type"):
        convert(regression, tokenizer, lines, max_length=12)
    for options, line in [
        ({"steps": -1}, "steps must be at least 0"),
        ({"loss": "mse"}, "loss must be one of distill, task"),
        ({"train": "heads"}, "train must be one of tables, layers, all"),
        ({"learning_rate": float("nan")}, "the learning rate must be a number above 0"),
    ]:
        with pytest.raises(ValueError, match=line):
            Tuning(**options)
    wide = transformers.BertForMaskedLM(CONFIG(**BERT | {"vocab_size": 20}))
    with pytest.raises(ValueError, match=r"the tokenizer gives token 28, but the model has 20 tokens"):
        convert(wide, tokenizer, lines, max_length=12)


def test_texts_without_predictions_are_refused(tokenizer):
    model = original("bert").float()
    given = make_batches(["w1", "w2"], None, tokenizer, "masked", 12, 2)
    names = synthattn.replace_attention(model, "random", 12)
    with pytest.raises(ValueError, match="the texts have no prediction that counts"):
        tune(model, original("bert").float(), names, lambda turn: given, Tuning(steps=1))
    deberta = transformers.DebertaV2ForMaskedLM(transformers.DebertaV2Config(**BERT))
    with pytest.raises(ValueError, match="has no self-attention on transformers' attention interface"):
        convert(deberta, tokenizer, ["w1 w2"] * 8, layers="0", max_length=12)


def test_a_loss_that_is_not_finite_ends_the_tuning(tokenizer, lines):
    tuning = Tuning(steps=30, learning_rate=1e30)
    with pytest.raises(ValueError, match=r"the loss is (nan|inf) in step \d+; lower the learning rate, 1e\+30"):
        convert(original("bert").float(), tokenizer, lines, layers="0", max_length=12, tuning=tuning)


def test_the_command_writes_a_model_that_loads(command, folder, texts, tmp_path):
    out = tmp_path / "out"
    options = ["--layers", "0", "--max-length", "12", "--steps", "2", "--quiet", "--output", str(out)]
    result = command("convert", str(folder), "--data", str(texts), *options)
    assert result.returncode == 0
    assert "control: layers at random" in result.stdout
    assert "The chosen layers are the first ones." in " ".join(result.stdout.split())
    assert "1 of 2 layers read no token after 2 steps of tuning" in " ".join(result.stdout.split())
    model = synthattn.from_pretrained(out)
    assert model.get_submodule("bert.encoder.layer.0.attention.self").synthattn.plan.attention == "random"
    assert len(transformers.AutoTokenizer.from_pretrained(out)) == 31
    record = json.loads((out / "conversion.json").read_text())
    assert record["layers"] == [0]
    assert logits(model, inputs("bert")).isfinite().all()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "texts.txt"]
    result = command("convert", str(folder), "--data", str(texts), *options[:-1], str(tmp_path / "b"), "--json")
    assert result.returncode == 0
    assert json.loads(result.stdout)["outcomes"] == record["outcomes"]


@pytest.mark.parametrize("stop_at", [("converted", 3), ("original", 5), ("first layers", 2)])
def test_a_conversion_that_is_stopped_goes_on_with_equal_weights(tokenizer, lines, tmp_path, monkeypatch, stop_at):
    monkeypatch.setattr(tuning_module, "SAVE_SECONDS", 0.0)
    model = lively()
    seen: list[tuple[str, int]] = []

    def show(name: str, step: int, steps: int, loss: float) -> None:
        seen.append((name, step))
        if (name, step) == stop_at and seen.count(stop_at) == 1 and stopping:
            raise KeyboardInterrupt

    # 10 texts train in batches of 4, so that step 5 is in the second pass; layer 1 is not the first one.
    options: dict[str, Any] = {"layers": [1], "max_length": 12, "batch": 4, "tuning": Tuning(steps=5), "show": show}
    stopping = False
    expected = convert(model, tokenizer, lines, **options)
    steps, stopping = seen.copy(), True
    seen.clear()
    with pytest.raises(KeyboardInterrupt):
        convert(model, tokenizer, lines, **options, folder=tmp_path / "work")
    found = convert(model, tokenizer, lines, **options, folder=tmp_path / "work")
    assert seen == steps  # none is made twice
    torch.testing.assert_close(found.model.state_dict(), expected.model.state_dict(), rtol=0, atol=0)
    assert found.record() == expected.record()
    # All of it is there now.
    seen.clear()
    again = convert(model, tokenizer, lines, **options, folder=tmp_path / "work")
    torch.testing.assert_close(again.model.state_dict(), expected.model.state_dict(), rtol=0, atol=0)
    assert (again.record(), seen) == (expected.record(), [])


def test_what_was_kept_is_for_equal_settings(tokenizer, lines, tmp_path):
    model, work = lively(), tmp_path / "work"
    options: dict[str, Any] = {"layers": "first:1", "max_length": 12, "folder": work}
    convert(model, tokenizer, lines, **options)
    for change, line in [
        ({"max_length": 11}, "work was started with max_length 12, this is 11; give the same, or remove the folder"),
        ({"tuning": Tuning(steps=2)}, "was started with steps 0, this is 2"),
        ({"texts": lines[:-1]}, "was started with texts 20 [0-9a-f]{8}, this is 19 [0-9a-f]{8}"),
        ({"model": original("bert").float()}, "was started with model BertForMaskedLM .*, this is BertForMaskedLM"),
    ]:
        given = {"model": model, "texts": lines} | options | change
        with pytest.raises(ValueError, match=line):
            convert(given.pop("model"), tokenizer, given.pop("texts"), **given)
    with locked_folder(work), pytest.raises(ValueError, match="work is in use by process"):
        convert(model, tokenizer, lines, **options)
    (work / "tables.pt").write_bytes(b"x")
    with pytest.raises(OSError, match=r"tables\.pt is damaged: .*; remove .*work, and start again"):
        convert(model, tokenizer, lines, **options)
    # What needs other settings is not kept.
    with pytest.raises(ValueError, match="no layer can be replaced"):
        convert(model, tokenizer, lines, budget_kl=1e-9, max_length=12, folder=tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_command_that_is_killed_goes_on_with_equal_weights(command, folder, texts, tmp_path):
    options = ["convert", str(folder), "--data", str(texts), "--layers", "1", "--steps", "40", "--quiet"]
    assert command(*options, "--output", str(tmp_path / "undisturbed")).returncode == 0
    unfinished = tmp_path / "out-unfinished"
    options += ["--output", str(tmp_path / "out")]
    code = "import sys, synthattn.cli as cli; from synthattn.convert import tuning; tuning.SAVE_SECONDS = 0; "
    code += "from synthattn.engine import thresholds; thresholds.FUSED_KEYS = 0; "  # as in this process
    process = subprocess.Popen([sys.executable, "-c", f"{code}sys.argv[1:] = {options}; cli.main()"])
    try:
        while not (unfinished / "tuning-1.pt").exists():
            assert process.poll() is None
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait()
    assert not (tmp_path / "out").exists()
    step = torch.load(unfinished / "tuning-1.pt", weights_only=True)[0]
    assert 0 < step < 40
    result = command(*options)
    assert (result.returncode, result.stdout) == (2, "")
    assert "is of a command that was stopped; go on by --resume, or remove it" in " ".join(result.stderr.split())
    assert command(*options, "--resume").returncode == 0
    files = [tmp_path / name / "model.safetensors" for name in ("undisturbed", "out")]
    assert files[0].read_bytes() == files[1].read_bytes()
    records = [json.loads((tmp_path / name / "conversion.json").read_text()) for name in ("undisturbed", "out")]
    assert records[0]["outcomes"] == records[1]["outcomes"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "texts.txt", "undisturbed"]


def test_a_command_that_is_stopped_keeps_what_is_done(command, folder, texts, tmp_path, monkeypatch):
    from transformers import PreTrainedTokenizerFast

    def stop(*args: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    # Without --max-length, the model's 23 positions are the limit.
    options = ["convert", str(folder), "--data", str(texts), "--layers", "0", "--quiet"]
    options += ["--output", str(tmp_path / "out")]
    result = command(*options, "--resume")
    assert (result.returncode, result.stdout) == (2, "")
    assert "--resume goes on with what a stopped command has kept; there is no" in " ".join(result.stderr.split())
    with monkeypatch.context() as patch:
        patch.setattr(PreTrainedTokenizerFast, "save_pretrained", stop)
        result = command(*options)
    assert result.returncode == 130
    assert "out was not written" in " ".join(result.stderr.split())
    assert "out-unfinished is kept, --resume goes on" in " ".join(result.stderr.split())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out-unfinished", "texts.txt"]
    assert command(*options, "--resume").returncode == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "texts.txt"]


def test_the_command_refuses_in_one_line(command, folder, texts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    full, short, empty = tmp_path / "full", tmp_path / "short.txt", tmp_path / "empty.txt"
    full.mkdir()
    (full / "x").touch()
    short.write_text("w1\n" * 7)
    empty.write_text("")
    saved = tmp_path / "saved"
    model = original("bert").float()
    synthattn.replace_attention(model, "random", 12)
    model.save_pretrained(saved)
    for arguments, line in [
        ([str(folder), "--data", "none.txt"], "none.txt is not a file"),
        ([str(folder), "--data", str(empty)], "has 0 texts, this needs at least 8"),
        ([str(folder), "--data", str(short)], "has 7 texts, this needs at least 8"),
        ([str(tmp_path / "nowhere"), "--data", str(texts)], "nowhere; give that of a model of transformers"),
        ([str(saved), "--data", str(texts)], "its attention was replaced already; give the original model"),
        ([str(folder), "--data", str(texts), "--budget-kl", "0"], "--budget-kl must be a number above 0"),
        ([str(folder), "--data", str(texts), "--budget-kl", "nan"], "--budget-kl must be a number above 0"),
        (
            [str(folder), "--data", str(texts), "--layers", "0,7", "--max-length", "12"],
            "there is no layer 7: the model has 2 layers",
        ),
        ([str(folder), "--data", str(texts), "--loss", "mse"], "loss must be one of distill, task; got 'mse'"),
        ([str(folder), "--data", str(texts), "--limit", "3"], "--limit must be at least 8"),
        ([str(folder), "--data", str(texts), "--output", str(full)], "full exists; choose another --output"),
        ([str(folder), "--data", str(texts), "--output", "no/where"], "no is not a folder"),
        (
            [str(folder), "--data", str(texts), "--max-length", "24"],
            "max_length is 24, but the model has 23 positions; give at most 23",
        ),
    ]:
        result = command("convert", *arguments, "--quiet")
        assert (result.returncode, result.stdout) == (2, "")
        assert line in result.stderr
        assert result.stderr.count("\n") == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["empty.txt", "full", "saved", "short.txt", "texts.txt"]


def test_labels_of_a_classifier(command, folder, tmp_path):
    place = tmp_path / "model"
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(place)
    classifier().save_pretrained(place)
    file = tmp_path / "texts.txt"
    rows = [f"w{n} w{n + 1} w3" for n in range(12)]
    for ends, line in [
        (["\t0"] * 11 + [""], "text 12 has no tab and label, others have"),
        (["\t0"] * 11 + ["\tx"], "has labels that the model does not know: 'x'"),
        ([""] * 12, "the loss of the task needs a label for each text"),
    ]:
        file.write_text("\n".join(row + end for row, end in zip(rows, ends, strict=True)))
        options = ["--max-length", "8", "--steps", "1", "--loss", "task", "--quiet"]
        result = command("convert", str(place), "--data", str(file), *options)
        assert result.returncode == 2
        assert line in result.stderr
    file.write_text("\n".join(f"{row}\tLABEL_{n % 3}" for n, row in enumerate(rows)))
    out = str(tmp_path / "out")
    result = command("convert", str(place), "--data", str(file), *options, "--layers", "1", "--output", out)
    assert (result.returncode, result.stderr) == (0, "")
