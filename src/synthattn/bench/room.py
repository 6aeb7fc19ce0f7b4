"""How much memory contenders hold while others have their turn, known before they are built."""

import torch

from synthattn.bench import layers, memory
from synthattn.bench.record import Case
from synthattn.layers import SyntheticAttention

BUDGET = 6 * 10**9
"""Bytes that those who are timed in the same rounds may hold together: a quarter of what a machine with 24 GB has. What
one of them needs while it runs comes on top, and the operands of matrix products alone, which all of them share."""
LARGE = 10**9
"""Bytes of the logits of a call. Who writes down more needs so much memory that it runs beside few others."""
WRITTEN = {"Hugging Face T5": 5, layers.STRAIGHTFORWARD: 5}
"""How often, about, by what is in the name of a contender, when it is trained."""


def held_bytes(name: str, case: Case) -> int:
    """Weights, and what stays with them after a call: gradients, an optimizer's averages, weights in caches."""
    with torch.device("meta"):
        module = memory.home(case).make(name, case.length)
    tables = sum(_bytes(each) for each in module.buffers())
    copies = 3 if case.kind == "train" else 2 if case.mode == "train" else 1
    trained = copies * sum(_bytes(each) for each in module.parameters())
    kept = sum(_kept(each) for each in module.modules() if isinstance(each, SyntheticAttention))
    # The input; in training its gradient as well, and the one to go back from.
    tokens = (3 if case.mode == "train" else 1) * 4 * case.batch * case.length * layers.D_MODEL
    return tables + trained + kept + tokens + _written(name, case)


def _written(name: str, case: Case) -> int:
    logits = 4 * case.batch * layers.HEADS * case.length**2
    if logits <= LARGE or case.kind != "layer":
        return 0
    return logits * max((times for part, times in WRITTEN.items() if part in name), default=0)


def _kept(layer: SyntheticAttention) -> int:
    shared = layer.synthesizer.input_independent and layer.max_length is not None
    return 4 * layer.num_heads * (layer.max_length or 0) ** 2 if shared else 0


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
