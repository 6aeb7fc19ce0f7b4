"""The operators of torch that attention is: every argument is checked, any strides are read, tracing knows them."""

import ctypes
import math
import shutil
import subprocess
from typing import Any

import pytest
import torch
from torch import Tensor

from helpers import needs_kernels, refused
from synthattn.engine.native import library

pytestmark = needs_kernels

OPS = torch.ops.synthattn
B, H, Q, K, F, D = 2, 3, 5, 7, 11, 13


def arguments(**changes: Any) -> dict[str, Any]:
    """The arguments of ``attend`` for one product, with a bias, its weight, and ends of keys."""
    torch.manual_seed(0)
    given = {
        "value": torch.randn(B, H, K, D),
        "bias": torch.randn(H, Q, K),
        "weight": torch.randn(H, 1, 1),
        "diagonals": torch.randn(H, Q + K - 1),
        "queries": [torch.randn(B, H, Q, F)],
        "keys": [torch.randn(B, H, K, F)],
        "scales": [0.5],
        "ends": torch.tensor([[0, 2], [K, 6]]),
        "q": Q,
        "causal": False,
        "dropout": 0.0,
        "seed": 0,
    }
    return given | changes


def plain(given: dict[str, Any]) -> Tensor:
    """The result of ``attend`` by torch's own operations."""
    i, j = torch.arange(Q), torch.arange(K)
    total = given["weight"] * given["bias"] + given["diagonals"][:, j - i[:, None] + Q - 1]
    for query, key, scale in zip(given["queries"], given["keys"], given["scales"], strict=True):
        total = total + scale * query @ key.mT
    first, last = given["ends"][..., None]
    places = torch.arange(K)
    unpadded = (places >= first) & (places < last)
    return total.masked_fill(~unpadded[:, None, None], float("-inf")).softmax(-1) @ given["value"]


def backward_arguments(**changes: Any) -> dict[str, Any]:
    given = arguments()
    result, *needed = OPS.attend(**given, trains=True)
    above = torch.randn(result.shape)
    return {"above": above, "result": result, "needed": needed} | given | {"wanted": [True] * 6} | changes


def test_attend_and_its_gradient_equal_torch():
    given = backward_arguments()
    torch.testing.assert_close(given["result"], plain(given))
    sources = [given["value"], given["bias"], given["weight"], given["diagonals"], *given["queries"], *given["keys"]]
    found = OPS.attend_backward(**given)
    for source in sources:
        source.requires_grad_()
    expected = torch.autograd.grad(plain(given), sources, given["above"])
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def scattered(tensor: Tensor) -> Tensor:
    """An equal tensor whose memory has gaps and another order of axes."""
    return torch.repeat_interleave(tensor, 2, -1).mT.contiguous().mT[..., ::2]


