"""The interface of a synthesizer: tokens in, logits out."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from synthattn.logits import Logits
from synthattn.shapes import Float, Int
from synthattn.tracing import is_tracing, is_unreadable

Resize = Literal["pad", "interpolate"]


@dataclass(frozen=True)
class Tokens:
    """Token vectors and their positions.

    Attributes:
        vectors: the tokens; only their number counts where ``keys`` are given.
        positions: the positions; None for start, start + 1, ...
        keys: the result of ``Synthesizer.project_keys`` for the tokens.
        projected: the queries of the dot product before scaling, if another term of the mixture shares them.
        start: the position of the first token, if no positions are given.
    """

    vectors: Float[Tensor, "batch length d_model"]
    positions: Int[Tensor, "*batch length"] | None = None
    keys: Float[Tensor, "batch heads length key_width"] | None = None
    projected: Float[Tensor, "batch heads length width"] | None = None
    start: int = 0

    @property
    def length(self) -> int:
        return self.vectors.shape[1]

    def resolved_positions(self) -> Int[Tensor, "*batch length"]:
        """Return the positions as a tensor."""
        if self.positions is not None:
            return self.positions
        return torch.arange(self.start, self.start + self.length, device=self.vectors.device)


@dataclass(frozen=True)
class Sizes:
    """Sizes of the layer that a synthesizer is built for; ``bias`` is for the projections of the dot product."""

    d_model: int
    num_heads: int
    head_dim: int
    max_length: int | None
    bias: bool = True

    @property
    def inner(self) -> int:
        return self.num_heads * self.head_dim

    def require_max_length(self, name: str) -> int:
        if self.max_length is None:
            raise ValueError(f"{name} needs max_length: the longest input that it shall take")
        return self.max_length


class Synthesizer(nn.Module):
    """Compute the logits of one layer.

    Attributes:
        name: the name in a spec.
        max_length: the longest input; None if there is no limit.
        input_independent: True if the logits do not depend on the tokens.
        key_width: the width of the keys that ``project_keys`` computes, 0 if the logits need none.
        weighted: False if a mixture adds the logits without a weight, as the paper's runs do with position biases.
    """

    name: ClassVar[str]
    max_length: int | None = None
    input_independent: bool = False
    key_width: int = 0
    weighted: bool = True

    @property
    def reads_memory(self) -> bool:
        """True if the logits depend on the tokens attended to, so that decoding must keep keys."""
        return self.key_width > 0

    def forward(self, query: Tokens, memory: Tokens) -> Logits:
        """Return the logits of every query for every token of the memory."""
        raise NotImplementedError

    def project_keys(self, memory: Tokens) -> Float[Tensor, "batch heads length key_width"] | None:
        """Return the keys of tokens, which decoding keeps; None if the logits need none."""
        return None

    def weighted_logits(self, query: Tokens, memory: Tokens, weight: Tensor) -> Logits:
        """Return the logits times a weight that broadcasts against ``(heads, q, k)``."""
        return self(query, memory).times(weight)

    def check_resize(self, max_length: int) -> None:
        """Raise a ValueError if this synthesizer cannot have ``max_length`` positions."""

    def resize_max_length(self, max_length: int, how: Resize) -> None:
        """Change the longest input and keep what was learned. Synthesizers without a limit do nothing."""

    def check_lengths(self, query: Tokens, memory: Tokens) -> None:
        """Raise a ValueError if there are tokens beyond the longest input."""
        if self.max_length is not None:
            check_length(self.name, self.max_length, query)
            check_length(self.name, self.max_length, memory)

    def describe_mismatch(self, saved: Tensor, table: Tensor) -> str | None:
        """Return what is wrong with a saved table of as many axes, where torch would name shapes alone; else None."""
        if self.max_length is None or saved.dim() < 2 or len(saved) != len(table):
            return None
        if saved.shape[1] == table.shape[1] or table.shape[1] != self.max_length:
            return None
        return (
            f"was saved with max_length={saved.shape[1]}, {self.name} was built for max_length={self.max_length}; "
            f"call resize_max_length({saved.shape[1]}), load, and resize again"
        )

    def _load_from_state_dict(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, state_dict: dict[str, Any], prefix: str, *args: Any
    ) -> None:
        for name, table in [*self._parameters.items(), *self._buffers.items()]:
            saved = state_dict.get(prefix + name)
            if table is None or not isinstance(saved, Tensor) or saved.dim() != table.dim():
                continue
            if (wrong := self.describe_mismatch(saved, table)) is not None:
                error_msgs: list[str] = args[-1]
                error_msgs.append(f"{prefix}{name} {wrong}")
                return
        super()._load_from_state_dict(state_dict, prefix, *args)


def reset_linear(*projections: nn.Linear) -> None:
    """Draw new weights (Xavier, uniform) and set biases to zero."""
    for projection in projections:
        nn.init.xavier_uniform_(projection.weight)
        if projection.bias is not None:
            nn.init.zeros_(projection.bias)


def check_length(name: str, max_length: int, tokens: Tokens) -> None:
    """Raise a ValueError if there are tokens beyond the longest input."""
    if tokens.positions is None and tokens.start == 0:
        if tokens.length > max_length:
            raise ValueError(
                f"input has {tokens.length} positions, {name} was built for max_length={max_length}; "
                f"shorten the input or call resize_max_length({tokens.length})"
            )
        return
    if tokens.positions is not None and is_unreadable(tokens.positions):
        check_later(name, tokens.positions, max_length)
        return
    last = tokens.start + tokens.length - 1 if tokens.positions is None else last_position(tokens.positions)
    if last >= max_length:
        raise ValueError(
            f"positions go up to {last}, {name} was built for max_length={max_length} "
            f"(positions 0 to {max_length - 1}); call resize_max_length({last + 1})"
        )


def check_later(name: str, positions: Int[Tensor, "*axes"], max_length: int) -> None:
    """Let an accelerator fail when it reaches positions that are not in a table, without waiting for it now."""
    if not positions.is_cpu and not is_tracing(positions):
        inside = ((positions >= 0) & (positions < max_length)).all()
        torch._assert_async(inside, f"positions of {name} must be from 0 to {max_length - 1}")  # pyright: ignore


def last_position(positions: Int[Tensor, "*axes"]) -> int:
    """Return the highest position. Raise a ValueError if one is negative."""
    low, high = (int(end) for end in positions.aminmax())
    if low < 0:
        raise ValueError(f"positions start at 0, got {low}; give padding any valid position, such as 0")
    return high
