"""Convert a trained model: choose layers, start tables from the mean attention, tune, and compare with controls."""

import copy
import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from synthattn.convert.probe import (
    DRAWS,
    Effect,
    EffectSums,
    ProbeBatch,
    check_vocabulary,
    effects,
    kind_of,
    longest_input,
    make_batches,
    mean_by_distance,
    mean_logits,
    own_attention,
    predicted,
    usual_length,
)
from synthattn.convert.replace import attention_layers, replace_attention
from synthattn.convert.saved_work import fingerprint, saved_work
from synthattn.convert.tuning import Tuning, tune

Tables = Literal["random", "toeplitz"]

LEAST = 8
"""The smallest number of texts: half for tables and tuning, a quarter for the choice, a quarter for the evaluation."""


@dataclass(frozen=True)
class MeasuredModel:
    """A model on the texts that were held out.

    Attributes:
        name: the model in words: ``converted``, or the name of a control.
        tuned: True if it was tuned.
        parameters: the number of its parameters.
        effect: its predictions beside those of the original.
    """

    name: str
    tuned: bool
    parameters: int
    effect: Effect


@dataclass(frozen=True)
class Conversion:
    """A converted model and its evaluation.

    Attributes:
        model: the converted model; the original is unchanged.
        names: the names of all layers that could be replaced.
        layers: the numbers of those that were.
        attention: the spec of their attention.
        budget_kl: the largest divergence that was allowed in the choice of layers.
        tuning: how the models were tuned.
        choice: the effects of the layers with the lowest divergence, one more each time, on the texts for the choice;
            empty unless layers were chosen automatically.
        texts: the number of texts for tables and tuning, for the choice, and for the evaluation.
        predictions: the number of predictions that were compared.
        outcomes: the original, the converted model and the controls.
    """

    model: Any
    names: list[str]
    layers: tuple[int, ...]
    attention: str
    budget_kl: float
    tuning: Tuning
    choice: list[Effect]
    texts: tuple[int, int, int]
    predictions: int
    outcomes: list[MeasuredModel]

    def named(self, name: str) -> list[MeasuredModel]:
        """Return the outcomes of a name, tuned ones only if there was tuning."""
        return [one for one in self.outcomes if one.name == name and (one.tuned or not self.tuning.steps)]

    def record(self) -> dict[str, Any]:
        """Return everything but the model, for JSON."""
        return {name: _plain(value) for name, value in vars(self).items() if name != "model"}

    def sentence(self) -> str:
        """Say what was lost, beside the controls."""
        found, first, drawn = self.named("converted")[0], self.named("first layers"), self.named("random layers")
        how = f"after {self.tuning.steps:,} steps of tuning" if self.tuning.steps else "without tuning"
        text = (
            f"{len(self.layers)} of {len(self.names)} layers read no token {how}: "
            f"{found.effect.agreement:.1%} of {self.predictions:,} predictions stay, KL {found.effect.kl:.4f}"
        )
        original = self.outcomes[0].effect.accuracy
        if original is not None and found.effect.accuracy is not None:
            text += f", accuracy {found.effect.accuracy:.1%} (original {original:.1%})"
        if not drawn:
            return f"{text}; every layer was replaced, so there is no other choice to compare with."
        kls = [one.effect.kl for one in drawn]
        text += f". The first layers: KL {first[0].effect.kl:.4f}; layers at random: {min(kls):.4f} to {max(kls):.4f}"
        if self.layers == first[0].effect.layers:
            return f"{text}. The chosen layers are the first ones."
        better = found.effect.kl < min(first[0].effect.kl, *kls)
        return f"{text}; the choice {'is the best of these' if better else 'is not better than all of these'}."


Show = Callable[[str, int, int, float], None]
"""Called while models are tuned: the name of the model, the step, the number of steps, the loss."""


