"""When code must not ask what is in a tensor."""

import torch
from torch import Tensor


def traced(tensor: Tensor) -> bool:
    """True where values are not there to be looked at, or a plain formula is what the tracer needs.

    That is in ``torch.compile``, ``torch.export`` and ``torch.jit.trace``, on the meta device and of fake tensors, and
    under the transforms of ``torch.func``.
    """
    return (
        torch.compiler.is_compiling()
        or torch._C._is_tracing()
        or tensor.is_meta
        or isinstance(tensor, torch._subclasses.FakeTensor)
        or torch._C._are_functorch_transforms_active()
        or torch.autograd.forward_ad._current_level >= 0
    )
