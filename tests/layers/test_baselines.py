"""The baselines equal loops over the equations of their papers and keep the promises of all token mixers."""

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from synthattn import SyntheticAttention
from synthattn.layers.convolution import Convolution
from synthattn.layers.dynamic_convolution import DynamicConvolution
from synthattn.layers.light_convolution import LightConvolution
from synthattn.layers.linformer import Linformer
from synthattn.layers.mixers import (
    MIXERS,
    DynamicConv,
    LightConv,
    LinformerTerm,
    TokenMixer,
    build_mixer,
    parse_mixer,
)
from synthattn.synthesizers import SYNTHESIZERS, Spec

CONVOLUTIONS = ["lightconv(kernel=5)", "dynamicconv(kernel=5)"]
LINFORMERS = [
    "linformer(k=7)",
    "linformer(k=7, shared_heads=false)",
    "linformer(k=7, shared_kv=true)",
    "linformer(k=7, shared_heads=false, shared_kv=true)",
]
BASELINES = CONVOLUTIONS + LINFORMERS
WAYS = [(spec, False) for spec in BASELINES] + [(spec, True) for spec in CONVOLUTIONS]

# Primes but for the width, which the heads of a convolution must divide.
BATCH, HEADS, DIM, LENGTH, MEMORY, MAX_LENGTH, KERNEL = 2, 3, 5, 11, 13, 23, 5
D_MODEL = HEADS * DIM


def make(spec: str, dtype: torch.dtype = torch.float64, **options: Any) -> Any:
    torch.manual_seed(0)
    layer = build_mixer(spec, D_MODEL, HEADS, MAX_LENGTH, 0.0, **options).to(dtype)
    with torch.no_grad():  # biases start at zero, which would hide mistakes
        for parameter in layer.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return layer


