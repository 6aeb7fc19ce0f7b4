"""Attention by the compiled kernel, with gradients."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from synthattn.engine import second_order
from synthattn.engine.native import kernel
from synthattn.engine.native.dropout import kept_weights
from synthattn.logits import Bias, Logits, LogitTerm, Product
from synthattn.masks import Mask


def attention(
    value: Tensor,
    bias: Tensor | None,
    weight: Tensor | None,
    queries: list[Tensor],
    keys: list[Tensor],
    scales: list[float],
    ends: Tensor | None,
    q: int,
    causal: bool,
    dropout: float,
    seed: int,
) -> Tensor:
    """Return dropout(softmax(sum_n scale_n Q_n K_n^T + weight * bias)) V."""
    tensors = [value, bias, weight, *queries, *keys]
    trains = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)
    setting = scales, ends, q, causal, dropout, seed
    return _Attend.apply(setting, trains, *(None if t is None else kernel.readable(t) for t in tensors))  # pyright: ignore


class _Attend(torch.autograd.Function):
    """Inputs: scales of the products, ends of the keys and whether it is causal; whether a backward pass may follow,
    which can no longer be told inside; value, bias and its weight (or None), queries and keys of the products."""

    @staticmethod
    def forward(ctx: Any, setting: Any, trains: bool, *tensors: Tensor | None) -> Tensor:
        scales, ends, q, causal, dropout, seed = setting
        value, bias, weight, *features = tensors
        n = len(scales)
        queries, keys = features[:n], features[n:]
        result, *needed = kernel.ATTEND(
            value, bias, weight, queries, keys, scales, ends, q, causal, dropout, seed, trains
        )
        if trains:
            ctx.save_for_backward(result, *tensors, *needed)
            ctx.setting, ctx.given = setting, len(tensors)
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        scales, ends, q, causal, dropout, seed = ctx.setting
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
                dropout,
                seed,
                wanted,
            )
        )
        return None, None, *(next(found) if want else None for want in wanted)


def _in_torch(setting: Any) -> Callable[..., Tensor]:
    """Return a function that computes in torch's own operations what the kernel computes with these settings."""
    scales, ends, q, causal, dropout, seed = setting

    def attend(value: Tensor, bias: Tensor | None, weight: Tensor | None, *features: Tensor) -> Tensor:
        n, keep = len(scales), None
        if ends is not None:
            first, last = ends.unsqueeze(-1)
            places = torch.arange(value.shape[-2])
            keep = (places >= first) & (places < last)
        terms: list[LogitTerm] = [Product(*some) for some in zip(features[:n], features[n:], scales, strict=True)]
        terms += [] if bias is None else [Bias(bias, weight)]
        kept, (batch, heads, k, _) = None, value.shape
        if dropout > 0.0:
            kept = kept_weights(dropout, seed, (batch, heads, q, k)) / (1.0 - dropout)
        return second_order.softmax_times_value(Logits(tuple(terms)), value, Mask(keep, causal), kept)

    return attend
