"""Detection of tracing, where the values of a tensor cannot be read."""

from torch import Tensor
from torch._C import _are_functorch_transforms_active, _is_tracing
from torch._subclasses import FakeTensor
from torch.autograd import forward_ad
from torch.compiler import is_compiling


def traced(tensor: Tensor) -> bool:
    """Return True where values are not there to be looked at, or a plain formula is what the tracer needs.

    That is in ``torch.compile``, ``torch.export`` and ``torch.jit.trace``, on the meta device and of fake tensors, and
    under the transforms of ``torch.func``.
    """
    return (
        is_compiling()
        or _is_tracing()
        or tensor.is_meta
        or isinstance(tensor, FakeTensor)
        or _are_functorch_transforms_active()
        or forward_ad._current_level >= 0
    )
