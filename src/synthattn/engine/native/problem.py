"""The arguments of the attention kernel, written once: operators, checks, fakes and gradients take them from here."""

from collections.abc import Sequence
from typing import NamedTuple, get_type_hints

import torch
from torch import Tensor

from synthattn.engine.native.library import are_plain_floats
from synthattn.masks import has_memory, name_of


class Problem(NamedTuple):
    """``dropout(softmax(sum_n scale_n Q_n K_n^T + weight * bias + diagonals)) V``.

    Attributes:
        value: V, with the axes batch, heads, keys, width.
        bias: a table, whose axes but the last may be 1, and the first missing.
        weight: of the bias, one for all heads or for each, in three axes; 1 if None.
        diagonals: for each head, a logit for each difference of key and query, ``1 - q, ..., keys - 1``.
        queries: Q_n for each product.
        keys: K_n for each product.
        scales: scale_n for each product.
        ends: the first key of each example and the one after its last, or None for all keys.
        q: the number of queries.
        causal: query i sees the keys 0..i.
        dropout: the probability of dropping a weight.
        seed: of the random numbers of dropout.
    """

    value: Tensor
    bias: Tensor | None
    weight: Tensor | None
    diagonals: Tensor | None
    queries: list[Tensor]
    keys: list[Tensor]
    scales: list[float]
    ends: Tensor | None
    q: int
    causal: bool
    dropout: float
    seed: int

    @property
    def tensors(self) -> list[Tensor | None]:
        """The tensors that may have gradients: value, bias, weight, diagonals, queries, keys."""
        return [self.value, self.bias, self.weight, self.diagonals, *self.queries, *self.keys]

    def with_tensors(self, tensors: "list[Tensor | None]") -> "Problem":
        """Return the same problem for other tensors, in the order of ``tensors``."""
        (value, bias, weight, diagonals, *features), n = tensors, len(self.scales)
        named = {"value": value, "bias": bias, "weight": weight, "diagonals": diagonals}
        return self._replace(**named, queries=features[:n], keys=features[n:])


_SCHEMA_TYPES = {
    Tensor: "Tensor",
    Tensor | None: "Tensor?",
    list[Tensor]: "Tensor[]",
    list[float]: "float[]",
    int: "int",
    bool: "bool",
    float: "float",
}
SCHEMA = ", ".join(f"{_SCHEMA_TYPES[kind]} {name}" for name, kind in get_type_hints(Problem).items())
"""The fields as arguments in the schema of an operator of torch."""


def check_attention(problem: Problem) -> None:
    """Refuse arguments of the attention kernel that do not belong together, in one line that names both sizes."""
    value, bias, weight, diagonals, queries, keys, scales, ends, q, _, dropout, _ = problem
    _check_floats("value", value)
    if value.dim() != 4:
        raise ValueError(f"value must have shape (batch, heads, keys, width), got {tuple(value.shape)}")
    batch, heads, k, _ = value.shape
    if q < 1:
        raise ValueError(f"the number of queries must be at least 1, got {q}")
    if not 0.0 <= dropout < 1.0:
        raise ValueError(f"dropout must be at least 0 and below 1, got {dropout}")
    if not len(queries) == len(keys) == len(scales):
        raise ValueError(
            f"each product needs queries, keys and a scale, got {len(queries)} queries, {len(keys)} keys and "
            f"{len(scales)} scales"
        )
    examples, all_heads = ("batch", (1, batch)), ("heads", (1, heads))
    for n, (query, key) in enumerate(zip(queries, keys, strict=True)):
        width = ("width", tuple(query.shape[-1:]) if isinstance(query, Tensor) else ())
        _check(f"queries[{n}]", query, examples, all_heads, ("queries", (q,)), width)
        _check(f"keys[{n}]", key, examples, all_heads, ("keys", (k,)), width)
    if bias is not None:
        _check("bias", bias, examples, all_heads, ("queries", (1, q)), ("keys", (k,)))
    if weight is not None:
        if bias is None:
            raise ValueError("weight is that of a bias, but there is no bias; leave it out")
        _check_floats("weight", weight)
        if tuple(weight.shape) not in ((), (1, 1, 1), (heads, 1, 1)):
            raise ValueError(f"weight must have shape () or (1 or {heads}, 1, 1), got {tuple(weight.shape)}")
    if diagonals is not None:
        _check("diagonals", diagonals, ("heads", (heads,)), ("distances", (q + k - 1,)))
    if ends is not None:
        _check_ends(ends, batch, k)


