"""Compute softmax(logits) @ values by the first backend that takes the call.

A backend is a module whose function ``attend`` takes a :class:`~synthattn.engine.call.Call` and returns the heads, or
None if it declines. It declines what it cannot compute exactly and what another backend computes faster. ``BACKENDS``
lists them in the order in which they are asked:

=================  ===================================================================================
by_distance        logits that depend on the distance alone, for long inputs: linear in the length
cached_weights     no logit depends on the input or needs a gradient: weights cached until parameters change
input_independent  no logit depends on the input: one product per head for the whole batch
windowed           the logits are a local window
compiled           products, and sums of them with biases: float32 on the CPU, where the kernel was compiled
flex               by choice, on accelerators: a product with tables beside it, in torch's flex_attention
sdpa               one product, or one with a bias; off the CPU sums of these: torch's fused kernel
plain              everything else, in chunks
=================  ===================================================================================
"""

from torch import Tensor

from synthattn.engine import by_distance, cached_weights, compiled, flex, input_independent, plain, sdpa, windowed
from synthattn.engine.call import Call
from synthattn.engine.plain import attention_weights
from synthattn.engine.projection import LazyValues
from synthattn.logits import Logits
from synthattn.masks import Mask
from synthattn.shapes import Float

Heads = Float[Tensor, "batch heads q width"]
BACKENDS = [by_distance, cached_weights, input_independent, windowed, compiled, flex, sdpa]


def run(call: Call) -> Heads:
    """Execute a call by the first backend that takes it."""
    for backend in BACKENDS:
        heads = backend.attend(call)
        if heads is not None:
            return heads
    return plain.attend(call)


def attend(
    logits: Logits, value: Float[Tensor, "batch heads k width"], mask: Mask | None = None, dropout: float = 0.0
) -> Heads:
    """Return softmax(logits) @ values over the keys that the mask allows. A row without keys gives zeros.

    ``dropout`` is the probability of dropping an attention weight. Input-independent logits drop for the whole batch.
    """
    if not 0.0 <= dropout < 1.0:
        raise ValueError(f"dropout must be at least 0 and below 1, got {dropout}")
    values = LazyValues(value, None, value.shape[1], value.shape[3])
    return run(Call(lambda: logits, values, mask or Mask(), logits.query_length, dropout))


__all__ = ["BACKENDS", "attend", "attention_weights", "run"]
