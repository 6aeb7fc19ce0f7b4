"""Positions of queries and keys, for tables that are indexed by position. The first token has position 0.

A model knows positions in three forms: the slots of its cache, its ``position_ids`` and its mask. Slots count the
padding on the left; ``position_ids`` restart where several texts are packed into one row.
"""

import torch
from torch import Tensor

from synthattn.tracing import is_tracing


def find_positions(
    padding: Tensor | None,
    position_ids: Tensor | None,
    start: int | Tensor,
    q: int,
    k: int,
    max_length: int | None,
    like: Tensor,
) -> tuple[Tensor | None, Tensor | None]:
    """Return the positions of queries and keys; None twice where they are start, start + 1, ... and 0, 1, ...

    Args:
        padding: the number of padding tokens before each example.
        position_ids: the positions that the model gives the queries.
        start: the number of tokens in the cache before the queries; a tensor in compiled steps with a static cache.
        q: the number of queries.
        k: the number of keys.
        max_length: the number of positions in the tables. Keys beyond it are empty slots of a static cache.
        like: a tensor on the device of the positions.
    """
    tracing = is_tracing(like)
    slots_are_tokens = isinstance(start, int | torch.SymInt) and k == start + q
    if position_ids is not None and position_ids.dim() == 2 and slots_are_tokens and k == q:
        own = position_ids.long()
        if padding is not None:
            own = own.expand(len(padding), -1)
            own = (own - own.gather(1, padding[:, None])).clamp(min=0)
            return own, own
        if tracing or bool((own.diff(dim=-1) != 1).any()):
            own = own - own[:, :1]
            return own, own
    if padding is None and slots_are_tokens:
        return None, None
    queries, keys = torch.arange(q, device=like.device) + start, torch.arange(k, device=like.device)
    if padding is not None:
        queries, keys = (places - padding[:, None] for places in (queries, keys))
    # A key beyond the tables is masked; a query beyond them is an error and must not become another position.
    return queries.clamp(min=0), keys.clamp(min=0, max=None if max_length is None else max_length - 1)


def check_positions(path: str, positions: Tensor | None, end: int | Tensor, max_length: int) -> None:
    """Raise a ValueError if a query stands beyond the longest input. Traced positions cannot be read."""
    if positions is not None:
        if is_tracing(positions):
            return
        end = int(positions.max()) + 1
    if isinstance(end, int | torch.SymInt) and end > max_length:
        raise ValueError(
            f"input has {end} positions, {path} was converted with max_length={max_length}; shorten the input, or "
            f"convert with max_length={end}"
        )
