"""``flex_attention`` by choice: exact with all gradients, and never where it would not be."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.exc import TorchDynamoException
from torch.nn.attention import flex_attention as torch_flex

from accelerator import accelerator, move_module, moved
from helpers import BATCH, HEAD_DIM, HEADS, LENGTH, assert_same, call_of, make, padding, refused, tokens
from synthattn import attend
from synthattn.engine import flex, plain
from synthattn.logits import Bias, ByDistance, Logits, Product
from synthattn.masks import Mask

pytestmark = [
    pytest.mark.unchecked,
    pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor"),
]
PAIRS = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(3)


@pytest.fixture
def kernel(monkeypatch) -> list[dict[str, Any]]:
    """Let torch's function, not compiled, attend on the CPU, and record its arguments."""
    calls: list[dict[str, Any]] = []
    not_compiled: Any = torch_flex.flex_attention

    def recorded(*args: Tensor, **options: Any) -> Tensor:
        calls.append(options)
        return not_compiled(*args, **options)

    # What is not compiled has gradients on the CPU as well; torch refuses it because what is compiled has none.
    monkeypatch.setattr(torch_flex, "_validate_device", lambda *args: None)
    backend = SimpleNamespace(attend=lambda call: flex.attend_by(recorded, call))
    monkeypatch.setattr(attend, "BACKENDS", [backend])
    return calls


@pytest.mark.parametrize(
    ("spec", "masks"),
    [
        ("random+vanilla", {}),
        ("random+vanilla", {"is_causal": True, "key_padding_mask": padding()}),
        ("toeplitz(range=5)+vanilla", {"is_causal": True}),
        ("vanilla+alibi", {"attn_mask": PAIRS, "key_padding_mask": padding()}),
        ("random+dense+vanilla+relative", {"key_padding_mask": torch.arange(LENGTH).expand(BATCH, -1) >= 0}),
    ],
    ids=["table", "padding and causal", "by distance", "pairs", "everything is padding"],
)
def test_equals_the_equations(spec, masks, kernel):
    assert_same(make(spec), tokens(), **masks)
    assert len(kernel) == 1
    assert (kernel[0]["block_mask"] is None) == (not masks)


def logits(weight: Tensor, dtype: torch.dtype = torch.float64, frozen: bool = False) -> tuple[Logits, Tensor]:
    draw = torch.Generator().manual_seed(3)
    shape = (BATCH, HEADS, LENGTH, HEAD_DIM)
    query, key, value = (torch.randn(shape, generator=draw, dtype=dtype, requires_grad=not frozen) for _ in range(3))
    table, distances = (
        torch.randn(HEADS, q, n, generator=draw, dtype=dtype, requires_grad=True) for q, n in ((LENGTH, LENGTH), (1, 7))
    )
    terms = Product(query, key), Bias(table, weight), ByDistance(distances, LENGTH, LENGTH).times(weight)
    return Logits(terms), value


@pytest.mark.parametrize("frozen", [False, True])
def test_gradients_of_gradients(frozen, kernel):
    """And of tables beside products that have none."""
    weight = torch.full((HEADS, 1, 1), 0.7, dtype=torch.float64, requires_grad=True)
    found = []
    for way in (attend.BACKENDS[0].attend, plain.attend_whole):
        total, value = logits(weight, frozen=frozen)
        inputs = [weight] if frozen else [weight, value]
        y = way(call_of(total, value, Mask(~padding(), causal=True)))
        first = torch.autograd.grad(y.square().sum(), inputs, create_graph=True)
        found.append([y, *first, *torch.autograd.grad(torch.stack([g.square().sum() for g in first]).sum(), inputs)])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_no_weight_is_captured_and_gradients_are_summed_in_single_precision(kernel):
    """Of a captured number, all pairs would add to one gradient; in half precision, sums stop growing."""
    weight = torch.full((HEADS, 1, 1), 0.7, dtype=torch.bfloat16, requires_grad=True)
    total, value = logits(weight, torch.bfloat16)
    call = call_of(total, value)
    y = attend.BACKENDS[0].attend(call)
    torch.testing.assert_close(y, plain.attend_whole(call), atol=0.05, rtol=0.05)
    captured = [cell.cell_contents for cell in kernel[0]["score_mod"].__closure__]
    learned = [t for t in captured if isinstance(t, Tensor) and t.requires_grad]
    assert [t.shape for t in learned] == [(HEADS, 2 * LENGTH - 1), (HEADS, LENGTH, LENGTH)]
    assert {t.dtype for t in learned} == {torch.float32}


