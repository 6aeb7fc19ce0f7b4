"""Operators of torch: their registration, and the checks that every call of a kernel goes through first."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_in_torch_dispatch_mode
from torch.utils._pytree import tree_leaves

from synthattn.masks import has_memory, name_of

_FLOAT, _STRIDED = torch.float32, torch.strided
_LIBRARY = torch.library.Library("synthattn", "DEF")


def register(schema: str, function: Callable[..., Any], fake: Callable[..., Any]) -> Any:
    """Register an operator of torch for tensors on the CPU, with a fake implementation for tracing.

    The operator has no gradient. Where one is asked for it raises an error: torch would only warn, and go on without.
    """
    _LIBRARY.define(schema)
    name = schema.split("(")[0]
    operator = getattr(torch.ops.synthattn, name)

    def checked_fake(*arguments: Any) -> Any:
        devices = sorted({str(t.device) for t in _tensors(arguments)})
        if len(devices) > 1:  # a tensor on the meta device among others brings a call here
            raise ValueError(f"all tensors of synthattn.{name} must be on one device, got {' and '.join(devices)}")
        return fake(*arguments)

    def without_gradient(*arguments: Any) -> Any:
        if torch.is_grad_enabled() and any(t.requires_grad for t in _tensors(arguments)):
            raise RuntimeError(
                f"torch.ops.synthattn.{name} has no gradient; call it in torch.no_grad(), or use SyntheticAttention"
            )
        with torch._C._AutoDispatchBelowAutograd():
            return operator(*arguments)

    _LIBRARY.impl(name, function, "CPU")
    _LIBRARY.impl(name, without_gradient, "AutogradCPU")
    torch.library.register_fake(f"synthattn::{name}", checked_fake, lib=_LIBRARY)
    return operator


def _tensors(arguments: Any) -> list[Tensor]:
    return [t for t in tree_leaves(arguments) if isinstance(t, Tensor)]


def is_observed() -> bool:
    """Return True if a dispatch mode looks at operators; otherwise calling one takes longer than its work."""
    return is_in_torch_dispatch_mode()


def are_plain_floats(tensor: Tensor) -> bool:
    """Return True if the tensor is float32 memory of the CPU that can be read as it lies, row by row."""
    return (
        tensor.dtype is _FLOAT
        and tensor.is_cpu
        and tensor.layout is _STRIDED
        and not tensor.is_neg()  # its memory holds the numbers with the other sign
        and tensor.data_ptr() != 0  # it is 0 where the tensor is empty, or its storage was resized to nothing
    )


def are_whole_floats(tensor: Tensor) -> bool:
    """Return True if the tensor is float32 memory of the CPU without gaps. Asked some hundred times for each token."""
    return are_plain_floats(tensor) and tensor.is_contiguous()


def check_floats(name: str, tensor: Tensor) -> None:
    """Refuse a tensor whose numbers a kernel cannot read."""
    if not isinstance(tensor, Tensor):  # torch hands None to an operator as it is
        raise ValueError(f"{name} must be a tensor, got {type(tensor).__name__}")
    if tensor.dtype != torch.float32 or tensor.device.type != "cpu" or tensor.layout != torch.strided:
        raise ValueError(
            f"{name} must be a dense float32 tensor on the CPU, got {name_of(tensor.dtype)} on "
            f"{tensor.device} ({name_of(tensor.layout)})"
        )
    if tensor.numel() == 0:
        raise ValueError(f"{name} is empty: its shape is {tuple(tensor.shape)}")
    if not are_plain_floats(tensor) or not has_memory(tensor):
        raise ValueError(f"{name} has too little memory for its shape: its storage was resized")
