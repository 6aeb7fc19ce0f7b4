"""What a variant costs: memory to the byte, and who runs when. No time is tested."""

import gc
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from helpers import chunks_for_all
from helpers import make as make_layer
from model_helpers import KINDS, MAX_LENGTH, config, ids, labels_for
from synthattn.bench.two_models import LiveMemory, heaviest, measure, training_memory
from synthattn.compare.results import Speed
from synthattn.models import SynthesizerForCausalLM, SynthesizerForMaskedLM

every_kind = pytest.mark.parametrize("kind", KINDS)
FLOAT = 4


def builder(kind: str, attention: str = "vanilla", **changes: Any) -> Callable[[], nn.Module]:
    return lambda: KINDS[kind](config(attention, **changes))


def make_batch(kind: str, rows: int = 5, length: int = 17) -> dict[str, Tensor]:
    """The last row has three tokens less, and three of padding on the right."""
    x = ids(rows, length)
    mask = torch.ones_like(x)
    mask[-1, -3:] = 0
    labels = labels_for(kind, x).clone()
    if kind != "classifier":
        labels[-1, -3:] = -100
    return {"input_ids": x * mask, "attention_mask": mask, "labels": labels}


def parameter_bytes(build: Callable[[], nn.Module]) -> int:
    return sum(parameter.numel() * FLOAT for parameter in build().parameters())


def test_memory_is_counted_until_nobody_holds_it():
    memory = LiveMemory()
    with memory:
        x = torch.zeros(1000, requires_grad=True)
        middle = x * 2  # exp keeps its result, not this
        y = middle.exp()
        del middle
        assert memory.now == 2000 * FLOAT
        z = y.sin()
        half = z[:500]
        del y, z  # sin keeps its input, and half the whole of z
        assert (memory.now, memory.peak) == (3000 * FLOAT, 3000 * FLOAT)
        half.sum().backward()
        del half
    assert x.grad is not None
    assert memory.now == 2000 * FLOAT
    del x
    assert memory.now == 0


def test_memory_follows_a_tensor_that_grows():
    memory = LiveMemory()
    with memory:
        out = torch.empty(0)
        torch.add(torch.zeros(7), 1, out=out)
    assert memory.now == 7 * FLOAT


def test_the_backward_pass_of_our_own_functions_is_seen():
    layer = make_layer("random+vanilla", dtype=torch.float32)
    x = torch.randn(2, 11, layer.d_model)
    memory = LiveMemory()
    for tensor in (x, *layer.parameters()):
        memory.add(tensor)
    before = memory.now
    with chunks_for_all(), memory:
        y = layer(x).sum()
        y.backward()
        del y
    gradients = sum(parameter.numel() * FLOAT for parameter in layer.parameters())
    # The gradients are left; what was computed on the way is gone, but was there.
    assert memory.now == before + gradients
    assert memory.peak > memory.now + 2 * 11 * 11 * FLOAT


@every_kind
def test_memory_is_the_same_every_time_and_holds_all_that_adam_needs(kind: str):
    build, batch = builder(kind, "random+vanilla", dropout=0.1), make_batch(kind)
    first = training_memory(build, batch)
    torch.rand(7)
    assert training_memory(build, batch) == first
    given = sum(tensor.numel() * tensor.element_size() for tensor in batch.values())
    assert first >= 4 * parameter_bytes(build) + given


@every_kind
def test_more_layers_and_more_examples_need_more_memory(kind: str):
    batch = make_batch(kind)
    small, large = builder(kind), builder(kind, encoder_layers=4, decoder_layers=4)
    more = training_memory(large, batch) - training_memory(small, batch)
    assert more > 4 * (parameter_bytes(large) - parameter_bytes(small))
    assert training_memory(small, make_batch(kind, rows=7)) > training_memory(small, batch)


def test_a_batch_free_variant_is_without_the_logits_of_every_example():
    rows, length, layers, heads = 11, 97, 2, 3
    sizes = {"max_position_embeddings": length, "encoder_layers": layers}
    vanilla = builder("masked-lm", "vanilla", attn_implementation="eager", **sizes)
    random = builder("masked-lm", "random", **sizes)
    batch = make_batch("masked-lm", rows, length)
    saved = training_memory(vanilla, batch) - training_memory(random, batch)
    # Vanilla keeps the weights of every layer for its backward pass; random has its matrix, four times.
    matrix = layers * heads * length**2 * FLOAT
    assert saved > rows * matrix - 4 * matrix


