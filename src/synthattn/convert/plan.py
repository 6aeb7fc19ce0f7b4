"""The attention of a module that was replaced: as it is saved, and as the module holds it."""

from dataclasses import dataclass, field
from typing import Any

from torch import nn

from synthattn.engine.cached_weights import WeightCache
from synthattn.synthesizers import Mix


@dataclass(frozen=True)
class Plan:
    """The attention of one module, as ``config.json`` holds it."""

    attention: str
    max_length: int | None = None
    mix: Mix = "softmax"


@dataclass
class Installed:
    """A replaced attention; the attribute ``synthattn`` of its module.

    Attributes:
        path: the name of the module in its model.
        arguments: the names of the arguments of its ``forward``.
        plan: its attention.
        heads: the number of heads.
        max_length: the longest input; None if there is no limit.
        reads_positions: True if logits depend on positions.
        input_independent: True if no logit depends on the tokens.
        config: the configuration that the module shares with its model, and had before; None in other libraries than
            transformers.
        kind: the class of the module before, if it has another one now.
        originals: the modules that were taken out, by name; None if the model was loaded without them.
        returns_weights: True if every call returns its attention weights.
        weights: weights that depend on no input, kept between calls.
    """

    path: str
    arguments: tuple[str, ...]
    plan: Plan
    heads: int
    max_length: int | None
    reads_positions: bool
    input_independent: bool
    config: Any
    originals: dict[str, nn.Module] | None
    kind: type[nn.Module] | None = None
    returns_weights: bool = False
    weights: WeightCache = field(default_factory=WeightCache)


def is_installed(module: nn.Module) -> bool:
    """Return True if the attention of a module was replaced."""
    return isinstance(getattr(module, "synthattn", None), Installed)
