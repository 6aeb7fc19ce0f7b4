"""Time the self-attentions of a model beside ``random`` in their place."""

import copy
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from synthattn.bench.timing import Times, interleaved, quartiles
from synthattn.convert.probe import ProbeBatch, outputs
from synthattn.convert.replace import attention_layers, replace_attention

ROUNDS = 7


@dataclass(frozen=True)
class ShareSaved:
    """Part of the time of a forward pass that ``random`` in a layer saves; below 0, it costs time.

    Attributes:
        median: the median of the rounds.
        low: their lower quartile.
        high: their upper quartile.
    """

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class TimesSaved:
    """Times of a forward pass of a model, and the time that ``random`` saves.

    Attributes:
        seconds: the median time of the original.
        faster: times as fast with ``random`` in all layers, the median of the rounds.
        layers: the part of the time that each layer saves.
        batch: the number of texts.
        length: the number of tokens of the longest.
        rounds: the number of rounds.
        threads: the number of threads of torch.
    """

    seconds: float
    faster: float
    layers: list[ShareSaved]
    batch: int
    length: int
    rounds: int
    threads: int


def time_saved(model: nn.Module, batches: Sequence[ProbeBatch], max_length: int, rounds: int = ROUNDS) -> TimesSaved:
    """Time each self-attention of a model, and ``random`` in its place, in turns.

    The time of a layer is too small a part of a forward pass to be seen in it. Each attention, with its projections, is
    therefore called alone, with what the model hands it, and compared with the time of the forward pass in the same
    round. The model as a whole is timed with ``random`` in all layers.

    Args:
        model: a model of transformers; it is unchanged.
        batches: texts, of which the batch with the median number of tokens is used.
        max_length: the length of the tables.
        rounds: the number of rounds.
    """
    batch = sorted(batches, key=lambda one: one.inputs["input_ids"].numel())[len(batches) // 2]
    training = model.training
    model.eval()
    try:
        changed = copy.deepcopy(model)
        names = attention_layers(model)
        with torch.random.fork_rng(devices=[]):
            replace_attention(changed, "random", max_length, layers=range(len(names)))
        runs: dict[str, Callable[[], object]] = {}
        calls: list[int] = []
        for kind, one in (("original", model), ("random", changed)):
            runs[kind] = _without_gradients(lambda one=one: outputs(one, batch))
            calls = []
            for name, (count, run) in zip(names, _layer_calls(one, names, batch), strict=True):
                runs[f"{kind} {name}"] = run
                calls.append(count)
        times = interleaved(runs, rounds)
    finally:
        model.train(training)
    shares = [_share(times, name, count) for name, count in zip(names, calls, strict=True)]
    size, length = batch.inputs["input_ids"].shape
    whole = times.median("original"), times.faster("random", "original")
    return TimesSaved(*whole, shares, size, length, rounds, torch.get_num_threads())


def _share(times: Times, name: str, calls: int) -> ShareSaved:
    rounds = zip(*(times.seconds[key] for key in ("original", f"original {name}", f"random {name}")), strict=True)
    found = [calls * (own - table) / whole for whole, own, table in rounds]
    low, high = quartiles(found)
    return ShareSaved(statistics.median(found), low, high)


def _layer_calls(model: nn.Module, names: Sequence[str], batch: ProbeBatch) -> list[tuple[int, Callable[[], object]]]:
    """Return how often a forward pass calls each layer, and a function that calls it with the same arguments."""
    given: dict[str, tuple[Any, dict[str, Any]]] = {}
    counts = dict.fromkeys(names, 0)

    def keep(name: str, args: Any, options: dict[str, Any]) -> None:
        # A cache would grow from call to call.
        given[name] = args, {key: None if key.startswith("past_key_value") else one for key, one in options.items()}
        counts[name] += 1

    hooks = [
        model.get_submodule(name).register_forward_pre_hook(
            lambda module, args, options, name=name: keep(name, args, options), with_kwargs=True, prepend=True
        )
        for name in names
    ]
    try:
        _without_gradients(lambda: outputs(model, batch))()
    finally:
        for hook in hooks:
            hook.remove()
    missing = [name for name in names if name not in given]
    if missing:
        raise ValueError(f"the attention {missing[0]} of the model is not called for texts; it cannot be timed")

    def run(name: str) -> Callable[[], object]:
        module: Any = model.get_submodule(name)
        args, options = given[name]
        return _without_gradients(lambda: module(*args, **options))

    return [(counts[name], run(name)) for name in names]


def _without_gradients(run: Callable[[], object]) -> Callable[[], object]:
    def quiet() -> object:
        with torch.no_grad():
            return run()

    return quiet