def test_frozen_parameters_have_neither_gradient_nor_moments():
    def frozen() -> nn.Module:
        model: Any = builder("masked-lm")()
        model.requires_grad_(False)
        model.model.encoder.norm.requires_grad_(True)
        return model

    batch = make_batch("masked-lm")
    assert training_memory(frozen, batch) < training_memory(builder("masked-lm"), batch) - 2 * parameter_bytes(frozen)


@every_kind
def test_every_kind_of_model_is_measured(kind: str):
    build, batches = builder(kind, "random"), [make_batch(kind), make_batch(kind, length=19)]
    found = measure(build, build, batches, rounds=5, new_tokens=3)
    writes = kind in ("seq2seq", "causal-lm")
    assert set(found.speeds) == {"training_speed", "inference_speed", *(["generation_speed"] if writes else [])}
    for speed in found.speeds.values():
        assert 0.05 < speed.value < 20  # of itself, on a machine that does other things as well
        assert speed.low <= speed.value <= speed.high
    assert found.training_memory == training_memory(build, batches[1])


def test_one_round_is_enough():
    build = builder("classifier")
    found = measure(build, build, [make_batch("classifier")], rounds=1)
    value = found.speeds["training_speed"].value
    assert found.speeds["training_speed"] == Speed(value, value, value, 1)


@pytest.mark.parametrize("collecting", [True, False])
def test_nothing_is_left_behind(collecting: bool):
    threads, state, enabled = torch.get_num_threads(), torch.get_rng_state(), gc.isenabled()
    build = builder("causal-lm", "random", dropout=0.1)
    try:
        gc.enable() if collecting else gc.disable()
        with torch.no_grad():
            measure(build, build, [make_batch("causal-lm")], rounds=1, new_tokens=2)
            assert not torch.is_grad_enabled()
        assert gc.isenabled() == collecting
    finally:
        gc.enable() if enabled else gc.disable()
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads


class Watched(SynthesizerForCausalLM):
    """Notes what is asked of it, and lets a clock go on by as long as it takes."""

    def __init__(self, name: str, log: list[Any], clock: list[float] | None = None, takes: float = 0.0) -> None:
        super().__init__(config("random"))
        self.name, self.log, self.takes = name, log, takes
        self.clock = [0.0] if clock is None else clock

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        self.clock[0] += self.takes * kwargs["input_ids"].numel()
        if "past_key_values" not in kwargs:
            length = kwargs["input_ids"].shape[1]
            self.log.append(("train" if self.training else "score", self.name, length, torch.is_grad_enabled()))
        return super().forward(*args, **kwargs)

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        self.log.append(("write", self.name, kwargs))
        return super().generate(*args, **kwargs)


def watch(batches: list[dict[str, Tensor]], rounds: int, new_tokens: int) -> list[Any]:
    log: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Speed, "uncertain", False)
        measure(lambda: Watched("ours", log), lambda: Watched("theirs", log), batches, rounds, new_tokens)
    return log


def test_both_take_turns_on_the_same_batches():
    batches = [make_batch("causal-lm", length=n) for n in (7, 13)]
    log = watch(batches, rounds=3, new_tokens=2)
    warm = [("ours", 13), ("theirs", 13)]
    turns = [("ours", 7), ("theirs", 7), ("theirs", 13), ("ours", 13), ("ours", 7), ("theirs", 7)]
    trained = [entry for entry in log if entry[0] == "train"]
    assert [entry[1:3] for entry in trained] == [*warm, *turns, ("ours", 13), ("ours", 13)]  # at last, memory
    assert all(entry[3] for entry in trained)
    scored = [entry for entry in log if entry[0] == "score"]
    assert [entry[1:3] for entry in scored] == [*warm, *turns]
    assert not any(entry[3] for entry in scored)
    assert [entry[1] for entry in log if entry[0] == "write"] == ["ours", "theirs", "ours", "theirs", "theirs", "ours"]


def test_speed_is_how_much_longer_the_baseline_takes(monkeypatch: pytest.MonkeyPatch):
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    ours, theirs = (lambda takes=takes: Watched("", [], clock, takes) for takes in (2.0, 6.0))
    found = measure(ours, theirs, [make_batch("causal-lm", length=n) for n in (7, 13, 11)], new_tokens=2)
    assert [(one.value, one.low, one.high) for one in found.speeds.values()] == [(pytest.approx(3.0),) * 3] * 3
    assert [one.rounds for one in found.speeds.values()] == [7, 7, 4]


