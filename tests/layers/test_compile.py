"""torch.compile and torch.export agree with eager, for every spec and every length up to and including the longest."""

import shutil
from typing import Any

import pytest
import torch

from helpers import BATCH, HEADS, LENGTH, MAX_LENGTH, SPECS, make, padding, tokens
from synthattn.engine import thresholds

pytestmark = pytest.mark.unchecked

LENGTHS = [LENGTH, MAX_LENGTH, MAX_LENGTH - 1, 5, 17, 2]

# Every synthesizer, and all that mixtures do beside adding up terms.
DISTINCT = [spec for spec in SPECS if "+" not in spec]
DISTINCT += ["dense(shared_keys=true, shared_query=true, bias=false)+vanilla", "random+dense+vanilla+relative"]
# Every backend.
FEW = ["vanilla", "random", "dense(window=5)", "random+dense+vanilla+relative"]


@pytest.fixture(autouse=True)
def _thresholds_among_the_lengths(monkeypatch):
    """There are lengths on both sides of every size at which another backend takes over."""
    monkeypatch.setattr(thresholds, "COMPILED_LOGITS", HEADS * 14 * 14)
    monkeypatch.setattr(thresholds, "CHUNKED_LOGITS", BATCH * HEADS * 14 * 14)
    monkeypatch.setattr(thresholds, "LARGE_TABLE", HEADS * 20 * 20)
    monkeypatch.setattr(thresholds, "UNWRITTEN_WEIGHTS", HEADS * 20 * 20)
    monkeypatch.setattr(thresholds, "CAUSAL_ROWS", 12)
    monkeypatch.setattr(thresholds, "FUSED_KEYS", 16)


def check(layer, compiled, **masks):
    for length in LENGTHS:
        x = tokens(length, dtype=torch.float32)
        arguments = {name: mask(length) if callable(mask) else mask for name, mask in masks.items()}
        torch.testing.assert_close(compiled(x, **arguments), layer(x, **arguments))


@pytest.mark.parametrize(
    ("spec", "training", "masks"),
    [
        *((spec, True, {}) for spec in DISTINCT),
        *((spec, False, {"is_causal": True, "key_padding_mask": padding}) for spec in FEW),
    ],
)
def test_traced_in_one_graph_for_all_lengths(spec, training, masks):
    torch._dynamo.reset()
    layer = make(spec, torch.float32).train(training)
    graphs = 0

    def count(graph, inputs):
        nonlocal graphs
        graphs += 1
        return graph

    compiled = torch.compile(layer, backend=count, fullgraph=True, dynamic=True)
    with torch.set_grad_enabled(training):
        check(layer, compiled, **masks)
    assert graphs == 1


@pytest.mark.parametrize("spec", ["random", "factorized_dense"])
def test_without_further_options_other_lengths_are_compiled_once(spec):
    """``torch.compile(layer, fullgraph=True)`` compiles the first length, and then one graph for all others."""
    torch._dynamo.reset()
    layer = make(spec, torch.float32)
    graphs: list[Any] = []
    compiled = torch.compile(layer, backend=lambda graph, inputs: graphs.append(graph) or graph, fullgraph=True)
    check(layer, compiled, key_padding_mask=padding)
    assert len(graphs) == 2


@pytest.mark.parametrize(
    ("spec", "attn_mask"),
    [("random", "bool"), ("dense", "float"), ("random+vanilla", "float"), ("dense(window=5)", "bool")],
)
def test_traced_with_other_arguments(spec, attn_mask):
    """A mask, positions and a memory of another length, in one graph too."""
    torch._dynamo.reset()
    layer = make(spec, torch.float32)
    compiled = torch.compile(layer, backend="eager", fullgraph=True, dynamic=True)
    for q, k in ((LENGTH, 13), (MAX_LENGTH, 7), (5, MAX_LENGTH)):
        x, memory = tokens(q, dtype=torch.float32), tokens(k, seed=3, dtype=torch.float32)
        mask = torch.rand(q, k) < 0.3
        mask = mask if attn_mask == "bool" else torch.randn(q, k).masked_fill(mask, float("-inf"))
        arguments = {"attn_mask": mask, "positions": torch.arange(q).flip(0)}
        torch.testing.assert_close(compiled(x, memory, **arguments), layer(x, memory, **arguments))


