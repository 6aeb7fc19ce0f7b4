"""What torch's fused kernel cannot do, compiled: a bias that wants a gradient, sums of several products of features.

The kernel is ``attention.c``. It is there where the package was installed with a C compiler at hand, on Linux for
processors with AVX2 or AVX-512. Elsewhere, in float64, and for biases in compact form,
:mod:`synthattn.engine.blockwise` does the same with torch's own operations. Padding is never multiplied, nor is the
future; a row without keys gives zeros.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from synthattn.engine import second_order
from synthattn.engine.native import kernel
from synthattn.engine.native.library import load
from synthattn.logits import Features, Logits
from synthattn.masks import Mask
from synthattn.shapes import Float, Int
from synthattn.tracing import is_tracing

# Below this many logits per example, torch's operations are as fast.
SMALL_EXAMPLE = 2**16
# Tables from this size on are not written down anew to add something to them, nor made of thin factors.
LARGE = 2**22
# So many more columns of queries and keys cost each example no more than to read a table that is made of them once.
THIN = 16


def attend(
    logits: Logits, value: Float[Tensor, "batch heads k width"], mask: Mask
) -> Float[Tensor, "batch heads q width"] | None:
    """Softmax(logits) @ value, or None where the kernel is not there or cannot do it."""
    if not _applies(logits, value):
        return None
    logits = logits.with_shared_features_as_bias(_widest(logits, value))
    large = logits.key_bias is not None and logits.bias is not None and logits.bias.numel() >= LARGE
    return _attend(_with_product_for_keys(logits, value) if large else logits.with_one_bias(), value, mask)


def attend_shared(
    logits: Logits, value: Float[Tensor, "heads k columns"], causal: bool
) -> Float[Tensor, "heads q columns"] | None:
    """The same for logits that all examples share, whose values are side by side."""
    features = tuple(Features(f.query.unsqueeze(0), f.key, f.scale) for f in logits.features)
    logits, value = replace(logits.with_one_bias(), features=features), value.unsqueeze(0)
    if len(logits.compact) > 0 or not _takes(logits, value):
        return None
    result = _attend(logits, value, Mask(causal=causal))
    return None if result is None else result[0]


def _attend(logits: Logits, value: Tensor, mask: Mask) -> Tensor | None:
    ends = None
    if mask.keep is not None and not mask.per_example:
        ends = _ends(mask.keep)
        if ends is None:
            return None
    if mask.allowed is not None or not _weight_per_head(logits, value.shape[1]):
        logits = logits.weighed()
    bias = mask.added_to(logits.bias, value, logits.query_length)
    weight = logits.weight
    if isinstance(weight, float | int):
        weight = value.new_tensor(weight)
    features = logits.features
    tensors = [value, bias, weight, *(f.query for f in features), *(f.key for f in features)]
    trains = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)
    setting = [f.scale for f in features], ends, logits.query_length, mask.causal and not mask.per_example
    return _Attend.apply(setting, trains, *(None if t is None else kernel.readable(t) for t in tensors))  # pyright: ignore


def _applies(logits: Logits, value: Tensor) -> bool:
    return (
        not is_tracing(value)  # before anything is asked of its sizes, which a traced graph would be bound to
        and any(not features.batch_free for features in logits.features)
        # Else torch has a kernel of its own.
        and (logits.bias is not None or logits.key_bias is not None or len(logits.features) > 1)
        and len(logits.compact) == 0
        and value.shape[1] * logits.query_length * logits.key_length >= SMALL_EXAMPLE
        and _takes(logits, value)
    )


def _takes(logits: Logits, value: Tensor) -> bool:
    """Return True if the kernel was compiled, and is for tensors like these."""
    if is_tracing(value):
        return False
    tensors = [value, *(t for f in logits.features for t in (f.query, f.key))]
    tensors += [bias for bias in (logits.bias, logits.key_bias) if bias is not None]
    return (
        value.numel() > 0
        and logits.query_length > 1
        and all(f.query.shape[-3] == value.shape[1] for f in logits.features)
        and all(f.query.dim() == 3 or len(f.query) == len(value) for f in logits.features)
        # Only what is a piece of memory and nothing else.
        and all(type(t) in (Tensor, nn.Parameter) for t in tensors)
        and all(t.dtype == torch.float32 and t.device.type == "cpu" for t in tensors)
        and not torch.is_autocast_enabled("cpu")
        and load() is not None
    )


def _widest(logits: Logits, value: Tensor) -> int:
    """How wide batch-free features may be to stay what they are."""
    return value.shape[-1] if value.shape[1] * logits.query_length * logits.key_length >= LARGE else THIN


def _with_product_for_keys(logits: Logits, value: Tensor) -> Logits:
    """The same with the bias of keys as one more product, of ones with it."""
    assert logits.key_bias is not None
    ones = value.new_ones(1, 1, 1, 1).expand(*value.shape[:2], logits.query_length, 1)
    return replace(logits, features=(*logits.features, Features(ones, logits.key_bias.mT)), key_bias=None)


def _ends(keep: Tensor) -> Int[Tensor, "2 batch"] | None:
    """The first key of each example and the one after its last; None where there is padding between them."""
    marks = keep.to(torch.uint8)
    first, count = marks.argmax(1), marks.sum(1)
    last = torch.where(count == 0, first, keep.shape[1] - marks.flip(1).argmax(1))
    return torch.stack([first, last]) if torch.equal(last - first, count) else None


def _weight_per_head(logits: Logits, heads: int) -> bool:
    weight = logits.weight
    if not isinstance(weight, Tensor):
        return True
    return weight.dtype == torch.float32 and weight.shape in ((), (1, 1, 1), (heads, 1, 1))


class _Attend(torch.autograd.Function):
    """Inputs: scales of the products, ends of the keys and whether it is causal; whether a backward pass may follow,
    which can no longer be told inside; value, bias and its weight (or None), queries and keys of the products."""

    @staticmethod
    def forward(ctx: Any, setting: Any, trains: bool, *tensors: Tensor | None) -> Tensor:
        scales, ends, q, causal = setting
        value, bias, weight, *features = tensors
        n = len(scales)
        queries, keys = features[:n], features[n:]
        result, *needed = kernel.ATTEND(value, bias, weight, queries, keys, scales, ends, q, causal, trains)
        if trains:
            ctx.save_for_backward(result, *tensors, *needed)
            ctx.setting, ctx.given = setting, len(tensors)
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        scales, ends, q, causal = ctx.setting
        result, *rest = ctx.saved_tensors
        tensors, needed = rest[: ctx.given], rest[ctx.given :]
        n, wanted = len(scales), list(ctx.needs_input_grad[2:])
        if second_order.is_wanted(grads[0]):
            return None, None, *second_order.gradients(_in_torch(ctx.setting), tensors, wanted, grads[0])
        value, bias, weight, *features = tensors
        found = iter(
            kernel.ATTEND_BACKWARD(
                grads[0],
                result,
                needed,
                value,
                bias,
                weight,
                features[:n],
                features[n:],
                scales,
                ends,
                q,
                causal,
                wanted,
            )
        )
        return None, None, *(next(found) if want else None for want in wanted)


def _in_torch(setting: Any) -> Callable[..., Tensor]:
    """Return a function that computes in torch's own operations what the kernel computes with these settings."""
    scales, ends, _, causal = setting

    def attend(value: Tensor, bias: Tensor | None, weight: Tensor | None, *features: Tensor) -> Tensor:
        n, keep = len(scales), None
        if ends is not None:
            first, last = ends.unsqueeze(-1)
            places = torch.arange(value.shape[-2])
            keep = (places >= first) & (places < last)
        terms = tuple(Features(q, k, s) for q, k, s in zip(features[:n], features[n:], scales, strict=True))
        return second_order.softmax_times_value(Logits(terms, bias, weight=weight), value, Mask(keep, causal))

    return attend


__all__ = ["attend", "attend_shared", "kernel", "load"]
