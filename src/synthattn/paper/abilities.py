"""The study of abilities: what attention without a dot product cannot do, on tasks that are generated as needed."""

import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from synthattn.compare.plan import PlannedRun, Study, StudyPart, StudyRow
from synthattn.messages import suggestion
from synthattn.models.configuration import SynthesizerConfig
from synthattn.models.describe import describe
from synthattn.paper.runs import Folders
from synthattn.paper.study import Cells, Displays
from synthattn.saved_file import read_dataclass
from synthattn.training.model import build
from synthattn.training.record import versions
from synthattn.training.settings import Settings

Tokens = NDArray[np.int64]
Examples = tuple[Tokens, Tokens]
"""Inputs and targets, ``(examples, length)``; the target is ``NONE`` where no answer is asked for."""

NONE, STOP, BLANK, FIRST = -100, 1, 2, 4
"""No answer; the token that ends a question; a token without meaning; the first of the symbols."""
VOCABULARY, VALUES = 32, 8
"""All tokens, and the number of symbols of which answers are made."""


def recall(draw: np.random.Generator, count: int) -> Examples:
    """Five pairs of a key and a value, then the keys in another order: answer with their values."""
    keys = _different(draw, count, 8, 5) + FIRST + VALUES
    values = draw.integers(VALUES, size=keys.shape) + FIRST
    asked = _different(draw, count, 5, 5)
    pairs = np.stack([keys, values], 2).reshape(count, -1)
    again = np.stack([np.take_along_axis(keys, asked, 1), np.take_along_axis(values, asked, 1)], 2).reshape(count, -1)
    inputs = np.concatenate([pairs, _stop(count), again[:, :-1]], 1)
    targets = np.full_like(inputs, NONE)
    targets[:, 11::2] = again[:, 1::2]
    return inputs, targets


def induction(draw: np.random.Generator, count: int) -> Examples:
    """A text of 6 to 12 symbols that begins again: say what followed last time."""
    texts = draw.integers(16, size=(count, 24)) + FIRST
    period = draw.integers(6, 13, size=(count, 1))
    inputs = np.take_along_axis(texts, np.arange(24)[None] % period, 1)
    targets = np.full_like(inputs, NONE)
    targets[:, :-1] = np.where(np.arange(23)[None] >= period + 1, inputs[:, 1:], NONE)
    return inputs, targets


def selective_copy(draw: np.random.Generator, count: int) -> Examples:
    """Six symbols among fourteen blanks: repeat the symbols in their order."""
    places = np.sort(_different(draw, count, 20, 6), 1)
    symbols = draw.integers(VALUES, size=(count, 6)) + FIRST
    inputs = np.full((count, 20), BLANK, np.int64)
    np.put_along_axis(inputs, places, symbols, 1)
    return _answered(inputs, symbols)


def reversal(draw: np.random.Generator, count: int) -> Examples:
    """Ten symbols: write them from the last to the first."""
    symbols = draw.integers(VALUES, size=(count, 10)) + FIRST
    return _answered(symbols, symbols[:, ::-1])


def sorting(draw: np.random.Generator, count: int) -> Examples:
    """Ten symbols: write them in order."""
    symbols = draw.integers(16, size=(count, 10)) + FIRST
    return _answered(symbols, np.sort(symbols, 1))


def duplicates(draw: np.random.Generator, count: int) -> Examples:
    """Twenty symbols of 24: say of each in the second half if it occurred before."""
    symbols = draw.integers(24, size=(count, 20)) + FIRST
    before = np.tril(symbols[:, :, None] == symbols[:, None, :], -1).any(2)
    return symbols, _second_half(before.astype(np.int64) + FIRST)


def parity(draw: np.random.Generator, count: int) -> Examples:
    """Sixteen bits: say at each of the second half if the number of ones so far is odd."""
    bits = draw.integers(2, size=(count, 16))
    return bits + FIRST, _second_half(bits.cumsum(1) % 2 + FIRST)


def brackets(draw: np.random.Generator, count: int) -> Examples:
    """Brackets of two kinds: say at each of the second half which kind has to be closed next, if any."""
    inputs, targets = np.empty((2, count, 20), np.int64)
    for n in range(count):
        stack: list[int] = []
        for place, (opens, kind) in enumerate(zip(draw.random(20) < 0.55, draw.integers(2, size=20), strict=True)):
            if opens or not stack:
                stack.append(int(kind))
                inputs[n, place] = FIRST + kind
            else:
                inputs[n, place] = FIRST + 2 + stack.pop()
            targets[n, place] = FIRST + (stack[-1] if stack else 2)
    return inputs, _second_half(targets)


