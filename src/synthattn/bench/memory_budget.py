"""Estimate the memory that a contender holds between its calls, before it is built."""

import torch

from synthattn.bench import layers, memory
from synthattn.bench.record import Case
from synthattn.layers import SyntheticAttention

BUDGET = 6 * 10**9
"""Bytes that contenders of the same rounds may hold together: a quarter of 24 GB. A call of one of them needs memory on
top of that, and so do the operands of matrix products alone, which all of them share."""
LARGE = 10**9
"""Bytes of the logits of one call from which a contender that writes them runs beside few others."""
WRITTEN = {"Hugging Face T5": 5, layers.STRAIGHTFORWARD: 5}
"""Copies of the logits that training writes, about, by a part of the contender's name."""


def held_bytes(name: str, case: Case) -> int:
    """Count weights and what stays with them after a call: gradients, averages of an optimizer, weights in caches."""
    with torch.device("meta"):
        module = memory.home(case).make(name, case.length)
    buffers = sum(tensor.nbytes for tensor in module.buffers())
    copies = 3 if case.kind == "train" else 2 if case.mode == "train" else 1
    trained = copies * sum(tensor.nbytes for tensor in module.parameters())
    kept = sum(_kept_weights(each) for each in module.modules() if isinstance(each, SyntheticAttention))
    # The input; in training also its gradient, and the gradient of the output.
    tokens = (3 if case.mode == "train" else 1) * 4 * case.batch * case.length * layers.D_MODEL
    logits = 4 * case.batch * layers.HEADS * case.length**2
    written = max((times for part, times in WRITTEN.items() if part in name), default=0)
    large = case.kind == "layer" and logits > LARGE
    return buffers + trained + kept + tokens + (written * logits if large else 0)


def _kept_weights(layer: SyntheticAttention) -> int:
    shared = layer.synthesizer.input_independent and layer.max_length is not None
    return 4 * layer.num_heads * (layer.max_length or 0) ** 2 if shared else 0