def test_any_strides_are_read():
    given = backward_arguments()
    expected = OPS.attend_backward(**given)
    changed = {
        name: [scattered(t) for t in value] if name in ("queries", "keys") else value for name, value in given.items()
    }
    changed |= {name: scattered(given[name]) for name in ("value", "bias", "diagonals", "above", "result")}
    inputs = {name: changed[name] for name in arguments()}
    torch.testing.assert_close(OPS.attend(**inputs, trains=False)[0], given["result"])
    for ours, theirs in zip(OPS.attend_backward(**changed), expected, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"value": torch.zeros(B, H, K, D).double()}, "value must be a dense float32 tensor on the CPU, got float64"),
        ({"value": torch.zeros(H, K, D)}, "value must have shape (batch, heads, keys, width), got (3, 7, 13)"),
        ({"value": torch.zeros(B, H, 0, D)}, "value is empty: its shape is (2, 3, 0, 13)"),
        (
            {"value": torch.zeros(B, H, K + 1, D)},
            "keys[0] must have shape (batch 1 or 2, heads 1 or 3, keys 8, width 11)",
        ),
        ({"value": torch.zeros(B, H + 1, K, D)}, "queries[0] must have shape (batch 1 or 2, heads 1 or 4"),
        (
            {"bias": torch.zeros(H, Q, K - 1)},
            "bias must have shape (batch 1 or 2, heads 1 or 3, queries 1 or 5, keys 7)",
        ),
        ({"bias": torch.zeros(H, 2, K)}, "got (3, 2, 7)"),
        ({"bias": torch.zeros(3, H, Q, K)}, "got (3, 3, 5, 7)"),
        ({"bias": torch.zeros(Q, K)}, "got (5, 7)"),
        ({"bias": None}, "weight is that of a bias, but there is no bias"),
        ({"weight": torch.zeros(2, 1, 1)}, "weight must have shape () or (1 or 3, 1, 1), got (2, 1, 1)"),
        (
            {"diagonals": torch.zeros(H, Q + K)},
            "diagonals must have shape (heads 3, distances 11), got (3, 12)",
        ),
        ({"diagonals": torch.zeros(Q + K - 1)}, "distances 11), got (11,)"),
        ({"diagonals": torch.zeros(1, Q + K - 1)}, "distances 11), got (1, 11)"),
        ({"diagonals": torch.zeros(H, Q + K - 1).half()}, "diagonals must be a dense float32 tensor on the CPU, got"),
        ({"diagonals": torch.zeros(H, 0)}, "diagonals is empty: its shape is (3, 0)"),
        ({"queries": []}, "got 0 queries, 1 keys and 1 scales"),
        ({"scales": [1.0, 1.0]}, "got 1 queries, 1 keys and 2 scales"),
        ({"queries": [torch.zeros(B, H, Q - 1, F)]}, "queries[0] must have shape"),
        ({"queries": [torch.zeros(())]}, "queries[0] must have shape"),
        ({"queries": [torch.zeros(B, H, Q, F - 1)]}, "keys[0] must have shape"),
        ({"keys": [torch.zeros(B, H, K, F).half()]}, "keys[0] must be a dense float32 tensor on the CPU, got float16"),
        ({"q": 0}, "the number of queries must be at least 1, got 0"),
        ({"q": 2**40}, "queries[0] must have shape"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
        ({"dropout": math.nan}, "dropout must be at least 0 and below 1, got nan"),
        (
            {"ends": torch.tensor([[0, 2], [K, K + 1]])},
            "ends must lie in order between 0 and 7, got 2 and 8 for example 1",
        ),
        ({"ends": torch.tensor([[0, -1], [K, K]])}, "got -1 and 7 for example 1"),
        ({"ends": torch.tensor([[5, 0], [3, K]])}, "got 5 and 3 for example 0"),
        ({"ends": torch.tensor([[0, 0], [K, K]]).int()}, "ends must be int64 of shape (2, 2)"),
        ({"ends": torch.tensor([[0], [K]])}, "ends must be int64 of shape (2, 2)"),
    ],
)
def test_attend_refuses(changes, message):
    with refused(message):
        OPS.attend(**arguments(**changes), trains=True)
    with refused(message):
        OPS.attend_backward(**backward_arguments(**changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"above": torch.zeros(B, H, Q, D - 1)}, "above must have shape (2, 3, 5, 13), got (2, 3, 5, 12)"),
        ({"above": torch.zeros(B, H, Q, D).double()}, "above must be a dense float32 tensor on the CPU"),
        ({"result": torch.zeros(B, H, Q + 1, D)}, "result must have shape (2, 3, 5, 13)"),
        ({"needed": []}, "needed must hold as many tensors as attend returned, 1, got 0"),
        ({"needed": [torch.zeros(B, H, Q - 1)]}, "needed[0] must have shape (2, 3, 5), got (2, 3, 4)"),
        ({"needed": [torch.zeros(B, H, Q), torch.zeros(4), torch.zeros(4)]}, "attend returned, 1, got 3"),
        ({"wanted": [True] * 4}, "wanted must have 6 entries for 1 products, got 4"),
        ({"weight": None}, "the gradient of a bias, of its weight or of diagonals is wanted, but there is none"),
        ({"diagonals": None}, "the gradient of a bias, of its weight or of diagonals is wanted, but there is none"),
    ],
)
def test_the_gradient_refuses(changes, message):
    with refused(message):
        OPS.attend_backward(**backward_arguments(**changes))


@torch.no_grad()
def test_memory_that_is_gone_is_not_read():
    for size in (0, 16):
        value = torch.randn(B, H, K, D)
        value.untyped_storage().resize_(size)
        with refused("value has too little memory for its shape: its storage was resized"):
            OPS.attend(**arguments(value=value), trains=False)


def test_gradients_are_refused_not_lost():
    given = arguments(value=torch.randn(B, H, K, D, requires_grad=True))
    with pytest.raises(RuntimeError, match=r"torch.ops.synthattn.attend has no gradient"):
        OPS.attend(**given, trains=True)
    with torch.no_grad():
        OPS.attend(**given, trains=True)


@pytest.mark.parametrize("wide", [False, True])
def test_fake_tensors_are_like_real_ones(wide):
    """Shapes, types and strides, where exponentials are kept for the backward pass and where not."""
    given = arguments(queries=[torch.randn(B, H, Q, 29)], keys=[torch.randn(B, H, K, 29)]) if wide else arguments()
    checks = ("test_schema", "test_faketensor")
    torch.library.opcheck(OPS.attend, (), {**given, "trains": True}, test_utils=checks)
    result, *needed = OPS.attend(**given, trains=True)
    assert len(needed) == (3 if wide else 1)
    backward = {"above": torch.randn(result.shape), "result": result, "needed": needed, **given, "wanted": [True] * 6}
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True):
        fake = OPS.attend_backward(**backward)
    real = OPS.attend_backward(**backward)
    assert [t.shape for t in fake] == [t.shape for t in real]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a compiler")
def test_structures_are_laid_out_as_a_compiler_does(tmp_path):
    structures = {"attention.c": ["Rows", "Problem", "Forward", "Backward"], "gemm.h": ["Matrix", "Gemm"]}
    for source, names in structures.items():
        lines = [f'#include "{library.FOLDER / source}"', "#include <stddef.h>"]
        for name in names:
            structure = getattr(library, name)
            assert len(structure._fields_) > 3
            lines.append(f'_Static_assert(sizeof({name}) == {ctypes.sizeof(structure)}, "{name}");')
            for field, _ in structure._fields_:
                offset = getattr(structure, field).offset
                lines.append(f'_Static_assert(offsetof({name}, {field}) == {offset}, "{field}");')
        (tmp_path / "layout.c").write_text("\n".join(lines))
        subprocess.run(["gcc", "-fsyntax-only", '-DSOURCE=""', tmp_path / "layout.c"], check=True)