def _different(draw: np.random.Generator, count: int, of: int, some: int) -> Tokens:
    return draw.random((count, of)).argsort(1)[:, :some]


def _stop(count: int) -> Tokens:
    return np.full((count, 1), STOP, np.int64)


def _answered(question: Tokens, answer: Tokens) -> Examples:
    inputs = np.concatenate([question, _stop(len(question)), answer[:, :-1]], 1)
    targets = np.full_like(inputs, NONE)
    targets[:, question.shape[1] :] = answer
    return inputs, targets


def _second_half(targets: Tokens) -> Tokens:
    """Ask in the second half alone: the beginning is easy for everybody."""
    targets[:, : targets.shape[1] // 2] = NONE
    return targets


ABILITIES: dict[str, Callable[[np.random.Generator, int], Examples]] = {
    made.__name__.replace("_", " "): made
    for made in (recall, induction, selective_copy, reversal, sorting, duplicates, parity, brackets)
}
ATTENTION = ("vanilla", "random", "factorized_random", "dense", "random+dense", "random+vanilla", "dense+vanilla")


@dataclass
class AbilityPlan:
    """All options of the study; the record of another plan is not continued.

    Args:
        attention: the variants.
        abilities: names in ``ABILITIES``.
        seeds: runs of each cell.
        steps: of each run.
        batch: examples of a step.
        rates: learning rates to choose from, for each cell by the validation loss of a run of a quarter of the steps.
        test: examples that are scored.
        d_model: width of the models.
        layers: number of layers.
        heads: of each layer.
        d_ff: width of the feed-forward layers of the largest model; the others' are wider, to match its parameters.
    """

    attention: list[str] = field(default_factory=lambda: list(ATTENTION))
    abilities: list[str] = field(default_factory=lambda: list(ABILITIES))
    seeds: int = 3
    steps: int = 2000
    batch: int = 32
    rates: list[float] = field(default_factory=lambda: [1e-3, 3e-3])
    test: int = 500
    d_model: int = 64
    layers: int = 2
    heads: int = 4
    d_ff: int = 128

    def __post_init__(self) -> None:
        for name in self.abilities:
            if name not in ABILITIES:
                raise ValueError(f"there is no ability {name!r}{suggestion(name, ABILITIES)}")
        for name in ("seeds", "steps", "batch", "test"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not self.attention or not self.abilities or not self.rates:
            raise ValueError("the study needs at least one attention, one ability and one learning rate")

    @property
    def cells(self) -> Iterator[tuple[str, str, int]]:
        """Yield ability, attention and seed of all runs: every cell once, then further seeds."""
        for seed, ability, attention in itertools.product(range(self.seeds), self.abilities, self.attention):
            yield ability, attention, seed


@dataclass
class AbilityRun:
    """One run of a cell.

    Args:
        accuracy: percent of the answers that are right, after 50, 75 and 100 % of the steps.
        loss: validation loss at the same times.
        rates: for the first seed, the validation loss of each learning rate that was tried.
    """

    ability: str
    attention: str
    seed: int
    rate: float
    accuracy: list[float]
    loss: list[float]
    parameters: int
    d_ff: int
    seconds: float
    rates: dict[str, float] = field(default_factory=dict)


@dataclass
class AbilityRecord:
    """All runs of the study so far, and the best constant answer of each ability."""

    plan: AbilityPlan
    runs: list[AbilityRun] = field(default_factory=list)
    floors: dict[str, float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    version: int = 1

    def run(self, ability: str, attention: str, seed: int) -> AbilityRun | None:
        cell = ability, attention, seed
        return next((one for one in self.runs if (one.ability, one.attention, one.seed) == cell), None)

    @property
    def complete(self) -> bool:
        return all(self.run(*cell) is not None for cell in self.plan.cells)


class AbilityCells(Cells):
    """Trains a small model for each cell; the first seed chooses the learning rate for all."""

    def ready(self, run: PlannedRun) -> bool:
        return run.seed == 0 or self.done(replace(run, seed=0))

    def run(self, run: PlannedRun) -> None:
        chosen = None
        if run.seed:
            first = self.cell(replace(run, seed=0))
            if not first.is_file():
                raise ValueError(f"{run.part.name} of {run.row.name} has no first seed to take the learning rate from")
            chosen = read_dataclass(AbilityRun, first, "is no run of abilities; delete it").rate
        self.keep(run, _run(self.plan, run.part.name, run.row.name, run.seed, chosen))


def open_cells(plan: AbilityPlan, folders: Folders, display: Displays) -> AbilityCells:
    rows = tuple(StudyRow(name, name, seeds=plan.seeds) for name in plan.attention)
    study = Study("abilities", "", tuple(StudyPart(ability, ability, Settings(), rows) for ability in plan.abilities))
    return AbilityCells(study, folders, display, lambda run: "", "", plan=plan)


def collect(cells: AbilityCells) -> AbilityRecord:
    """Return the record of the runs that are done."""
    plan: AbilityPlan = cells.plan
    floors = {ability: _floor(_test(ability, plan)) for ability in plan.abilities}
    return AbilityRecord(plan, list(cells.cells(AbilityRun)), floors, versions())


def sizes(plan: AbilityPlan, ability: str) -> dict[str, tuple[int, int]]:
    """Return for each attention the width of the feed-forward layers and the number of parameters that follows."""
    length = ABILITIES[ability](np.random.default_rng(0), 1)[0].shape[1]

    def parameters(attention: str, d_ff: int) -> int:
        return describe(_configuration(plan, attention, length, d_ff), "causal-lm")["parameters"]["total"]

    least = {one: parameters(one, plan.d_ff) for one in plan.attention}
    largest, found = max(least.values()), {}
    for one, size in least.items():
        slope = parameters(one, plan.d_ff + 1) - size
        d_ff = plan.d_ff + round((largest - size) / slope)
        found[one] = d_ff, parameters(one, d_ff)
    return found


def _configuration(plan: AbilityPlan, attention: str, length: int, d_ff: int) -> SynthesizerConfig:
    return SynthesizerConfig(
        vocab_size=VOCABULARY, d_model=plan.d_model, num_heads=plan.heads, d_ff=d_ff, decoder_layers=plan.layers,
        decoder_attention=attention, max_position_embeddings=length, positions="learned", dropout=0.0,
        attention_dropout=0.0, activation_dropout=0.0,
    )  # fmt: skip


def _run(plan: AbilityPlan, ability: str, attention: str, seed: int, rate: float | None) -> AbilityRun:
    """Make a run; without a learning rate, choose one first."""
    started = time.monotonic()
    d_ff, size = sizes(plan, ability)[attention]
    tried: dict[float, float] = {}
    if rate is None:
        quarter = max(1, plan.steps // 4)
        tried = {rate: _train(plan, ability, attention, d_ff, seed, rate, quarter)[1][-1] for rate in plan.rates}
        rate = min(tried, key=lambda one: tried[one])
    accuracy, loss = _train(plan, ability, attention, d_ff, seed, rate, plan.steps)
    shown = {f"{one:g}": round(value, 5) for one, value in tried.items()}
    seconds = round(time.monotonic() - started, 1)
    return AbilityRun(ability, attention, seed, rate, accuracy, loss, size, d_ff, seconds, shown)


def _test(ability: str, plan: AbilityPlan) -> Examples:
    """Return the scored examples, which are the same for all models, and which no model learns from."""
    return ABILITIES[ability](np.random.default_rng([7, list(ABILITIES).index(ability)]), plan.test)


def _floor(test: Examples) -> float:
    """Return what the best constant answer scores, in percent."""
    answers = test[1][test[1] != NONE]
    return round(100 * float(np.bincount(answers).max() / len(answers)), 2)


def _train(
    plan: AbilityPlan, ability: str, attention: str, d_ff: int, seed: int, rate: float, steps: int
) -> tuple[list[float], list[float]]:
    """Train one model; return accuracy in percent and loss after 50, 75 and 100 % of the steps."""
    draw = np.random.default_rng([seed, 11, list(ABILITIES).index(ability)])
    test = tuple(map(torch.from_numpy, _test(ability, plan)))
    model: Any = build(_configuration(plan, attention, test[0].shape[1], d_ff), "causal-lm", seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.98), weight_decay=0.01)
    warmup = max(1, steps // 10)
    looks = [max(1, math.ceil(steps * share)) for share in (0.5, 0.75, 1)]
    accuracy, losses = [], []
    for step in range(1, steps + 1):
        optimizer.param_groups[0]["lr"] = rate * min(step / warmup, (steps - step + 1) / max(1, steps - warmup))
        inputs, targets = map(torch.from_numpy, ABILITIES[ability](draw, plan.batch))
        model.train()
        loss = _loss(model, inputs, targets)[0]
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step in looks:
            model.eval()
            with torch.no_grad():
                value, logits = _loss(model, *test)
            asked = test[1] != NONE
            right = (logits.argmax(-1) == test[1])[asked].float().mean()
            for _ in range(looks.count(step)):
                accuracy.append(round(100 * float(right), 3))
                losses.append(round(float(value), 5))
    return accuracy, losses


def _loss(model: Any, inputs: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    logits = model(input_ids=inputs, use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=NONE), logits
