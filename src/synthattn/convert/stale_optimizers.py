"""Refuse steps of optimizers that were made before the attention of their model was replaced."""

import gc
from typing import Any

from torch import nn
from torch.optim import Optimizer


def watch_optimizers(model: nn.Module) -> None:
    """Make every optimizer that holds parameters of ``model`` now check at each step that it holds all of them."""
    before = {id(parameter) for parameter in model.parameters()}
    kinds = _subclasses(Optimizer)
    for optimizer in [found for found in gc.get_objects() if type(found) in kinds]:
        held = _held(optimizer) & before
        if held:
            _watch(optimizer, model, before, held)


def _watch(optimizer: Optimizer, model: nn.Module, before: set[int], held: set[int]) -> None:
    def check(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        present = dict.fromkeys(id(parameter) for parameter in model.parameters())
        removed = held - present.keys()
        trained = (parameter for parameter in model.parameters() if parameter.requires_grad)
        lacking = {id(parameter) for parameter in trained} - before - _held(optimizer)
        if removed or lacking:
            raise ValueError(
                f"this optimizer was made before replace_attention: it holds {len(removed)} parameters that the model "
                f"no longer has and lacks {len(lacking)} new ones; make the optimizer after replace_attention"
            )

    optimizer.register_step_pre_hook(check)


def _subclasses(kind: type) -> set[type]:
    return {kind}.union(*(_subclasses(below) for below in kind.__subclasses__()))


def _held(optimizer: Optimizer) -> set[int]:
    groups = getattr(optimizer, "param_groups", [])
    return {id(parameter) for group in groups for parameter in group["params"]}
