"""Dropout in the compiled kernel: what is dropped is random, is known, and counts in the result and every gradient."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from helpers import call_of, make, needs_kernels, threads, tokens
from synthattn.engine import compiled, sdpa, thresholds
from synthattn.engine.call import Call
from synthattn.engine.native import kernel
from synthattn.engine.native.dropout import undropped
from synthattn.logits import Bias, Logits, LogitTerm, Product
from synthattn.masks import Mask

pytestmark = needs_kernels

SEED = 2**61 + 12345
SIZES = (2, 3, 149, 593)


@pytest.fixture(autouse=True)
def _for_all(monkeypatch):
    monkeypatch.setattr(thresholds, "COMPILED_LOGITS", 0)


def correlation(one: Tensor, other: Tensor, p: float) -> float:
    """The correlation of what is dropped here and there, in standard deviations of that of independent draws."""
    product = ((~one).double() - p) * ((~other).double() - p)
    return abs(float(product.mean())) / (p * (1 - p)) * product.numel() ** 0.5


@pytest.mark.parametrize("p", [0.001, 0.1, 0.5, 0.9])
def test_weights_are_dropped_independently_of_each_other(p):
    kept = undropped(p, SEED, SIZES)
    assert kept.shape == SIZES
    for axes in ((), (3,), (2,), (1, 3), (0, 3)):  # the whole, rows, columns, heads, examples
        share = (~kept).double().mean(axes) if axes else (~kept).double().mean().view(1)
        number = kept.numel() / share.numel()
        deviations = (share - p) / (p * (1 - p) / number) ** 0.5
        if min(p, 1 - p) * number > 20:
            assert float(deviations.abs().max()) < 6.0, axes
        if share.numel() > 100:
            assert abs(float(deviations.var()) - 1) < 6 * (2 / share.numel()) ** 0.5, axes
    for distance in (1, 2, 16, 128, 512):
        assert correlation(kept[..., distance:], kept[..., :-distance], p) < 5.0
    for distance in (1, 2, 6, 132):
        assert correlation(kept[:, :, distance:], kept[:, :, :-distance], p) < 5.0
    assert correlation(kept[:, 1:], kept[:, :-1], p) < 5.0
    assert correlation(kept[1:], kept[:-1], p) < 5.0
    for seed in (SEED + 1, SEED + 2**32, SEED ^ 2**60):
        assert correlation(kept, undropped(p, seed, SIZES), p) < 5.0


def test_runs_of_eight_weights_are_equally_frequent():
    kept = undropped(0.5, SEED, (4, 8, 256, 512)).view(-1, 8)
    numbers = torch.bincount((kept * 2 ** torch.arange(8)).sum(-1), minlength=256).double()
    expected = len(kept) / 256
    assert 170 < float(((numbers - expected) ** 2 / expected).sum()) < 360  # chi squared with 255 degrees of freedom


def weights_of(p: float, q: int, k: int, causal: bool = False) -> Tensor:
    """The weights that the kernel leaves of equal ones, for two examples and three heads."""
    call = call_of(
        Logits((Product(torch.zeros(2, 3, q, 1), torch.zeros(2, 3, k, 1)), Bias(torch.zeros(3, 1, k)))),
        torch.eye(k).expand(2, 3, k, k),
        Mask(causal=causal),
        p,
    )
    result = compiled.attend(call)
    assert result is not None
    return result


@pytest.mark.parametrize("p", [1e-12, 0.1, 0.7, 1 - 1e-12])
@pytest.mark.parametrize("causal", [False, True])
def test_the_kernel_drops_what_torch_s_operations_say(monkeypatch, p, causal):
    monkeypatch.setattr(compiled, "draw_seed", lambda: SEED)
    found, kept = weights_of(p, 140, 530, causal), undropped(p, SEED, (2, 3, 140, 530))
    seen = torch.ones(140, 530).tril() if causal else torch.ones(140, 530)
    expected = kept * (seen / seen.sum(-1, keepdim=True)).double() / (1 - p)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=0.0)


def test_a_seed_repeats_a_call_and_the_next_call_differs():
    torch.manual_seed(3)
    first, second = weights_of(0.4, 20, 30), weights_of(0.4, 20, 30)
    torch.manual_seed(3)
    assert torch.equal(weights_of(0.4, 20, 30), first)
    assert not torch.equal(first, second)
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[:, 0], first[:, 1])
    assert not torch.equal(first[..., 0, :], first[..., 1, :])


def masks(kind: str, q: int, k: int) -> Mask:
    unpadded = allowed = None
    if "padded" in kind or "left" in kind:
        unpadded = torch.arange(k).expand(2, k) < torch.tensor([[k - k // 3], [k]])
        unpadded = unpadded & (torch.arange(k) >= torch.tensor([[0], [k // 4]])) if "left" in kind else unpadded
    if "mask" in kind:
        allowed = torch.rand(q, k, generator=torch.Generator().manual_seed(7)) < 0.7
    return Mask(unpadded, "causal" in kind, allowed)


def check_against_the_equation(p: float, kind: str, length: int, wide: bool, kept_bytes: int = 2**28) -> None:
    """Output, gradients and gradients of a penalty on these equal softmax(B) * mask / (1 - p) V in float64."""
    q, k, d = length - 2, length, 5
    torch.manual_seed(1)
    features = [torch.randn(2, 3, n, w) * 0.5 for w in ((13, 2) if wide else (5,)) for n in (q, k)]
    shapes = {"table": (3, q, k), "row": (3, 1, k), "examples": (2, 3, q, k)}
    bias = next((torch.randn(shape) for name, shape in shapes.items() if name in kind), None)
    weight = None if bias is None or "mask" in kind else torch.randn(3, 1, 1)
    given = [t for t in (torch.randn(2, 3, k, d), *features, bias, weight) if t is not None]
    probes = [torch.randn(2, 3, q, d), *map(torch.randn_like, given)]
    mask = masks(kind, q, k)

    def run(attend: Callable[[Logits, Tensor], Tensor], dtype: torch.dtype) -> list[Tensor]:
        leaves = [t.to(dtype, copy=True).requires_grad_() for t in given]
        value, *rest = leaves
        terms: list[LogitTerm] = [Product(rest[n], rest[n + 1], 0.7) for n in range(0, len(features), 2)]
        if bias is not None:
            terms.append(Bias(rest[len(features)], None if weight is None else rest[-1]))
        result = attend(Logits(tuple(terms)), value)
        loss = (result * probes[0].to(dtype)).sum()
        first = torch.autograd.grad(loss, leaves, retain_graph=True)
        again = torch.autograd.grad(loss, leaves, create_graph=True)
        parts = [(g * probe.to(dtype)).square().sum() for g, probe in zip(again, probes[1:], strict=True)]
        penalty = torch.stack(parts).sum()
        third = torch.autograd.grad(penalty, leaves)
        return [result.detach(), *first, *(g.detach() for g in again), *third]

    def by_kernel(logits: Logits, value: Tensor) -> Tensor:
        result = compiled.attend(call_of(logits, value, mask, p))
        assert result is not None
        return result

    def by_equation(logits: Logits, value: Tensor) -> Tensor:
        total, full = logits.as_tensor(), mask.full(q, k, value.device)
        total = total if full is None else total.masked_fill(~full, float("-inf"))
        empty = (total == float("-inf")).all(-1, keepdim=True)
        weights = total.masked_fill(empty, 0.0).softmax(-1).masked_fill(empty, 0.0)
        return weights * undropped(p, SEED, (2, 3, q, k)) / (1 - p) @ value

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "draw_seed", lambda: SEED)
        patch.setattr(kernel, "KEPT_BYTES", kept_bytes)
        patch.setattr(thresholds, "COMPILED_LOGITS", 0)
        ours, expected = run(by_kernel, torch.float32), run(by_equation, torch.float64)
    for n, (one, other) in enumerate(zip(ours, expected, strict=True)):
        scale = other.abs().max().clamp(min=1.0)
        assert float((one - other).abs().max() / scale) < (1e-6 if n == 0 else 2e-5), n


@pytest.mark.parametrize("p", [0.1, 0.6])
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize(
    "kind",
    ["table", "row", "examples", "causal table", "padded row", "causal left table", "mask table", "causal padded mask"],
)
def test_equals_the_equation_with_the_same_weights_dropped(p, wide, kind):
    check_against_the_equation(p, kind, 71, wide)


@pytest.mark.parametrize("kept_bytes", [0, 2**28])
@pytest.mark.parametrize("kind", ["table", "causal left row"])
def test_equals_the_equation_across_blocks(kind, kept_bytes):
    check_against_the_equation(0.3, kind, 601, True, kept_bytes)


@pytest.mark.parametrize("kind", ["", "causal", "padded"])
def test_a_lone_product_with_dropout_runs_in_the_kernel(kind):
    check_against_the_equation(0.3, kind, 71, wide=False)


@pytest.mark.parametrize("frozen", ["value", "logits"])
def test_only_the_gradients_that_are_wanted(monkeypatch, frozen):
    monkeypatch.setattr(compiled, "draw_seed", lambda: SEED)
    torch.manual_seed(0)
    query, key, bias, value = (torch.randn(2, 3, n, m) for n, m in ((7, 5), (11, 5), (7, 11), (11, 5)))
    for tensor in (value,) if frozen == "logits" else (query, key, bias):
        tensor.requires_grad_()
    result = compiled.attend(call_of(Logits((Product(query, key), Bias(bias))), value, dropout=0.4))
    assert result is not None
    expected = (query @ key.mT + bias).softmax(-1) * undropped(0.4, SEED, (2, 3, 7, 11)) / 0.6 @ value
    sources = [t for t in (query, key, bias, value) if t.requires_grad]
    for ours, theirs in zip(*(torch.autograd.grad(y.square().sum(), sources) for y in (result, expected)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("number", [2, 3, 5])
def test_the_same_is_dropped_by_any_number_of_threads(number):
    layer, x = make("dense+vanilla", torch.float32, 300, dropout=0.3), tokens(293, dtype=torch.float32)

    def run(number: int) -> list[Tensor]:
        with threads(number):
            torch.manual_seed(5)
            y = layer(x, is_causal=True)
            return [y.detach(), *torch.autograd.grad(y.square().sum(), list(layer.parameters()))]

    alone, together = run(1), run(number)
    largest = max(float(t.abs().max()) for t in alone)  # the bias of keys has a gradient of zero but for rounding
    for one, other in zip(alone, together, strict=True):
        assert float((one - other).abs().max() / one.abs().max().clamp(min=1e-3 * largest)) < 1e-4


def test_without_dropout_no_number_is_drawn(monkeypatch):
    monkeypatch.setattr(compiled, "draw_seed", lambda: pytest.fail("drawn"))
    weights_of(0.0, 5, 7)


@pytest.mark.parametrize("spec", ["random+vanilla", "dense", "vanilla"])
def test_models_with_the_default_dropout_train_on_the_kernel(monkeypatch, spec):
    # Imported here, because test_processors imports this file in processes that need no models.
    from synthattn.models import SynthesizerConfig, SynthesizerForCausalLM, presets

    found: list[bool] = []
    original = compiled.attend

    def watched(call: Call) -> Tensor | None:
        result = original(call)
        found.append(result is not None)
        return result

    monkeypatch.setattr(compiled, "attend", watched)
    monkeypatch.setattr(sdpa, "attend", lambda call: None)
    dropout = SynthesizerConfig().attention_dropout
    assert dropout > 0.0
    config = presets.demo(spec, vocab_size=50, max_position_embeddings=40, attention_dropout=dropout)
    model = SynthesizerForCausalLM(config)
    tokens = torch.randint(2, 50, (2, 33))
    loss = model(tokens, labels=tokens).loss
    assert loss is not None
    loss.backward()
    assert found
    assert all(found)
