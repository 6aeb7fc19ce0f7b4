"""Probing a small model that was trained here in seconds."""

import json
from typing import Any

import pytest
import torch
import transformers
from model_families import VOCABULARY, inputs, logits, original

import synthattn
from synthattn.bench import replaced_layers
from synthattn.bench.timing import Times
from synthattn.convert.probe import (
    EffectSums,
    MeanHead,
    ProbeBatch,
    make_batches,
    mean_logits,
    own_attention,
    probe,
)

pytestmark = pytest.mark.unchecked


def batches(count: int, labels: bool = True) -> list[ProbeBatch]:
    generator = torch.Generator().manual_seed(3)
    found = []
    for _ in range(count):
        tokens = torch.randint(3, VOCABULARY, (4, 9), generator=generator)
        real = torch.ones_like(tokens)
        real[0, 6:] = 0
        counted = (torch.rand(4, 9, generator=generator) < 0.4) & real.bool()
        given = {"input_ids": tokens, "attention_mask": real}
        found.append(ProbeBatch(given, counted, tokens[counted] if labels else None))
    return found


def test_effects_are_divergences_from_the_original():
    model, held_out = original("bert"), batches(3)
    before = {path: value.clone() for path, value in model.state_dict().items()}
    found = probe(model, batches(2), held_out, 9)
    assert found.names == synthattn.attention_layers(model)
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    assert found.predictions == sum(int(batch.counted.sum()) for batch in held_out)
    assert [effect.layers for effect in found.first] == [(0,), (0, 1)]
    assert {effect.layers[0] for effect in found.single} == {0, 1}
    assert found.lowest[0].kl == min(effect.kl for effect in found.single)
    assert found.lowest[1] == found.first[1]
    assert all(effect.kl > 0 for effect in [*found.single, *found.first])
    hits = torch.cat([logits(model, b.inputs)[b.counted].argmax(-1) == b.labels for b in held_out])
    assert found.accuracy == pytest.approx(float(hits.double().mean()))
    # Queries and keys of width 32 with biases go, a table of 9 x 9 for each of 4 heads comes.
    assert found.saved == [2 * (32 * 32 + 32) - 4 * 9 * 9] * 2
    assert probe(model, batches(2), batches(3, labels=False), 9).single[0].accuracy is None


def test_the_mean_is_that_of_the_weights_between_real_tokens():
    """One text, whose mean is its own attention: replacing it changes nothing."""
    model = original("bert")
    one = [ProbeBatch({name: value[1:2] for name, value in b.inputs.items()}, b.counted[1:2], None) for b in batches(1)]
    found = probe(model, one, one, 9)
    assert max(effect.kl for effect in [*found.single, *found.lowest]) < 1e-8
    assert all(effect.agreement == 1.0 for effect in found.lowest)


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_one_head_alone_is_replaced_by_its_mean(name):
    """Its weights are those of the table, the weights of the other heads stay."""
    model, given = original(name), batches(1)
    with own_attention(model) as modules, torch.no_grad():
        tables = mean_logits(model, modules, given, 9)
        first = model(**given[0].inputs, output_attentions=True).attentions[1]
        modules[1].synthesizer = MeanHead(modules[1].synthesizer, tables[1], 2)
        found = model(**given[0].inputs, output_attentions=True).attentions[1]
        changed = logits(model, given[0].inputs)
    torch.testing.assert_close(found[:, [0, 1, 3]], first[:, [0, 1, 3]])
    expected = tables[1][2].masked_fill(first[1, 2] == 0, float("-inf")).softmax(-1)
    torch.testing.assert_close(found[1, 2], expected)
    heads = probe(model, given, given, 9, heads=True).heads
    assert [len(row) for row in heads] == [4, 4]
    counted = given[0].counted
    own, other = (x[counted].detach().log_softmax(-1) for x in (logits(model, given[0].inputs), changed))
    assert heads[1][2].kl == pytest.approx(float((own.exp() * (own - other)).sum(-1).mean()), rel=1e-2, abs=1e-7)


def test_the_error_of_a_divergence_is_that_of_a_mean():
    sums = EffectSums()
    own, other = torch.randn(7, 5).log_softmax(-1), torch.randn(7, 5).log_softmax(-1)
    for part in (slice(0, 3), slice(3, 7)):
        sums.add(own[part], other[part], None)
    each = (own.exp() * (own - other)).sum(-1)
    assert sums.effect(()).kl == pytest.approx(float(each.mean()))
    assert sums.effect(()).kl_error == pytest.approx(float(each.std() / 7**0.5))


@pytest.mark.parametrize("name", ["gpt2", "llama", "albert", "modernbert"])
def test_other_families(name):
    model, given = original(name), inputs(name)
    expected = logits(model, given)
    found = probe(model, batches(1), batches(1), 9)
    assert all(effect.kl > 0 for effect in found.lowest)
    assert torch.equal(logits(model, given), expected)


def test_the_command_prints_tables_and_a_sentence(command, folder, texts):
    result = command("probe", str(folder), "--data", str(texts), "--batch", "4", "--max-length", "12")
    assert result.returncode == 0, result.stderr
    assert "Each attention replaced by its mean, alone" in result.stdout
    assert "Nothing was trained." in " ".join(result.stdout.split())
    assert "time saved" in result.stdout
    assert "Layer 0 is bert.encoder.layer.0.attention.self" in " ".join(result.stdout.split())
    # No figure is cut where a terminal has 80 columns.
    assert "…" not in result.stdout
    assert "With random in all layers, a forward pass is" in " ".join(result.stdout.split())


