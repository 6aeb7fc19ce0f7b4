"""Masks: the keys that each query may attend to."""

from dataclasses import dataclass, replace
from functools import reduce
from operator import and_

import torch
from torch import Tensor, nn

from synthattn.shapes import Bool, Float
from synthattn.tracing import is_tracing, is_unreadable


@dataclass(frozen=True)
class Mask:
    """The keys that each query may attend to: those that fulfil all conditions.

    Attributes:
        unpadded: True for keys that are not padding.
        causal: query i attends to the keys 0..i.
        allowed_pairs: True where a query may attend to a key, for all examples (two axes) or per example (four axes).
    """

    unpadded: Bool[Tensor, "batch k"] | None = None
    causal: bool = False
    allowed_pairs: Bool[Tensor, "*example q k"] | None = None

    @property
    def per_example(self) -> bool:
        """True if a condition other than key padding differs between examples."""
        return self.allowed_pairs is not None and self.allowed_pairs.dim() == 4

    def within(self, windows: "list[Bool[Tensor, '*batch q k']]") -> "Mask":
        """Restrict the mask to the keys inside all local windows."""
        inside = (window if window.dim() == 2 else window.unsqueeze(1) for window in windows)
        return replace(self, allowed_pairs=_all_of(self.allowed_pairs, *inside)) if windows else self

    def shared(self, q: int, k: int, device: torch.device) -> Bool[Tensor, "q k"] | None:
        """Return the conditions that hold for all examples in one tensor, or None if there are none."""
        causal = torch.ones(q, k, dtype=torch.bool, device=device).tril() if self.causal else None
        return _all_of(None if self.per_example else self.allowed_pairs, causal)

    def full(self, q: int, k: int, device: torch.device) -> Bool[Tensor, "#batch #heads #q k"] | None:
        """Return all conditions in one broadcastable tensor, or None if nothing is masked."""
        shared = self.shared(q, k, device)
        return _all_of(
            None if shared is None else shared[None, None],
            self.allowed_pairs if self.per_example else None,
            None if self.unpadded is None else self.unpadded[:, None, None, :],
        )

    def of_examples(self, examples: slice) -> "Mask":
        """Return the mask of some examples."""
        unpadded = None if self.unpadded is None else self.unpadded[examples]
        allowed = self.allowed_pairs
        if allowed is not None and self.per_example and len(allowed) > 1:
            allowed = allowed[examples]
        return Mask(unpadded, self.causal, allowed)

    def rows(self, examples: slice, rows: slice, end: int, device: torch.device) -> "Mask":
        """Return the mask for some rows of some examples and the keys before ``end``."""
        unpadded, allowed, past = self.unpadded, self.allowed_pairs, None
        if allowed is not None:
            allowed = (allowed[examples] if self.per_example and len(allowed) > 1 else allowed)[..., rows, :end]
        if self.causal:
            past = torch.arange(end, device=device) <= torch.arange(rows.start, rows.stop, device=device)[:, None]
        return Mask(None if unpadded is None else unpadded[examples, :end], False, _all_of(allowed, past))

    def fill_empty_rows(self, q: int, k: int) -> "tuple[Mask, Bool[Tensor, '#batch #heads #q 1'] | None]":
        """Return a mask without empty rows, and the rows that were empty, or None if there were none.

        A kernel would compute 0 / 0 for a row without keys. The result of such a row is zero.
        """
        if self.unpadded is None and self.allowed_pairs is None:
            return self, None
        condition = self.unpadded if self.unpadded is not None else self.allowed_pairs
        assert condition is not None
        if is_unreadable(condition) and self.allowed_pairs is None and not self.causal:
            empty = ~condition.any(-1, keepdim=True)
            return Mask(unpadded=condition | empty), empty[:, None, :, None]
        full = self.full(q, k, condition.device)
        assert full is not None
        empty = ~full.any(dim=-1, keepdim=True)
        if not is_unreadable(empty) and not empty.any():
            return self, None
        if self.unpadded is not None and not self.causal and self.allowed_pairs is None:
            return Mask(unpadded=self.unpadded | empty[:, 0, 0]), empty
        filled = (full | empty).expand(-1, -1, q, -1)
        return Mask(allowed_pairs=filled if self.unpadded is not None or self.per_example else filled[0, 0]), empty


