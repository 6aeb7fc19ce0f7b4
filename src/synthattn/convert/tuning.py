"""Tune a converted model on texts: towards the predictions of the original, or towards the right answers."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from synthattn.convert.probe import ProbeBatch, outputs
from synthattn.convert.saved_work import SavedWork

Loss = Literal["distill", "task"]
Trained = Literal["tables", "layers", "all"]

TABLE_RATE = 10.0
"""The learning rate of tables as a multiple of that of all other parameters; logits are larger numbers than weights."""

WARM_UP = 0.1
"""The share of the steps in which the learning rate rises; afterwards it falls linearly to 0."""

SAVE_SECONDS = 60.0
"""The time between two savings of what was tuned."""


@dataclass(frozen=True)
class Tuning:
    """Options of the tuning.

    Attributes:
        steps: the number of steps; 0 trains nothing.
        loss: ``distill``, the divergence from the predictions of the original, or ``task``, that from right answers.
        hidden: add the squared difference of the hidden states from those of the original, relative to their size.
        train: ``tables``, the new tables alone; ``layers``, all of the layers that hold them; ``all`` of the model.
        learning_rate: the highest one. Tables have ten times that.
        seed: decides the order of the texts and which tokens are masked.
    """

    steps: int = 0
    loss: Loss = "distill"
    hidden: bool = False
    train: Trained = "layers"
    learning_rate: float = 1e-4
    seed: int = 0

    def __post_init__(self) -> None:
        if self.steps < 0:
            raise ValueError(f"steps must be at least 0, got {self.steps}")
        for name, value, kind in (("loss", self.loss, Loss), ("train", self.train, Trained)):
            if value not in get_args(kind):
                raise ValueError(f"{name} must be one of {', '.join(get_args(kind))}; got {value!r}")
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise ValueError(f"the learning rate must be a number above 0, got {self.learning_rate}")


Show = Callable[[int, float], None]
"""Called with the number of each step and its loss."""


def tune(
    model: nn.Module,
    original: nn.Module,
    names: Sequence[str],
    batches: Callable[[int], Sequence[ProbeBatch]],
    settings: Tuning,
    show: Show = lambda step, loss: None,
    work: SavedWork | None = None,
    name: str = "tuning",
) -> None:
    """Train a model in place, without dropout. A tuning that was stopped goes on with equal results.

    Args:
        model: the converted model, or a copy of the original as a control.
        original: the model whose predictions are learned.
        names: the names of the attentions that were replaced, in a control of those that are replaced elsewhere.
        batches: returns the texts for each pass over them, by its number.
        settings: options of the tuning.
        show: called after each step.
        work: where the weights and the state of the optimizer are kept.
        name: their name there.
    """
    trained = _trained(model, names, settings.train)
    if not trained or settings.steps == 0:
        return
    wanted = {path: parameter.requires_grad for path, parameter in model.named_parameters()}
    for path, parameter in model.named_parameters():
        parameter.requires_grad_(path in trained)
    model.eval()
    original.eval()
    tables = [parameter for path, parameter in trained.items() if ".synthesizer." in path]
    others = [parameter for path, parameter in trained.items() if ".synthesizer." not in path]
    groups = [
        {"params": tables, "lr": settings.learning_rate * TABLE_RATE},
        {"params": others, "lr": settings.learning_rate},
    ]
    optimizer = torch.optim.AdamW([group for group in groups if group["params"]], weight_decay=0.0)
    highest = [group["lr"] for group in optimizer.param_groups]
    work, saved = work or SavedWork(), time.monotonic()
    step, turn, done = _load(work.load(name), trained, optimizer)
    while step < settings.steps:
        before = step
        for place, batch in enumerate(batches(turn)):
            if place < done:
                continue
            loss = _loss(model, original, batch, settings)
            if loss is None:
                continue
            value = float(loss.detach())
            if not math.isfinite(value):
                raise ValueError(
                    f"the loss is {value} in step {step + 1}; lower the learning rate, {settings.learning_rate:g}"
                )
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(trained.values(), 1.0)
            for group, rate in zip(optimizer.param_groups, highest, strict=True):
                group["lr"] = rate * _rate(step, settings.steps)
            optimizer.step()
            step += 1
            if step == settings.steps or time.monotonic() - saved >= SAVE_SECONDS:
                weights = {path: parameter.detach() for path, parameter in trained.items()}
                work.save(name, [step, turn, place + 1, weights, optimizer.state_dict()])
                saved = time.monotonic()
            show(step, value)
            if step == settings.steps:
                break
        if step == before and not done:
            raise ValueError("the texts have no prediction that counts; give more or longer texts")
        turn, done = turn + 1, 0
    for path, parameter in model.named_parameters():
        parameter.requires_grad_(wanted[path])
        parameter.grad = None


def _load(saved: Any, trained: dict[str, nn.Parameter], optimizer: torch.optim.Optimizer) -> tuple[int, int, int]:
    """Load what a tuning has saved, and return its step, the number of its pass and that of the next batch there."""
    if saved is None:
        return 0, 0, 0
    step, turn, place, weights, state = saved
    with torch.no_grad():
        for path, parameter in trained.items():
            parameter.copy_(weights[path])
    optimizer.load_state_dict(state)
    return step, turn, place


def _rate(step: int, steps: int) -> float:
    rise = max(1, round(WARM_UP * steps))
    return min((step + 1) / rise, (steps - step) / max(1, steps - rise))


def _trained(model: nn.Module, names: Sequence[str], train: Trained) -> dict[str, nn.Parameter]:
    """Return the parameters to train by name."""
    every = dict(model.named_parameters())
    if train == "all":
        return every
    if train == "tables":
        return {path: one for path, one in every.items() if any(path.startswith(f"{n}.synthesizer.") for n in names)}
    blocks = {_block(model, name) for name in names}
    return {path: one for path, one in every.items() if any(path.startswith(f"{block}.") for block in blocks)}


def _block(model: nn.Module, name: str) -> str:
    """Return the name of the layer that an attention is part of: the innermost element of a list around it."""
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        if isinstance(model.get_submodule(".".join(parts[: end - 1])), nn.ModuleList):
            return ".".join(parts[:end])
    return name


def _loss(model: nn.Module, original: nn.Module, batch: ProbeBatch, settings: Tuning) -> Tensor | None:
    """Return the loss of a batch; None if it has no prediction that counts."""
    if not bool(batch.counted.any()):
        return None
    found = outputs(model, batch, output_hidden_states=settings.hidden)
    logits = found.logits[batch.counted.to(found.logits.device)].float()
    if settings.loss == "task":
        if batch.labels is None:
            raise ValueError("the loss of the task needs labels; give them, or choose the loss distill")
        right = F.cross_entropy(logits, batch.labels.to(logits.device))
        if not settings.hidden:
            return right
    else:
        right = None
    with torch.no_grad():
        aim = outputs(original, batch, output_hidden_states=settings.hidden)
    if right is None:
        target = aim.logits[batch.counted.to(logits.device)].float().log_softmax(-1)
        right = F.kl_div(logits.log_softmax(-1), target, log_target=True, reduction="batchmean")
    if not settings.hidden:
        return right
    return right + _hidden_loss(found.hidden_states, aim.hidden_states, batch.inputs["attention_mask"])


def _hidden_loss(found: Sequence[Tensor], aims: Sequence[Tensor], mask: Tensor) -> Tensor:
    """Return the squared difference of hidden states over their squared size, the mean over layers."""
    real: Any = mask.to(found[0].device).bool()
    parts = [
        F.mse_loss(one[real].float(), aim[real].float()) / aim[real].float().square().mean().clamp(min=1e-12)
        for one, aim in zip(found, aims, strict=True)
    ]
    return torch.stack(parts).mean()