def tokens(length: int = LENGTH, batch: int = BATCH, seed: int = 1, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(batch, length, D_MODEL, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def padding(length: int = LENGTH) -> Tensor:
    """Return a mask of the last tokens of example 0 and of every third token of example 1."""
    mask = torch.zeros(BATCH, length, dtype=torch.bool)
    mask[0, 1 + length // 2 :] = True
    mask[1, ::3] = True
    return mask


def assert_same(layer: TokenMixer, ours: Callable[..., Tensor], expected: Callable[..., Tensor], *inputs: Tensor):
    """Compare two outputs of a layer and the gradients of all inputs and parameters, which must exist."""
    found = []
    for compute in (ours, expected):
        leaves = [t.clone().requires_grad_() for t in inputs]
        y = compute(*leaves)
        probe = torch.randn(y.shape, dtype=y.dtype, generator=torch.Generator().manual_seed(9))
        found.append([y.detach(), *torch.autograd.grad((y * probe).sum(), [*leaves, *layer.parameters()])])
    names = ["output", *(f"input {n}" for n in range(len(inputs))), *(name for name, _ in layer.named_parameters())]
    for name, a, b in zip(names, *found, strict=True):
        error = float((a - b).abs().max() / b.abs().max().clamp(min=1.0))
        assert error <= (1e-12 if name == "output" else 1e-11), f"{name} differs by {error:.2g}"


def linear(projection: torch.nn.Linear, x: Tensor) -> Tensor:
    return projection.weight @ x + projection.bias


def convolution_by_loops(layer: Convolution, x: Tensor, pad: Tensor | None, causal: bool) -> Tensor:
    batch, length, _ = x.shape
    zero = x.new_zeros(D_MODEL)
    rows = []
    for b in range(batch):
        gated = []
        for i in range(length):
            both = linear(layer.input, x[b, i])
            real = pad is None or not pad[b, i]
            gated.append(both[:D_MODEL] * (1 / (1 + (-both[D_MODEL:]).exp())) if real else zero)
        for i in range(length):
            heads = []
            for h in range(HEADS):
                if isinstance(layer, LightConvolution):
                    logits = layer.weight[h]
                else:
                    assert isinstance(layer, DynamicConvolution)
                    logits = torch.stack([layer.query.weight[h * KERNEL + c] @ gated[i] for c in range(KERNEL)])
                total = sum(logits[c].exp() for c in range(KERNEL))
                head = zero[:DIM]
                for c in range(KERNEL):
                    j = i + c - (KERNEL - 1 if causal else KERNEL // 2)
                    if 0 <= j < length:
                        head = head + logits[c].exp() / total * gated[j][h * DIM : (h + 1) * DIM]
                heads.append(head)
            rows.append(linear(layer.output, torch.cat(heads)))
    return torch.stack(rows).view(x.shape)


@pytest.mark.parametrize("spec", CONVOLUTIONS)
@pytest.mark.parametrize("length", [LENGTH, 3, 1])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("plain", [True, False])
def test_convolutions_equal_a_loop_over_the_equation(spec, length, causal, padded, plain):
    layer, pad = make(spec), padding(length) if padded else None
    assert_same(
        layer,
        lambda x: layer(x, key_padding_mask=pad, is_causal=causal, plain=plain),
        lambda x: convolution_by_loops(layer, x, pad, causal),
        tokens(length),
    )


def linformer_by_loops(layer: Linformer, x: Tensor, memory: Tensor, pad: Tensor | None, places: Tensor) -> Tensor:
    rows = []
    width = layer.head_dim
    zero = x.new_zeros(width)
    parts = [slice(h * width, (h + 1) * width) for h in range(HEADS)]
    for b in range(len(x)):
        kept = [j for j in range(memory.shape[1]) if pad is None or not pad[b, j]]
        keys, values = ({j: linear(p, memory[b, j]) for j in kept} for p in (layer.key, layer.value))
        projected = []
        for h, part in enumerate(parts):
            e = layer.e[h if len(layer.e) > 1 else 0]
            f = e if layer.f is None else layer.f[h if len(layer.f) > 1 else 0]
            projected_keys = [sum((e[m, places[b, j]] * keys[j][part] for j in kept), zero) for m in range(layer.k)]
            projected_values = [sum((f[m, places[b, j]] * values[j][part] for j in kept), zero) for m in range(layer.k)]
            projected.append((projected_keys, projected_values))
        for i in range(x.shape[1]):
            query = linear(layer.query, x[b, i])
            heads = []
            for part, (projected_keys, projected_values) in zip(parts, projected, strict=True):
                weights = [(query[part] @ key / math.sqrt(width)).exp() for key in projected_keys]
                mixed = sum((w * v for w, v in zip(weights, projected_values, strict=True)), zero)
                heads.append(mixed / sum(weights))
            rows.append(linear(layer.output, torch.cat(heads)))
    return torch.stack(rows).view(*x.shape[:2], -1)


@pytest.mark.parametrize("spec", LINFORMERS)
@pytest.mark.parametrize("length", [LENGTH, 1])
@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("plain", [True, False])
def test_linformer_equals_a_loop_over_the_equation(spec, length, padded, plain):
    layer, pad = make(spec, head_dim=4), padding(length) if padded else None
    places = torch.arange(length).expand(BATCH, -1)
    assert_same(
        layer,
        lambda x: layer(x, key_padding_mask=pad, plain=plain),
        lambda x: linformer_by_loops(layer, x, x, pad, places),
        tokens(length),
    )


@pytest.mark.parametrize("spec", LINFORMERS)
@pytest.mark.parametrize("shape", [(MEMORY,), (BATCH, MEMORY)])
def test_linformer_attends_to_a_memory_at_any_positions(spec, shape):
    layer, pad = make(spec), padding(MEMORY)
    places = torch.stack([torch.randperm(MAX_LENGTH)[:MEMORY] for _ in range(shape[0] if len(shape) > 1 else 1)])
    assert_same(
        layer,
        lambda x, memory: layer(x, memory, key_padding_mask=pad, memory_positions=places.view(shape)),
        lambda x, memory: linformer_by_loops(layer, x, memory, pad, places.expand(BATCH, -1)),
        tokens(LENGTH),
        tokens(MEMORY, seed=2),
    )


def test_linformer_reads_a_memory_with_more_queries_than_max_length():
    layer = make("linformer(k=7)")
    assert layer(tokens(MAX_LENGTH + 1), tokens(MEMORY)).shape == (BATCH, MAX_LENGTH + 1, D_MODEL)


@pytest.mark.parametrize(("spec", "causal"), WAYS)
@pytest.mark.parametrize("length", [1, 3, 64, 131])
@pytest.mark.parametrize("padded", [True, False])
def test_convolutions_equal_their_plain_form(spec, causal, length, padded):
    """The lengths are below and above the block size of a band."""
    layer = make(spec)
    layer.resize_max_length(131)
    masks = {"is_causal": causal, "key_padding_mask": padding(length) if padded else None}
    assert_same(layer, lambda x: layer(x, **masks), lambda x: layer(x, plain=True, **masks), tokens(length))


def test_equal_logits_give_a_moving_average_with_zeros_outside():
    layer = LightConvolution(6, 2, kernel=3)
    torch.nn.init.zeros_(layer.weight)
    _, centred = layer(torch.randn(1, 4, 6), need_weights=True)
    _, causal = layer(torch.randn(1, 4, 6), need_weights=True, is_causal=True)
    band = torch.ones(4, 4).tril(1).triu(-1)
    torch.testing.assert_close(centred, (band / 3).expand(1, 2, 4, 4))
    torch.testing.assert_close(causal, (torch.ones(4, 4).tril().triu(-2) / 3).expand(1, 2, 4, 4))


def test_linformer_with_identities_is_vanilla_attention():
    vanilla = SyntheticAttention(D_MODEL, HEADS, "vanilla").double()
    layer = make(f"linformer(k={MAX_LENGTH})")
    projections = {name.removeprefix("synthesizer."): value for name, value in vanilla.state_dict().items()}
    identity = torch.eye(MAX_LENGTH).unsqueeze(0)
    layer.load_state_dict(projections | {"e": identity, "f": identity})
    x = tokens(MAX_LENGTH)
    y, weights = layer(x, need_weights=True)
    expected, expected_weights = vanilla(x, need_weights=True)
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(weights, expected_weights)


@pytest.mark.parametrize("spec", CONVOLUTIONS)
@pytest.mark.parametrize("length", [LENGTH, 3, 1])
@pytest.mark.parametrize("causal", [True, False])
def test_the_weights_of_a_convolution_make_its_output(spec, length, causal):
    layer, x, pad = make(spec), tokens(length), padding(length)
    y, weights = layer(x, is_causal=causal, key_padding_mask=pad, need_weights=True)
    assert weights.shape == (BATCH, HEADS, length, length)
    assert (weights * pad[:, None, None]).abs().max() == 0
    torch.testing.assert_close(layer.output((weights @ layer.project_memory(x).values).transpose(1, 2).flatten(2)), y)


@pytest.mark.parametrize("spec", LINFORMERS)
def test_the_weights_of_linformer_are_those_of_its_mixtures(spec):
    y, weights = make(spec)(tokens(), need_weights=True)
    assert weights.shape == (BATCH, HEADS, LENGTH, 7)
    torch.testing.assert_close(weights.sum(-1), torch.ones(BATCH, HEADS, LENGTH, dtype=y.dtype))


@pytest.mark.parametrize("spec", CONVOLUTIONS)
@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("padded", [True, False])
def test_decoding_step_by_step_equals_the_causal_pass(spec, step, padded):
    layer, x, pad = make(spec), tokens(), padding() if padded else None
    expected, expected_weights = layer(x, is_causal=True, key_padding_mask=pad, need_weights=True)
    for start in range(0, LENGTH, step):
        stop = min(start + step, LENGTH)
        memory = layer.project_memory(x[:, :stop])
        masks = {"is_causal": True, "key_padding_mask": None if pad is None else pad[:, :stop]}
        y = layer(x[:, start:stop], memory, offset=start, **masks)
        torch.testing.assert_close(y, expected[:, start:stop])
        _, weights = layer(x[:, start:stop], memory, offset=start, need_weights=True, **masks)
        torch.testing.assert_close(weights, expected_weights[:, :, start:stop, :stop])


@pytest.mark.parametrize("spec", CONVOLUTIONS)
def test_a_memory_may_hold_later_tokens(spec):
    layer, x = make(spec), tokens()
    for causal in (True, False):
        y = layer(x[:, 4:7], layer.project_memory(x), offset=4, is_causal=causal)
        torch.testing.assert_close(y, layer(x, is_causal=causal)[:, 4:7])


@pytest.mark.parametrize("spec", CONVOLUTIONS)
def test_a_step_of_decoding_looks_at_no_more_than_its_window(spec):
    layer, x = make(spec), tokens()
    memory = layer.project_memory(x)
    expected = layer(x[:, -1:], memory, offset=LENGTH - 1, is_causal=True)
    memory.values.data[:, :, :-KERNEL] = float("nan")
    torch.testing.assert_close(layer(x[:, -1:], memory, offset=LENGTH - 1, is_causal=True), expected)


@pytest.mark.parametrize("spec", CONVOLUTIONS)
def test_causal_outputs_do_not_see_later_tokens(spec):
    layer, x = make(spec), tokens()
    other = torch.cat([x[:, :6], tokens(seed=7)[:, 6:]], dim=1)
    y, changed = layer(x, is_causal=True), layer(other, is_causal=True)
    assert torch.equal(y[:, :6], changed[:, :6])
    assert not torch.equal(y[:, 6], changed[:, 6])


@pytest.mark.parametrize(("spec", "causal"), WAYS)
def test_padded_tokens_never_matter(spec, causal):
    layer, x, pad = make(spec), tokens(), padding()
    other = torch.where(pad.unsqueeze(-1), 100 * tokens(seed=3), x)
    y, changed = (layer(t, key_padding_mask=pad, is_causal=causal) for t in (x, other))
    torch.testing.assert_close(y[~pad], changed[~pad])


@pytest.mark.parametrize(("spec", "causal"), WAYS)
def test_left_padding_equals_no_padding(spec, causal):
    layer, x = make(spec), tokens()
    padded = torch.cat([tokens(4, seed=5), x], dim=1)
    pad = torch.arange(LENGTH + 4).expand(BATCH, -1) < 4
    positions = (torch.arange(LENGTH + 4) - 4).clamp(min=0)
    for places in (positions, positions.expand(BATCH, -1)):
        y = layer(padded, key_padding_mask=pad, positions=places, is_causal=causal)
        torch.testing.assert_close(y[:, 4:], layer(x, is_causal=causal))


def test_positions_move_the_tokens_of_linformer():
    layer, x, order = make("linformer(k=7)"), tokens(), torch.randperm(LENGTH)
    torch.testing.assert_close(layer(x[:, order], positions=order), layer(x)[:, order])


@pytest.mark.parametrize("spec", CONVOLUTIONS)
def test_a_dropped_kernel_entry_is_gone_for_all_that_share_the_kernel(spec):
    """With dropout 0.5, a kernel of one entry gives zero or twice the value."""
    kind = type(make(spec))
    torch.manual_seed(0)
    layer = kind(D_MODEL, D_MODEL, 1, 0.5, bias=False).double()
    torch.nn.init.eye_(layer.output.weight)
    x = tokens(31)
    values = layer.project_memory(x).values
    y, weights = layer(x, need_weights=True)
    assert torch.equal(weights, torch.eye(31, dtype=x.dtype).expand(BATCH, D_MODEL, 31, 31))
    times = (y.mT / values.squeeze(-1)).round()
    assert torch.allclose(y.mT, times * values.squeeze(-1))
    assert set(times.abs().unique().tolist()) == {0.0, 2.0}
    for_all_tokens = bool((times == times[:1, :, :1]).all())
    assert for_all_tokens == (kind is LightConvolution)
    torch.testing.assert_close(layer.eval()(x), values.squeeze(-1).mT)


def test_linformer_drops_attention_weights_while_training():
    layer = build_mixer("linformer", D_MODEL, HEADS, MAX_LENGTH, 0.5)
    x = tokens(dtype=torch.float32)
    for plain in (True, False):
        layer.train()
        assert not torch.equal(layer(x, plain=plain), layer(x, plain=plain))
        layer.eval()
        assert torch.equal(layer(x, plain=plain), layer(x, plain=plain))


@pytest.mark.parametrize("spec", BASELINES)
def test_state_dict_round_trip(spec):
    layer, other = make(spec), copy.deepcopy(make(spec))
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.normal_()
    assert not torch.equal(layer(tokens()), other(tokens()))
    other.load_state_dict(layer.state_dict())
    assert torch.equal(layer(tokens()), other(tokens()))


@pytest.mark.parametrize("spec", BASELINES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_and_autocast(spec, dtype):
    layer, x = make(spec, torch.float32), tokens(dtype=torch.float32)
    expected = layer(x)
    with torch.autocast("cpu", dtype):
        mixed = layer(x)
    mixed.float().sum().backward()
    halved = layer.to(dtype)(x.to(dtype))
    assert halved.dtype == mixed.dtype == dtype
    for y in (mixed, halved):
        torch.testing.assert_close(y.float(), expected, rtol=0.1, atol=0.1)


@pytest.mark.parametrize("spec", BASELINES)
def test_on_the_meta_device(spec):
    with torch.device("meta"):
        layer = build_mixer(spec, D_MODEL, HEADS, MAX_LENGTH, 0.0)
        y, _ = layer(torch.empty(BATCH, LENGTH, D_MODEL), need_weights=True)
    assert y.device.type == "meta"
    assert y.shape == layer(torch.empty(BATCH, LENGTH, D_MODEL, device="meta")).shape == (BATCH, LENGTH, D_MODEL)


def test_parameter_counts_are_those_of_the_papers():
    d, heads, k, n = D_MODEL, HEADS, 7, MAX_LENGTH

    def count(spec: str, bias: bool = False) -> int:
        return sum(p.numel() for p in build_mixer(spec, d, heads, n, 0.0, bias=bias).parameters())

    assert count("lightconv(kernel=5)") == 3 * d * d + heads * 5
    assert count("lightconv(kernel=5)", bias=True) == 3 * d * d + heads * 5 + 3 * d
    assert count("dynamicconv(kernel=5)") == 3 * d * d + d * heads * 5
    assert count("linformer(k=7)") == 4 * d * d + 2 * k * n
    assert count("linformer(k=7)", bias=True) == 4 * d * d + 2 * k * n + 4 * d
    assert count("linformer(k=7, shared_heads=false)") == 4 * d * d + 2 * heads * k * n
    assert count("linformer(k=7, shared_kv=true)") == 4 * d * d + k * n
    assert count("linformer(k=7, shared_heads=false, shared_kv=true)") == 4 * d * d + heads * k * n


def test_linformer_starts_with_mixtures_of_the_scale_of_a_token():
    torch.manual_seed(0)
    layer = Linformer(8, 2, k=400, max_length=400)
    assert layer.f is not None
    for table in (layer.e, layer.f):
        assert table.detach().std().item() == pytest.approx(400**-0.5, rel=0.02)


@pytest.mark.parametrize("spec", LINFORMERS)
@pytest.mark.parametrize("length", [MAX_LENGTH + 6, LENGTH])
def test_padding_a_linformer_keeps_short_inputs(spec, length):
    layer, x = make(spec), tokens()
    expected = layer(x)
    names = list(layer.state_dict())
    layer.resize_max_length(length)
    assert layer.max_length == length
    assert layer.e.shape == (1 if "shared_heads" not in spec else HEADS, 7, length)
    assert list(layer.state_dict()) == names
    assert all(p.requires_grad and p.is_leaf for p in layer.parameters())
    torch.testing.assert_close(layer(x), expected)
    layer(tokens(length))


@pytest.mark.parametrize("length", [2 * MAX_LENGTH, LENGTH])
def test_an_interpolated_linformer_gives_a_stretched_input_the_same_mixtures(length):
    layer = make("linformer(k=7)")
    with torch.no_grad():
        for table in (layer.e, layer.f):
            table.copy_(table[..., :1].expand_as(table))
    x = tokens(1)
    expected = layer(x.expand(-1, MAX_LENGTH, -1))
    layer.resize_max_length(length, "interpolate")
    torch.testing.assert_close(layer(x.expand(-1, length, -1)), expected[:, :1].expand(-1, length, -1))


@pytest.mark.parametrize("spec", CONVOLUTIONS)
def test_a_convolution_has_no_max_length(spec):
    layer = make(spec)
    before = copy.deepcopy(layer.state_dict())
    layer.resize_max_length(3)
    assert layer.max_length is None
    assert not layer.reads_memory
    assert all(torch.equal(value, before[name]) for name, value in layer.state_dict().items())
    assert layer(tokens(200)).shape == (BATCH, 200, D_MODEL)


@pytest.mark.parametrize("spec", BASELINES)
def test_baselines_refuse_a_position_bias(spec):
    assert not make(spec).takes_position_bias


@pytest.mark.parametrize("spec", [*BASELINES, "lightconv", "dynamicconv(dropout=0.1)", "linformer", "random+vanilla"])
def test_specs_print_back(spec):
    assert str(parse_mixer(spec)) == spec
    assert parse_mixer(parse_mixer(spec)) == parse_mixer(spec)


def test_terms_build_the_layers_that_they_name():
    assert set(MIXERS) == set(SYNTHESIZERS) | {"lightconv", "dynamicconv", "linformer"}
    sizes = (12, 3, 8, 0.25)
    light = build_mixer(LightConv(kernel=7, dropout=0.1), *sizes, bias=False)
    assert isinstance(light, LightConvolution)
    assert (light.kernel, light.weight_dropout, light.input.bias) == (7, 0.1, None)
    assert isinstance(build_mixer(Spec((DynamicConv(),)), *sizes, head_dim=4), DynamicConvolution)
    linformer = build_mixer(LinformerTerm(k=5), *sizes, head_dim=6)
    assert isinstance(linformer, Linformer)
    assert (linformer.k, linformer.max_length, linformer.dropout, linformer.head_dim) == (5, 8, 0.25, 6)
    mixture = build_mixer("random+vanilla", *sizes, head_dim=6, bias=False, mix="sum")
    assert isinstance(mixture, SyntheticAttention)
    assert (str(mixture.spec), mixture.head_dim, mixture.dropout, mixture.mix) == ("random+vanilla", 6, 0.25, "sum")
