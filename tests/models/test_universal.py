"""The Universal Transformer equals the equations of its paper, computed token by token."""

import math
from typing import Any

import pytest
import torch

from model_helpers import ids, make
from synthattn.models import SynthesizerForCausalLM, SynthesizerForMaskedLM


def signal(position: int, depth: int, width: int) -> list[float]:
    """Return the sum of the embeddings of position and depth: sines of all wavelengths, then cosines."""
    half = width // 2
    rates = [10_000.0 ** (-n / (half - 1)) for n in range(half)]
    sines = [math.sin(position * r) + math.sin(depth * r) for r in rates]
    return sines + [math.cos(position * r) + math.cos(depth * r) for r in rates]


def layer(block, x: torch.Tensor) -> torch.Tensor:
    """Compute pre-norm attention and feed-forward for one text of shape (length, width)."""

    def norm(part, t):
        centred = t - t.mean(-1, keepdim=True)
        return centred / (centred.square().mean(-1, keepdim=True) + 1e-6).sqrt() * part.weight + part.bias

    h = norm(block.attention_residual.norm, x)
    mixed, _ = block.attention(h[None], need_weights=True, is_causal=block.causal)
    x = x + mixed[0]
    h = norm(block.feed_forward_residual.norm, x)
    hidden = torch.relu(h @ block.feed_forward.up.weight.T + block.feed_forward.up.bias)
    return x + hidden @ block.feed_forward.down.weight.T + block.feed_forward.down.bias


def universal(stack, x: torch.Tensor, depth: int) -> torch.Tensor:
    for step in range(depth):
        told = torch.tensor([signal(i, step, x.shape[-1]) for i in range(len(x))], dtype=x.dtype)
        x = layer(stack.blocks[0], x + told)
    return x


def adaptive(stack, x: torch.Tensor, depth: int, threshold: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the listing in the appendix of the paper, token by token."""
    length = len(x)
    halting_probability: list[Any] = [0.0] * length
    remainders: list[Any] = [0.0] * length
    n_updates = [0] * length
    result = [torch.zeros(x.shape[-1], dtype=x.dtype)] * length
    w, b = stack.halting.unit.weight[0], stack.halting.unit.bias[0]
    for step in range(depth):
        told = torch.tensor([signal(i, step, x.shape[-1]) for i in range(length)], dtype=x.dtype)
        x = x + told
        update = [torch.zeros((), dtype=x.dtype)] * length
        for i in range(length):
            p = torch.sigmoid(x[i] @ w + b)
            if halting_probability[i] >= 1.0:
                continue
            n_updates[i] += 1
            if halting_probability[i] + p > threshold:
                remainders[i] = 1.0 - halting_probability[i]
                update[i] = torch.as_tensor(remainders[i], dtype=x.dtype)
                halting_probability[i] = 1.0
            else:
                halting_probability[i] = halting_probability[i] + p
                update[i] = p
        x = layer(stack.blocks[0], x)
        result = [x[i] * update[i] + result[i] * (1.0 - update[i]) for i in range(length)]
    cost = sum(torch.as_tensor(n + r, dtype=x.dtype) for n, r in zip(n_updates, remainders, strict=True)) / length
    return torch.stack(result), torch.as_tensor(cost)


@pytest.mark.parametrize("kind", [SynthesizerForMaskedLM, SynthesizerForCausalLM], ids=["encoder", "decoder"])
@pytest.mark.parametrize("spec", ["vanilla", "random", "dense+vanilla"])
@pytest.mark.parametrize("halting", [False, True], ids=["always", "adaptive"])
def test_against_the_equations(kind, spec, halting):
    depths = {"encoder_layers": 5, "decoder_layers": 5}
    model = make(kind, spec, share_layers=True, halting=halting, halting_threshold=0.9, **depths)
    stack = model.model.encoder or model.model.decoder
    if halting:
        with torch.no_grad():
            stack.halting.unit.bias.fill_(-0.5)  # tokens stop at different steps
    x = ids(1, 9)
    vectors = model.model.embedding(x)[0] * 24**0.5
    output = model(x)
    expected, cost = adaptive(stack, vectors, 5, 0.9) if halting else (universal(stack, vectors, 5), None)
    logits = torch.nn.functional.layer_norm(expected, (24,), stack.norm.weight, stack.norm.bias, 1e-6)
    torch.testing.assert_close(output.logits[0], logits @ model.model.embedding.weight.T, rtol=0, atol=1e-9)
    if halting:
        torch.testing.assert_close(output.ponder_cost, cost, rtol=0, atol=1e-10)
    mine = torch.autograd.grad(output.logits.square().mean(), list(stack.parameters()), allow_unused=True)
    theirs = torch.autograd.grad(
        (logits @ model.model.embedding.weight.T).square().mean(), list(stack.parameters()), allow_unused=True
    )
    for ours, other in zip(mine, theirs, strict=True):
        assert (ours is None) == (other is None)
        if ours is not None:
            torch.testing.assert_close(ours, other, rtol=0, atol=1e-8)


def test_tokens_stop_at_different_steps():
    model = make(SynthesizerForMaskedLM, "vanilla", share_layers=True, halting=True, encoder_layers=5)
    stack = model.model.encoder
    with torch.no_grad():
        stack.halting.unit.bias.fill_(-0.5)
        stack.halting.unit.weight.mul_(3)
    seen = []
    progress = stack.halting.start(model.model.embedding(ids(1, 9)))
    x = model.model.embedding(ids(1, 9)) * 24**0.5
    for _ in range(5):
        progress.decide(x)
        seen.append(progress.steps.clone())
    assert len(progress.steps.unique()) > 1
    assert progress.steps.max() <= 5


def test_the_layers_share_their_weights_and_the_cost_is_in_the_loss():
    shared = make(
        SynthesizerForCausalLM, "vanilla", share_layers=True, halting=True, decoder_layers=5, encoder_layers=1
    )
    one = make(SynthesizerForCausalLM, "vanilla", decoder_layers=1, encoder_layers=1)
    count = lambda model: sum(p.numel() for p in model.parameters())  # noqa: E731
    assert count(shared) == count(one) + 24 + 1
    x = ids(2, 7)
    output = shared(x, labels=x)
    plain = torch.nn.functional.cross_entropy(output.logits[:, :-1].flatten(0, 1), x[:, 1:].flatten())
    torch.testing.assert_close(output.loss, plain + 0.01 * output.ponder_cost, check_dtype=False, rtol=1e-5, atol=1e-5)


def test_padding_does_not_count_in_the_cost():
    model = make(SynthesizerForMaskedLM, "vanilla", share_layers=True, halting=True, encoder_layers=4)
    x = ids(1, 7)
    padded = torch.cat([x, torch.full((1, 3), 9)], 1)
    mask = torch.cat([torch.ones(1, 7), torch.zeros(1, 3)], 1)
    torch.testing.assert_close(model(padded, attention_mask=mask).ponder_cost, model(x).ponder_cost)
