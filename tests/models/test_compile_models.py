"""Whole models in one graph for all lengths."""

from typing import Any

import pytest
import torch

from model_helpers import KINDS, ids, labels_for, make

pytestmark = pytest.mark.unchecked


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("seq2seq", "dense+vanilla"),
        ("masked-lm", ["lightconv(kernel=3)", "factorized_random"]),
    ],
    ids=str,
)
def test_one_graph(kind, spec):
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    layers = len(spec) if isinstance(spec, list) else 1
    model = make(KINDS[kind], spec, positions="relative", encoder_layers=layers, decoder_layers=layers)
    compiled = torch.compile(model, backend="eager", dynamic=True, fullgraph=True)
    options = {} if kind == "masked-lm" else {"use_cache": False}
    for length in (7, 11, 23):
        x = ids(2, length)
        mask = (torch.arange(length) < torch.tensor([[length], [length - 2]])).long()
        labels = labels_for(kind, x)
        found, expected = (m(x, attention_mask=mask, labels=labels, **options) for m in (compiled, model))
        kept = slice(None) if kind == "seq2seq" else mask.bool()  # what is said about padding is of no use
        torch.testing.assert_close(found.logits[kept], expected.logits[kept], rtol=0, atol=1e-9)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


class Plain(torch.nn.Module):
    """Tensors in, logits out, as ``torch.jit.trace`` wants it."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, mask):
        return self.model(x, attention_mask=mask, return_dict=True).logits


# Shapes that are compared, to refuse a mask that does not fit, are warned about.
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("positions", ["sinusoidal", "relative"])
@pytest.mark.parametrize("spec", ["random", "dense", "vanilla", "factorized_random+vanilla"])
def test_a_traced_model_reads_other_masks(spec, positions):
    """Traced without padding, it must not take it that there never is any."""
    model = make(KINDS["masked-lm"], spec, positions=positions)
    x = ids(2, 6)
    with torch.no_grad():
        traced: Any = torch.jit.trace(Plain(model), (x, torch.ones_like(x)), check_trace=False)
        for mask in (torch.tensor([[1] * 6, [1] * 4 + [0] * 2]), torch.tensor([[0, 0, 1, 1, 1, 1], [1] * 6])):
            kept = mask.bool()
            found, expected = traced(x, mask)[kept], model(x, attention_mask=mask).logits[kept]
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)