def from_torch(
    key_padding_mask: Tensor | None,
    attn_mask: Tensor | None,
    is_causal: bool,
    shape: tuple[int, int, int, int],
    offset: int = 0,
    device: torch.device | None = None,
) -> tuple[Mask, Float[Tensor, "*batch #heads q k"] | None]:
    """Convert masks in the convention of ``torch.nn.MultiheadAttention`` (True = ignore).

    ``shape`` is (batch, heads, q, k). If ``is_causal``, query i attends to the keys 0..offset + i.

    Returns:
        The mask, and the finite part of a float ``attn_mask`` as a bias for the logits.
    """
    batch, _, q, k = shape
    unpadded = None
    for name, given in (("key_padding_mask", key_padding_mask), ("attn_mask", attn_mask)):
        if given is not None:
            check_tensor(name, given)
    if key_padding_mask is not None:
        if key_padding_mask.dtype != torch.bool:
            raise ValueError(
                f"key_padding_mask must be bool (True = ignore this key), got {name_of(key_padding_mask.dtype)}"
            )
        if key_padding_mask.shape != (batch, k):
            raise ValueError(
                f"key_padding_mask must have shape (batch, keys) = ({batch}, {k}), got {tuple(key_padding_mask.shape)}"
            )
        unpadded = ~key_padding_mask
    allowed = bias = None
    if attn_mask is not None:
        allowed, bias = _from_attn_mask(attn_mask, *shape)
    if is_causal and offset > 0 and offset + 1 < k:  # otherwise the first query attends to all keys
        allowed = _all_of(allowed, torch.ones(q, k, dtype=torch.bool, device=device).tril(offset))
    return Mask(unpadded, is_causal and offset == 0, allowed), bias


def check_tensor(name: str, value: object) -> None:
    """Raise a ValueError unless ``value`` is a dense tensor in whose memory all of its entries are."""
    if not isinstance(value, Tensor):
        raise ValueError(f"{name} must be a tensor, got {type(value).__name__}")
    if value.layout is not torch.strided or value.is_nested:
        raise ValueError(f"{name} must be a dense tensor, got {'nested' if value.is_nested else name_of(value.layout)}")
    plain = type(value) in (Tensor, nn.Parameter) and value.is_cpu
    if plain and not is_tracing(value) and not has_memory(value):
        raise ValueError(f"{name} has too little memory for its shape: its storage was resized")


def has_memory(tensor: Tensor) -> bool:
    """Return True if the storage of a dense CPU tensor holds all of its entries. torch does not check this."""
    if tensor.numel() == 0:
        return True
    end = tensor.storage_offset() + 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        end += (size - 1) * stride
    return end * tensor.element_size() <= tensor.untyped_storage().nbytes()


def _all_of(*conditions: Tensor | None) -> Tensor | None:
    """Return what fulfils all conditions, or None if there are none."""
    given = [condition for condition in conditions if condition is not None]
    return reduce(and_, given) if given else None


def _from_attn_mask(
    attn_mask: Tensor, batch: int, heads: int, q: int, k: int
) -> tuple[Bool[Tensor, "*example q k"] | None, Float[Tensor, "*batch #heads q k"] | None]:
    """Split a mask into a condition and a bias for the logits."""
    # A tuple, because the symbolic sizes of a traced graph cannot be hashed.
    shapes = ((q, k), (batch * heads, q, k), (batch, 1, q, k), (batch, heads, q, k))
    if tuple(attn_mask.shape) not in shapes:
        raise ValueError(
            f"attn_mask must have shape (queries, keys) = ({q}, {k}), (batch * heads, queries, keys) = "
            f"({batch * heads}, {q}, {k}) or (batch, 1 or heads, queries, keys), got {tuple(attn_mask.shape)}"
        )
    if attn_mask.dim() == 3:
        attn_mask = attn_mask.reshape(batch, heads, q, k)
    if attn_mask.dtype == torch.bool:
        return ~attn_mask, None
    if not attn_mask.is_floating_point():
        raise ValueError(
            f"attn_mask must be bool (True = may not attend) or float (added to the logits), "
            f"got {name_of(attn_mask.dtype)}"
        )
    # As part of the mask, a row of minus infinities gives zeros; in the bias it would give 0 / 0.
    forbidden = attn_mask == float("-inf")
    bias = attn_mask.masked_fill(forbidden, 0.0)
    if bias.dim() == 2:
        bias = bias.unsqueeze(0)
    if is_unreadable(attn_mask):
        return ~forbidden, bias
    # Most float masks hold only zeros and minus infinities, or only finite numbers.
    return (
        ~forbidden if forbidden.any() else None,
        bias if attn_mask.requires_grad or bias.any() else None,
    )


def name_of(thing: torch.dtype | torch.layout) -> str:
    """Return a type or a layout as messages name it: without ``torch.``."""
    return str(thing).removeprefix("torch.")
