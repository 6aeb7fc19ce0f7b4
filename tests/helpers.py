"""Specs, sizes and comparisons that the tests share."""

import platform
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from synthattn import SyntheticAttention, reference
from synthattn.engine import memory_pool, thresholds
from synthattn.engine.call import Call
from synthattn.engine.projection import LazyValues
from synthattn.logits import Logits
from synthattn.masks import Mask
from synthattn.synthesizers import Mix

# Every synthesizer and every kind of mixture. A new synthesizer adds a line and inherits all tests.
SPECS = [
    "vanilla",
    "dense",
    "dense(shared_keys=true, bias=false)",
    "dense(window=5)",
    "random",
    "fixed_random",
    "factorized_random(rank=3)",
    "factorized_dense",
    "factorized_dense(a=4, b=7)",
    "toeplitz(range=3)",
    "relative",
    "alibi",
    "random+vanilla",
    "dense+vanilla",
    "random+dense",
    "dense(shared_keys=true, shared_query=true, bias=false)+vanilla",
    "random+factorized_random(rank=2)",
    "factorized_random(rank=3)+vanilla",
    "factorized_dense+vanilla",
    "dense(window=5)+vanilla",
    "toeplitz(range=5)+vanilla",
    "toeplitz(range=2)+relative",
    "vanilla+relative",
    "vanilla+alibi",
    "random+relative",
    "random+dense+vanilla+relative",
    "fixed_random+factorized_dense+dense(window=3)",
]

COMPILED = sys.platform in ("linux", "darwin") and any(map(shutil.which, ("gcc", "cc", "clang")))
IS_ARM = platform.machine() in ("aarch64", "arm64")
FAST = IS_ARM or torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")
needs_kernels = pytest.mark.skipif(
    not (COMPILED and FAST), reason="no kernels for this machine, or nothing to compile them"
)

# Distinct primes, so that swapped axes are noticed.
BATCH, HEADS, HEAD_DIM, LENGTH, MEMORY, MAX_LENGTH, D_MODEL = 2, 3, 5, 11, 13, 23, 17


def make(
    spec: str,
    dtype: torch.dtype = torch.float64,
    max_length: int | None = MAX_LENGTH,
    mix: Mix = "softmax",
    seed: int = 0,
    **options: Any,
) -> SyntheticAttention:
    torch.manual_seed(seed)
    options = {"d_model": D_MODEL, "num_heads": HEADS, "head_dim": HEAD_DIM} | options
    layer = SyntheticAttention(attention=spec, max_length=max_length, mix=mix, dtype=dtype, **options)
    with torch.no_grad():  # biases and mixture weights start at zero, which would hide mistakes
        for parameter in layer.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return layer


def tokens(length: int = LENGTH, batch: int = BATCH, seed: int = 1, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(batch, length, D_MODEL, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def padding(length: int = LENGTH, batch: int = BATCH) -> Tensor:
    """Return a mask of the last four keys of example 0 and of every third key of the other examples."""
    mask = torch.zeros(batch, length, dtype=torch.bool)
    mask[0, length - 4 :] = True
    mask[1:, ::3] = True
    return mask


@contextmanager
def chunks_for_all(logits: int = 99) -> Iterator[None]:
    """Let the plain backend compute calls of any size in chunks of ``logits`` logits."""
    changed = {
        "CHUNKED_LOGITS": 0,
        "CHUNK_LOGITS": logits,
        "CHUNK_ROWS": 1,
        "LINEAR_SPANS": 0,
        "LINEAR_ROWS": 4,
        "CAUSAL_ROWS": max(1, min(128, logits // 16)),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in changed.items():
            patch.setattr(thresholds, name, value)
        patch.setattr(memory_pool, "UNIT", 1)
        yield


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Let torch and the kernels use so many threads."""
    saved = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(saved)


def refused(message: str, whole: bool = False) -> Any:
    """Expect a ValueError of one line that contains the message, or is the whole of it."""
    around = "" if whole else r"[^\n]*"
    return pytest.raises(ValueError, match=rf"\A{around}{re.escape(message)}{around}\Z")


class Special(Tensor):
    """A tensor of a class of its own, which only torch knows how to treat."""


class Largest(TorchDispatchMode):
    """Remember the number of entries of the largest tensor that was made."""

    seen = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for part in tree_leaves(result):
            self.seen = max(self.seen, part.numel() if isinstance(part, Tensor) else 0)
        return result


def call_of(logits: Logits, value: Tensor, mask: Mask | None = None, dropout: float = 0.0) -> Call:
    """Return a call with the given logits and values."""
    values = LazyValues(value, None, value.shape[1], value.shape[3])
    return Call(lambda: logits, values, mask or Mask(), logits.query_length, dropout)


def with_gradients(y: Tensor, layer: SyntheticAttention, inputs: list[Tensor]) -> dict[str, Tensor]:
    """Return the output and the gradients of a weighted sum of it with respect to every input and parameter."""
    probe = torch.randn(y.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(9)).to(y.dtype)
    named = {f"input {n}": t for n, t in enumerate(inputs)} | dict(layer.named_parameters())
    gradients = torch.autograd.grad((y * probe).sum(), list(named.values()), allow_unused=True)
    found = {name: g for name, g in zip(named, gradients, strict=True) if g is not None}
    # Input-independent logits do not depend on the queries of another memory.
    assert set(named) - set(found) <= ({"input 0"} if len(inputs) == 2 else set()), "no gradient for a parameter"
    return {"output": y.detach()} | {name: torch.zeros_like(t) for name, t in named.items()} | found


def assert_same(
    layer: SyntheticAttention, x: Tensor, memory: Tensor | None = None, tolerance: float = 1e-12, **masks: Any
) -> None:
    """Compare a layer with the reference: its output and the gradients of every parameter and input."""
    inputs = [t.clone().requires_grad_() for t in (x, memory) if t is not None]
    extra = inputs[1:] or [None]
    ours = with_gradients(layer(inputs[0], extra[0], **masks), layer, inputs)
    expected = with_gradients(reference.attention(layer, inputs[0], extra[0], **masks)[0], layer, inputs)
    for name, value in ours.items():
        scale = expected[name].abs().max().clamp(min=1.0)
        error = float((value - expected[name]).abs().max() / scale)
        bound = tolerance if name == "output" else 10 * tolerance
        assert error <= bound, f"{name} differs by {error:.2g} (bound {bound:.2g})"
