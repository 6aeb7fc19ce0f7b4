"""The studies of language models: what R is measured to be, how rows are judged, and runs that go on."""

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
import torch

from synthattn.models.presets import PRESETS
from synthattn.paper import layers, positions, text_study
from synthattn.paper.layers import LayerPlan, places
from synthattn.paper.positions import PositionPlan, by_distance, measures
from synthattn.paper.study import CELL, PLAN, RECORD, make
from synthattn.paper.text_study import TextPlan, TextRecord, TextRun, blocks, compare
from synthattn.render import markdown as md
from synthattn.render.document import Document
from synthattn.training.model import build

TINY: dict[str, Any] = {"seeds": 1, "steps": 3, "rates": [1e-3], "batch_tokens": 128, "vocabulary": 300, "length": 17}
TINY |= {"texts": 29, "d_model": 8, "layers": 2, "heads": 2, "d_ff": 16}
N = 23


def causal(logits: np.ndarray) -> np.ndarray:
    weights = np.tril(np.exp(logits))
    return weights / weights.sum(1, keepdims=True)


def steps(n: int = N) -> np.ndarray:
    return np.abs(np.subtract.outer(np.arange(n), np.arange(n)))


def test_a_function_of_distance_is_found_whole():
    shape = np.random.default_rng(0).normal(size=N)
    weights = causal(shape[steps()])
    nearest, logits = by_distance(weights)
    np.testing.assert_allclose(nearest, weights, atol=1e-6)
    np.testing.assert_allclose(np.diff(logits), np.diff(shape), atol=1e-3)
    assert measures(weights)["distance"] == pytest.approx(1, abs=1e-4)


def test_the_part_by_distance_is_the_nearest():
    """Of any attention by distance none is nearer, and random weights have hardly such a part."""
    draw = np.random.default_rng(1)
    weights = causal(draw.normal(size=(N, N)))
    nearest, logits = by_distance(weights)
    best = positions._divergence(weights, nearest)
    for _ in range(20):
        other = causal((logits + 0.1 * draw.normal(size=N))[steps()])
        assert positions._divergence(weights, other) > best
    shares = [measures(causal(draw.normal(size=(67, 67))))["distance"] for _ in range(3)]
    assert 0 < max(shares) < 0.2


def test_rank_and_nearness_in_closed_form():
    first = np.zeros((N, N))
    first[:, 0] = 1
    assert measures(first)["rank 1"] == 1
    assert measures(first)["within 1"] == pytest.approx(2 / N, abs=1e-5)
    itself = measures(np.eye(N))
    assert itself["rank 8"] == pytest.approx(8 / N, abs=1e-5)
    assert itself["within 1"] == itself["distance"] == 1
    even = np.tril(np.ones((N, N))) / np.arange(1, N + 1)[:, None]
    assert measures(even)["within 8"] == pytest.approx(np.minimum(1, 9 / np.arange(1, N + 1)).mean(), abs=1e-5)


@pytest.mark.parametrize("spec", ["random", "random+vanilla", "vanilla+random"])
def test_r_is_replaced_for_a_while(spec):
    config = PRESETS["tiny"](spec, vocab_size=31, max_position_embeddings=N, mix="softmax")
    model: Any = build(config, "causal-lm", 0).eval()
    with torch.no_grad():
        for block in model.base_model.decoder.layers:
            if "+" in spec:
                block.attention.synthesizer.weights.alpha.normal_()
    before = positions.attention(model)
    with positions.replaced(model, positions.DISTANCE):
        now = positions.attention(model)
        assert measures(now[1, 2])["distance"] == pytest.approx(1, abs=1e-4)
        np.testing.assert_allclose(now[1, 2], by_distance(before[1, 2])[0], atol=1e-5)
    with positions.replaced(model, positions.EVEN):
        np.testing.assert_allclose(positions.attention(model)[0, 0, 6, :8], [1 / 7] * 7 + [0], atol=1e-6)
    assert (positions.attention(model) == before).all()
    if spec == "random":
        ids = torch.randint(31, (1, N))
        weights = model(input_ids=ids, output_attentions=True, use_cache=False).attentions[1][0, 2]
        np.testing.assert_allclose(weights.detach().numpy(), before[1, 2], atol=1e-5)


