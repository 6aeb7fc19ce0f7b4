"""What may be kept between calls: when tensors are constants, and whether they still are what they were."""

import weakref
from typing import Any

import torch
from torch import Tensor, nn

from synthattn.logits import Logits
from synthattn.synthesizers import Synthesizer, Tokens
from synthattn.tracing import traced

# Tables with more entries than this are remembered by sums of their bits. Smaller ones are cheaper to copy and compare.
LARGE = 2**20


class Snapshot:
    """What tensors were, to tell whether they have changed.

    A tensor's version counter does not tell that: fused optimizers and edits through ``.data`` leave it as it is. So
    the values are looked at, with each call.
    """

    def __init__(self, tensors: list[Tensor]) -> None:
        self._were = [_remembered(t) for t in tensors]

    def current(self, tensors: list[Tensor]) -> bool:
        """Whether the tensors still are what they were."""
        return len(tensors) == len(self._were) and all(
            t.dtype == dtype and t.shape == shape and all(map(torch.equal, _looked_at(t), known))
            for t, (dtype, shape, known) in zip(tensors, self._were, strict=True)
        )


def _remembered(tensor: Tensor) -> tuple[torch.dtype, torch.Size, list[Tensor]]:
    return tensor.dtype, tensor.shape, [t.clone() for t in _looked_at(tensor)]


def _looked_at(tensor: Tensor) -> list[Tensor]:
    """The values, or the sums of a large table's bits along its rows and along its columns.

    Half the memory traffic of a comparison, and no copy. A change goes unnoticed only if it leaves all sums as they
    were: no change of one entry does, nor any other order of rows or columns.
    """
    tensor = tensor.detach()
    words = tensor.shape[-1] * tensor.element_size() % 8 == 0 if tensor.dim() > 1 else False
    if tensor.numel() <= LARGE or not words or not tensor.is_contiguous():
        return [tensor]
    bits = tensor.view(torch.int64)
    return [bits.sum(-1), bits.sum(-2)]


class Sample:
    """The counters of changes of tensors and, where they are large, a part of their entries: looked at in no time.

    Notices everything but an edit of single entries of a large table through ``.data``.
    """

    ENTRIES = 2**14

    def __init__(self, tensors: list[Tensor]) -> None:
        self._were = [(t.dtype, t.shape, self._entries(t).clone()) for t in tensors]
        self._versions = [(weakref.ref(t), _version(t)) for t in tensors]

    def current(self, tensors: list[Tensor]) -> bool:
        """Whether the tensors still are what they were."""
        if len(tensors) != len(self._were):
            return False
        for t, (found, version) in zip(tensors, self._versions, strict=False):
            if found() is t and _version(t) != version:
                return False
        return all(
            t.dtype == dtype and t.shape == shape and torch.equal(self._entries(t), entries)
            for t, (dtype, shape, entries) in zip(tensors, self._were, strict=True)
        )

    def _entries(self, tensor: Tensor) -> Tensor:
        flat = tensor.detach().flatten()
        if flat.numel() <= LARGE:
            return flat
        # A step that shares no factor with the usual lengths, so that all rows and columns have their turn.
        return flat[:: flat.numel() // self.ENTRIES | 1]

    def __getstate__(self) -> dict[str, Any]:
        return {"_were": self._were, "_versions": []}  # counters are those of the tensors, not of their copies


def _version(tensor: Tensor) -> int | None:
    return None if tensor.is_inference() else tensor._version


def sources_of(synthesizer: Synthesizer) -> list[Tensor]:
    """All that batch-free logits are computed from."""
    return [*synthesizer.parameters(), *synthesizer.buffers()]


def are_constant(sources: list[Tensor]) -> bool:
    """Whether the values are plain memory on the CPU that no gradient has to flow back to.

    On other devices a look at them would cost a synchronisation, more than computing again.
    """
    if torch.is_autocast_enabled("cpu") or any(traced(t) for t in sources):
        return False
    wants_gradient = torch.is_grad_enabled() and any(t.requires_grad for t in sources)
    return not wants_gradient and all(type(t) in (Tensor, nn.Parameter) and t.device.type == "cpu" for t in sources)


def is_plain_module(synthesizer: Synthesizer) -> bool:
    """False where a hook wants to see every call."""
    return not (synthesizer._forward_hooks or synthesizer._forward_pre_hooks)


def constant_logits(synthesizer: Synthesizer, like: Tensor, q: int, k: int) -> Logits:
    """Batch-free logits for inputs of these lengths. ``like`` has the width and the type of token vectors."""
    # The vectors only carry the lengths: batch-free logits do not look at them.
    empty = torch.empty(1, 1, like.shape[-1], dtype=like.dtype)
    return synthesizer(*(Tokens(empty.expand(1, length, like.shape[-1])) for length in (q, k)))
