"""Acceptance bars: which there are, and on which side of its bound a number lies."""

import pytest
from benchmarks.bars import Bar, bars, main, verdict

from synthattn.bench.record import BenchRecord, Case, Measurement

INPUT_INDEPENDENT = ["random", "fixed_random", "factorized_random"]
KEYLESS = [*INPUT_INDEPENDENT, "dense", "factorized_dense", "random+dense"]
MIXED = ["random+vanilla", "dense+vanilla", "factorized_random+vanilla"]
MIDDLE, LONG = (16, 512), (4, 2048)
MASKS = ["full", "causal", "padded"]


def speeds() -> list[tuple[int, str, Case, str, float]]:
    """Requirement, contender, case, rival and bound of every ratio that has a bar."""
    found = []
    for shape in (MIDDLE, LONG):
        for mask in MASKS:
            tested, trained = (Case("layer", *shape, mode, mask) for mode in ("eval", "train"))
            for rival in ("vanilla", "nn.MultiheadAttention"):
                found += [(1, name, tested, rival, 2.0) for name in INPUT_INDEPENDENT]
                found += [(1, name, trained, rival, 1.8) for name in INPUT_INDEPENDENT]
            found += [(2, "dense", tested, "vanilla", 1.05), (2, "random+vanilla", tested, "vanilla", 0.95)]
            found += [(2, name, trained, "vanilla", 0.85 if shape == MIDDLE else 0.75) for name in MIXED]
            found += [(2, "vanilla", case, "straightforward", 1.0) for case in (tested, trained)]
            found += [(2, "relative+vanilla", tested, "straightforward", 1.0)]
    train = Case("train", 8, 512, "train")
    found += [(3, "random", train, "dynamicconv", 1.6), (3, "random", train, "vanilla", 1.15)]
    found += [(3, "vanilla", train, "Hugging Face T5", 1.0)]
    for beams in (1, 4):
        case = Case("decode", 8, 128, beams=beams)
        found += [(4, name, case, "vanilla", 1.2) for name in KEYLESS]
        found += [(4, name, case, "Hugging Face T5", 1.5) for name in KEYLESS]
    return found


def one(*measurements: Measurement) -> Bar:
    (bar,) = bars(BenchRecord(measurements=list(measurements)))
    return bar


def sides(bound: float) -> list[tuple[float, bool]]:
    return [(bound - 1e-9, False), (bound, True), (bound + 1e-9, True)]


@pytest.mark.parametrize(("number", "name", "case", "rival", "bound"), speeds())
def test_speed(number, name, case, rival, bound):
    for ratio, holds in sides(bound):
        bar = one(Measurement(name, case, 1.0, 0.0, {rival: ratio}))
        assert (bar.number, bar.found, bar.bound, bar.better) == (number, ratio, bound, "at least")
        assert bar.holds == holds
        assert all(word in str(bar) for word in (name, rival, str(case)))


@pytest.mark.parametrize("name", MIXED)
def test_memory_of_mixtures(name):
    for share, holds in ((0.4 - 1e-9, True), (0.4, True), (0.4 + 1e-9, False)):
        measured = Measurement(
            name, Case("layer", *LONG, "train"), 1.0, 0.0, {}, 1000 * share, {"straightforward": 1000.0, "other": 1.0}
        )
        bar = one(measured)
        assert (bar.number, bar.better, bar.bound, bar.holds) == (2, "at most", 0.4, holds)


@pytest.mark.parametrize("name", KEYLESS)
@pytest.mark.parametrize("beams", [1, 4])
def test_cache_beside_that_of_vanilla_in_the_same_case(name, beams):
    case, other = Case("decode", 8, 128, beams=beams), Case("decode", 8, 128, beams=5 - beams)
    for share, holds in ((0.5, True), (0.5 + 1e-9, False)):
        found = Measurement(name, case, 1.0, 0.0, cache_bytes=1000 * share)
        vanilla = Measurement("vanilla", case, 1.0, 0.0, cache_bytes=1000.0)
        elsewhere = Measurement("vanilla", other, 1.0, 0.0, cache_bytes=7.0)
        bar = one(elsewhere, found, vanilla)
        assert (bar.number, bar.better, bar.holds) == (4, "at most", holds)
        assert bars(BenchRecord(measurements=[elsewhere, found])) == []


@pytest.mark.parametrize("name", INPUT_INDEPENDENT)
@pytest.mark.parametrize("shape", [MIDDLE, LONG])
def test_share_of_plain_products(name, shape):
    for share, holds in sides(0.75):
        bar = one(Measurement(name, Case("layer", *shape), 1.0, 0.0, gemm_share=share))
        assert (bar.number, bar.found, bar.holds) == (5, share, holds)


@pytest.mark.parametrize(
    ("name", "case"),
    [
        ("random", Case("layer", 16, 513)),
        ("random", Case("layer", 4, 512)),
        ("dense+vanilla", Case("layer", 16, 512)),
        ("dense", Case("layer", 16, 512, "train")),
        ("linformer", Case("layer", 16, 512)),
        ("dense", Case("train", 8, 512, "train")),
        ("random", Case("train", 8, 128, "train")),
        ("random", Case("model", 8, 512)),
        ("random", Case("decode", 8, 128, beams=2)),
        ("random+vanilla", Case("decode", 8, 128)),
    ],
)
def test_nothing_else_has_a_bar(name, case):
    ratios = {"vanilla": 0.1, "nn.MultiheadAttention": 0.1, "dynamicconv": 0.1, "Hugging Face T5": 0.1}
    measured = Measurement(name, case, 1.0, 0.0, ratios, 1.0, {"other": 1.0}, cache_bytes=1.0)
    assert bars(BenchRecord(measurements=[measured])) == []


@pytest.mark.parametrize(
    "case", [Case("layer", 16, 512, "train"), Case("layer", 16, 512, mask="causal"), Case("layer", 1, 512)]
)
def test_share_of_products_is_asked_of_whole_inputs_only(case):
    assert bars(BenchRecord(measurements=[Measurement("random", case, 1.0, 0.0, gemm_share=0.1)])) == []


def test_verdict_has_a_line_for_each_that_falls_short(tmp_path, monkeypatch, capsys):
    case = Case("layer", 16, 512, "train", "padded")
    record = BenchRecord(
        measurements=[
            Measurement("random", case, 1.0, 0.0, {"vanilla": 1.79999, "straightforward": 3.0}),
            Measurement("dense+vanilla", case, 1.0, 0.0, {"vanilla": 0.66}),
        ]
    )
    record.save(tmp_path / "record.json")
    monkeypatch.setattr("sys.argv", ["bars.py", str(tmp_path / "record.json")])
    main()
    assert capsys.readouterr().out.splitlines() == [
        "1 of 3 bars hold",
        # With as many digits as it takes to see that it is less.
        "  falls short: requirement 1: random, layer 16x512, train, padded: 1.79999 times as fast as vanilla, "
        "at least 1.8 wanted",
        "  falls short: requirement 2: dense+vanilla, layer 16x512, train, padded: 0.660 times as fast as vanilla, "
        "at least 0.85 wanted",
    ]
    assert verdict(BenchRecord()) == "0 of 0 bars hold"
