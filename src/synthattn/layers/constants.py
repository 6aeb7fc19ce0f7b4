"""What may be kept between calls: when tensors are constants, and whether they still are what they were."""

import weakref

import torch
from torch import Tensor, nn

from synthattn.engine.native import kernel
from synthattn.engine.projection import is_watched
from synthattn.logits import Logits
from synthattn.synthesizers import Synthesizer, Tokens
from synthattn.tracing import is_tracing

# Tables with more entries than this are remembered by sums. Smaller ones are cheaper to copy and compare.
LARGE = 2**20


class Snapshot:
    """What tensors were, to tell whether they have changed.

    A tensor's version counter does not tell that: fused optimizers and edits through ``.data`` leave it as it is. So
    the values are looked at as well, with each call.
    """

    def __init__(self, tensors: list[Tensor]) -> None:
        self._were = [(t.dtype, t.shape, [part.clone() for part in _looked_at(t)]) for t in tensors]
        self._counters = Counters(tensors)

    def current(self, tensors: list[Tensor]) -> bool:
        """Whether the tensors still are what they were."""
        return self._counters.same(tensors) is not False and self._same_values(tensors)

    def _same_values(self, tensors: list[Tensor]) -> bool:
        return len(tensors) == len(self._were) and all(
            t.dtype == dtype and t.shape == shape and all(map(torch.equal, _looked_at(t), known))
            for t, (dtype, shape, known) in zip(tensors, self._were, strict=True)
        )


def _looked_at(tensor: Tensor) -> list[Tensor]:
    """The values, or of a large table a digest; where there is no kernel for that, the sums of its bits along the rows
    and of its values along the columns.

    That is half the memory traffic of a comparison with a copy, and no copy. What the one sum misses, because it counts
    modulo 2^64 (a change of many signs or exponents), the other sees, and what the other loses in rounding, the one.
    """
    tensor = tensor.detach()
    aligned = tensor.is_contiguous() and tensor.storage_offset() * tensor.element_size() % 8 == 0
    if tensor.numel() <= LARGE or tensor.dim() < 2 or tensor.shape[-1] * tensor.element_size() % 8 or not aligned:
        return [tensor]
    digest = kernel.digest(tensor)
    if digest is not None:
        return [digest]
    wide = torch.promote_types(tensor.dtype, torch.float32)
    return [tensor.view(torch.int64).sum(-1), tensor.sum(-2, dtype=wide)]


class Counters:
    """Which tensors they were, and how often they had been changed; a copy knows nothing of its own tensors yet."""

    def __init__(self, tensors: list[Tensor]) -> None:
        self._known = [(weakref.ref(t), _version(t)) for t in tensors]

    def same(self, tensors: list[Tensor]) -> bool | None:
        """False where one of them counts a change, None where one is another tensor."""
        if len(tensors) != len(self._known) or any(
            t is not ref() for t, (ref, _) in zip(tensors, self._known, strict=True)
        ):
            return None
        return all(_version(t) == version for t, (_, version) in zip(tensors, self._known, strict=True))

    def __reduce__(self) -> tuple[type["Counters"], tuple[list[Tensor]]]:
        return Counters, ([],)


def _version(tensor: Tensor) -> int | None:
    return None if tensor.is_inference() else tensor._version


def sources_of(synthesizer: Synthesizer) -> list[Tensor]:
    """All that batch-free logits are computed from."""
    return [*synthesizer.parameters(), *synthesizer.buffers()]


def are_constant(sources: list[Tensor]) -> bool:
    """Whether the values are plain memory on the CPU that no gradient has to flow back to.

    On other devices a look at them would cost a synchronisation, more than computing again.
    """
    if torch.is_autocast_enabled("cpu") or any(is_tracing(t) for t in sources):
        return False
    wants_gradient = torch.is_grad_enabled() and any(t.requires_grad for t in sources)
    return not wants_gradient and all(type(t) in (Tensor, nn.Parameter) and t.device.type == "cpu" for t in sources)


def is_plain_module(synthesizer: Synthesizer) -> bool:
    """Return True if no call of the synthesizer, or of a term of it, is watched or replaced."""
    return not any(map(is_watched, synthesizer.modules()))


def constant_logits(synthesizer: Synthesizer, like: Tensor, q: int, k: int) -> Logits:
    """Batch-free logits for inputs of these lengths. ``like`` has the width and the type of token vectors."""
    # The vectors only carry the lengths: batch-free logits do not look at them.
    empty = torch.empty(1, 1, like.shape[-1], dtype=like.dtype)
    return synthesizer(*(Tokens(empty.expand(1, length, like.shape[-1])) for length in (q, k)))
