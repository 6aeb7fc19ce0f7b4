"""Backend of last resort: compute the weights, then multiply. It never declines.

Large calls on the CPU run in chunks of a few examples, or of some rows of one example, so that only the weights of one
chunk exist at a time. The backward pass computes the weights of each chunk again.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from synthattn.engine import second_order, thresholds
from synthattn.engine.call import Call
from synthattn.engine.native.dropout import draw_seed
from synthattn.engine.projection import needs_grad
from synthattn.logits import Logits
from synthattn.masks import Mask
from synthattn.shapes import Float


def attend(call: Call) -> Float[Tensor, "batch heads q width"]:
    """Return softmax(logits) @ values, in chunks where the call is large."""
    if not _runs_in_chunks(call):
        return attend_whole(call)
    logits, value = call.logits, call.values.batch_major()
    tensors, rebuild = second_order.take_apart(logits)
    plan = _Plan(rebuild, call.mask, call.dropout, draw_seed() if call.dropout > 0.0 else 0, _chunks(call))
    if not needs_grad(value, *tensors):
        return _forward(plan, logits, value)
    return _Chunked.apply(plan, value, *tensors)  # pyright: ignore[reportReturnType]


def attend_whole(call: Call) -> Float[Tensor, "batch heads q width"]:
    """Return softmax(logits) @ values in two steps: all weights, then their product with the values."""
    weights, value = attention_weights(call.logits, call.mask), call.values.batch_major()
    weights = F.dropout(weights, call.dropout) if call.dropout > 0.0 else weights
    return weights.to(value.dtype) @ value


def attention_weights(logits: Logits, mask: Mask) -> Float[Tensor, "#batch heads q k"]:
    """Return the weights. Rows sum to one, or to zero where every key is masked."""
    total = logits.as_tensor()
    total = total if total.dim() == 4 else total.unsqueeze(0)
    q, k = logits.query_length, total.shape[-1]
    mask, empty = mask.within(logits.windows()).fill_empty_rows(q, k)
    allowed = mask.full(q, k, total.device)
    if allowed is not None:
        total = total.masked_fill(~allowed, float("-inf"))
    # Half precision has too few digits to sum a long row in.
    weights = total.softmax(-1, dtype=torch.promote_types(total.dtype, torch.float32)).to(total.dtype)
    return weights if empty is None else weights.masked_fill(empty, 0.0)


class _Chunk(NamedTuple):
    """Some rows of some examples, and the end of the keys that they can see."""

    examples: slice
    rows: slice
    end: int


class _Plan(NamedTuple):
    """The arguments of a call in chunks that are not tensors to differentiate."""

    rebuild: Callable[[Sequence[Tensor]], Logits]
    mask: Mask
    dropout: float
    seed: int
    chunks: list[_Chunk]


def _runs_in_chunks(call: Call) -> bool:
    if call.is_tracing:
        return False
    device = call.values.device.type
    least = thresholds.CHUNKED_LOGITS if device == "cpu" else thresholds.ACCELERATOR_CHUNK_LOGITS
    return not torch.is_autocast_enabled(device) and call.values.shape[0] * call.logits_per_example >= least


def _chunks(call: Call) -> list[_Chunk]:
    batch, heads, k, _ = call.values.shape
    on_cpu = call.values.device.type == "cpu"  # elsewhere, neither ask where padding ends, nor launch small kernels
    ends = [k] * batch
    if call.mask.unpadded is not None and on_cpu:
        ends = (call.mask.unpadded * torch.arange(1, k + 1, device="cpu")).amax(-1).clamp(min=1).tolist()
    size = thresholds.CHUNK_LOGITS if on_cpu else thresholds.ACCELERATOR_CHUNK_LOGITS
    together, height = max(1, size // (heads * call.q * k)), max(thresholds.CHUNK_ROWS, size // (heads * k))
    height = min(height, thresholds.CAUSAL_ROWS) if call.mask.causal and together == 1 and on_cpu else height
    found = []
    for examples in _slices(batch, together):
        for rows in _slices(call.q, height):
            end = max(ends[examples])
            found.append(_Chunk(examples, rows, min(end, rows.stop) if call.mask.causal else end))
    return found


def _slices(total: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, total)) for start in range(0, total, size)]


def _forward(plan: _Plan, logits: Logits, value: Tensor) -> Float[Tensor, "batch heads q width"]:
    batch, heads, _, width = value.shape
    result = value.new_empty(batch, logits.query_length, heads, width).transpose(1, 2)  # as the output projection reads
    for n, chunk in enumerate(plan.chunks):
        piece, some = _piece(logits, chunk), value[chunk.examples, :, : chunk.end]
        result[chunk.examples, :, chunk.rows] = _attend_chunk(plan, n, piece, some)
    return result


def _piece(logits: Logits, chunk: _Chunk) -> Logits:
    """Return the logits of a chunk. All of their tensors are views."""
    return Logits(tuple(term.rows(*chunk) for term in logits.terms))


def _attend_chunk(plan: _Plan, n: int, logits: Logits, value: Tensor) -> Float[Tensor, "some heads rows width"]:
    weights = attention_weights(logits, plan.mask.rows(*plan.chunks[n], value.device))
    if plan.dropout > 0.0:
        generator = torch.Generator(value.device).manual_seed(plan.seed + n)
        kept = torch.empty_like(weights).bernoulli_(1.0 - plan.dropout, generator=generator)
        weights = weights * kept.div_(1.0 - plan.dropout)
    return weights.to(value.dtype) @ value


class _Chunked(torch.autograd.Function):
    """Attention chunk by chunk. Inputs: the plan, the values, and the tensors that the logits are made of."""

    @staticmethod
    def forward(ctx: Any, plan: _Plan, value: Tensor, *tensors: Tensor) -> Tensor:
        ctx.save_for_backward(value, *tensors)
        ctx.plan = plan
        return _forward(plan, plan.rebuild(tensors), value)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        plan, wanted = ctx.plan, ctx.needs_input_grad[1:]
        value, *tensors = ctx.saved_tensors
        if second_order.is_wanted(grads[0]):

            def attend(value: Tensor, *tensors: Tensor) -> Tensor:
                return _forward(plan, plan.rebuild(tensors), value)

            return None, *second_order.gradients(attend, [value, *tensors], wanted, grads[0])
        totals = [torch.zeros_like(t) if want else t for t, want in zip((value, *tensors), wanted, strict=True)]
        logits, to_logits = plan.rebuild(tensors), plan.rebuild(totals[1:])
        for n, chunk in enumerate(plan.chunks):
            inputs, rebuild = second_order.take_apart(_piece(logits, chunk))
            targets, _ = second_order.take_apart(_piece(to_logits, chunk))

            def attend_chunk(value: Tensor, *tensors: Tensor, n: int = n, rebuild: Any = rebuild) -> Tensor:
                return _attend_chunk(plan, n, rebuild(tensors), value)

            keys, rows = (chunk.examples, slice(None), slice(chunk.end)), (chunk.examples, slice(None), chunk.rows)
            found = second_order.gradients(attend_chunk, [value[keys], *inputs], wanted, grads[0][rows])
            for target, gradient in zip([totals[0][keys], *targets], found, strict=True):
                if gradient is not None:
                    target.add_(gradient)
        return None, *(total if want else None for total, want in zip(totals, wanted, strict=True))
