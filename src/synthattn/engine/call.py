"""One attention call, as every backend receives it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import nn

from synthattn.engine.projection import LazyValues
from synthattn.logits import Logits
from synthattn.masks import Mask
from synthattn.tracing import is_tracing

if TYPE_CHECKING:
    from synthattn.engine.cached_weights import WeightCache


@dataclass(frozen=True)
class CacheableLogits:
    """Logits that depend on no input, with the cache of the layer that they belong to.

    Attributes:
        cache: where the layer keeps weights between calls.
        module: the module whose parameters and buffers the logits are computed from.
        build: returns the logits for ``q`` queries and ``k`` keys at the positions 0, 1, ...
    """

    cache: "WeightCache"
    module: nn.Module
    build: Callable[[int, int], Logits]


class Call:
    """``softmax(logits) @ values`` under a mask. The logits are built when a backend first asks for them.

    Args:
        build: returns the logits.
        values: the values, projected when a backend asks for them.
        mask: the keys that each query may attend to. A row without keys gives zeros.
        q: the number of queries.
        dropout: the probability of dropping an attention weight.
        cacheable: given where the logits depend on no input and start at position 0.
    """

    def __init__(
        self,
        build: Callable[[], Logits],
        values: LazyValues,
        mask: Mask,
        q: int,
        dropout: float = 0.0,
        cacheable: CacheableLogits | None = None,
    ) -> None:
        self.values, self.mask, self.q, self.dropout, self.cacheable = values, mask, q, dropout, cacheable
        self.is_tracing = is_tracing(values.source)
        self._build = build
        self._logits: Logits | None = None

    @property
    def logits(self) -> Logits:
        if self._logits is None:
            self._logits = self._build()
        return self._logits

    @property
    def logits_per_example(self) -> int:
        """The number of logits of one example. Not for traced calls, whose graph would be bound to it."""
        _, heads, k, _ = self.values.shape
        return heads * self.q * k
