"""The decoding cache: values for every layer, keys only where a dot product will look at them."""

from typing import Any

import torch
from torch import Tensor

from synthattn.models.compat import Cache, CacheLayerMixin, DynamicCache, DynamicLayer, EncoderDecoderCache


class ValuesOnlyLayer(CacheLayerMixin):
    """What transformers' ``DynamicLayer`` is, without keys: half the memory."""

    is_croppable = True
    is_sliding = False
    supports_early_init = False
    values: Tensor | None

    def lazy_initialization(self, key_states: Tensor | None, value_states: Tensor) -> None:
        self.dtype, self.device = value_states.dtype, value_states.device
        self.is_initialized = True

    def update(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, key_states: Tensor | None, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor | None, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.values = value_states if self.values is None else torch.cat([self.values, value_states], dim=-2)
        return None, self.values

    def get_seq_length(self) -> int:
        return 0 if self.values is None else self.values.shape[-2]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.get_seq_length() + query_length, 0

    def get_max_length(self) -> int:
        return -1

    def reset(self) -> None:
        self.values = None
        self.is_initialized = False

    def crop(self, tokens_to_remove: int) -> None:
        if tokens_to_remove > 0:
            raise ValueError(f"crop takes minus the number of tokens to remove, got {tokens_to_remove}")
        if tokens_to_remove < 0 and self.values is not None:
            self.values = self.values[..., :tokens_to_remove, :]

    def reorder_cache(self, beam_idx: Tensor) -> None:
        if self.values is not None:
            self.values = self.values.index_select(0, beam_idx.to(self.values.device))

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


def new_cache(keeps_keys: list[bool]) -> DynamicCache:
    """A cache for layers that keep keys, or not."""
    return adapted(DynamicCache(), keeps_keys)


def adapted(cache: DynamicCache, keeps_keys: list[bool]) -> DynamicCache:
    """An empty cache, such as a user's ``DynamicCache()``, made to fit the layers; one in use is left as it is."""
    if cache.get_seq_length() == 0:
        cache.layers = [  # pyright: ignore[reportAttributeAccessIssue]
            DynamicLayer() if keys else ValuesOnlyLayer() for keys in keeps_keys
        ]
        cache.layer_class_to_replicate = None
    return cache


def decoder_cache(cache: Cache | None, own: list[bool], cross: list[bool]) -> Cache:
    """The cache to decode with: the one given, or a new one. ``cross`` is empty in a decoder without an encoder."""
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
        adapted(part, keeps_keys)
    return cache
