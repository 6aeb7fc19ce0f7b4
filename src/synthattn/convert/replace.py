"""Replace the self-attention of a model by synthetic attention, in place, and put the original back."""

from collections.abc import Callable, Iterable
from typing import Any

from torch import nn

from synthattn.convert import multihead, timm_attention
from synthattn.convert.attention_modules import (
    AttentionModule,
    cross_attentions,
    is_transformers_model,
    off_interface,
    self_attentions,
)
from synthattn.convert.folder import forget_plan, write_plan
from synthattn.convert.install import build_synthesizer, install, uninstall
from synthattn.convert.plan import Installed, Plan, is_installed
from synthattn.convert.stale_optimizers import watch_optimizers
from synthattn.messages import listed
from synthattn.synthesizers import Mix, Spec, Term, parse

Layers = Iterable[int] | Callable[[str, nn.Module], bool]
"""Which layers: numbers in the order of the model, or a function of the name and the module."""


def attention_layers(model: nn.Module) -> list[str]:
    """Return the names of the self-attentions that ``replace_attention`` can replace, in the order of its numbers."""
    return [found.path for found in _found(model) if found.obstacle is None]


def replace_attention(
    model: nn.Module,
    attention: str | Spec | Term,
    max_length: int | None = None,
    *,
    layers: Layers | None = None,
    mix: Mix = "softmax",
) -> list[str]:
    """Replace self-attention inside ``model`` by synthetic attention, in place.

    In a model of transformers, ``vanilla`` in a spec is the model's own dot product, with its projections, norms and
    rotations. Specs without it drop the projections that nothing reads. Cross-attention stays. In any other model, this
    changes timm's ``Attention``, and ``torch.nn.MultiheadAttention`` except the decoder's attention to the encoder.
    Value and output projections keep their weights. Make the optimizer afterwards: parameters are new.

    Args:
        model: a model of transformers, or one that contains ``torch.nn.MultiheadAttention`` or timm's ``Attention``.
        attention: spec of the logits, e.g. ``"random"`` or ``"dense+vanilla"``.
        max_length: the longest input, needed by every synthesizer with a table of positions.
        layers: the numbers of the layers to change, as ``attention_layers(model)`` counts them, or a function of name
            and module that returns True for these; all unless given.
        mix: weights of the terms of a mixture: ``"softmax"``, ``"sum"`` or ``"sigmoid"``, as in ``SyntheticAttention``.

    Returns:
        The names of the modules that were changed; "" is ``model`` itself.
    """
    spec = parse(attention)
    chosen = _chosen(model, layers)
    problems = [f"{found.path or type(model).__name__} ({found.obstacle})" for found in chosen if found.obstacle]
    if problems:
        raise ValueError(f"cannot replace {listed(problems, 5)}; nothing was changed")
    # Everything is built before the first layer is replaced, so that an error leaves the model unchanged.
    plan = Plan(str(spec), max_length, mix)
    built = [_build(found.module, plan) for found in chosen]
    watch_optimizers(model)
    for found, part in zip(chosen, built, strict=True):
        if isinstance(part, multihead.SyntheticMultiheadAttention):
            multihead.install(found.module, part)
        else:
            install(found.path, found.module, plan, part)
    if is_transformers_model(model):
        write_plan(model)
    else:
        multihead.disable_fast_path(model)
    return [found.path for found in chosen]


def _build(module: nn.Module, plan: Plan) -> Any:
    """Build what takes the place of an attention, or of its logits."""
    if isinstance(module, nn.MultiheadAttention):
        return multihead.build(module, plan)
    return build_synthesizer(module, plan)


def restore(model: nn.Module) -> list[str]:
    """Put the original attention back into every layer that was replaced, and return the names of these layers.

    The originals have the weights that they had when they were replaced. In models of transformers and timm, the
    projections of the values, which stayed, keep what they have learned.
    """
    changed = {path: part for path, part in model.named_modules() if is_installed(part) or multihead.is_installed(part)}
    if not changed:
        raise ValueError(f"{type(model).__name__} has no replaced attention; nothing was changed")
    plans = {path: getattr(part, "synthattn", None) for path, part in changed.items()}
    lost = [path for path, plan in plans.items() if isinstance(plan, Installed) and plan.originals is None]
    if lost:
        raise ValueError(
            f"the original projections of {listed(lost, 5)} are not there, because the model was loaded; load the "
            "original model"
        )
    for part in changed.values():
        (multihead.uninstall if multihead.is_installed(part) else uninstall)(part)
    if is_transformers_model(model):
        forget_plan(model)
    return list(changed)


def _found(model: nn.Module) -> list[AttentionModule]:
    if is_transformers_model(model):
        return self_attentions(model)
    found = [*multihead.self_attentions(model), *timm_attention.self_attentions(model)]
    places = {path: place for place, (path, _) in enumerate(model.named_modules())}
    return sorted(found, key=lambda one: places[one.path])


def _chosen(model: nn.Module, layers: Layers | None) -> list[AttentionModule]:
    """Return the self-attentions to replace. Raise a ValueError if there is none, or one was replaced before."""
    found = _found(model)
    if not found:
        raise ValueError(_nothing_to_replace(model))
    if layers is None:
        chosen = found
    elif callable(layers):
        cross = [path for path, part in _cross(model) if layers(path, part)]
        if cross:
            raise ValueError(f"{listed(cross, 5)}: queries and keys are of different tokens; nothing was changed")
        chosen = [one for one in found if layers(one.path, one.module)]
        if not chosen:
            raise ValueError(f"the filter chose none of {listed((one.path for one in found), 5)}")
    else:
        servable = [one for one in found if one.obstacle is None] or found
        chosen = [_numbered(servable, number) for number in dict.fromkeys(layers)]
        if not chosen:
            raise ValueError("layers is empty; leave it out to replace all")
    again = [one.path for one in chosen if is_installed(one.module) or multihead.is_installed(one.module)]
    if again:
        raise ValueError(f"{listed(again, 5)} is replaced already; call restore(model) first")
    return chosen


def _numbered(found: list[AttentionModule], number: int) -> AttentionModule:
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < len(found):
        raise ValueError(
            f"there is no layer {number!r}: the model has {len(found)} self-attentions, 0 to {len(found) - 1}"
        )
    return found[number]


def _cross(model: nn.Module) -> list[tuple[str, nn.Module]]:
    return cross_attentions(model) if is_transformers_model(model) else multihead.cross_attentions(model)


def _nothing_to_replace(model: nn.Module) -> str:
    name = type(model).__name__
    inner = [path for path, part in model.named_modules() if path and is_transformers_model(part)]
    if inner and not is_transformers_model(model):
        return f"{name} contains a model of transformers; call replace_attention(model.{inner[0]}, ...)"
    others = off_interface(model)
    if not is_transformers_model(model):
        own = f"; its own attention ({listed(others, 5)}) is not known" if others else ""
        return f"{name} has no attention of torch or timm to replace{own}"
    return (
        f"{name} has no self-attention on transformers' attention interface"
        + (f" ({listed(others, 5)})" if others else "")
        + "; nothing was changed"
    )
