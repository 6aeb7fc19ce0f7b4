"""Checks of the sizes and inputs of layers. Each error is one line that says what to do."""

import torch
from torch import Tensor

from synthattn.masks import check_tensor, name_of


def check_sizes(d_model: int, num_heads: int, head_dim: int | None, max_length: int | None, dropout: float) -> None:
    """Raise a ValueError for sizes that no layer can have."""
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


def check_resize(max_length: int, how: str) -> None:
    """Raise a ValueError for wrong arguments of ``resize_max_length``."""
    if how not in ("pad", "interpolate"):
        raise ValueError(f"how must be 'pad' or 'interpolate', got {how!r}")
    if max_length < 1:
        raise ValueError(f"max_length must be at least 1, got {max_length}")


def check_tokens(name: str, x: Tensor, d_model: int) -> None:
    """Raise a ValueError unless tokens are a tensor of floats with the width of the layer."""
    check_tensor(name, x)
    if x.dim() != 3:
        raise ValueError(f"{name} must have shape (batch, length, {d_model}), got {tuple(x.shape)}")
    if x.shape[0] == 0 or x.shape[1] == 0:
        raise ValueError(f"{name} holds no tokens: its shape is {tuple(x.shape)}")
    if x.shape[-1] != d_model:
        raise ValueError(f"{name} has width {x.shape[-1]}, the layer was built for d_model={d_model}")
    if not x.is_floating_point():
        raise ValueError(f"{name} must hold floats, got {name_of(x.dtype)}")


def check_offset(offset: int) -> None:
    """Raise a ValueError unless the number of earlier tokens is a whole number of at least 0."""
    if not isinstance(offset, int | torch.SymInt):
        raise ValueError(f"offset must be a whole number, got {type(offset).__name__}")
    if offset < 0:
        raise ValueError(f"offset is the number of tokens before x, which is at least 0, got {offset}")


def check_position_bias(bias: Tensor, batch: int, heads: int, q: int, k: int) -> None:
    """Raise a ValueError unless a bias broadcasts against the logits and has as many keys."""
    check_tensor("position_bias", bias)
    shape = tuple(bias.shape)
    fits = (
        len(shape) in (3, 4)
        and shape[-1] == k
        and shape[-2] in (1, q)
        and shape[-3] in (1, heads)
        and (len(shape) == 3 or shape[0] in (1, batch))
    )
    if not fits:
        raise ValueError(
            f"position_bias must have shape (1 or heads, 1 or queries, keys) = (1 or {heads}, 1 or {q}, {k}), or that "
            f"with a first axis of 1 or batch = {batch}, got {shape}"
        )
    if not bias.is_floating_point():
        raise ValueError(f"position_bias must hold floats, got {name_of(bias.dtype)}")


def check_projected_memory(
    keys: Tensor | None, values: Tensor, batch: int, heads: int, key_width: int, width: int
) -> None:
    """Raise a ValueError unless projected memory fits the layer and the batch. A layer without keys has key width 0."""
    check_tensor("values of memory", values)
    if keys is not None:
        check_tensor("keys of memory", keys)
    if (keys is None) != (key_width == 0):
        raise ValueError(f"memory was projected {'without' if keys is None else 'with'} keys, by another layer")
    if values.dim() == 4 and values.shape[0] != batch:
        raise ValueError(f"x has {batch} examples, memory has {values.shape[0]}")
    length = values.shape[-2] if values.dim() > 1 else 0
    for name, tensor, size in (("values", values, width), ("keys", keys, key_width)):
        if tensor is None:
            continue
        if tensor.shape != (batch, heads, length, size) or length == 0:
            raise ValueError(
                f"memory has {name} of shape {tuple(tensor.shape)}, this layer needs (batch, heads, tokens, width) = "
                f"({batch}, {heads}, {length or 'at least 1'}, {size}); it was projected by another layer"
            )
        if not tensor.is_floating_point():
            raise ValueError(f"{name} of memory must hold floats, got {name_of(tensor.dtype)}")


def check_positions(name: str, positions: Tensor | None, x: Tensor) -> None:
    """Raise a ValueError unless positions are one whole number per token, for all examples or for each."""
    if positions is None:
        return
    check_tensor(name, positions)
    if positions.shape not in (x.shape[:2], x.shape[1:2]):
        raise ValueError(
            f"{name} must have shape (batch, length) = {tuple(x.shape[:2])} or (length,) = {tuple(x.shape[1:2])}, "
            f"got {tuple(positions.shape)}"
        )
    if positions.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"{name} must be whole numbers, got {name_of(positions.dtype)}")
