"""Call layers and kernels with randomly wrong arguments: shapes, strides, types, broadcasts, empty tensors.

Each call starts from valid arguments, of which one or two are then changed. A call must be refused in one line, or give
the result of :mod:`synthattn.reference` (layers) or of torch's own operations (kernels). Calls run in a child
process. A call that corrupts memory may kill the child; this is counted, and the next child continues.
"""

import copy
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from synthattn import SyntheticAttention, reference
from synthattn.engine import memory_pool, products, thresholds
from synthattn.engine.native import gemm, thin
from synthattn.engine.native.dropout import undropped
from synthattn.layers import ProjectedMemory
from tools.faults.outcome import Outcome, Verdict

SPECS = [
    "vanilla",
    "dense",
    "dense(window=5)",
    "random",
    "fixed_random",
    "factorized_random(rank=1)",
    "factorized_dense",
    "toeplitz(range=3)",
    "relative",
    "alibi",
    "random+vanilla",
    "dense+vanilla",
    "random+dense",
    "factorized_dense+vanilla",
    "toeplitz(range=5)+vanilla",
    "vanilla+relative",
    "random+dense+vanilla+relative",
]
SECONDS = 60
"""Seconds after which a call counts as hanging."""

Rng = random.Random


@dataclass
class Call:
    """A call with its arguments, and its expected result if it is accepted."""

    text: str
    arguments: dict[str, Any]
    execute: Callable[[dict[str, Any]], list[Tensor]]
    expect: Callable[[dict[str, Any]], list[Tensor]]


# Right arguments ------------------------------------------------------------------------------------------------------


def layer_call(rng: Rng) -> Call:
    """Return a forward and backward pass of ``SyntheticAttention``, with any of its arguments."""
    spec, heads, dim = rng.choice(SPECS), rng.choice([1, 2, 3, 8]), rng.choice([2, 3, 8])
    batch, q = rng.choice([1, 2, 3]), rng.choice([1, 2, 5, 17, 40, 100])
    k, d_model = rng.choice([q, q, 2, 11, 97]), heads * dim
    layer = SyntheticAttention(d_model, heads, spec, max_length=max(q, k) + rng.choice([0, 3]))
    layer.train(rng.random() < 0.5)
    x = torch.randn(batch, q, d_model, requires_grad=rng.random() < 0.7)
    given: dict[str, Any] = {"x": x}
    memory = torch.randn(batch, k, d_model) if rng.random() < 0.4 or k != q else None
    if memory is not None:
        given["memory"] = memory
    options: dict[str, Callable[[], Any]] = {
        "key_padding_mask": lambda: torch.arange(k).expand(batch, -1) >= torch.randint(1, k + 1, (batch, 1)),
        "attn_mask": lambda: rng.choice(
            [torch.rand(q, k) < 0.3, torch.randn(batch * heads, q, k), torch.rand(batch, 1, q, k) < 0.3]
        ),
        "position_bias": lambda: torch.randn(
            *rng.choice([(), (1,), (batch,)]), rng.choice([1, heads]), rng.choice([1, q]), k, requires_grad=True
        ),
        "is_causal": lambda: True,
        "positions": lambda: torch.randperm(q),
        "offset": lambda: 0,
    }
    if memory is not None:
        options["memory_positions"] = lambda: torch.randperm(k)
    for name in rng.sample(sorted(options), rng.choice([0, 1, 1, 2])):
        given[name] = options[name]()
    if memory is not None and rng.random() < 0.4:
        given["memory"] = layer.project_memory(memory)
    return Call(
        f"{spec}, {heads} heads", given, lambda a: run_layer(layer, a), lambda a: expect_layer(layer, a, memory)
    )


def run_layer(layer: SyntheticAttention, given: dict[str, Any]) -> list[Tensor]:
    y = layer(**given)
    gradients = []
    if y.requires_grad:
        leaves = [t for t in (given["x"], given.get("position_bias")) if isinstance(t, Tensor) and t.requires_grad]
        gradients = torch.autograd.grad(y.sum(), [*leaves, layer.output.weight])
    return [y.detach(), *gradients[-1:]]


