"""Contenders of one case: how often each runs, beside which rivals, and what is left out. Time is made up."""

import itertools
import time
from collections import Counter
from typing import Any

import pytest
import torch

from synthattn.bench import layers, memory, memory_budget, models, side_by_side
from synthattn.bench.record import Case, Measurement, UnsupportedError
from synthattn.bench.side_by_side import CasePlan, Contender

CASE = Case("layer", 2, 8)
NO_MEMORY = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"


class Home:
    """Contenders by the seconds that a call takes, on a clock that nothing else moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **seconds: float) -> None:
        self.seconds, self.calls, self.checked, self.now = seconds, Counter[str](), list[str](), 0.0
        self.fails: dict[tuple[str, str], BaseException] = {}
        self.size: dict[str, int] = {}
        self.alive: set[str] = set()
        monkeypatch.setattr(memory, "home", lambda case: self)
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(side_by_side, "LEAST_SECONDS", 0.0)
        monkeypatch.setattr(side_by_side, "held_bytes", lambda name, case: self.size.get(name, 1))

    def _may(self, step: str, name: str) -> None:
        if (step, name) in self.fails:
            raise self.fails[step, name]

    def check(self, name: str, case: Case) -> float:
        self._may("check", name)
        self.checked.append(name)
        return 0.5

    def build(self, name: str, case: Case) -> Any:
        self._may("build", name)
        home = self

        class Built:
            def __call__(self) -> None:
                home._may("call", name)
                home.calls[name] += 1
                if home.calls[name] > 1:
                    home._may("round", name)
                home.now += home.seconds[name]

            def __del__(self) -> None:
                home.alive.discard(name)

        home.alive.add(name)
        return lambda case: Built()


def entries(*names: str, rivals: str = "") -> CasePlan:
    return CasePlan(CASE, tuple(Contender(name, {r: r for r in rivals if r != name}) for name in names))


def measured(found: Measurement | str) -> Measurement:
    assert isinstance(found, Measurement), found
    return found


def test_everyone_is_checked_and_runs_once_in_a_round(monkeypatch):
    home = Home(monkeypatch, a=1, b=2, c=4, v=8)
    found = {}
    for name, each in side_by_side.measure(entries("a", "b", "v", rivals="vc"), 3):
        found[name] = each
        assert not home.alive, "nothing that was timed is held while others are weighed"
    assert home.checked == ["a", "b", "v"]
    assert home.calls == dict.fromkeys("abvc", 1 + 3), "once to begin with, then in every round"
    assert {name: measured(each).ratios for name, each in found.items()} == {
        "a": {"v": 8, "c": 4},
        "b": {"v": 4, "c": 2},
        "v": {"c": 0.5},
    }
    assert [(measured(m).seconds, measured(m).error) for m in found.values()] == [(1, 0.5), (2, 0.5), (8, 0.5)]


def test_short_calls_are_repeated_with_those_they_are_compared_with_and_nobody_else(monkeypatch):
    home = Home(monkeypatch, a=0.021, b=0.05, c=9, v=1, w=1)
    monkeypatch.setattr(side_by_side, "LEAST_SECONDS", 0.3)
    everyone = CasePlan(
        CASE,
        (
            Contender("a", {"v": "v"}),
            Contender("b", {"v": "v"}),
            Contender("c", {"w": "w"}),
            Contender("w", {"v": "v"}),
        ),
    )
    list(side_by_side.measure(everyone, 4))
    assert home.calls == dict.fromkeys("cw", 1 + 4) | dict.fromkeys("abv", 1 + 4 + 15)
    home.calls.clear()
    home.seconds["a"] = 1e-9
    list(side_by_side.measure(everyone, 4))
    assert home.calls["a"] == 1 + 4 + side_by_side.MOST_ROUNDS


@pytest.mark.parametrize("step", ["check", "build", "call"])
@pytest.mark.parametrize(
    ("error", "reason"),
    [(UnsupportedError("no masks"), "no masks"), (RuntimeError(NO_MEMORY), "it takes more memory than there is")],
)
def test_who_cannot_is_left_out_and_takes_nobody_down(monkeypatch, step, error, reason):
    home = Home(monkeypatch, a=1, b=2, v=4)
    home.fails[step, "a"] = error
    found = dict(side_by_side.measure(entries("a", "b", rivals="v"), 2))
    assert list(found) == ["a", "b"]
    assert found["a"] == reason
    assert measured(found["b"]).ratios == {"v": 2}
    assert home.calls == {"b": 3, "v": 3}


def test_a_rival_that_cannot_leaves_out_the_ratio_to_it(monkeypatch):
    home, said = Home(monkeypatch, a=1, b=2, v=4), list[str]()
    home.fails["call", "v"] = UnsupportedError("no masks")
    found = dict(side_by_side.measure(entries("a", rivals="vb"), 2, said.append))
    assert measured(found["a"]).ratios == {"b": 2}
    assert said == ["v, 2x8, eval, full: no masks"]


@pytest.mark.parametrize("large", ["a", "v"])
def test_who_needs_more_memory_than_is_free_is_never_built(monkeypatch, large):
    home, said = Home(monkeypatch, a=1, b=2, v=4), list[str]()
    home.size[large] = 43 * 10**9
    monkeypatch.setattr(side_by_side, "available_memory", lambda: 19 * 10**9)
    found = dict(side_by_side.measure(entries("a", "b", rivals="v"), 2, said.append))
    reason = "it takes more memory than there is: about 43 GB, of which 19 are free"
    assert home.calls[large] == 0
    assert measured(found["b"]).ratios == ({"v": 2} if large == "a" else {})
    assert found["a"] == reason if large == "a" else said == [f"v, 2x8, eval, full: {reason}"]


def test_what_is_wrong_stops_everything(monkeypatch):
    home = Home(monkeypatch, a=1, b=2)
    home.fails["check", "b"] = ValueError("off the reference")
    with pytest.raises(ValueError, match="off the reference"):
        list(side_by_side.measure(entries("a", "b"), 2))


def test_too_many_at_once_are_measured_one_by_one(monkeypatch):
    home = Home(monkeypatch, a=1, b=2, c=3, v=6)
    home.fails["round", "b"] = MemoryError()
    found = dict(side_by_side.measure(entries("a", "b", "c", rivals="v"), 2))
    assert found["b"] == "it takes more memory than there is"
    assert measured(found["a"]).ratios == {"v": 6}
    assert measured(found["c"]).ratios == {"v": 2}


def test_an_error_of_another_kind_is_no_reason(monkeypatch):
    home = Home(monkeypatch, a=1, b=2)
    home.fails["round", "b"] = RuntimeError("shapes do not match")
    with pytest.raises(RuntimeError, match="shapes do not match"):
        list(side_by_side.measure(entries("a", "b"), 2))


def test_products_of_the_same_shapes_are_timed_once(monkeypatch):
    monkeypatch.setattr(layers, "D_MODEL", 32)
    monkeypatch.setattr(layers, "HEADS", 4)
    monkeypatch.setattr(side_by_side, "LEAST_SECONDS", 0.0)
    seen: list[list[str]] = []
    honest = side_by_side.interleaved
    monkeypatch.setattr(
        side_by_side, "interleaved", lambda runs, *a, **k: seen.append(list(runs)) or honest(runs, *a, **k)
    )
    names = ("random", "fixed_random", "vanilla")
    found = dict(
        side_by_side.measure(
            CasePlan(Case("layer", 2, 16), tuple(Contender(n, {}, with_products=True) for n in names)), 2
        )
    )
    (together,) = seen
    assert together == [*names, "matrix products alone, random", "matrix products alone, vanilla"]
    shares = [measured(each).gemm_share for each in found.values()]
    assert all(share is not None and share > 0 for share in shares)


def test_what_is_done_is_not_done_again_but_runs_beside():
    left = entries("a", "v", "b", rivals="v").without([("a", CASE), ("v", CASE), ("b", Case("layer", 2, 9))])
    assert [entry.name for entry in left.contenders] == ["b"]
    assert left.contenders[0].rivals == {"v": "v"}


def test_batches_stay_within_the_budget_with_their_rivals(monkeypatch):
    home = Home(monkeypatch, a=1, b=1, c=1, d=1, v=1)
    home.size = {"a": 2, "b": 3, "c": 90, "d": 4, "v": 5}
    everyone = entries("a", "b", "v", "c", "d", rivals="v")

    def names(budget: int) -> list[str]:
        batches = everyone.batches(budget)
        assert [entry for batch in batches for entry in batch.contenders] == list(everyone.contenders)
        return ["".join(entry.name for entry in batch.contenders) for batch in batches]

    assert names(104) == ["abvcd"]
    assert names(103) == ["abvc", "d"]
    assert names(10) == ["abv", "c", "d"], "a rival counts once; a contender that is too large has a batch of its own"
    assert names(9) == ["a", "bv", "c", "d"]
    assert CasePlan(CASE, ()).batches() == []


@pytest.mark.parametrize(("mode", "copies"), [("eval", 1), ("train", 2)])
def test_room_for_a_layer(monkeypatch, mode, copies):
    monkeypatch.setattr(layers, "D_MODEL", 32)
    monkeypatch.setattr(layers, "HEADS", 4)
    case = Case("layer", 3, 11, mode)
    projections, table = 2 * (32 * 32 + 32), 4 * 11 * 11
    tokens = 3 * 11 * 32 * (3 if mode == "train" else 1)
    assert memory_budget.held_bytes("random", case) == 4 * (copies * (projections + table) + table + tokens)
    assert memory_budget.held_bytes("fixed_random", case) == 4 * (copies * projections + 2 * table + tokens)
    assert memory_budget.held_bytes("vanilla", case) == 4 * (copies * 2 * projections + tokens)
    assert memory_budget.held_bytes("nn.MultiheadAttention", case) == memory_budget.held_bytes("vanilla", case)


def test_who_writes_large_logits_down_runs_with_few_others():
    names = ["dense", "relative+vanilla", "factorized_random", "Hugging Face T5", "linformer"]

    def together(batch: int, length: int) -> list[list[str]]:
        entries = tuple(Contender(name, {"vanilla": "vanilla"}) for name in names)
        batches = CasePlan(Case("layer", batch, length, "train"), entries).batches()
        return [[entry.name for entry in batch.contenders] for batch in batches]

    assert together(4, 2048) == [names]
    assert together(1, 8192) == [["dense", "relative+vanilla", "factorized_random"], ["Hugging Face T5"], ["linformer"]]


def test_room_for_a_training_step_counts_what_the_optimizer_keeps():
    case = Case("train", 2, 16, "train")
    with torch.device("meta"):
        weights = sum(p.numel() for p in models.make("vanilla", 16).parameters())
    assert memory_budget.held_bytes("vanilla", case) == 4 * (3 * weights + 3 * 2 * 16 * 512)


def test_long_tables_are_not_held_at_once():
    names = ["vanilla", "random", "fixed_random", "random+vanilla", "dense"]
    everyone = CasePlan(
        Case("layer", 1, 8192, "train"), tuple(Contender(name, {"vanilla": "vanilla"}) for name in names)
    )
    batches = everyone.batches()
    for batch, other in itertools.pairwise(batches):
        assert not {e.name for e in batch.contenders} & {e.name for e in other.contenders}
    for batch in batches:
        tables = sum("random" in entry.name for entry in batch.contenders)
        assert tables <= 1
    short = CasePlan(Case("layer", 16, 512, "train"), everyone.contenders)
    assert short.batches() == [short]
