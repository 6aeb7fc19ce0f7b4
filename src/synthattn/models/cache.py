"""The decoding cache: values for every layer, keys only for layers with a dot product."""

from typing import Any

import torch
from torch import Tensor

from synthattn.models.compat import Cache, CacheLayerMixin, DynamicCache, DynamicLayer, EncoderDecoderCache
from synthattn.tracing import is_tracing


class GrowableTensor:
    """Append to a tensor without copying it, in memory that has space for more tokens.

    The caller holds the tensor. If it is no longer what was returned last, because it was cut or replaced, it moves to
    new memory: what was cut off may still be in use and is not overwritten. Beam search reorders after every token and
    copies between two memories in turn.
    """

    def __init__(self) -> None:
        self.memory: Tensor | None = None
        self.other_memory: Tensor | None = None
        self.used = 0

    def append(self, old: Tensor | None, new: Tensor) -> Tensor:
        """Return ``torch.cat([old, new], dim=-2)``."""
        if old is None:
            return new
        alike = (old.dtype, old.device, old.shape[:-2]) == (new.dtype, new.device, new.shape[:-2])
        # A backward pass may need the tensor as it was returned.
        if torch.is_grad_enabled() or not alike or is_tracing(new):
            return torch.cat([old, new], dim=-2)
        total = old.shape[-2] + new.shape[-2]
        if not self._holds(old) or self.memory is None or self.memory.shape[-2] < total:
            self.memory, self.other_memory = _allocate(old, total + max(LEAST_FREE_TOKENS, total // 2)), None
            self.memory.narrow(-2, 0, old.shape[-2]).copy_(old)
        self.memory.narrow(-2, old.shape[-2], new.shape[-2]).copy_(new)
        self.used = total
        return self.memory.narrow(-2, 0, total)

    def select(self, old: Tensor, index: Tensor) -> Tensor:
        """Return ``old.index_select(0, index)``, in memory that has as much space."""
        if not self._holds(old) or self.memory is None or len(index) != len(old):
            return old.index_select(0, index)
        # Beams are re-ordered after every token.
        target = torch.empty_like(self.memory) if self.other_memory is None else self.other_memory
        chosen = target[..., : self.used, :]
        torch.index_select(old, 0, index, out=chosen)
        self.memory, self.other_memory = target, self.memory
        return chosen

    def _holds(self, tensor: Tensor) -> bool:
        memory = self.memory
        return (
            memory is not None
            and tensor.data_ptr() == memory.data_ptr()
            and tensor.shape[-2] == self.used
            and tensor.shape[:-2] == memory.shape[:-2]
            and tensor.dtype == memory.dtype
            # An inference tensor cannot be written to outside of inference mode.
            and (torch.is_inference_mode_enabled() or not memory.is_inference())
        )


LEAST_FREE_TOKENS = 64
"""Tokens that new memory has space for, beyond those that it is made for."""


def _allocate(tensor: Tensor, length: int) -> Tensor:
    return tensor.new_empty(*tensor.shape[:-2], length, tensor.shape[-1])


class _PositionedLayer(CacheLayerMixin):
    """A cache layer that also keeps the positions of its tokens; None for 0, 1, ... in all examples."""

    positions: Tensor | None = None
    shared_by_beams = False
    """True for an encoder's output that all beams of an example share, so that their order has no effect."""

    def reset(self) -> None:
        super().reset()
        self.positions = None

    def reorder_cache(self, beam_idx: Tensor) -> None:
        if not self.shared_by_beams:
            super().reorder_cache(beam_idx)  # pyright: ignore[reportArgumentType]
            self._choose(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        super().batch_repeat_interleave(repeats)  # pyright: ignore[reportAttributeAccessIssue]
        if self.positions is not None and self.positions.dim() > 1:
            self.positions = self.positions.repeat_interleave(repeats, dim=0)

    def batch_select_indices(self, indices: Tensor) -> None:
        super().batch_select_indices(indices)  # pyright: ignore[reportAttributeAccessIssue]
        self._choose(indices)

    def _choose(self, indices: Tensor) -> None:
        if self.positions is not None and self.positions.dim() > 1:
            self.positions = self.positions[indices.to(self.positions.device)]


class _KeysAndValues(DynamicLayer):
    """A ``DynamicLayer`` of transformers that does not copy its tensors for every token."""

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        super().lazy_initialization(key_states, value_states)
        self.keys = self.values = None
        self.growable = GrowableTensor(), GrowableTensor()

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.keys = self.growable[0].append(self.keys, key_states)
        self.values = self.growable[1].append(self.values, value_states)
        return self.keys, self.values

    def get_seq_length(self) -> int:
        return 0 if self.keys is None else self.keys.shape[-2]

    def reset(self) -> None:
        super().reset()
        self.growable = GrowableTensor(), GrowableTensor()

    def reorder_cache(self, beam_idx: Tensor) -> None:
        if self.keys is not None and self.values is not None:
            index = beam_idx.to(self.keys.device)
            self.keys = self.growable[0].select(self.keys, index)
            self.values = self.growable[1].select(self.values, index)


class _ValuesOnly(CacheLayerMixin):
    """A cache layer without keys, which takes half of the memory."""

    is_croppable = True
    is_sliding = False
    supports_early_init = False
    values: Tensor | None

    def lazy_initialization(self, key_states: Tensor | None, value_states: Tensor) -> None:
        self.dtype, self.device = value_states.dtype, value_states.device
        self.growable = GrowableTensor()
        self.is_initialized = True

    def update(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, key_states: Tensor | None, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor | None, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.values = self.growable.append(self.values, value_states)
        return None, self.values

    def get_seq_length(self) -> int:
        return 0 if self.values is None else self.values.shape[-2]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.get_seq_length() + query_length, 0

    def get_max_length(self) -> int:
        return -1

    def reset(self) -> None:
        self.values = None
        self.growable = GrowableTensor()
        self.is_initialized = False

    def crop(self, tokens_to_remove: int) -> None:
        if tokens_to_remove > 0:
            raise ValueError(f"crop takes minus the number of tokens to remove, got {tokens_to_remove}")
        if tokens_to_remove < 0 and self.values is not None:
            self.values = self.values[..., :tokens_to_remove, :]

    def reorder_cache(self, beam_idx: Tensor) -> None:
        if self.values is not None:
            self.values = self.growable.select(self.values, beam_idx.to(self.values.device))

    def batch_repeat_interleave(self, repeats: int) -> None:
        if self.values is not None:
            self.values = self.values.repeat_interleave(repeats, dim=0)

    def batch_select_indices(self, indices: Tensor) -> None:
        if self.values is not None:
            self.values = self.values[indices]

    def offload(self) -> None:
        if self.values is not None:
            self.values = self.values.to("cpu", non_blocking=True)

    def prefetch(self) -> None:
        if self.values is not None:
            self.values = self.values.to(self.device, non_blocking=True)


class KeysAndValuesLayer(_PositionedLayer, _KeysAndValues):
    pass


class ValuesOnlyLayer(_PositionedLayer, _ValuesOnly):
    pass


def new_cache(keeps_keys: list[bool]) -> DynamicCache:
    """Return an empty cache. ``keeps_keys`` says for each layer whether it keeps keys."""
    return _fit_layers(DynamicCache(), keeps_keys)


class BeamSearchCache(EncoderDecoderCache):
    """A cache for beam search with an encoder, whose output is kept once for all beams of an example."""

    def __init__(self, own: list[bool], cross: list[bool], beams: int) -> None:
        source: Any = new_cache(cross)
        for layer in source.layers:
            layer.shared_by_beams = True
        super().__init__(new_cache(own), source)
        self.beams = beams

    def batch_repeat_interleave(self, repeats: int) -> None:
        self._keep_for_each_beam()
        super().batch_repeat_interleave(repeats)

    def batch_select_indices(self, indices: Tensor) -> None:
        self._keep_for_each_beam()
        super().batch_select_indices(indices)

    def _keep_for_each_beam(self) -> None:
        self.cross_attention_cache.batch_repeat_interleave(self.beams)
        self.beams = 1


def _fit_layers(cache: DynamicCache, keeps_keys: list[bool]) -> DynamicCache:
    """Give an empty cache, such as a user's ``DynamicCache()``, the layers that a model needs."""
    wanted: list[Any] = [KeysAndValuesLayer if keys else ValuesOnlyLayer for keys in keeps_keys]
    fits = len(cache.layers) == len(wanted) and all(map(isinstance, cache.layers, wanted))
    if cache.get_seq_length() == 0 and not fits:
        cache.layers = [kind() for kind in wanted]
        cache.layer_class_to_replicate = None
    return cache


def layer_with_positions(cache: Cache | None) -> Any:
    """Return the cache layer that keeps the positions of a decoder's tokens: the first layer of self-attention."""
    own = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
    return own.layers[0] if own is not None and own.layers else None


def decoder_cache(cache: Cache | None, own: list[bool], cross: list[bool]) -> Cache:
    """Return the cache given, or a new one. ``cross`` is empty for a decoder without an encoder."""
    if cache is None:
        return EncoderDecoderCache(new_cache(own), new_cache(cross)) if cross else new_cache(own)
    if isinstance(cache, EncoderDecoderCache) and cross:
        parts = (cache.self_attention_cache, own), (cache.cross_attention_cache, cross)
    elif isinstance(cache, DynamicCache) and not cross:
        parts = ((cache, own),)
    else:
        wanted = "EncoderDecoderCache(DynamicCache(), DynamicCache())" if cross else "DynamicCache()"
        raise ValueError(f"past_key_values must be {wanted}, got {type(cache).__name__}")
    for part, keeps_keys in parts:
        if not isinstance(part, DynamicCache):
            raise ValueError(f"past_key_values must hold DynamicCache, got {type(part).__name__}")
        if part.offloading:
            raise ValueError("past_key_values must not be offloaded; leave offloading out")
        _fit_layers(part, keeps_keys)
    return cache
