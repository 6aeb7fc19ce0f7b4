"""The attention layer alone: ours, the straightforward way to write the same, and what other libraries have."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from synthattn import reference
from synthattn.bench import rivals
from synthattn.bench.record import Case, UnsupportedError
from synthattn.bench.timing import Run
from synthattn.layers import SyntheticAttention
from synthattn.layers.mixers import Baseline, TokenMixer, build_mixer, parse_mixer
from synthattn.masks import from_torch
from synthattn.synthesizers import FAMILY

D_MODEL, HEADS = 512, 8
STRAIGHTFORWARD = "straightforward"
VARIANTS = [
    *FAMILY,
    "factorized_random+vanilla",
    "relative+vanilla",
    "toeplitz",
    "toeplitz+vanilla",
    "dense(window=15)",
    "lightconv",
    "dynamicconv",
    "linformer",
]
TOLERANCE = 1e-4
"""The largest error in float32, relative to the largest entry."""
CHECKED_LENGTH = 4096
"""Longer inputs are checked at this length: the reference would write more logits than there is memory for."""


class Straightforward(nn.Module):
    """What one would write first: the full logits of every example, masked, softmaxed, multiplied."""

    def __init__(self, layer: SyntheticAttention) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, *, key_padding_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        layer, (batch, length, _) = self.layer, x.shape
        logits = layer.logits(x).expand(batch, -1, -1, -1)
        mask, _ = from_torch(key_padding_mask, None, is_causal, (batch, layer.num_heads, length, length))
        allowed = mask.full(length, length, x.device)
        if allowed is not None:
            logits = logits.masked_fill(~allowed, float("-inf"))
        value = layer.value(x).unflatten(-1, (layer.num_heads, -1)).transpose(1, 2)
        return layer.output((logits.softmax(-1) @ value).transpose(1, 2).flatten(2))


def contenders(peers: bool) -> list[str]:
    return [*VARIANTS, *rivals.RIVALS, *(rivals.PEERS if peers else ())]


def has_straightforward(name: str) -> bool:
    """Return whether a contender is a variant of ours with logits to write out."""
    return not _foreign(name) and not any(isinstance(term, Baseline) for term in parse_mixer(name).terms)


def build(name: str, case: Case) -> Callable[[Case], Run]:
    """``name`` is a spec, ``straightforward SPEC``, or one of the rivals."""
    layer = make(name, case.length).to(case.device or "cpu")
    if case.mask == "causal" and not getattr(layer, "can_be_causal", True):
        raise UnsupportedError("it cannot be causal")
    return lambda case: call(layer, case)


def call(layer: nn.Module, case: Case) -> Run:
    """Return a function that runs a forward pass, and in training a backward pass, on prepared inputs."""
    generator = torch.Generator().manual_seed(0)
    device = torch.device(case.device or "cpu")
    x = torch.randn(case.batch, case.length, D_MODEL, generator=generator).to(device)
    arguments = masks(case.mask, case.batch, case.length, device)
    if case.mode == "eval":
        layer.eval()

        def run() -> None:
            with torch.no_grad():
                layer(x, **arguments)

        return _waiting(run, device)
    layer.train()
    x.requires_grad_()
    gradient = torch.randn(case.batch, case.length, D_MODEL, generator=generator).to(device)

    def step() -> None:
        x.grad = None
        layer.zero_grad(set_to_none=True)
        layer(x, **arguments).backward(gradient)

    return _waiting(step, device)


def _waiting(run: Callable[[], None], device: torch.device) -> Run:
    """Let a run end when the accelerator has done its work."""
    if device.type != "cuda":
        return run

    def whole() -> None:
        run()
        torch.cuda.synchronize(device)

    return whole


def masks(kind: str, batch: int, length: int, device: torch.device | None = None) -> dict[str, Any]:
    if kind == "causal":
        return {"is_causal": True}
    if kind == "padded":
        # Lengths from half to the whole, as in a batch of sentences sorted into buckets.
        kept = torch.linspace(length // 2, length, batch).long()
        return {"key_padding_mask": (torch.arange(length) >= kept[:, None]).to(device or "cpu")}
    return {}


def check(name: str, case: Case) -> float | None:
    """Compare outputs and gradients with the paper's equations in plain code; None for the layers of others."""
    if _foreign(name) or name.startswith(STRAIGHTFORWARD):
        return None
    length = min(case.length, CHECKED_LENGTH)
    device = torch.device(case.device or "cpu")
    layer = make(name, length).train(case.mode == "train").to(device)
    if not isinstance(layer, SyntheticAttention):
        return None  # compared with loops over the equations in the tests, there is no reference for any size
    batch = 1 if length > 1024 else 2
    x = torch.randn(batch, length, D_MODEL, generator=torch.Generator().manual_seed(2)).to(device)
    arguments = masks(case.mask, batch, length, device)
    parameters = list(layer.parameters())
    with torch.set_grad_enabled(layer.training):
        found, (expected, _) = layer(x, **arguments), reference.attention(layer, x, **arguments)
    pairs = {"the output": (found, expected)}
    if layer.training:
        ours, theirs = (torch.autograd.grad(y.square().mean(), parameters) for y in (found, expected))
        # Gradients of a parameter that hardly matters are compared at the scale of all.
        together = [torch.cat([gradient.flatten() for gradient in each]) for each in (ours, theirs)]
        pairs["a gradient"] = together[0], together[1]
    worst = 0.0
    for what, (found, expected) in pairs.items():
        error = float(((found - expected).abs().max() / expected.abs().max()).detach())
        if not error <= TOLERANCE:
            raise ValueError(f"{name}, {case}: {what} is off the reference by {error:.1e}, more than {TOLERANCE:.0e}")
        worst = max(worst, error)
    return worst


def _foreign(name: str) -> bool:
    return name in rivals.RIVALS or name in rivals.PEERS


def make(name: str, length: int) -> nn.Module:
    """Build a contender: a module from token vectors to token vectors."""
    torch.manual_seed(1)
    if _foreign(name):
        return (rivals.RIVALS | rivals.PEERS)[name](D_MODEL, HEADS, length)
    layer: TokenMixer = build_mixer(name.removeprefix(STRAIGHTFORWARD).strip(), D_MODEL, HEADS, length, 0.0)
    if not name.startswith(STRAIGHTFORWARD):
        return layer
    if not isinstance(layer, SyntheticAttention):
        raise ValueError(f"{name}: there are no logits to write out")
    return Straightforward(layer)