def test_blocks_of_padding_and_of_the_future_are_skipped(kernel):
    length = 3 * 128
    mask = Mask((torch.arange(length) < 128).expand(2, -1), causal=True)
    blocks = flex._block_mask(mask, 2, length, length, torch.device("cpu"))
    assert blocks.kv_num_blocks.tolist() == [[[1, 0, 0]]] * 2  # the diagonal, in part
    assert blocks.full_kv_num_blocks.tolist() == [[[0, 1, 1]]] * 2


@pytest.fixture
def asked(monkeypatch):
    monkeypatch.setenv("SYNTHATTN_FLEX", "1")
    with accelerator():
        yield


def test_it_declines_what_it_does_not_compute(asked, monkeypatch):
    taken: list[str] = []

    def kernel(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
        taken.append(str(query.dtype))
        return torch.zeros_like(value)

    monkeypatch.setattr(flex, "has_triton", lambda: True)
    monkeypatch.setattr(flex, "_compiled", lambda: kernel)

    def run(spec: str, dtype: torch.dtype = torch.float32, on_cpu: bool = False, **options: Any) -> bool:
        taken.clear()
        layer, x = make(spec, dtype, **options), tokens(dtype=dtype)
        (layer if on_cpu else move_module(layer))(x if on_cpu else moved(x))
        return bool(taken)

    assert run("random+vanilla")
    assert run("toeplitz(range=3)+vanilla", torch.bfloat16)
    assert not run("random+vanilla", on_cpu=True)
    assert not run("random+vanilla", torch.float64)
    assert not run("random+vanilla", dropout=0.1)
    for spec in ("vanilla", "dense+vanilla", "random", "factorized_dense+vanilla", "dense(window=5)+vanilla"):
        assert not run(spec), spec
    monkeypatch.setenv("SYNTHATTN_FLEX", "0")
    assert not run("random+vanilla")
    monkeypatch.setattr(flex, "ENTRIES", HEADS * LENGTH**2)
    monkeypatch.setenv("SYNTHATTN_FLEX", "1")
    assert not run("random+vanilla")


def test_what_torch_cannot_compile_is_one_line(asked, monkeypatch):
    def compiled(*args: Tensor, **options: Any) -> Tensor:
        raise TorchDynamoException("out of shared memory\nand so on")

    monkeypatch.setattr(flex, "has_triton", lambda: True)
    monkeypatch.setattr(torch, "compile", lambda function: compiled)
    flex._compiled.cache_clear()
    layer, x = move_module(make("random+vanilla", torch.float32)), moved(tokens(dtype=torch.float32))
    with refused("torch cannot compile flex_attention: out of shared memory; leave SYNTHATTN_FLEX out", whole=True):
        layer(x)
    flex._compiled.cache_clear()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("1", "SYNTHATTN_FLEX=1 needs a GPU that Triton supports, and Triton; leave SYNTHATTN_FLEX out"),
        ("yes", "SYNTHATTN_FLEX must be 0 or 1, got 'yes'"),
    ],
)
def test_what_cannot_be_is_one_line(value, message, asked, monkeypatch):
    monkeypatch.setenv("SYNTHATTN_FLEX", value)
    monkeypatch.setattr(flex, "has_triton", lambda: False)
    layer, x = move_module(make("random+vanilla", torch.float32)), moved(tokens(dtype=torch.float32))
    with refused(message, whole=True):
        layer(x)
