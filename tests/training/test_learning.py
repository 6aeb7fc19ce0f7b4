"""Every model can learn: all its parameters take part, and it can know a few examples by heart."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from model_helpers import DECODING, ENCODING, KINDS, config, ids, labels_for

pytestmark = pytest.mark.unchecked

STEPS = 300
BY_HEART = 0.1


def examples(kind: str) -> tuple[Tensor, Tensor]:
    """Return eight examples and their labels; the first token tells them apart, and need not be written."""
    x = ids(8, 7)
    x[:, 0] = torch.arange(8) + 2
    labels = labels_for(kind, x).clone()
    if kind == "causal-lm":
        labels[:, 0] = -100
    return x, labels


def overfit(model: Any, kind: str, steps: int = STEPS) -> float:
    """Learn until the loss is next to nothing, and return the last one."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0, fused=True)
    x, labels = examples(kind)
    model.train()
    loss = math.inf
    for _ in range(steps):
        optimizer.zero_grad()
        found = model(x, labels=labels).loss
        found.backward()
        optimizer.step()
        loss = found.item()
        if loss < BY_HEART:
            break
    return loss


# Every mixer learns in one kind of model, and every kind of model with several mixers.
BY_KIND = [(list(KINDS)[n % 4 if spec in DECODING else 2 + n % 2], spec) for n, spec in enumerate(ENCODING)]


@pytest.mark.parametrize(("kind", "spec"), BY_KIND, ids=str)
def test_eight_examples_by_heart(kind, spec):
    torch.manual_seed(0)
    assert overfit(KINDS[kind](config(spec, positions="learned")), kind) < BY_HEART


ALL = [(kind, spec) for kind in KINDS for spec in (DECODING if kind in ("causal-lm", "seq2seq") else ENCODING)]


@pytest.mark.parametrize(("kind", "spec"), ALL, ids=str)
def test_every_parameter_takes_part(kind, spec):
    torch.manual_seed(0)
    model = KINDS[kind](config(spec, positions="learned"))
    overfit(model, kind, steps=3)
    without = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert without == [], "parameters that nothing depends on"


@pytest.mark.parametrize("halting", [False, True], ids=["always", "adaptive"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_universal_transformer_by_heart(kind, halting):
    torch.manual_seed(0)
    depths = {"encoder_layers": 3, "decoder_layers": 3, "ponder_weight": 0.001}
    model = KINDS[kind](config("vanilla", share_layers=True, halting=halting, **depths))
    assert overfit(model, kind) < BY_HEART


def test_the_first_loss_is_that_of_guessing():
    """Logits of every preset's start have the size that their initial distributions were made for."""
    torch.manual_seed(0)
    for kind in ("causal-lm", "seq2seq", "masked-lm"):
        for style in ({}, {"initializer": "fan_in", "scale_embedding": False, "scale_logits": True}):
            model = KINDS[kind](config("random+vanilla", d_model=96, vocab_size=500, **style))
            x = ids(8, 20)
            loss = model(x, labels=torch.randint(2, 500, (8, 20))).loss
            assert 5.0 < loss < 8.5, f"{kind} {style}: {loss:.2f}, guessing gives 6.2"
