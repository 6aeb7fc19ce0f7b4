"""A CUDA device made of Python: tensors that say that they are on ``cuda:0`` and compute on the CPU.

The CPU builds of torch end the process when a gradient is recorded for a fake CUDA tensor. These tensors have gradients
and values, so that the paths for accelerators are compared with the equations. As on a device without synchronisation,
nobody may read a value, and tensors of two devices do not mix.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map

CUDA = torch.device("cuda", 0)
_READERS = {"_local_scalar_dense", "equal", "nonzero", "masked_select", "item", "is_nonzero", "unique_dim", "_unique2"}


class ValueReadError(AssertionError):
    """The code has asked for a value, for which an accelerator would have to be waited for."""


class DeviceMismatchError(AssertionError):
    """Tensors of two devices meet in one operation."""


class OnAccelerator(Tensor):
    """A tensor on the device. ``inner`` holds its values."""

    inner: Tensor  # pyright: ignore
    __torch_function__ = torch._C._disabled_torch_function_impl  # pyright: ignore

    @staticmethod
    def __new__(cls, inner: Tensor, requires_grad: bool = False) -> "OnAccelerator":
        made = Tensor._make_wrapper_subclass(  # pyright: ignore[reportAttributeAccessIssue]
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device="cpu",  # pyright: ignore
            requires_grad=requires_grad,
        )
        made.inner = inner
        return made

    def __init__(self, inner: Tensor, requires_grad: bool = False) -> None:
        super().__init__()

    device = property(lambda self: CUDA)  # pyright: ignore
    is_cpu = property(lambda self: False)  # pyright: ignore
    is_cuda = property(lambda self: True)  # pyright: ignore

    def to(self, *args: Any, **kwargs: Any) -> Tensor:
        """Convert to another type; copies to the CPU wait for the accelerator."""
        for target in (*args, *kwargs.values()):
            if isinstance(target, torch.device | str) and torch.device(target).type == "cpu":
                raise ValueReadError("a copy to the CPU waits for the accelerator")
        types = [target for target in (*args, *kwargs.values()) if isinstance(target, torch.dtype)]
        return super().to(*types) if types else self  # pyright: ignore

    def tolist(self) -> Any:
        if not _waits:
            raise ValueReadError("tolist reads values")
        _waits[-1] += 1
        return self.inner.tolist()

    def __repr__(self, *_: Any, **__: Any) -> str:
        return f"OnAccelerator({tuple(self.shape)}, {self.dtype})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in _READERS:
            raise ValueReadError(f"{name} reads a value")
        flat, _ = tree_flatten((args, kwargs or {}))
        if name != "copy_" and any(type(t) is not cls and isinstance(t, Tensor) and t.dim() > 0 for t in flat):
            raise DeviceMismatchError(f"{name} gets tensors of the CPU and of the accelerator")
        by = args[1] if name in ("index", "index_put", "index_put_") else ()
        if any(isinstance(t, Tensor) and t.dtype == torch.bool for t in by):
            raise ValueReadError(f"{name} by a mask has to count its entries")
        result = func(*tree_map(_inner, args), **tree_map(_inner, kwargs or {}))
        returned = [argument for argument in func._schema.returns if argument.alias_info is not None]
        if returned and returned[0].alias_info.is_write:  # in place, or with out=
            target = (kwargs or {}).get("out", args[0])
            if name.endswith("_") and target.shape != result.shape:
                raise AssertionError(f"{name} changes a shape")
            return target
        return tree_map(lambda t: cls(t) if isinstance(t, Tensor) else t, result)


def _inner(value: Any) -> Any:
    return value.inner if isinstance(value, OnAccelerator) else value


_waits: list[int] = []


@contextmanager
def waits(allowed: int) -> Iterator[None]:
    """Let code wait for the accelerator by ``tolist`` so many times."""
    _waits.append(0)
    try:
        yield
        assert _waits[-1] <= allowed, f"the accelerator was waited for {_waits[-1]} times"
    finally:
        _waits.pop()


@contextmanager
def accelerator() -> Iterator[None]:
    """Let torch make tensors on ``cuda``. No mode does it, because the backward pass leaves modes."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("arange", "empty", "full", "ones", "zeros"):
            patch.setattr(torch, name, _on_device(getattr(torch, name)))
        patch.setattr(torch, "tensor", _on_cpu_alone(torch.tensor))
        yield


def _on_device(factory: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def make(*args: Any, device: torch.device | str | None = None, **options: Any) -> Tensor:
        if device is None or torch.device(device).type != "cuda":
            return factory(*args, device=device, **options)
        return OnAccelerator(factory(*args, device="cpu", **options))

    return make


def _on_cpu_alone(factory: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def make(*args: Any, device: torch.device | str | None = None, **options: Any) -> Tensor:
        if device is not None and torch.device(device).type == "cuda":
            if args[0] == []:  # transformers begins an empty cache so; nothing is copied
                return OnAccelerator(factory(*args, device="cpu", **options))
            raise ValueReadError("torch.tensor copies from the CPU and waits for the copy; torch.full does not")
        return factory(*args, device=device, **options)

    return make


def moved(tensor: Tensor) -> OnAccelerator:
    """Return a copy of a tensor on the device."""
    return OnAccelerator(tensor.detach().clone(), tensor.requires_grad)


def move_module(module: nn.Module) -> nn.Module:
    """Move the parameters and buffers of a module to the device, in place."""
    for part in module.modules():
        for name, parameter in list(part._parameters.items()):
            if parameter is not None:
                part._parameters[name] = nn.Parameter(moved(parameter), requires_grad=parameter.requires_grad)
        for name, buffer in list(part._buffers.items()):
            if buffer is not None:
                part._buffers[name] = moved(buffer)
    return module


def values(tensor: Tensor) -> Tensor:
    """Return the values of a tensor, wherever it is."""
    return _inner(tensor)
