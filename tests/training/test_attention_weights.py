"""Pictures of attention, against plain loops over the weights that the models return."""

import base64
import math
from dataclasses import asdict
from typing import Any

import pytest
import torch
from torch import Tensor

from model_helpers import DECODING, ENCODING, KINDS, MAX_LENGTH, ids, labels_for, make
from synthattn.compare.results import Heads, Histogram
from synthattn.training.attention_weights import EDGES, pictures

LENGTHS = [7, 13, 11]
CELLS = 5


def make_batch(kind: str, extra: int = 0, left: bool = False) -> dict[str, Tensor]:
    """Three texts padded to the longest, and ``extra`` places more; labels of a decoder are two shorter."""
    x = ids(len(LENGTHS), max(LENGTHS))
    labels = labels_for(kind, x)

    def padded(values: Tensor, lengths: list[int], value: int, width: int, left: bool) -> Tensor:
        rows = torch.full((len(values), width), value)
        for row, found, n in zip(rows, values, lengths, strict=True):
            row[width - n if left else 0 :][:n] = found[:n]
        return rows

    width = max(LENGTHS) + extra
    batch = {
        "input_ids": padded(x, LENGTHS, 0, width, left),
        "attention_mask": padded(torch.ones_like(x), LENGTHS, 0, width, left),
        "labels": labels,
    }
    if kind == "seq2seq":
        batch["labels"] = padded(labels, [n - 2 for n in LENGTHS], -100, width - 2, False)
    elif kind != "classifier":
        batch["labels"] = padded(labels, LENGTHS, -100, width, left)
    return batch


def weights_of(model: Any, batch: dict[str, Tensor], stack: str, layer: int) -> list[Tensor]:
    """The weights of each example without padding, (heads, tokens, tokens)."""
    with torch.no_grad():
        output = model(**batch, output_attentions=True)
    both = model.config.is_encoder_decoder
    of_layer = (output[f"{stack}_attentions"] if both else output.attentions)[layer]
    kept = batch["labels"] != -100 if both and stack == "decoder" else batch["attention_mask"] == 1
    return [weights[:, keep][:, :, keep] for weights, keep in zip(of_layer, kept, strict=True)]