def convert(
    model: nn.Module,
    tokenizer: Any,
    texts: Sequence[str],
    labels: Sequence[int] | None = None,
    *,
    attention: Tables = "random",
    layers: str | Sequence[int] = "auto",
    budget_kl: float = 0.02,
    max_length: int | None = None,
    batch: int = 16,
    tuning: Tuning | None = None,
    folder: str | Path | None = None,
    show: Show = lambda name, step, steps, loss: None,
    note: Callable[[str], None] = lambda text: None,
) -> Conversion:
    """Return a copy of a model in which some layers attend by tables, evaluated beside controls.

    Half of the texts give the tables and train, a quarter decides which layers are chosen, and a quarter is held out
    for the evaluation. The controls are the original with the same tuning, as many of the first layers, and as many
    layers at random in three draws.

    Args:
        model: a masked or causal language model or a classifier of transformers.
        tokenizer: its tokenizer.
        texts: the texts.
        labels: for a classifier, the number of the right label of each text.
        attention: ``random``, a table for each pair of positions, or ``toeplitz``, one for each distance.
        layers: ``auto``, the most layers within the budget, lowest divergence first; ``first:6``; or numbers, as a list
            or as ``"0,1,2"``.
        budget_kl: the largest divergence from the original, in nats for each prediction, before tuning; for ``auto``.
        max_length: the longest text, in tokens; longer ones are cut, and the converted model refuses them. Unless
            given, 128, or fewer if the model has fewer positions.
        batch: the number of texts in a batch.
        tuning: options of the tuning; nothing is trained unless given.
        folder: where to keep what is done, until it is removed. A call that was stopped goes on there if it is made
            again, with equal results.
        show: called while models are tuned.
        note: called with the name of each stage.
    """
    kind, settings = kind_of(model), tuning or Tuning()
    names = attention_layers(model)
    if not names:
        replace_attention(model, "vanilla")  # says why there are none
    max_length = usual_length(model) if max_length is None else max_length
    _check(model, kind, texts, labels, attention, budget_kl, max_length, batch, settings)
    given = parse_layers(layers, len(names))
    order = random.Random(settings.seed).sample(range(len(texts)), len(texts))
    ends = (0, len(texts) // 2, len(texts) - len(texts) // 4, len(texts))
    parts = [order[start:end] for start, end in itertools.pairwise(ends)]

    def batches(part: list[int], seed: int = 0) -> list[ProbeBatch]:
        chosen = None if labels is None or kind != "class" else [labels[n] for n in part]
        made = make_batches([texts[n] for n in part], chosen, tokenizer, kind, max_length, batch, seed)
        check_vocabulary(made, model)
        return made

    def turns(turn: int) -> list[ProbeBatch]:
        seed = settings.seed * 1_000_003 + turn + 1
        return batches(random.Random(seed).sample(parts[0], len(parts[0])), seed)

    # Batches of texts of about the same length have little padding.
    by_length = [sorted(part, key=lambda n: len(texts[n])) for part in parts]
    started = {"attention": attention, "layers": layers, "budget_kl": budget_kl, "max_length": max_length}
    started |= {"batch": batch, **asdict(settings), "torch": torch.__version__}
    started |= {} if folder is None else fingerprint(model, texts, labels)
    training = model.training
    with saved_work(None if folder is None else Path(folder), started) as work:
        try:
            model.eval()
            choosing, held_out = batches(by_length[1]), batches(by_length[2])
            with own_attention(model) as modules:

                def mean_tables() -> list[Tensor]:
                    note(f"mean attention of {len(modules)} layers")
                    return mean_logits(model, modules, batches(by_length[0]), max_length)

                def choose() -> list[dict[str, Any]]:
                    note("effects of layers, alone and together")
                    return [vars(one) for one in _in_budget(model, modules, tables, choosing, budget_kl)]

                tables: list[Tensor] = work.once("tables", mean_tables)
                choice = [Effect(**one) for one in (work.once("choice", choose) if given is None else [])]
            within = [one.layers for one in choice if one.kl <= budget_kl]
            chosen = max(within, key=len) if given is None else given

            def build(name: str, replaced: tuple[int, ...], tuned: bool) -> Any:
                changed = _converted(model, attention, tables, replaced, max_length)
                if tuned:
                    # The original is tuned where layers are replaced in the converted model.
                    around = [names[n] for n in replaced or chosen]
                    each = lambda step, loss: show(name, step, settings.steps, loss)  # noqa: E731
                    tune(changed, model, around, turns, settings, each, work, _file("tuning", replaced))
                return changed

            def measure(name: str, replaced: tuple[int, ...], tuned: bool, changed: Any = None) -> MeasuredModel:
                def make() -> tuple[int, dict[str, Any]]:
                    one = build(name, replaced, tuned) if changed is None else changed
                    note(f"evaluating: {name}")
                    size = sum(parameter.numel() for parameter in one.parameters())
                    return size, vars(_compared(model, one, replaced, held_out))

                # A control may have the layers of another one.
                size, effect = work.once(_file("tuned" if tuned else "start", replaced), make)
                if tuned and replaced != chosen:
                    work.remove(_file("tuning", replaced))
                return MeasuredModel(name, tuned, size, Effect(**effect))

            tuned = settings.steps > 0
            outcomes = [measure("original", (), False)]
            outcomes += [measure("converted", chosen, False)] if tuned else []
            found = build("converted", chosen, tuned)
            outcomes.append(measure("converted", chosen, tuned, found))
            outcomes += [measure("original", (), True)] if tuned else []
            if len(chosen) < len(names):
                outcomes.append(measure("first layers", tuple(range(len(chosen))), tuned))
                for draw in range(DRAWS):
                    drawn = random.Random(1000 * settings.seed + draw).sample(range(len(names)), len(chosen))
                    outcomes.append(measure("random layers", tuple(sorted(drawn)), tuned))
        finally:
            model.train(training)
    spec = found.get_submodule(names[chosen[0]]).synthattn.plan.attention
    sizes = tuple(len(part) for part in parts)
    predictions = sum(int(one.counted.sum()) for one in held_out)
    return Conversion(
        found, names, chosen, spec, budget_kl, settings, choice, (sizes[0], sizes[1], sizes[2]), predictions, outcomes
    )


def _file(part: str, layers: tuple[int, ...]) -> str:
    return "-".join([part, *map(str, layers)])


def parse_layers(layers: str | Sequence[int], count: int) -> tuple[int, ...] | None:
    """Return the numbers of layers in ``auto``, ``first:6``, ``0,1,2`` or a list; None for ``auto``."""
    if isinstance(layers, str):
        text = layers.strip()
        if text == "auto":
            return None
        head, colon, number = text.partition(":")
        numbers = [number] if colon and head == "first" else text.split(",")
        if not all(one.strip().isdecimal() for one in numbers):
            raise ValueError(f"layers must be auto, first:6 or numbers such as 0,1,2; got {layers!r}")
        if colon:
            if not 1 <= int(number) <= count:
                raise ValueError(f"{text}: the model has {count} layers to replace; give first:1 to first:{count}")
            return tuple(range(int(number)))
        layers = [int(one) for one in numbers]
    wrong = [one for one in layers if isinstance(one, bool) or not isinstance(one, int) or not 0 <= one < count]
    if wrong or not layers:
        named = f"there is no layer {wrong[0]!r}" if wrong else "no layer is named"
        raise ValueError(f"{named}: the model has {count} layers to replace, 0 to {count - 1}")
    return tuple(sorted(set(layers)))


def _check(
    model: nn.Module,
    kind: str,
    texts: Sequence[str],
    labels: Sequence[int] | None,
    attention: str,
    budget_kl: float,
    max_length: int,
    batch: int,
    tuning: Tuning,
) -> None:
    if attention not in get_args(Tables):
        raise ValueError(f"attention must be one of {', '.join(get_args(Tables))}; got {attention!r}")
    if not (math.isfinite(budget_kl) and budget_kl > 0):
        raise ValueError(f"budget_kl must be a number above 0, in nats for each prediction; got {budget_kl}")
    if max_length < 2 or batch < 1:
        raise ValueError(f"max_length must be at least 2 and batch at least 1, got {max_length} and {batch}")
    limit = longest_input(model)
    if limit is not None and max_length > limit:
        raise ValueError(f"max_length is {max_length}, but the model has {limit} positions; give at most {limit}")
    if len(texts) < LEAST:
        raise ValueError(f"there are {len(texts)} texts; a conversion needs at least {LEAST}")
    if kind != "class":
        return
    if labels is None and tuning.loss == "task":
        raise ValueError("the loss of the task needs a label for each text; give labels, or choose the loss distill")
    if labels is not None and len(labels) != len(texts):
        raise ValueError(f"there are {len(texts)} texts and {len(labels)} labels; give a label for each text")
    count = int(getattr(model.config, "num_labels", 0))
    wrong = [one for one in labels or () if not 0 <= one < count]
    if wrong:
        raise ValueError(f"there is no label {wrong[0]}: the model has {count} labels, 0 to {count - 1}")


def _in_budget(
    model: nn.Module, modules: list[Any], tables: list[Tensor], choosing: list[ProbeBatch], budget: float
) -> list[Effect]:
    """Return the effects of more and more layers, lowest divergence first. Raise an error if none is in the budget."""
    single = effects(model, modules, tables, choosing, [(n,) for n in range(len(modules))])
    order = sorted(range(len(modules)), key=lambda n: single[n].kl)
    if not single[order[0]].kl <= budget:
        raise ValueError(
            f"no layer can be replaced within a KL of {budget:g}: the lowest is {single[order[0]].kl:.4f}, of layer "
            f"{order[0]}; raise budget_kl, or name layers"
        )
    more = [tuple(sorted(order[:count])) for count in range(2, len(order) + 1)]
    return [single[order[0]], *effects(model, modules, tables, choosing, more)]


def _converted(model: nn.Module, attention: Tables, tables: list[Tensor], layers: tuple[int, ...], n: int) -> Any:
    """Return a copy of a model whose layers attend by tables."""
    changed = copy.deepcopy(model)
    if not layers:
        return changed
    spec = "random" if attention == "random" else f"toeplitz(range={n - 1})"
    with torch.random.fork_rng(devices=[]):
        names = replace_attention(changed, spec, n, layers=layers)
    for number, name in zip(layers, names, strict=True):
        synthesizer: Any = changed.get_submodule(name).synthesizer
        table = tables[number]
        if attention == "toeplitz":
            weights = table.float().exp().cpu()
            table = mean_by_distance(weights, torch.ones(n, n)).log().to(table)
        with torch.no_grad():
            (synthesizer.matrix if attention == "random" else synthesizer.table).copy_(table)
    return changed


@torch.no_grad()
def _compared(model: nn.Module, changed: nn.Module, layers: tuple[int, ...], batches: list[ProbeBatch]) -> Effect:
    """Return the effect of a changed model, beside the original."""
    changed.eval()
    sums = EffectSums()
    for batch in batches:
        sums.add(predicted(model, batch), predicted(changed, batch), batch.labels)
    return sums.effect(layers)


def _plain(value: Any) -> Any:
    """Return dataclasses as dictionaries."""
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(one) for name, one in vars(value).items()}
    return value
