"""Put a synthesizer into an attention module of transformers or timm, and take it out again."""

import copy
import inspect
from typing import Any

import torch
from torch import Tensor, nn

from synthattn.convert.attention_modules import NORMS, head_width, is_timm_attention, projections_of
from synthattn.convert.dot_product import build_for_model, has_dot_product
from synthattn.convert.interface import NAME, hand_over, register
from synthattn.convert.plan import Installed, Plan
from synthattn.convert.projections import FusedValues, NoProjection, cut_fused, values_part
from synthattn.convert.timm_attention import TimmAttention
from synthattn.synthesizers import Sizes, Synthesizer, parse
from synthattn.synthesizers.vanilla import Vanilla


def build_synthesizer(module: nn.Module, plan: Plan) -> Synthesizer:
    """Build the synthesizer for an attention module, on the device and with the dtype of its values."""
    names, width = projections_of(module), head_width(module)
    assert names is not None
    assert width is not None
    weight = _weight(module, names.value)
    inputs, outputs = _shape(module, names.query or names.value)
    heads = outputs // width // (3 if names.fused else 1)
    with torch.device(weight.device):
        synthesizer = build_for_model(parse(plan.attention), Sizes(inputs, heads, width, plan.max_length), plan.mix)
    return synthesizer.to(weight.dtype).train(module.training)


def install(path: str, module: nn.Module, plan: Plan, synthesizer: Synthesizer) -> None:
    """Make a module compute its attention by a synthesizer. Projections that it does not read go."""
    spec, names, width = parse(plan.attention), projections_of(module), head_width(module)
    assert names is not None
    assert width is not None
    heads = _shape(module, names.query or names.value)[1] // width // (3 if names.fused else 1)
    new: dict[str, nn.Module] = {}
    if not has_dot_product(spec):
        if names.query is None or names.key is None:
            new[names.value] = cut_fused(getattr(module, names.value))
        else:
            # A cache takes the number of its heads from the keys, so these have as many as the values.
            new[names.query] = NoProjection(width)
            new[names.key] = NoProjection(_shape(module, names.value)[1])
        # Norms that nothing reads would get no gradient, which DistributedDataParallel refuses.
        new |= {name: nn.Identity() for name in NORMS if isinstance(getattr(module, name, None), nn.Module)}
    config: Any = getattr(module, "config", None)
    installed = Installed(
        path,
        tuple(inspect.signature(module.forward).parameters),
        plan,
        heads,
        synthesizer.max_length,
        any(not isinstance(term, Vanilla) for term in spec.terms),
        synthesizer.input_independent,
        config,
        {name: getattr(module, name) for name in new},
    )
    for name, part in new.items():
        setattr(module, name, part)
    module.__dict__["synthattn"] = installed
    module.synthesizer = synthesizer
    if is_timm_attention(module):
        installed.kind = type(module)
        object.__setattr__(module, "__class__", TimmAttention)
        return
    register()
    # Only this module takes the function; the others, and the masks, stay with what the model was loaded with.
    own = copy.copy(config)
    own._attn_implementation_internal = NAME
    module.__dict__["config"] = own
    module.register_forward_pre_hook(hand_over, with_kwargs=True)


def uninstall(module: nn.Module) -> None:
    """Put the original attention back. The projection of the values keeps what it has learned."""
    installed: Installed = module.synthattn  # pyright: ignore[reportAssignmentType]
    names = projections_of(module)
    assert names is not None
    weight = _weight(module, names.value)
    for name, original in (installed.originals or {}).items():
        present = getattr(module, name)
        original.to(weight.device, weight.dtype).train(module.training)
        if isinstance(present, FusedValues):
            with torch.no_grad():
                for whole, part in zip(values_part(original), (present.weight, present.bias), strict=True):
                    if whole is not None and part is not None:
                        whole.copy_(part)
        setattr(module, name, original)
    for number, hook in list(module._forward_pre_hooks.items()):
        if hook is hand_over:
            del module._forward_pre_hooks[number], module._forward_pre_hooks_with_kwargs[number]
    del module.synthesizer
    del module.synthattn
    if installed.kind is not None:
        object.__setattr__(module, "__class__", installed.kind)
    else:
        module.__dict__["config"] = installed.config


def _weight(module: nn.Module, name: str) -> Tensor:
    weight = getattr(module, name).weight
    assert isinstance(weight, Tensor)
    return weight


def _shape(module: nn.Module, name: str) -> tuple[int, int]:
    """Return the number of inputs and outputs of a projection."""
    outputs, inputs = _weight(module, name).shape
    return (inputs, outputs) if isinstance(getattr(module, name), nn.Linear) else (outputs, inputs)
