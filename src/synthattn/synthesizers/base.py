"""What every synthesizer shares: its inputs, its sizes, its interface, and how tables are read at positions."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from synthattn.engine.projection import is_plain_linear, project, split_heads
from synthattn.logits import Logits
from synthattn.shapes import Float, Int
from synthattn.tracing import is_tracing

Resize = Literal["pad", "interpolate"]


@dataclass(frozen=True)
class Tokens:
    """Token vectors and where they stand; no positions means start, start + 1, ...

    Attributes:
        vectors: where ``keys`` are given, only their number counts.
        positions: where the tokens stand.
        keys: the result of ``Synthesizer.project_keys`` for the tokens.
        projected: the queries of a dot product, not yet scaled, where the terms of a mixture share them.
        start: where the first token stands, unless positions say: tables are then read as slices.
    """

    vectors: Float[Tensor, "batch length d_model"]
    positions: Int[Tensor, "*batch length"] | None = None
    keys: Float[Tensor, "batch heads length key"] | None = None
    projected: Float[Tensor, "batch heads length dim"] | None = None
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
    """What a synthesizer needs to know of the layer it is built for."""

    d_model: int
    num_heads: int
    head_dim: int
    max_length: int | None
    bias: bool = True
    """Whether the query and key projections of the dot product have biases."""

    @property
    def inner(self) -> int:
        return self.num_heads * self.head_dim

    def require_max_length(self, name: str) -> int:
        if self.max_length is None:
            raise ValueError(f"{name} needs max_length: the longest input that it shall take")
        return self.max_length


class Synthesizer(nn.Module):
    """Produces the logits of one layer.

    Attributes:
        name: the name in a spec.
        max_length: the longest input, None where any length will do.
        input_independent: True if the logits do not depend on the tokens.
        key_width: the width of the keys that ``project_keys`` makes of tokens, 0 where the logits need none.
        weighted: False if a mixture adds it as it is, as the paper's runs do with position biases.
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
        raise NotImplementedError

    def project_keys(self, memory: Tokens) -> Float[Tensor, "batch heads length key"] | None:
        """Return the keys of tokens that will be attended to, for decoding to keep; None where there are none."""
        return None

    def weighted_logits(self, query: Tokens, memory: Tokens, weight: Tensor) -> Logits:
        """The logits times a weight that broadcasts against ``(heads, q, k)``."""
        return self(query, memory).times(weight)

    def check_resize(self, max_length: int) -> None:
        """Refuse a longest input for which there is no such synthesizer."""

    def resize_max_length(self, max_length: int, how: Resize) -> None:
        """Change the longest input, keeping what was learned. Nothing to do where any length will do."""

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Tables of another length are reported as that, not as a mismatch of shapes."""
        for name, table in [*self._parameters.items(), *self._buffers.items()]:
            saved = state_dict.get(prefix + name)
            if table is None or saved is None or self.max_length is None or saved.shape[:1] != table.shape[:1]:
                continue
            if saved.shape[1] != table.shape[1] == self.max_length:
                error_msgs.append(
                    f"{prefix}{name} was saved with max_length={saved.shape[1]}, {self.name} was built for "
                    f"max_length={self.max_length}; call resize_max_length({saved.shape[1]}), load, and resize again"
                )
                return
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )

    def check_lengths(self, query: Tokens, memory: Tokens) -> None:
        """Refuse inputs longer than the tables."""
        if self.max_length is not None:
            check_length(self.name, self.max_length, query)
            check_length(self.name, self.max_length, memory)


def check_length(name: str, max_length: int, tokens: Tokens) -> None:
    """Refuse tokens beyond the end of a table, in words that say what to do about it."""
    if tokens.positions is not None:
        if not is_tracing(tokens.positions):
            _check_end(name, max_length, last_position(tokens.positions))
    elif tokens.start > 0:
        _check_end(name, max_length, tokens.start + tokens.length - 1)
    elif tokens.length > max_length:
        raise ValueError(
            f"input has {tokens.length} positions, {name} was built for max_length={max_length}; "
            f"shorten the input or call resize_max_length({tokens.length})"
        )


def last_position(positions: Int[Tensor, "*axes"]) -> int:
    """The highest of them; refused are those before the first that there is."""
    low, high = (int(end) for end in positions.aminmax())
    if low < 0:
        raise ValueError(f"positions start at 0, got {low}; give padding any valid position, such as 0")
    return high


def _check_end(name: str, max_length: int, last: int) -> None:
    if last >= max_length:
        raise ValueError(
            f"positions go up to {last}, {name} was built for max_length={max_length} "
            f"(positions 0 to {max_length - 1}); call resize_max_length({last + 1})"
        )


def hidden_layer(
    projection: nn.Module, vectors: Float[Tensor, "batch length d_model"], heads: int
) -> Float[Tensor, "batch heads length dim"]:
    """``relu(W_1 x + b_1)``, split over heads."""
    hidden = project(projection, vectors)
    # In place spares memory, where nobody else holds what the projection returned. What a gradient is recorded of is a
    # view, though, and the gradient of a view that was written to is copied three times. A traced graph is for both.
    in_place = is_plain_linear(projection) and not hidden.requires_grad and not is_tracing(hidden)
    return split_heads(hidden.relu_() if in_place else hidden.relu(), heads)


def rows_at(table: Float[Tensor, "heads n *features"], tokens: Tokens) -> Float[Tensor, "..."]:
    """The rows of a table of positions at the tokens' positions: a view where these are start, start + 1, ..."""
    if tokens.positions is None:
        return slice_at_tokens(table, 1, tokens)
    if tokens.positions.dim() == 1:
        return table.index_select(1, tokens.positions)
    return table[:, tokens.positions].transpose(0, 1)


def slice_at_tokens(table: Float[Tensor, "..."], dim: int, tokens: Tokens) -> Float[Tensor, "..."]:
    """The entries along an axis from the first token's to the last's: a view, except in a traced graph.

    A view of the whole has other properties than one of a part, for which a traced graph would exclude that length.
    """
    if is_tracing(table):
        return table.index_select(dim, torch.arange(tokens.start, tokens.start + tokens.length, device=table.device))
    if tokens.start == 0 and tokens.length == table.shape[dim]:
        return table  # the gradient of a view, even of the whole, is a copy of it
    return table.narrow(dim, tokens.start, tokens.length)


def resized(
    table: Float[Tensor, "heads n *features"],
    length: int,
    how: Resize,
    fresh: Float[Tensor, "heads m *features"],
) -> Float[Tensor, "heads m *features"]:
    """A table of another length: the old rows, then ``fresh`` ones; or the old rows stretched."""
    if how == "pad":
        kept = min(length, table.shape[1])
        return torch.cat([table[:, :kept], fresh[:, kept:].to(table)], dim=1)
    heads, old, *rest = table.shape
    lines = table.reshape(heads, old, -1).transpose(1, 2)
    lines = F.interpolate(lines, size=length, mode="linear", align_corners=True)
    return lines.transpose(1, 2).reshape(heads, length, *rest)


def replace_parameter(parameter: nn.Parameter, data: Tensor) -> nn.Parameter:
    return nn.Parameter(data.detach().contiguous(), requires_grad=parameter.requires_grad)