@pytest.mark.parametrize(
    ("takes", "speed"),
    [
        ([10, 50, 54, 10, 10, 52, 48, 10], Speed(5.1, 4.95, 5.25, 4)),
        # Ratios of 5, 2, 7 and 1 differ too much, and four more are measured: 5 each.
        ([1, 5, 2, 1, 1, 7, 1, 1, *[1, 5, 5, 1] * 2], Speed(5.0, 4.25, 5.0, 8)),
        # Never certain.
        ([1, 5, 2, 1, 1, 7, 1, 1] * 3, Speed(3.5, 1.75, 5.5, 12)),
    ],
)
def test_a_speed_is_the_median_of_its_rounds_and_measured_again_where_they_differ(
    monkeypatch: pytest.MonkeyPatch, takes: list[float], speed: Speed
):
    # Two to warm up; then ours and theirs, theirs and ours, and so on.
    clock, left = [0.0], iter([9, 9, *takes])
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])

    class Slow(Watched):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            clock[0] += next(left, 1.0)
            return super().forward(*args, **kwargs)

    found = measure(lambda: Slow("", []), lambda: Slow("", []), [make_batch("causal-lm")], rounds=4, new_tokens=2)
    training = found.speeds["training_speed"]
    assert (training.value, training.low, training.high) == pytest.approx((speed.value, speed.low, speed.high))
    assert training.rounds == speed.rounds
    assert found.speeds["inference_speed"].value == 1.0


@pytest.mark.parametrize(("length", "new_tokens"), [(17, 3), (MAX_LENGTH, 9), (MAX_LENGTH, 100), (1, 100)])
@pytest.mark.parametrize("side", ["left", "right"])
def test_prompts_are_first_halves_without_padding_and_leave_room(length: int, new_tokens: int, side: str):
    x = ids(4, length)
    mask = torch.ones_like(x)
    if length > 1:  # the third row is shorter than half of the others
        mask[1, -3:], mask[2, 3:] = 0, 0
    expected = x[[0, 1, 3] if length > 1 else [0, 1, 2, 3], : max(1, length // 2)]
    if side == "left":
        lengths = mask.sum(-1).tolist()
        x = torch.stack([row.roll(length - kept) for row, kept in zip(x, lengths, strict=True)])
        mask = mask.flip(-1)
    batch = {"input_ids": x * mask, "attention_mask": mask, "labels": x}
    asked = [entry[2] for entry in watch([batch], 1, new_tokens) if entry[0] == "write"]
    assert asked
    for request in asked:
        prompt = request["input_ids"]
        assert bool((request["attention_mask"] == 1).all())
        torch.testing.assert_close(prompt, expected[:, : prompt.shape[1]])
        assert request["max_new_tokens"] == request["min_new_tokens"] == min(new_tokens, MAX_LENGTH // 2)
        assert prompt.shape[1] == min(max(1, length // 2), MAX_LENGTH - request["max_new_tokens"])


def test_an_encoder_decoder_writes_no_more_than_it_has_positions():
    build = builder("seq2seq", "random")
    found = measure(build, build, [make_batch("seq2seq", rows=2)], rounds=1, new_tokens=MAX_LENGTH + 7)
    assert "generation_speed" in found.speeds


def test_the_heaviest_batch_has_the_most_pairs_of_tokens():
    batches = [make_batch("masked-lm", rows, length) for rows, length in ((19, 5), (7, 13), (3, 17))]
    assert heaviest(batches) is batches[1]
    written = [{"input_ids": ids(2, 11), "labels": ids(2, n)} for n in (3, 7, 5)]
    assert heaviest(written) is written[1]


def test_what_cannot_be_measured_is_said():
    build = builder("masked-lm")
    with pytest.raises(ValueError, match=r"at least one round and one batch, got 0 and 1"):
        measure(build, build, [make_batch("masked-lm")], rounds=0)
    with pytest.raises(ValueError, match=r"at least one round and one batch, got 7 and 0"):
        measure(build, build, [])


def test_a_fresh_model_is_asked_for_each_time():
    made: list[nn.Module] = []

    def build() -> nn.Module:
        made.append(SynthesizerForMaskedLM(config("random")))
        return made[-1]

    measure(build, builder("masked-lm"), [make_batch("masked-lm")], rounds=1)
    assert len(made) == 2  # for speed, and for memory
