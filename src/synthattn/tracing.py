"""Detect where tensor values cannot be read, or must not be: tracing (compile, export, fake tensors), accelerators."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active, _is_tracing
from torch._subclasses import FakeTensor
from torch.autograd import forward_ad
from torch.compiler import is_compiling


def is_tracing(tensor: Tensor) -> bool:
    """Return True if tensor values cannot be read, or a tracer needs operations that it can record.

    This is so in ``torch.compile``, ``torch.export`` and ``torch.jit.trace``, on the meta device, for fake tensors, and
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


def is_unreadable(tensor: Tensor) -> bool:
    """Return True if tensor values cannot be read, or are not worth waiting for an accelerator to compute them."""
    return not tensor.is_cpu or is_tracing(tensor)


class Conditions:
    """Answers to questions about tensors: each when it is asked on the CPU, all at once on an accelerator.

    So an accelerator is waited for once. Use it where answers save more than the wait, once for all layers of a model.

    Args:
        questions: computes tensors of one bool.
        device: the device of the tensors.
    """

    def __init__(self, questions: Mapping[str, Callable[[], Tensor]], device: torch.device) -> None:
        self._questions = questions
        self._answers: dict[str, bool] = {}
        if device.type != "cpu" and questions:
            found = torch.stack([question() for question in questions.values()]).tolist()
            self._answers = dict(zip(questions, found, strict=True))

    def __getitem__(self, name: str) -> bool:
        if name not in self._answers:
            self._answers[name] = bool(self._questions[name]())
        return self._answers[name]
