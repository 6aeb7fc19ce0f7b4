"""How a benchmark is done: who runs when, what counts as a product, what is checked first. No time is tested."""

import itertools
import time
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from synthattn.bench import layers, memory, record, side_by_side, suite, timing
from synthattn.bench import products as bench_products
from synthattn.bench.products import products
from synthattn.bench.record import BenchRecord, Case, Measurement
from synthattn.bench.side_by_side import CasePlan, Contender


class Listener:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.begun: list[CasePlan] = []
        self.said: list[tuple[str, Measurement | str]] = []

    def begins(self, plan: CasePlan) -> None:
        self.begun.append(plan)

    def found(self, contender: str, found: Measurement | str) -> None:
        self.said.append((contender, found))


@pytest.fixture
def clock(monkeypatch):
    """Time that passes only when a contender says so."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def passes(*seconds: float):
        each = itertools.cycle(seconds)

        def run() -> None:
            now[0] += next(each)

        return run

    return passes


@pytest.mark.parametrize("names", ["ab", "abc", "abcde"])
def test_rounds_are_interleaved_in_changing_order(names):
    order: list[str] = []
    runs = {name: (lambda name=name: order.append(name)) for name in names}
    timing.interleaved(runs, 20)
    rounds = ["".join(order[n : n + len(names)]) for n in range(0, len(order), len(names))]
    assert len(rounds) == 21
    assert all(sorted(each) == sorted(names) for each in rounds)
    assert all(one != two for one, two in itertools.pairwise(order[len(names) :])), "nobody runs after itself"
    if len(names) > 2:
        followers = {(one, two) for one, two in itertools.pairwise(order)}
        assert len(followers) == len(names) * (len(names) - 1), "everybody runs after everybody"


def test_ratios_are_medians_of_ratios_within_a_round(clock):
    # The first number is the warm-up; the machine is twice as slow in the second round.
    times = timing.interleaved({"ours": clock(9, 1, 2, 1), "theirs": clock(9, 3, 6, 30)}, 3)
    assert times.faster("ours", "theirs") == 3
    assert times.median("theirs") == 6
    assert times.spread("ours") == pytest.approx(0.5)


@pytest.mark.parametrize("rounds", [0, -1])
def test_no_rounds_are_refused(rounds):
    with pytest.raises(ValueError, match=f"at least one round and one contender, got {rounds} and 1"):
        timing.interleaved({"a": lambda: None}, rounds)


def test_timing_leaves_chance_and_garbage_collection_alone():
    import gc

    before = torch.get_rng_state()
    timing.interleaved({"a": lambda: torch.rand(3)}, 2)
    assert torch.equal(torch.get_rng_state(), before)
    assert gc.isenabled()


def test_products_of_a_layer_and_of_its_backward_pass():
    linear = torch.nn.Linear(6, 7)
    x = torch.randn(5, 6, requires_grad=True)
    found = products(lambda: linear(x).sum().backward())
    # Forward; by the weight; by the input.
    assert sorted(found.shapes.elements()) == sorted([(1, 5, 6, 7), (1, 7, 5, 6), (1, 5, 7, 6)])
    assert found.gigaflop == 3 * 2 * 5 * 6 * 7 / 1e9


def test_products_of_fused_attention():
    query, key, value = (torch.randn(2, 3, n, 8, requires_grad=True) for n in (4, 5, 5))
    found = products(lambda: F.scaled_dot_product_attention(query, key, value))
    assert found.gigaflop == pytest.approx(2 * (2 * 2 * 3 * 4 * 5 * 8) / 1e9)
    both = products(lambda: F.scaled_dot_product_attention(query, key, value).sum().backward())
    assert both.gigaflop == pytest.approx(7 * (2 * 2 * 3 * 4 * 5 * 8) / 1e9), "2 forward, 5 backward, 1 of them again"


def test_products_alone_are_the_same_products(monkeypatch):
    monkeypatch.setattr(bench_products, "_LIBRARIES", [bench_products._by_torch])  # which are counted
    a, b = torch.randn(3, 4, 5), torch.randn(3, 5, 6)

    def run() -> None:
        torch.bmm(a, b)
        torch.bmm(a, b)
        torch.mm(a[0], b[0])

    found = products(run)
    assert products(found.alone()).shapes == found.shapes


def test_the_fastest_library_multiplies():
    operands = bench_products._operands((2, 30, 40, 50))
    for multiply in bench_products._LIBRARIES:
        multiply(*operands)
    torch.testing.assert_close(operands[2], operands[0] @ operands[1])

    def slow(*operands: torch.Tensor) -> None:
        time.sleep(0.005)

    def fast(*operands: torch.Tensor) -> None:
        pass

    with pytest.MonkeyPatch.context() as patch:
        for libraries in ([slow, fast], [fast, slow]):
            patch.setattr(bench_products, "_LIBRARIES", libraries)
            assert bench_products._fastest(operands) is fast


def test_long_layers_are_checked_at_a_length_that_the_reference_has_memory_for(monkeypatch):
    monkeypatch.setattr(layers, "CHECKED_LENGTH", 24)
    lengths = []
    original = layers.reference.attention

    def watched(layer, x, **masks):
        lengths.append((layer.max_length, x.shape[1]))
        return original(layer, x, **masks)

    monkeypatch.setattr(layers.reference, "attention", watched)
    for length in (23, 24, 25, 10**6):
        assert layers.check("random", Case("layer", 2, length, "train", "padded")) is not None
    assert lengths == [(23, 23), (24, 24), (24, 24), (24, 24)]


@pytest.mark.parametrize("mode", ["eval", "train"])
@pytest.mark.parametrize("mask", ["full", "causal", "padded"])
def test_every_layer_is_checked_and_runs(monkeypatch, mode, mask):
    monkeypatch.setattr(layers, "D_MODEL", 32)
    monkeypatch.setattr(layers, "HEADS", 4)
    case = Case("layer", 2, 24, mode, mask)
    for name in layers.contenders(peers=False):
        if name == "linformer" and mask == "causal":
            with pytest.raises(record.UnsupportedError, match="cannot be causal"):
                layers.build(name, case)
            continue
        error = layers.check(name, case)
        assert (error is None) == (name in layers.rivals.RIVALS or name in ("lightconv", "dynamicconv", "linformer"))
        assert error is None or 0.0 <= error < 1e-4
        layers.build(name, case)(case)()
        if layers.has_straightforward(name):
            ours, theirs = (layers.make(each, 24) for each in (name, f"{layers.STRAIGHTFORWARD} {name}"))
            if not name.startswith("dense(window"):
                x = torch.randn(2, 24, 32)
                arguments = layers.masks(mask, 2, 24)
                torch.testing.assert_close(theirs(x, **arguments), ours(x, **arguments), rtol=1e-4, atol=1e-5)


def test_what_is_wrong_is_not_timed(monkeypatch):
    monkeypatch.setattr(layers, "D_MODEL", 32)
    monkeypatch.setattr(layers, "HEADS", 4)
    honest = layers.SyntheticAttention.forward

    def wrong(self: layers.SyntheticAttention, *args: Any, **kwargs: Any) -> torch.Tensor:
        return torch.as_tensor(honest(self, *args, **kwargs)) * 1.001

    monkeypatch.setattr(layers.SyntheticAttention, "forward", wrong)
    for mode in ("eval", "train"):
        with pytest.raises(ValueError, match=r"the output is off the reference by 1\.0e-03, more than 1e-04"):
            list(
                side_by_side.measure(
                    CasePlan(Case("layer", 2, 8, mode), (Contender("random", {"vanilla": "vanilla"}),)), 1
                )
            )


def test_a_plan_has_all_figures_of_everyone(monkeypatch):
    monkeypatch.setattr(layers, "D_MODEL", 32)
    monkeypatch.setattr(layers, "HEADS", 4)
    monkeypatch.setattr(side_by_side, "LEAST_SECONDS", 0.0)
    (planned,) = suite.layer_plans(["random", "vanilla"], [(2, 16)], ["full"], ["eval"])
    entry, other = planned.contenders
    assert set(other.rivals) == {"nn.MultiheadAttention", "straightforward"}
    assert entry.rivals == {
        "vanilla": "vanilla",
        "nn.MultiheadAttention": "nn.MultiheadAttention",
        "straightforward": "straightforward random",
    }
    results = dict(side_by_side.measure(planned, 2))
    assert list(results) == ["random", "vanilla"]
    found, vanilla = results.values()
    assert isinstance(found, Measurement)
    assert isinstance(vanilla, Measurement)
    assert set(found.ratios) == set(entry.rivals)
    assert set(vanilla.ratios) == set(other.rivals)
    assert all(ratio > 0 for ratio in found.ratios.values())
    # Value and output projections of 2 x 16 tokens, and one product for each of 4 heads, examples side by side.
    assert found.gigaflop == pytest.approx((2 * 2 * 32 * 32 * 32 + 2 * 4 * 16 * 16 * 16) / 1e9)
    assert found.gemm_share is not None
    if memory.available():
        assert found.megabytes is not None
        assert set(found.rival_megabytes) == {"straightforward"}


@pytest.mark.skipif(not memory.available(), reason="this system does not tell the peak of a process")
def test_memory_is_that_of_the_attention_matrices():
    case = Case("layer", 4, 512, "eval")
    # The straightforward layer writes 4 x 8 matrices of 512 x 512, the logits and their softmax: 2 x 33.6 MB.
    written = memory.peak_megabytes(f"{layers.STRAIGHTFORWARD} vanilla", case)
    fused = memory.peak_megabytes("vanilla", case)
    assert written > 60
    assert fused < written - 40


def test_the_reason_of_a_failed_memory_process_is_said():
    with pytest.raises(ChildProcessError, match=r"dense\(window=4\).*window must be a positive odd number"):
        memory.peak_megabytes("dense(window=4)", Case("layer", 1, 8))


def test_what_cannot_be_done_is_left_out_and_said(monkeypatch, tmp_path):
    monkeypatch.setattr(layers, "D_MODEL", 32)
    monkeypatch.setattr(layers, "HEADS", 4)
    monkeypatch.setattr(side_by_side, "LEAST_SECONDS", 0.0)
    found = record.new("synthattn bench", 1)
    listener = Listener()
    counts: list[int] = []
    plans = [
        each.without_memory() for each in suite.layer_plans(["linformer", "random"], [(1, 8)], ["causal"], ["eval"])
    ]
    suite.run(plans, found, 1, listener, lambda r: counts.append(len(r.measurements)))
    assert found.skipped == ["linformer, 1x8, eval, causal: it cannot be causal"]
    assert [m.contender for m in found.measurements] == ["random"]
    assert listener.said == [("linformer", "it cannot be causal"), ("random", found.measurements[0])]
    assert listener.begun == plans
    assert counts == [0, 1], "kept after every contender, those that were left out included"
    found.save(tmp_path / "record.json")
    (again,) = record.load(tmp_path / "record.json").measurements
    (kept,) = found.measurements
    assert (again.contender, again.case, again.ratios.keys()) == (kept.contender, kept.case, kept.ratios.keys())
    assert again.seconds == pytest.approx(kept.seconds, rel=1e-5), "as many digits as a time deserves"


@pytest.mark.parametrize(
    ("error", "left_out"),
    [
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
            True,
        ),
        (MemoryError(), True),
        (RuntimeError("shapes do not match"), False),
        (NotImplementedError("an operator"), False),
    ],
)
def test_only_a_lack_of_memory_leaves_a_contender_out(monkeypatch, error, left_out):
    def fails(*args: Any) -> None:
        raise error

    monkeypatch.setattr(layers, "check", fails)
    found = BenchRecord()
    plans = [CasePlan(Case("layer", 1, 8), (Contender("random", {}),))]
    if not left_out:
        with pytest.raises(type(error)):
            suite.run(plans, found, 1, Listener(), lambda record: None)
        return
    suite.run(plans, found, 1, Listener(), lambda record: None)
    assert found.skipped == ["random, 1x8, eval, full: it takes more memory than there is"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"measurements": [], "unknown": 1}', "\xff"])
def test_a_damaged_record_is_named(tmp_path, text):
    file = tmp_path / "record.json"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=r"record\.json is not a record of synthattn bench"):
        record.load(file)


def test_records_are_merged_and_the_later_figure_counts():
    case = Case("layer", 1, 8)
    one = BenchRecord(
        "first", 7, "m", 2, {}, "2026-11-18T04:20:36+00:00", 1.0, [Measurement("random", case, 2.0, 0.0)], ["a"]
    )
    two = BenchRecord(
        "second",
        9,
        "n",
        2,
        {},
        "2026-11-19T04:20:36+00:00",
        2.0,
        [Measurement("random", case, 1.0, 0.0)],
        ["a", "b"],
    )
    both = record.merged([one, two])
    assert [m.seconds for m in both.measurements] == [1.0]
    assert both.command == "first  # m, 2026-11-18\nsecond  # n, 2026-11-19"
    assert (both.machine, both.rounds, both.seconds, both.skipped) == ("m; n", 7, 3.0, ["a", "b"])
    assert record.merged([one]) == one


def test_a_record_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    file = tmp_path / "record.json"
    BenchRecord("good").save(file)

    def full(number: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space"):
        BenchRecord("bad").save(file)
    assert record.load(file).command == "good"