def test_exported_with_an_attn_mask():
    layer = make("random+vanilla", torch.float32).eval()
    length = torch.export.Dim("length", min=2, max=MAX_LENGTH)
    arguments = {"attn_mask": torch.zeros(LENGTH, LENGTH, dtype=torch.bool)}
    shapes = {"x": {1: length}, "attn_mask": {0: length, 1: length}}
    exported = torch.export.export(layer, (tokens(dtype=torch.float32),), arguments, dynamic_shapes=shapes).module()
    for size in LENGTHS:
        x, mask = tokens(size, dtype=torch.float32), torch.rand(size, size) < 0.3
        torch.testing.assert_close(exported(x, attn_mask=mask), layer(x, attn_mask=mask))


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("spec", SPECS)
def test_traced_by_jit(spec):
    """Its own check passes: the graph is the same with and without gradients."""
    layer, x = make(spec, torch.float32).eval(), tokens(dtype=torch.float32)
    traced: Any = torch.jit.trace(layer, (x,))
    other = tokens(seed=4, dtype=torch.float32)
    torch.testing.assert_close(traced(other), layer(other))


@pytest.mark.parametrize("spec", SPECS)
def test_shapes_on_the_meta_device(spec):
    layer = make(spec, torch.float32).to("meta")
    x, pad = tokens(dtype=torch.float32).to("meta"), padding().to("meta")
    for arguments in ({}, {"is_causal": True}, {"key_padding_mask": pad}, {"attn_mask": pad[:1].expand(LENGTH, -1)}):
        assert layer(x, **arguments).shape == x.shape


# It takes long to derive a graph for any length, and whether that works does not depend on the synthesizer.
@pytest.mark.parametrize(
    ("spec", "dynamic"),
    [("factorized_dense", False), ("dense(window=5)", False), (FEW[-1], False), ("random", True)],
)
def test_gradients_through_the_compiled_layer(spec, dynamic):
    torch._dynamo.reset()
    layer, x = make(spec), tokens()
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    parameters = list(layer.parameters())
    ours = torch.autograd.grad(compiled(x, key_padding_mask=padding()).square().sum(), parameters)
    eager = torch.autograd.grad(layer(x, key_padding_mask=padding()).square().sum(), parameters)
    for a, b in zip(ours, eager, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile's default backend needs a C++ compiler")
def test_compiled_to_machine_code():
    torch._dynamo.reset()
    layer = make("random+vanilla", torch.float32).eval()
    compiled = torch.compile(layer, fullgraph=True, dynamic=True)
    with torch.no_grad():
        check(layer, compiled, key_padding_mask=padding)


@pytest.mark.parametrize(("spec", "masked"), [*((s, True) for s in DISTINCT), ("random", False), ("vanilla", False)])
def test_exported_with_a_dynamic_length(spec, masked):
    layer = make(spec, torch.float32).eval()
    length = torch.export.Dim("length", min=2, max=MAX_LENGTH)
    batch = torch.export.Dim("batch", min=1, max=8)
    arguments = {"key_padding_mask": padding()} if masked else {}
    shapes = {"x": {0: batch, 1: length}} | ({"key_padding_mask": {0: batch, 1: length}} if masked else {})
    exported = torch.export.export(layer, (tokens(dtype=torch.float32),), arguments, dynamic_shapes=shapes).module()
    with torch.no_grad():
        for size in LENGTHS:
            x = tokens(size, batch=BATCH + 1, dtype=torch.float32)
            extra = {"key_padding_mask": padding(size, BATCH + 1)} if masked else {}
            torch.testing.assert_close(exported(x, **extra), layer(x, **extra))