def map_by_loops(weights: list[list[float]], cells: int) -> list[list[float]]:
    span = len(weights)
    size = min(cells, span)
    groups = [[p for p in range(span) if p * size // span == cell] for cell in range(size)]
    return [
        [sum(weights[i][j] for i in rows for j in columns) / (len(rows) * len(columns)) for columns in groups]
        for rows in groups
    ]


def entropy_by_loops(examples: list[list[list[float]]], causal: bool) -> float:
    found = []
    for weights in examples:
        for i, row in enumerate(weights):
            seen = row[: i + 1] if causal else row
            if len(seen) > 1:
                shares = [w / sum(seen) for w in seen]
                found.append(-sum(w * math.log(w) for w in shares if w > 0) / math.log(len(seen)))
    return sum(found) / len(found)


def histogram_by_loops(examples: list[list[list[list[float]]]], causal: bool) -> list[float]:
    counts = [0] * (len(EDGES) - 1)
    for heads in examples:
        for weights in heads:
            for i, row in enumerate(weights):
                for weight in row[: i + 1] if causal else row:
                    power = math.log10(weight) if weight > 0 else -math.inf
                    inside = [n for n, edge in enumerate(EDGES[:-1]) if power >= edge]
                    counts[max(inside, default=0)] += 1
    return [count / sum(counts) for count in counts]


def decoded(heads: Heads) -> list[list[list[int]]]:
    result = []
    for text in heads.maps:
        flat = list(base64.b64decode(text, validate=True))
        assert len(flat) == heads.size**2
        result.append([flat[n : n + heads.size] for n in range(0, len(flat), heads.size)])
    return result


CASES = [("masked-lm", spec) for spec in ENCODING if "linformer" not in spec]
CASES += [(kind, spec) for kind in ("causal-lm", "seq2seq") for spec in DECODING]
CASES += [("classifier", "random+vanilla")]


@pytest.mark.parametrize(("kind", "attention"), CASES, ids=str)
def test_all_numbers_equal_plain_loops(kind: str, attention: str | list[str]):
    model, batch = make(KINDS[kind], attention), make_batch(kind)
    stacks = {"seq2seq": ["encoder", "decoder"], "causal-lm": ["decoder"]}.get(kind, ["encoder"])
    heads, histograms, _ = pictures(model, batch, cells=CELLS)
    places = [(stack, layer) for stack in stacks for layer in range(2)]
    assert [(found.stack, found.layer) for found in heads] == places
    assert [(found.stack, found.layer) for found in histograms] == places
    for found, histogram in zip(heads, histograms, strict=True):
        causal = found.stack == "decoder"
        examples = [weights.tolist() for weights in weights_of(model, batch, found.stack, found.layer)]
        assert found.span == max(LENGTHS) - (2 if kind == "seq2seq" and causal else 0)
        assert found.size == CELLS
        assert len(found.maps) == len(found.peaks) == len(found.entropy) == 3
        for head, cells in enumerate(decoded(found)):
            expected = map_by_loops(examples[1][head], CELLS)
            assert found.peaks[head] == pytest.approx(max(max(row) for row in expected))
            for row, wanted in zip(cells, expected, strict=True):
                assert row == pytest.approx([w / found.peaks[head] * 255 for w in wanted], abs=0.5 + 1e-9)
            each = [example[head] for example in examples]
            assert found.entropy[head] == pytest.approx(entropy_by_loops(each, causal), abs=1e-9)
        assert histogram.edges == EDGES
        assert histogram.counts == pytest.approx(histogram_by_loops(examples, causal), abs=1e-9)
        assert sum(histogram.counts) == pytest.approx(1.0)


def flat(found: Any) -> list[Any]:
    """List the values of dataclasses one after the other, with maps as bytes."""
    if isinstance(found, dict):
        return [n for name, value in found.items() for n in ([name] if name != "maps" else []) + flat(value)]
    if isinstance(found, (list, tuple)):
        return [n for value in found for n in flat(value)]
    return [found]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("changes", [{"extra": 4}, {"left": True}, {"extra": 3, "left": True}], ids=str)
def test_padding_is_never_counted(kind: str, changes: dict[str, Any]):
    model = make(KINDS[kind], ["dense+vanilla", "random"])
    tight, padded = (pictures(model, make_batch(kind, **options)) for options in ({}, changes))
    for one, other in zip(tight, padded, strict=True):
        assert flat([asdict(found) for found in other]) == pytest.approx(flat([asdict(found) for found in one]))


def test_without_a_mask_a_decoder_reads_up_to_its_last_label():
    model, batch = make(KINDS["causal-lm"], "random"), make_batch("causal-lm")
    batch["labels"][:, 0] = -100
    expected = pictures(model, batch)
    found = pictures(model, {name: batch[name] for name in ("input_ids", "labels")})
    assert found == expected


def with_matrix(kind: str, matrix: Tensor) -> Any:
    model = make(KINDS[kind], "random")
    stack = model.model.encoder if model.model.decoder is None else model.model.decoder
    with torch.no_grad():
        for block in stack.layers:
            block.attention.synthesizer.matrix.copy_(matrix)
    return model


def only(found: list[Any], stack: str) -> list[Any]:
    return [each for each in found if each.stack == stack]


@pytest.mark.parametrize("kind", ["masked-lm", "causal-lm", "seq2seq"])
def test_even_weights_have_entropy_one(kind: str):
    stack = "encoder" if kind == "masked-lm" else "decoder"
    heads, histograms, _ = pictures(with_matrix(kind, torch.zeros(MAX_LENGTH, MAX_LENGTH)), make_batch(kind), cells=99)
    for found in only(heads, stack):
        assert found.entropy == pytest.approx([1.0] * 3)
        assert found.size == found.span
        for cells in decoded(found):
            for i, row in enumerate(cells):
                expected = [255] * found.span
                if stack == "decoder":  # the first row has all on one token, and so the peak
                    expected = [round(255 / (i + 1))] * (i + 1) + [0] * (found.span - i - 1)
                assert row == expected
    if kind == "masked-lm":  # the weights are one through the length
        shares = [0.0] * (len(EDGES) - 1)
        for n in LENGTHS:
            bin_ = max(b for b, edge in enumerate(EDGES) if edge <= -math.log10(n))
            shares[bin_] += n * n / sum(n * n for n in LENGTHS)
        for histogram in histograms:
            assert histogram.counts == pytest.approx(shares)


@pytest.mark.parametrize("kind", ["masked-lm", "causal-lm", "seq2seq"])
def test_a_single_token_has_entropy_zero(kind: str):
    stack = "encoder" if kind == "masked-lm" else "decoder"
    heads, histograms, _ = pictures(with_matrix(kind, 1e4 * torch.eye(MAX_LENGTH)), make_batch(kind), cells=99)
    lengths = [n - 2 for n in LENGTHS] if kind == "seq2seq" else LENGTHS
    allowed = sum(n * n if stack == "encoder" else n * (n + 1) // 2 for n in lengths)
    for found, histogram in zip(only(heads, stack), only(histograms, stack), strict=True):
        assert found.entropy == [0.0] * 3
        assert found.peaks == [1.0] * 3
        for cells in decoded(found):
            assert cells == [[255 * (i == j) for j in range(found.span)] for i in range(found.span)]
        middle = [0.0] * (len(EDGES) - 3)
        ones = sum(lengths) / allowed
        assert histogram.counts == pytest.approx([1 - ones, *middle, ones])


def test_texts_of_one_token_leave_no_choice():
    x = ids(2, 1)
    heads, histograms, _ = pictures(make(KINDS["causal-lm"], "vanilla"), {"input_ids": x, "labels": x})
    assert [found.entropy for found in heads] == [[0.0] * 3] * 2
    assert histograms[0].counts[-1] == 1.0


@pytest.mark.parametrize("cells", [2, 5, 12, 40])
def test_nothing_is_above_the_diagonal_of_a_decoder(cells: int):
    heads, _, _ = pictures(make(KINDS["causal-lm"]), make_batch("causal-lm"), cells=cells)
    for found in heads:
        for rows in decoded(found):
            assert max(max(row) for row in rows) == 255
            assert all(row[j] == 0 for i, row in enumerate(rows) for j in range(i + 1, found.size))


@pytest.mark.parametrize("budget", [0, 50, 255, 256, 600, 2000, 3 * 3 * 20 * 20, 5 * 3 * 20 * 20, 120_000])
def test_maps_keep_to_the_budget_and_numbers_are_there_for_all_layers(budget: int):
    layers, cells = 5, 20
    model = make(KINDS["masked-lm"], "random", encoder_layers=layers)
    x = ids(2, MAX_LENGTH)
    heads, histograms, _ = pictures(model, {"input_ids": x, "labels": x}, cells=cells, budget=budget)
    assert [found.layer for found in heads] == [found.layer for found in histograms] == list(range(layers))
    assert all(len(found.entropy) == 3 and len(found.maps) == len(found.peaks) for found in heads)
    used = sum(len(rows) ** 2 for found in heads for rows in decoded(found))
    assert used <= budget
    shown = [found.layer for found in heads if found.maps]
    sizes = {found.size for found in heads}
    counts = {len(found.maps) for found in heads if found.maps}
    if budget >= layers * 3 * cells**2:
        assert (shown, sizes, counts) == ([0, 1, 2, 3, 4], {cells}, {3})
    elif budget >= 3 * 3 * 16**2:
        assert (shown, counts) == ([0, 2, 4], {3})
        assert sizes == {min(cells, math.isqrt(budget // 9))}
    elif budget >= 3 * 16**2:
        assert (shown, sizes, counts) == ([0, 2, 4], {16}, {budget // (3 * 16**2)})
    else:
        assert (shown, sizes) == ([], {16})


def test_linformer_has_no_weights_of_tokens_and_is_left_out():
    model = make(KINDS["masked-lm"], ["linformer(k=13)", "random"])  # as many mixtures as tokens
    heads, histograms, _ = pictures(model, make_batch("masked-lm"))
    assert [found.layer for found in heads] == [found.layer for found in histograms] == [1]
    assert pictures(make(KINDS["masked-lm"], "linformer(k=7)"), make_batch("masked-lm")) == ([], [], [])


@pytest.mark.parametrize("kind", ["masked-lm", "causal-lm", "seq2seq"])
def test_a_shared_layer_is_shown_at_every_depth_and_its_mixture_once(kind: str):
    stacks = {"masked-lm": ["encoder"], "causal-lm": ["decoder"]}.get(kind, ["encoder", "decoder"])
    model = make(KINDS[kind], "random+vanilla", share_layers=True)
    heads, histograms, mixtures = pictures(model, make_batch(kind))
    places = [(stack, depth) for stack in stacks for depth in range(2)]
    assert [(found.stack, found.layer) for found in heads] == places
    assert [(found.stack, found.layer) for found in histograms] == places
    assert [(found.stack, found.layer) for found in mixtures] == [(stack, 0) for stack in stacks]
    assert heads[0].maps != heads[1].maps


def test_depths_that_no_token_reaches_are_left_out():
    model = make(KINDS["causal-lm"], "random+vanilla", share_layers=True, halting=True, decoder_layers=5)
    with torch.no_grad():
        model.model.decoder.halting.unit.bias.fill_(1e3)  # all stop at once
    heads, _, _ = pictures(model, make_batch("causal-lm"))
    assert [found.layer for found in heads] == [0]


SOFTMAX = "random+dense(window=5)+vanilla+relative"


def test_weights_of_a_mixture_are_the_softmax_of_alpha():
    model = make(KINDS["seq2seq"], [SOFTMAX, "dense"])
    _, _, mixtures = pictures(model, make_batch("seq2seq"))
    assert [(found.stack, found.layer) for found in mixtures] == [("encoder", 0), ("decoder", 0)]
    for found in mixtures:
        stack = model.model.encoder if found.stack == "encoder" else model.model.decoder
        alpha = stack.layers[0].attention.synthesizer.weights.alpha.tolist()
        assert found.terms == ["random", "dense(window=5)", "vanilla"]  # a position bias has no weight
        for term, row in enumerate(found.weights):
            for head, weight in enumerate(row):
                total = sum(math.exp(alpha[t][head]) for t in range(3))
                assert weight == pytest.approx(math.exp(alpha[term][head]) / total)
        assert [len(row) for row in found.weights] == [3, 3, 3]


def test_weights_of_a_mixture_by_sigmoid_are_single_numbers():
    model = make(KINDS["causal-lm"], "random+vanilla", mix="sigmoid")
    _, _, mixtures = pictures(model, make_batch("causal-lm"))
    for found, block in zip(mixtures, model.model.decoder.layers, strict=True):
        first = 1 / (1 + math.exp(-block.attention.synthesizer.weights.alpha.item()))
        assert found.weights == [[pytest.approx(first)], [pytest.approx(1 - first)]]


@pytest.mark.parametrize(("attention", "mix"), [("random+vanilla", "sum"), ("vanilla+relative", "softmax")])
def test_a_plain_sum_has_no_weights(attention: str, mix: str):
    assert pictures(make(KINDS["masked-lm"], attention, mix=mix), make_batch("masked-lm"))[2] == []


def test_the_mode_of_every_part_is_left_as_it_was_and_dropout_is_off():
    model, batch = make(KINDS["seq2seq"], dropout=0.5, attention_dropout=0.5), make_batch("seq2seq")
    expected = pictures(model, batch)
    model.train()
    model.model.encoder.eval()
    modes, state = [module.training for module in model.modules()], torch.get_rng_state()
    assert pictures(model, batch) == expected
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_models_of_less_precision_are_shown_as_well(dtype: torch.dtype):
    heads, histograms, _ = pictures(make(KINDS["causal-lm"]).to(dtype), make_batch("causal-lm"))
    exact, _, _ = pictures(make(KINDS["causal-lm"]), make_batch("causal-lm"))
    for found, wanted in zip(heads, exact, strict=True):
        assert found.entropy == pytest.approx(wanted.entropy, abs=0.02)
    assert all(isinstance(found, Histogram) and sum(found.counts) == pytest.approx(1) for found in histograms)
