"""What every layer asks of its sizes and its inputs, in one line that says what to do."""

import torch
from torch import Tensor


def check_sizes(d_model: int, num_heads: int, head_dim: int | None, max_length: int | None, dropout: float) -> None:
    for name, number in (("d_model", d_model), ("num_heads", num_heads)):
        if number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}")
    if head_dim is None and d_model % num_heads:
        raise ValueError(
            f"num_heads={num_heads} does not divide d_model={d_model}; choose another number or give head_dim"
        )
    for name, number in (("head_dim", head_dim), ("max_length", max_length)):
        if number is not None and number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}")
    if not 0.0 <= dropout < 1.0:
        raise ValueError(f"dropout must be at least 0 and below 1, got {dropout}")


def check_tokens(name: str, x: Tensor, d_model: int) -> None:
    if x.dim() != 3:
        raise ValueError(f"{name} must have shape (batch, length, {d_model}), got {tuple(x.shape)}")
    if x.shape[0] == 0 or x.shape[1] == 0:
        raise ValueError(f"{name} holds no tokens: its shape is {tuple(x.shape)}")
    if x.shape[-1] != d_model:
        raise ValueError(f"{name} has width {x.shape[-1]}, the layer was built for d_model={d_model}")
    if not x.is_floating_point():
        raise ValueError(f"{name} must hold floats, got {str(x.dtype).removeprefix('torch.')}")


def check_positions(name: str, positions: Tensor | None, x: Tensor) -> None:
    if positions is None:
        return
    if positions.shape not in (x.shape[:2], x.shape[1:2]):
        raise ValueError(
            f"{name} must have shape (batch, length) = {tuple(x.shape[:2])} or (length,) = {tuple(x.shape[1:2])}, "
            f"got {tuple(positions.shape)}"
        )
    if positions.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"{name} must be whole numbers, got {str(positions.dtype).removeprefix('torch.')}")