def expect_layer(layer: SyntheticAttention, given: dict[str, Any], memory: Tensor | None) -> list[Tensor]:
    """Return output and gradient of the output projection by the paper's equations in float64."""
    exact = copy.deepcopy(layer).double()
    x = given["x"].detach().double()
    source = given.get("memory")
    if isinstance(source, ProjectedMemory):
        assert memory is not None
        right = layer.project_memory(memory)
        pairs = [(a, b) for a, b in zip(source, right, strict=True) if a is not None and b is not None]
        if not all(torch.equal(a, b) for a, b in pairs):  # of which tokens these are the keys and values is not known
            return expect_projected(exact, given)
        source = memory
    source = None if source is None else source.detach().double()
    (batch, q, _), k, offset = x.shape, (x if source is None else source).shape[1], given.get("offset", 0)
    added = torch.zeros(batch, layer.num_heads, q, k, dtype=torch.float64)
    mask, bias = given.get("attn_mask"), given.get("position_bias")
    if mask is not None:
        mask = mask.reshape(batch, layer.num_heads, q, k) if mask.dim() == 3 else mask
        added = added.masked_fill(mask, float("-inf")) if mask.dtype == torch.bool else added + mask
    if bias is not None:
        added = added + bias.detach().double()
    if given.get("is_causal"):
        added = added.masked_fill(~torch.ones(q, k, dtype=torch.bool).tril(offset), float("-inf"))
    positions = given.get("positions")
    positions = offset + torch.arange(q) if positions is None else positions.long()
    there = given.get("memory_positions")
    y, _ = reference.attention(
        exact,
        x,
        source,
        key_padding_mask=given.get("key_padding_mask"),
        attn_mask=added.reshape(-1, q, k),
        positions=positions,
        memory_positions=None if there is None else there.long(),
    )
    (gradient,) = torch.autograd.grad(y.sum(), [exact.output.weight])
    return [y.detach(), gradient]


def expect_projected(exact: SyntheticAttention, given: dict[str, Any]) -> list[Tensor]:
    """Return the output for changed keys and values, computed in two steps and in float64."""

    def double(value: Any) -> Any:
        return value.detach().double() if isinstance(value, Tensor) and value.is_floating_point() else value

    changed = {name: double(value) for name, value in given.items()}
    changed["memory"] = ProjectedMemory(*map(double, given["memory"]))
    return [exact(**changed, plain=True).detach()]