def test_blocks_are_neighbours_and_lose_nothing():
    rows = np.arange(4.0 * 307).reshape(307, 4)
    found = blocks(rows)
    assert found.shape == (text_study.BLOCKS, 4)
    np.testing.assert_allclose(found.sum(0), rows.sum(0))
    np.testing.assert_allclose(found[0], rows[:4].sum(0))


def record(levels: dict[str, float], seeds: int = 3, noise: float = 0.002, trend: float = 0.0) -> TextRecord:
    """Return a record whose rows have these nats per token; ``trend`` moves the first row in the last quarter."""
    draw, tokens = np.random.default_rng(5), np.full(50, 100.0)
    texts = draw.normal(scale=0.3, size=50)
    runs = []
    for row, level in levels.items():
        for seed in range(seeds):
            own = level + noise * draw.normal()
            nats = tokens * (own + texts)
            moved = trend if row == next(iter(levels)) else 0.0
            curve = [[25.0, own + 1], [50.0, own + 0.5 + moved], [75.0, own + moved], [100.0, own]]
            value = float(np.exp(nats.sum() / tokens.sum()))
            runs.append(TextRun(row, seed, 1e-3, 7, {"128": value}, nats.tolist(), curve, 1.0))
    plan = TextPlan(list(levels), seeds=seeds)
    floors = {"unigram model": float(np.exp(6.0 + texts.mean()))}
    return TextRecord(plan, runs, np.column_stack([tokens, tokens, tokens]).tolist(), floors)


def test_a_difference_that_all_seeds_share_is_certain():
    (gap,) = compare(record({"a": 4.0, "b": 4.1, "c": 4.2}), [("a", "b")])
    assert gap.certain
    assert gap.difference.high < 0
    assert gap.difference.value == pytest.approx(gap.values[0] - gap.values[1])


def test_what_decides_nothing():
    near, pairs = {"a": 4.0, "b": 4.0005, "c": 4.2}, [("a", "b")]
    assert not compare(record(near, noise=0.05), pairs)[0].certain, "luck of seeds"
    assert compare(record({"a": 4.0, "b": 4.1}, seeds=1), pairs) == [], "one run"
    (moving,) = compare(record({"a": 4.0, "b": 4.1, "c": 4.2}, trend=-0.3), pairs)
    assert moving.moving
    assert not moving.certain
    (below,) = compare(record({"a": 6.0, "b": 6.1, "c": 6.2}), pairs)
    assert not below.clears
    assert not below.certain
    alone = compare(record(near, noise=0.01), [("a", "c")])[0].difference.p_value
    several = compare(record(near, noise=0.01), [("a", "c"), ("a", "b"), ("b", "c")])[0].difference.p_value
    assert several >= alone, "Holm"


def test_the_answer_about_positions_follows_the_numbers():
    def answer(level: float, **choice: Any) -> str:
        return positions.answer(record({"random+vanilla": level, "toeplitz+vanilla": 4.0, "vanilla": 4.2}, **choice))

    assert answer(3.9).startswith("Yes. After 800 steps, perplexity with inputs of 128 tokens: random+vanilla 4")
    assert answer(4.1).startswith("No, a bias by distance is better.")
    assert answer(3.99).startswith("Hardly: the difference is below 2%.")
    assert answer(4.0).startswith("No difference was found.")
    assert answer(4.0, noise=0.1).startswith("Not decided.")
    assert answer(3.9, seeds=1).startswith("No answer yet")


def test_the_answer_about_layers_follows_the_numbers():
    def answer(**levels: float) -> str:
        found = record({name.replace("_", "+"): value for name, value in levels.items()})
        found.plan = LayerPlan(list(dict.fromkeys(one.row for one in found.runs)), layers=3)
        assert layers.share(found, "2") == pytest.approx(
            (levels["none"] - levels["2"]) / (levels["none"] - 4), abs=0.05
        )
        return layers.answer(found)

    one = answer(**{"none": 4.3, "1": 4.2, "2": 4.005, "1_2": 4.0, "all": 4.0})
    assert one.startswith("1 of 3 layers is enough: with the dot product in layer 2 alone, perplexity is within 2%")
    assert "(1 of 2 such choices)" in one
    two = answer(**{"none": 4.3, "1": 4.2, "2": 4.1, "1_2": 4.0, "all": 4.0})
    assert two.startswith("2 of 3 layers are enough: with the dot product in layers 1 and 2 alone")
    assert answer(**{"none": 4.3, "1": 4.2, "2": 4.1, "all": 4.0}).startswith("No choice of fewer than 3 layers")
    assert answer(**{"none": 3.8, "1": 4.0, "2": 4.0, "all": 4.0}).startswith("None: models do better without it.")


