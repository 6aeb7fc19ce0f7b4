"""Every model can learn: all its parameters take part, and it can know a few examples by heart."""

import pytest
import torch

from model_helpers import DECODING, ENCODING, KINDS, config, ids, labels_for

pytestmark = pytest.mark.unchecked

STEPS = 300
BY_HEART = 0.1


def overfit(model, x, labels) -> list[float]:
    """The loss after each step, until it is next to nothing."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0, fused=True)
    losses = []
    model.train()
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = model(x, labels=labels).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if losses[-1] < BY_HEART:
            break
    return losses


CASES = [(kind, spec) for kind in ("causal-lm", "seq2seq") for spec in DECODING]
CASES += [(kind, spec) for kind in ("masked-lm", "classifier") for spec in ENCODING]


@pytest.mark.parametrize(("kind", "spec"), CASES, ids=str)
def test_eight_examples_by_heart(kind, spec):
    torch.manual_seed(0)
    model = KINDS[kind](config(spec, positions="learned"))
    x = ids(8, 7)
    if kind == "causal-lm":
        x[:, 0] = torch.arange(8) + 2  # the first token tells the examples apart
        labels = x.clone()
        labels[:, 0] = -100
    else:
        labels = labels_for(kind, x)
    losses = overfit(model, x, labels)
    assert losses[-1] < BY_HEART, f"from {losses[0]:.2f} to {losses[-1]:.2f} in {len(losses)} steps"
    without = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert without == [], "parameters that nothing depends on"


@pytest.mark.parametrize("halting", [False, True], ids=["always", "adaptive"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_universal_transformer_by_heart(kind, halting):
    torch.manual_seed(0)
    depths = {"encoder_layers": 3, "decoder_layers": 3, "ponder_weight": 0.001}
    model = KINDS[kind](config("vanilla", share_layers=True, halting=halting, **depths))
    x = ids(8, 7)
    x[:, 0] = torch.arange(8) + 2
    labels = labels_for(kind, x)
    if kind == "causal-lm":
        labels = labels.clone()
        labels[:, 0] = -100
    assert overfit(model, x, labels)[-1] < BY_HEART


def test_the_first_loss_is_that_of_guessing():
    """Logits of every preset's start have the size that their initial distributions were made for."""
    torch.manual_seed(0)
    for kind in ("causal-lm", "seq2seq", "masked-lm"):
        for style in ({}, {"initializer": "fan_in", "scale_embedding": False, "scale_logits": True}):
            model = KINDS[kind](config("random+vanilla", d_model=96, vocab_size=500, **style))
            x = ids(8, 20)
            loss = model(x, labels=torch.randint(2, 500, (8, 20))).loss
            assert 5.0 < loss < 8.5, f"{kind} {style}: {loss:.2f}, guessing gives 6.2"