def test_the_command_writes_a_page_with_charts(command, folder, texts, tmp_path):
    report = tmp_path / "page.html"
    options = ["--max-length", "12", "--heads", "--report", str(report)]
    result = command("probe", str(folder), "--data", str(texts), *options)
    assert (result.returncode, result.stderr) == (0, "")
    assert "One head of a layer replaced by its mean" in result.stdout
    assert "…" not in result.stdout
    page = report.read_text()
    assert page.count("<figure>") == 3
    for part in ("lowest KL first", "Nothing was trained.", "(head ", "synthattn probe"):
        assert part in page
    result = command("probe", str(folder), "--data", str(texts), "--report", str(tmp_path / "no" / "page.html"))
    assert (result.returncode, result.stdout) == (2, "")
    assert "page.html: there is no folder" in " ".join(result.stderr.split())


def test_the_command_takes_no_longer_texts_than_the_model(command, folder, tmp_path):
    """It has 23 positions, fewer than the usual 128."""
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(" ".join(f"w{(n + m) % 28}" for m in range(40)) for n in range(4)))
    result = command("probe", str(folder), "--data", str(file), "--json")
    assert (result.returncode, result.stderr) == (0, "")
    figures = json.loads(result.stdout)
    assert [effect["layers"] for effect in figures["first"]] == [[0], [0, 1]]
    assert (figures["time"]["batch"], figures["time"]["length"]) == (2, 23)
    assert len(figures["time"]["layers"]) == 2


@pytest.mark.parametrize(("name", "calls"), [("bert", 1), ("gpt2", 1), ("albert", 2)])
def test_time_saved_is_that_of_the_attention_alone(name, calls, monkeypatch):
    """The clock is made up; every attention is called with what the model hands it."""
    model, batch = original(name), batches(1)[0]
    before = {path: value.clone() for path, value in model.state_dict().items()}
    names = synthattn.attention_layers(model)
    runs: dict[str, Any] = {}

    def timed(given: dict[str, Any], rounds: int) -> Times:
        runs.update(given)
        seconds = {"original": [1.0, 2.0, 4.0], "random": [1.0, 1.0, 1.0]}
        return Times(seconds | {key: [0.2 if "original" in key else 0.1] * 3 for key in given if " " in key})

    monkeypatch.setattr(replaced_layers, "interleaved", timed)
    found = replaced_layers.time_saved(model, [batch], 9)
    assert (found.seconds, found.faster, found.batch, found.length) == (2.0, 2.0, 4, 9)
    assert [share.median for share in found.layers] == [pytest.approx(calls * 0.05)] * len(names)
    assert [(share.low, share.high) for share in found.layers] == [
        pytest.approx((calls * 0.0375, calls * 0.075))
    ] * len(names)
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    seen: list[torch.Tensor] = []
    hook = model.get_submodule(names[-1]).register_forward_hook(lambda module, args, result: seen.append(result[0]))
    logits(model, batch.inputs)
    hook.remove()
    own, again, table = (runs[f"{kind} {names[-1]}"]()[0] for kind in ("original", "original", "random"))
    assert torch.equal(own, seen[-1])
    assert torch.equal(again, own)
    assert table.shape == own.shape
    assert not torch.allclose(table, own)


def test_the_command_refuses_in_one_line(command, folder, texts, tmp_path):
    short = tmp_path / "short.txt"
    short.write_text("w1 w2\n")
    single = tmp_path / "single.txt"
    single.write_text("w1\n" * 4)
    broken = tmp_path / "broken.txt"
    broken.write_bytes(b"w1\n\xff\n")
    for arguments, line in [
        ((str(folder), "--data", str(tmp_path / "none")), "is not a file; give a file with a text per line"),
        ((str(folder), "--data", str(short)), "has 1 texts, this needs at least 4"),
        ((str(folder), "--data", str(broken)), "broken.txt is not UTF-8"),
        ((str(folder), "--data", str(single), "--max-length", "9"), "the texts have no prediction that counts"),
        ((str(tmp_path), "--data", str(texts)), "cannot be loaded"),
        ((str(folder), "--data", str(texts), "--max-length", "0"), "--max-length must be at least 1"),
        ((str(folder), "--data", str(texts), "--max-length", "24"), "has 23 positions; give at most 23"),
        ((str(folder), "--data", str(texts), "--limit", "2"), "--limit must be at least 4"),
    ]:
        result = command("probe", *arguments)
        assert (result.returncode, result.stdout) == (2, "")
        assert line in result.stderr
        assert result.stderr.count("\n") == 1


def test_models_that_cannot_be_probed():
    from synthattn.convert.probe import kind_of

    with pytest.raises(ValueError, match="T5ForConditionalGeneration cannot be probed"):
        kind_of(original("t5"))


def test_masked_tokens_are_the_same_each_time(folder):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    lines = [" ".join(f"w{n}" for n in range(20))] * 3
    first, second = (make_batches(lines, None, tokenizer, "masked", 16, 2) for _ in range(2))
    assert [b.inputs["input_ids"].shape for b in first] == [(2, 16), (1, 16)]
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one.counted, other.counted)
        assert bool((one.inputs["input_ids"][one.counted] == tokenizer.mask_token_id).all())
