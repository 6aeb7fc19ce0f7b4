"""Learned tables of positions: read entries at the positions of tokens, and change the number of positions."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from synthattn.shapes import Float
from synthattn.synthesizers.base import Resize, Tokens
from synthattn.tracing import is_tracing


def rows_at(table: Float[Tensor, "heads n *features"], tokens: Tokens) -> Float[Tensor, "..."]:
    """Return the rows of a table at the positions of tokens; a view if these follow each other."""
    if tokens.positions is None:
        return _slice(table, 1, tokens)
    if tokens.positions.dim() == 1:
        return table.index_select(1, tokens.positions)
    return table[:, tokens.positions].transpose(0, 1)


def entries_at(matrix: Float[Tensor, "heads n n"], query: Tokens, memory: Tokens) -> Float[Tensor, "*batch heads q k"]:
    """Return the entries of a matrix at the positions of queries and keys; a view if these follow each other."""
    if query.positions is None and memory.positions is None:
        return _slice(_slice(matrix, 1, query), 2, memory)
    i, j = query.resolved_positions(), memory.resolved_positions()
    entries = matrix[:, i.unsqueeze(-1), j.unsqueeze(-2)]
    return entries if entries.dim() == 3 else entries.transpose(0, 1)


def _slice(table: Float[Tensor, "..."], dim: int, tokens: Tokens) -> Float[Tensor, "..."]:
    if is_tracing(table):  # views of a part and of the whole differ, so a graph of one would exclude the other
        return table.index_select(dim, torch.arange(tokens.start, tokens.start + tokens.length, device=table.device))
    if tokens.start == 0 and tokens.length == table.shape[dim]:
        return table  # the gradient of a view, even of the whole, is a copy of it
    return table.narrow(dim, tokens.start, tokens.length)


def resize_table(module: nn.Module, name: str, length: int, how: Resize, std: float = 0.0) -> None:
    """Resize a parameter of a module. New entries are normal with standard deviation ``std``."""
    old = getattr(module, name)
    new = old.new_zeros(len(old), length, *old.shape[2:])
    new = new.normal_(std=std) if std > 0.0 else new
    setattr(module, name, replace_data(old, resized(old, length, how, new)))


def resize_matrix(matrix: Tensor, length: int, how: Resize, std: float) -> Tensor:
    """Return the matrix with another number of positions on both axes. New entries are normal."""
    heads, old, _ = matrix.shape
    size = max(old, length)
    new = matrix.new_empty(heads, size, size).normal_(std=std)
    rows = resized(matrix.detach(), length, how, new[:, :length, :old])
    return replace_data(matrix, resized(rows.mT, length, how, new[:, :length, :length].mT).mT)


def resized(
    table: Float[Tensor, "heads n *features"], length: int, how: Resize, new: Float[Tensor, "heads m *features"]
) -> Float[Tensor, "heads m *features"]:
    """Return a table of another length: the old rows followed by rows of ``new``, or the old rows interpolated."""
    if how == "pad":
        common = min(length, table.shape[1])
        return torch.cat([table[:, :common], new[:, common:].to(table)], dim=1)
    heads, old, *features = table.shape
    series = table.reshape(heads, old, -1).transpose(1, 2)
    series = F.interpolate(series, size=length, mode="linear", align_corners=True)
    return series.transpose(1, 2).reshape(heads, length, *features)


def replace_data(old: Tensor, data: Tensor) -> Tensor:
    """Return ``data`` as what ``old`` is: a parameter with the same ``requires_grad``, or a plain tensor."""
    data = data.detach().contiguous()
    return nn.Parameter(data, requires_grad=old.requires_grad) if isinstance(old, nn.Parameter) else data