def test_layers_are_named():
    assert places("none", 5) == []
    assert places("all", 3) == [1, 2, 3]
    assert places("1+4", 5) == [1, 4]
    for wrong in ("2+1", "0", "6", "1+1", "first"):
        with pytest.raises(ValueError, match="is no choice of 5 layers; write none, all, or layers in order"):
            places(wrong, 5)
    with pytest.raises(ValueError, match="needs the row 'all'"):
        LayerPlan(rows=["none", "1"])
    with pytest.raises(ValueError, match="no row 'toeplits'; did you mean toeplitz"):
        PositionPlan(rows=["toeplits"])
    made = layers.plan_study(LayerPlan(rows=["none", "2", "all"], layers=2))
    specs = [part.baseline.fields["decoder_attention"] for part in made.parts]
    assert specs == [["random", "random"], ["random", "vanilla"], ["vanilla", "vanilla"]]
    assert [(bool(part.rates), part.rate_of) for part in made.parts] == [(True, None), (False, "all"), (True, None)]


def test_a_study_of_positions_goes_on_where_it_was_stopped(tmp_path):
    rows = ["random+vanilla", "toeplitz"]
    plan = PositionPlan(rows=rows, lengths=[17, 31], **TINY)
    whole = make(positions.STUDY, plan, tmp_path, tmp_path / "work")
    assert whole.complete
    one, other = whole.runs
    assert set(one.perplexity) == {"17", "distance", "even"}, "its table ends at 17"
    assert set(other.perplexity) == {"17", "31"}
    assert len(one.numbers) == 2 * 2 * 2
    assert all(0.9 < head["start"] <= 1 for head in one.numbers), "three steps do not move R far"
    assert sum(one.nats) / sum(block[0] for block in whole.blocks) == pytest.approx(np.log(one.perplexity["17"]), 1e-4)
    assert whole.floors.keys() == {"uniform model", "unigram model"}
    assert whole.rates == {"random+vanilla": {"0.001": one.curve[-1][1]}, "toeplitz": {"0.001": other.curve[-1][1]}}
    folder, cell = tmp_path / "positions", tmp_path / "work" / "positions" / "models" / "positions-"
    page = (folder / "README.md").read_text()
    assert "| `random+vanilla` | " in page
    assert "| cannot |" in page
    assert (folder / "maps.svg").read_text().count("<image") == 4
    first = next(cell.rglob(f"random+vanilla-0/{CELL}"))
    before = first.read_text()
    first.unlink()
    (folder / RECORD).unlink()
    again = make(positions.STUDY, plan, tmp_path, tmp_path / "work", resume=True)
    assert first.read_text() == before
    assert dataclasses.replace(again, versions={}) == dataclasses.replace(whole, versions={})
    assert positions.STUDY.load(folder / RECORD).runs == whole.runs
    assert (tmp_path / "work" / "positions" / PLAN).is_file()


def test_a_study_of_layers_shows_pretrained_models_beside(tmp_path):
    losses = [{"layers": [0], "kl": 0.5}, {"layers": [1], "kl": 0.1}]
    probe = {"bert": {"single": losses}, "one": {"single": []}}
    (tmp_path / "study.json").write_text(json.dumps({"probe": probe}))
    plan = LayerPlan(rows=["none", "2", "all"], probe=str(tmp_path / "study.json"), **TINY)
    whole = make(layers.STUDY, plan, tmp_path, tmp_path / "work")
    assert whole.beside == {"bert": [0.5, 0.1]}
    assert [run.row for run in whole.runs] == ["none", "2", "all"]
    page = (tmp_path / "layers" / "README.md").read_text()
    assert "bert loses most without that of layer 1 of 2, least without that of layer 2." in page
    assert page == md.markdown(shown(whole))
    assert "The other rows take that of all." in page
    assert (tmp_path / "layers" / "picture.svg").read_text().startswith("<svg")
    assert layers.STUDY.load(tmp_path / "layers" / RECORD) == whole


def shown(found: Any) -> Document:
    return layers.document(found)