def check_gradient(
    above: Tensor,
    result: Tensor,
    needed: Sequence[Tensor],
    shapes: Sequence[tuple[int, ...]],
    problem: Problem,
    wanted: Sequence[bool],
) -> None:
    """Refuse arguments of the backward kernel that are not those of a forward call with these inputs.

    The inputs themselves have gone through :func:`check_attention`. ``shapes`` are those of the tensors needed.
    """
    batch, heads, _, width = problem.value.shape
    if len(needed) != len(shapes):
        raise ValueError(f"needed must hold as many tensors as attend returned, {len(shapes)}, got {len(needed)}")
    shape_of_heads = batch, heads, problem.q, width
    given = [("above", above, shape_of_heads), ("result", result, shape_of_heads)]
    given += [(f"needed[{n}]", tensor, shapes[n]) for n, tensor in enumerate(needed)]
    for name, tensor, shape in given:
        _check_floats(name, tensor)
        if tuple(tensor.shape) != shape:
            raise ValueError(f"{name} must have shape {shape}, got {tuple(tensor.shape)}")
    if len(wanted) != len(problem.tensors):
        products = len(problem.queries)
        raise ValueError(f"wanted must have {4 + 2 * products} entries for {products} products, got {len(wanted)}")
    if any(want and tensor is None for want, tensor in zip(wanted, problem.tensors, strict=True)):
        raise ValueError("the gradient of a bias, of its weight or of diagonals is wanted, but there is none")


def _check_ends(ends: Tensor, batch: int, k: int) -> None:
    if ends.dtype != torch.int64 or ends.device.type != "cpu" or tuple(ends.shape) != (2, batch):
        raise ValueError(
            f"ends must be int64 of shape (2, {batch}) on the CPU, got {name_of(ends.dtype)} of shape "
            f"{tuple(ends.shape)} on {ends.device}"
        )
    first, last = ends.tolist()
    for example, (one, other) in enumerate(zip(first, last, strict=True)):
        if not 0 <= one <= other <= k:
            raise ValueError(f"ends must lie in order between 0 and {k}, got {one} and {other} for example {example}")


def _check_floats(name: str, tensor: Tensor) -> None:
    """Refuse a tensor whose numbers the kernel cannot read."""
    if not isinstance(tensor, Tensor):  # torch hands None to an operator as it is
        raise ValueError(f"{name} must be a tensor, got {type(tensor).__name__}")
    if tensor.dtype != torch.float32 or tensor.device.type != "cpu" or tensor.layout != torch.strided:
        raise ValueError(
            f"{name} must be a dense float32 tensor on the CPU, got {name_of(tensor.dtype)} on "
            f"{tensor.device} ({name_of(tensor.layout)})"
        )
    if tensor.numel() == 0:
        raise ValueError(f"{name} is empty: its shape is {tuple(tensor.shape)}")
    if not are_plain_floats(tensor) or not has_memory(tensor):
        raise ValueError(f"{name} has too little memory for its shape: its storage was resized")


def _check(name: str, tensor: Tensor, *axes: tuple[str, tuple[int, ...]]) -> None:
    """Refuse a tensor that the kernel cannot read, or with other sizes than those allowed for each axis.

    Args:
        name: the name of the argument, for the message.
        tensor: the argument. The axis of the batch may be missing.
        axes: the name of each axis and its allowed sizes.
    """
    _check_floats(name, tensor)
    shape = tuple(tensor.shape)
    needed = axes[1:] if axes[0][0] == "batch" and len(shape) < len(axes) else axes
    fits = len(shape) == len(needed) and all(size in allowed for size, (_, allowed) in zip(shape, needed, strict=True))
    if not fits:
        wanted = ", ".join(f"{axis} {' or '.join(map(str, sorted(set(allowed))))}" for axis, allowed in axes)
        raise ValueError(f"{name} must have shape ({wanted}), got {shape}")