def attend_call(rng: Rng) -> Call:
    """Return a call of the operator of attention and of its gradient."""
    batch, heads, q, k, width = (
        rng.choice(sizes) for sizes in ([1, 2], [1, 3], [1, 2, 7, 140], [1, 5, 150], [1, 9, 33])
    )
    given: dict[str, Any] = {"value": torch.randn(batch, heads, k, width), "bias": None, "weight": None}
    if rng.random() < 0.7:
        shape = (rng.choice([1, heads]), rng.choice([1, q]), k)
        given["bias"] = torch.randn(*rng.choice([(), (1,), (batch,)]), *shape)
        given["weight"] = rng.choice([None, torch.randn(()), torch.randn(heads, 1, 1)])
    widths = [rng.choice([1, 4, 19]) for _ in range(rng.choice([1, 1, 2]))]
    given["queries"] = [torch.randn(batch, heads, q, w) for w in widths]
    given["keys"] = [torch.randn(*rng.choice([(), (batch,)]), rng.choice([1, heads]), k, w) for w in widths]
    given["scales"] = [rng.choice([1.0, 0.5]) for _ in widths]
    first = torch.tensor([rng.randrange(k) for _ in range(batch)])
    given["ends"] = rng.choice([None, torch.stack([first, first + 1 + (k - first - 1) // 2])])
    given |= {"q": q, "causal": rng.random() < 0.3}
    given |= {"dropout": rng.choice([0.0, 0.4]), "seed": rng.randrange(2**62)}
    return Call("attend", given, run_attend, expect_attend)


def run_attend(given: dict[str, Any]) -> list[Tensor]:
    result, *needed = torch.ops.synthattn.attend(**given, trains=True)
    wanted = [True, given["bias"] is not None, given["weight"] is not None] + [True] * 2 * len(given["queries"])
    above = torch.ones_like(result)
    return [result, *torch.ops.synthattn.attend_backward(above, result, needed, *given.values(), wanted)]


def expect_attend(given: dict[str, Any]) -> list[Tensor]:
    def leaf(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor.detach().double().requires_grad_()

    value, bias, weight = (leaf(given[name]) for name in ("value", "bias", "weight"))
    queries, keys = ([leaf(t) for t in given[name]] for name in ("queries", "keys"))
    assert value is not None
    total = torch.zeros(*value.shape[:2], given["q"], value.shape[2], dtype=torch.float64)
    for query, key, scale in zip(queries, keys, given["scales"], strict=True):
        assert query is not None
        assert key is not None
        total = total + scale * query @ key.mT
    if bias is not None:
        total = total + (bias if weight is None else bias * weight)
    allowed = torch.ones(total.shape[-2:], dtype=torch.bool)
    allowed = allowed.tril() if given["causal"] else allowed
    if given["ends"] is not None:
        first, last = given["ends"][..., None, None, None]
        places = torch.arange(total.shape[-1])
        allowed = allowed & (places >= first) & (places < last)
    total = total.masked_fill(~allowed, float("-inf"))
    dead = (total == float("-inf")).all(-1, keepdim=True)
    weights = total.masked_fill(dead, 0.0).softmax(-1).masked_fill(dead, 0.0)
    if given["dropout"] > 0.0:
        batch, heads, q, k = total.shape
        kept = undropped(given["dropout"], given["seed"], (batch, heads, q, k))
        weights = weights * kept / (1.0 - given["dropout"])
    result = weights @ value
    leaves = [t for t in (value, bias, weight, *queries, *keys) if t is not None]
    return [result.detach(), *torch.autograd.grad(result.sum(), leaves)]


def product_call(rng: Rng) -> Call:
    """Return a call of the product in a step of generation."""
    rows, depth, columns = rng.choice([1, 4, 33]), rng.choice([1, 17, 64]), rng.choice([1, 5, 67])
    given = {"x": torch.randn(rows, depth), "weight": torch.randn(columns, depth), "bias": torch.randn(columns)}
    if rng.random() < 0.3:
        given["bias"] = None  # pyright: ignore[reportArgumentType]
    return Call(
        "thin.product",
        given,
        lambda a: [accepted(thin.product, **a)],
        lambda a: [nn.functional.linear(*(None if t is None else t.detach().double() for t in a.values()))],  # pyright: ignore
    )


def matrix_call(rng: Rng) -> Call:
    """Return a call of the product of large matrices."""
    batch = rng.choice([(), (1,), (3,)])
    rows, depth, columns = rng.choice([1, 4, 133]), rng.choice([1, 17, 300]), rng.choice([1, 5, 67])
    given = {"a": torch.randn(*batch, rows, depth), "b": torch.randn(*batch, depth, columns)}
    given["bias"] = rng.choice([torch.randn(columns), torch.randn(rows, 1), None])  # pyright: ignore

    def multiply(a: Any, b: Any, bias: Any) -> Tensor | None:
        return gemm.multiply(a, b, bias) if products.is_for_kernel(a, b, bias) else None

    def expect(a: dict[str, Any]) -> list[Tensor]:
        result = a["a"].detach().double() @ a["b"].detach().double()
        return [result if a["bias"] is None else result + a["bias"].detach().double()]

    return Call("gemm.multiply", given, lambda a: [accepted(multiply, **a)], expect)


def norm_call(rng: Rng) -> Call:
    rows, width = rng.choice([1, 4, 33]), rng.choice([1, 17, 64])
    given = {"x": torch.randn(rows, width), "weight": torch.randn(width), "eps": 1e-3}

    def expect(a: dict[str, Any]) -> list[Tensor]:
        x, weight = a["x"].detach().double(), a["weight"]
        y = x / (x.square().mean(-1, keepdim=True) + a["eps"]).sqrt()
        return [y if weight is None else y * weight.detach().double()]

    return Call("thin.norm", given, lambda a: [accepted(thin.norm, **a)], expect)


@torch.no_grad()
def accepted(function: Callable[..., Tensor | None], **given: Any) -> Tensor:
    """Call a kernel as layers do, with parameters for weight and bias, and raise a ValueError if it declines."""
    for name, value in given.items():
        if not isinstance(value, Tensor | float) and (name not in ("weight", "bias") or value is not None):
            raise TypeError(f"{name} is no tensor")
        if name in ("weight", "bias") and isinstance(value, Tensor):
            given[name] = nn.Parameter(value, requires_grad=False)
    result = function(**given)
    if result is None:
        raise ValueError("declined")
    return result


# Changes --------------------------------------------------------------------------------------------------------------


def other_size(rng: Rng, t: Tensor) -> Any:
    if t.dim() == 0:
        return t.reshape(1)
    axis = rng.randrange(t.dim())
    size = rng.choice([0, 1, 2, t.shape[axis] - 1, t.shape[axis] + 1, 2 * t.shape[axis]])
    return torch.zeros([max(size, 0) if n == axis else s for n, s in enumerate(t.shape)], dtype=t.dtype)


def other_axes(rng: Rng, t: Tensor) -> Any:
    turned = t.mT if t.dim() > 1 else t
    first = t[0] if t.dim() > 0 and len(t) > 0 else t
    return rng.choice([t.unsqueeze(0), t.unsqueeze(-1), t.flatten(), first, t.sum(), turned])


def other_type(rng: Rng, t: Tensor) -> Any:
    types = [torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.bool, torch.complex64]
    return t.detach().to(rng.choice(types))


def other_strides(rng: Rng, t: Tensor) -> Any:
    """Return an equal tensor with another order, gaps or another sign in memory."""
    if t.dim() == 0 or t.numel() == 0:
        return t
    kind = rng.choice(["gaps", "order", "offset", "sign"])
    if kind == "gaps":
        return torch.repeat_interleave(t.detach(), 2, -1)[..., ::2]
    if kind == "order" and t.dim() > 1:
        return t.detach().transpose(0, -1).contiguous().transpose(0, -1)
    if kind == "sign" and t.dtype == torch.float32:
        return torch.complex(torch.zeros_like(t.detach()), -t.detach()).conj().imag
    return torch.cat([t.detach().flatten()[:1], t.detach().flatten()])[1:].view(t.shape)


def expanded(rng: Rng, t: Tensor) -> Any:
    return t if t.dim() == 0 or t.numel() == 0 else t.detach()[:1].expand(t.shape)


def other_place(rng: Rng, t: Tensor) -> Any:
    return rng.choice([lambda: t.detach().to("meta"), lambda: t.detach().to_sparse(), lambda: emptied(t)])()


def emptied(t: Tensor) -> Tensor:
    copied = t.detach().clone()
    copied.untyped_storage().resize_(0)
    return copied


def no_tensor(rng: Rng, t: Tensor) -> Any:
    return rng.choice([None, 3, "x", [1.0], t.tolist()])


def recorded(rng: Rng, t: Tensor) -> Any:
    return t.detach().clone().requires_grad_() if t.is_floating_point() else t


CHANGES = [other_size] * 5 + [other_axes, other_axes, other_type, other_strides, other_strides]
CHANGES += [expanded, other_place, no_tensor, recorded]


def change(rng: Rng, value: Any) -> Any:
    if isinstance(value, ProjectedMemory):
        parts: list[Any] = [part if part is None or rng.random() < 0.5 else change(rng, part) for part in value]
        return ProjectedMemory(*parts)
    if isinstance(value, Tensor):
        return rng.choice(CHANGES)(rng, value)
    if isinstance(value, list):
        if not value or rng.random() < 0.2:
            return rng.choice([[], [*value, *value]])
        n = rng.randrange(len(value))
        return [*value[:n], change(rng, value[n]), *value[n + 1 :]]
    if isinstance(value, bool):
        return not value
    return rng.choice([-1, 0, 1, 3, 2**40]) if isinstance(value, int) else value


def calls(seed: int, number: int) -> Call:
    """Return the call of this number, which is fixed by the seed."""
    rng = Rng(f"{seed} {number}")
    torch.manual_seed(rng.randrange(2**31))
    kinds = [layer_call, layer_call, layer_call, attend_call, attend_call, product_call, matrix_call, norm_call]
    call = rng.choice(kinds)(rng)
    for name in rng.sample(sorted(call.arguments), min(len(call.arguments), rng.choice([1, 1, 2]))):
        call.arguments[name] = change(rng, call.arguments[name])
    return call


# Judgement ------------------------------------------------------------------------------------------------------------


def judge(call: Call) -> tuple[Verdict, str]:
    try:
        found = call.execute(call.arguments)
    except (ValueError, TypeError, RuntimeError, NotImplementedError) as error:
        # Torch's own errors about a type or a device come first, and may have more lines.
        clear = isinstance(error, RuntimeError) or "\n" not in str(error)
        return ("clear", "") if clear else ("traceback", f"{type(error).__name__}: {error}")
    except Exception as error:
        return "traceback", f"{type(error).__name__}: {error}"
    try:
        expected = call.expect(call.arguments)
    except Exception as error:
        return "wrong", f"accepted, but: {type(error).__name__}: {error}"
    for ours, right in zip(found, expected, strict=False):
        if ours.is_meta:
            continue
        right = right.sum_to_size(ours.shape) if ours.shape != right.shape else right
        scale = float(right.abs().max().clamp(min=1.0)) if right.numel() else 1.0
        if not torch.allclose(ours.double() / scale, right / scale, rtol=1e-3, atol=1e-3, equal_nan=True):
            return "wrong", f"differs by {float((ours - right).abs().max() / scale):.2g}"
    return "right", ""


def describe(call: Call) -> str:
    def shown(value: Any) -> str:
        if isinstance(value, Tensor):
            return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
        return f"[{', '.join(map(shown, value))}]" if isinstance(value, list | tuple) else repr(value)

    return f"{call.text}({', '.join(f'{name}={shown(value)}' for name, value in call.arguments.items())})"


def work(seed: int, start: int, stop: int) -> None:
    """Judge some calls, and print a line before and after each. A call that hangs ends the process."""
    memory_pool.UNIT = 2**60  # no memory pool, so that a sanitizer sees the bounds of every tensor
    torch.set_num_threads(2)
    thresholds.MULTIPLICATIONS, thresholds.SHORTEST_AXIS = {thresholds.processor(): 0}, 1  # the kernel for all products
    thin.LEAST_SIZE = 0
    for number in range(start, stop):
        call = calls(seed, number)
        print(f"{number}\t{describe(call)}", flush=True)
        signal.alarm(SECONDS)
        verdict, reason = judge(call)
        print(f"{verdict}\t{' '.join(reason.split())}", flush=True)


def run(count: int, seed: int) -> Outcome:
    """Make this many wrong calls in child processes and count their verdicts."""
    outcome = Outcome("wrong_calls")
    while outcome.tried < count:
        command = [sys.executable, "-m", "tools.faults.wrong_calls", str(seed), str(outcome.tried), str(count)]
        child = subprocess.run(command, capture_output=True, text=True)
        lines = [line.split("\t", 1) for line in child.stdout.splitlines()]
        for (number, text), (verdict, reason) in zip(lines[::2], lines[1::2], strict=False):
            outcome.add(verdict, f"call {number} of seed {seed}: {text}: {reason}")  # pyright: ignore[reportArgumentType]
        if outcome.tried < count:
            number, text = lines[-1] if len(lines) % 2 else (str(outcome.tried), "before the call")
            said = " ".join(child.stderr.split())[-1500:]
            outcome.add("crash", f"call {number} of seed {seed}: {text}: code {child.returncode}: {said}")
    return outcome


if __name__ == "__main__":
    work(*map(int, sys.argv[1:]))
