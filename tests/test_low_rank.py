"""Low-rank inference: what it promises holds for every input, and where it cannot, the layer is exact."""

import copy
import pickle
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from helpers import D_MODEL, HEAD_DIM, HEADS, make, padding, tokens
from synthattn import SyntheticAttention, compress, reference
from synthattn.layers import Remembered
from synthattn.layers.low_rank_inference import LowRankInference
from synthattn.low_rank import LowRank, _norms, factorize, highest_rank

LENGTH, SHORTER, ERROR = 97, 83, 1e-3
SPECS = ["random", "fixed_random", "factorized_random(rank=3)", "random+factorized_random(rank=2)"]


@pytest.fixture
def outcomes(monkeypatch):
    """For each time that low-rank weights were used, whether the bound was good enough."""
    found: list[bool] = []
    original = LowRankInference.holds

    def watching(*args):
        found.append(original(*args))
        return found[-1]

    monkeypatch.setattr(LowRankInference, "holds", watching)
    return found


def waves(length: int, count: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Smooth columns, one per frequency."""
    place = torch.arange(length, dtype=torch.float64)[:, None] / length
    return torch.cos(torch.pi * place * torch.arange(1, count + 1)).to(dtype)


def smooth(spec: str = "random", dtype: torch.dtype = torch.float64, length: int = LENGTH) -> SyntheticAttention:
    """A layer whose tables vary slowly with the position, a little differently in each head."""
    layer = make(spec, dtype, max_length=length).eval()
    with torch.no_grad():
        for table in [*layer.synthesizer.parameters(), *layer.synthesizer.buffers()]:
            for n, head in enumerate(table if table.shape[-2:] == (length, length) else ()):
                head.copy_((1.0 + 0.2 * n) * waves(length, 3, dtype) @ waves(length, 3, dtype).flip(-1).T / 3)
            if table.dim() == 3 and table.shape[1] == length != table.shape[2]:
                table.copy_(waves(length, table.shape[2], dtype) * torch.tensor([0.5, 0.7, 0.9])[:, None, None])
    return layer


def compressed(spec: str = "random", dtype: torch.dtype = torch.float64) -> SyntheticAttention:
    layer = smooth(spec, dtype)
    (report,) = compress(layer, ERROR)
    assert report.pays, report.exact
    return layer


def run(layer: SyntheticAttention, x: Tensor, memory=None, **arguments) -> Tensor:
    with torch.no_grad():
        return layer(x, memory, **arguments)


def exact(layer: SyntheticAttention, x: Tensor, memory: Tensor | None = None, **arguments) -> Tensor:
    with torch.no_grad():
        return reference.attention(copy.deepcopy(layer).double(), x.double(), memory, **arguments)[0]


def largest_error(y: Tensor, expected: Tensor) -> float:
    return float(((y - expected).norm(dim=-1) / expected.norm(dim=-1)).max())


def weights(layer: SyntheticAttention) -> Tensor:
    with torch.no_grad():
        return layer.logits(tokens(LENGTH, dtype=layer.value.weight.dtype))[0].double().softmax(-1)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("length", [LENGTH, SHORTER])
@pytest.mark.parametrize("padded", [True, False])
def test_every_output_vector_is_within_the_error(outcomes, spec, dtype, length, padded):
    layer, x = compressed(spec, dtype), tokens(length, dtype=dtype)
    masks = {"key_padding_mask": padding(length)} if padded else {}
    y = run(layer, x, **masks)
    assert outcomes == [True]
    assert 1e-12 < largest_error(y, exact(layer, x, **masks)) < ERROR


def test_queries_and_memory_of_different_lengths(outcomes):
    layer, x, memory = compressed(), tokens(SHORTER), tokens(LENGTH, seed=3)
    for queries, keys in ((x, memory), (memory, x)):
        assert 1e-12 < largest_error(run(layer, queries, keys), exact(layer, queries, keys)) < ERROR
    assert outcomes == [True, True]


def explicit(factors: LowRank, kept: Tensor, values: Tensor) -> Tensor:
    product = factors.left.double() @ factors.right.double().mT * kept
    return product @ values / product.sum(-1, keepdim=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_deviation_is_that_of_the_stored_factors(dtype):
    layer = compressed("random", dtype)
    assert layer.low_rank is not None
    factors = layer.low_rank.factors
    assert factors.left.dtype == factors.right.dtype == factors.deviation.dtype == dtype
    missing = (weights(layer) - factors.left.double() @ factors.right.double().mT).norm(dim=-1)
    added = (factors.deviation - missing) / weights(layer).norm(dim=-1)
    unit = torch.finfo(dtype).eps / 2 * LENGTH
    assert (added > unit).all()  # no term of the longer sum is rounded less often
    assert (added < 5 * unit).all()


@pytest.mark.parametrize("length", [499, 4099])
def test_rounding_stays_within_the_bound_where_it_adds_up_the_most(length):
    """Equal weights of equal values: every partial sum is rounded in the same direction for long stretches."""
    factors = factorize(torch.full((7, length), 1.0 / length, dtype=torch.float64), 1e-6, 3, torch.float32)
    assert factors is not None
    for size in [1.1, 0.3, 1e-3, *torch.rand(20, generator=torch.Generator().manual_seed(0)).tolist()]:
        result, bound = factors.attend(torch.full((2, 1, length, 5), size), None, 7)
        error = (result.double() - torch.tensor(size).double()).norm(dim=-1)[:, 0]
        assert (error <= bound).all()
        assert (bound < 3e-5 * size * 5**0.5).all()


def test_the_product_is_the_explicit_one():
    layer = compressed()
    assert layer.low_rank is not None
    values = torch.randn(2, HEADS, SHORTER, HEAD_DIM, dtype=torch.float64)
    result, _ = layer.low_rank.factors.attend(values, ~padding(SHORTER), SHORTER)
    factors = LowRank(*(t[:, :SHORTER] for t in vars(layer.low_rank.factors).values()))
    for example, kept in enumerate(~padding(SHORTER)):
        torch.testing.assert_close(result[example], explicit(factors, kept, values[example]))


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("row", [0, 50, 96])
def test_the_bound_holds_for_the_worst_values_and_is_not_far_from_them(row, padded):
    """Values that are a row's missing weights make the most of that row's error."""
    layer = compressed()
    assert layer.low_rank is not None
    factors = layer.low_rank.factors
    keep = ~padding(LENGTH) if padded else torch.ones(2, LENGTH, dtype=torch.bool)
    missing = weights(layer) - factors.left @ factors.right.mT
    for direction in (missing[:, row], missing[:, row].sign()):
        values = torch.zeros(2, HEADS, LENGTH, HEAD_DIM, dtype=torch.float64)
        values[..., 2] = direction
        values[1, ..., 4] = -3.0 * direction
        result, bound = factors.attend(values, keep if padded else None, LENGTH)
        masked = weights(layer)[None] * keep[:, None, None]
        expected = masked @ values / masked.sum(-1, keepdim=True)
        error = (result - expected).transpose(1, 2).flatten(2).norm(dim=-1)
        assert (error <= bound).all()
        assert (error[:, row] >= 0.4 * bound[:, row]).all()


def test_the_bound_counts_what_is_missing_in_the_normaliser():
    """All factors have of the value is exact, and only the weight that it is divided by is not."""
    weight, missing = torch.full((1, 1, 11), 0.01), torch.full((1, 1, 11), 1e-4)
    weight[..., 0], missing[..., 0] = 0.9, 0.0
    deviation = missing.norm(dim=-1)
    factors = LowRank(torch.ones(1, 1, 1), (weight - missing).mT, deviation, torch.zeros_like(deviation))
    values = torch.zeros(1, 1, 11, 1)
    values[:, :, 0] = -1.0
    result, bound = factors.attend(values, None, 1)
    error = float((result + 0.9).abs())
    assert error > 2 * float(deviation)  # the norm of the values is one
    assert error <= float(bound) < 2 * error


@pytest.mark.parametrize("seed", range(3))
def test_values_that_cancel_are_left_to_the_exact_path(outcomes, seed):
    """Where an output is zero but for what the factors miss, no relative error could be promised."""
    layer = compressed()
    layer.output.bias.data.zero_()
    probe = torch.randn(2, HEADS, LENGTH, HEAD_DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    rows = weights(layer)[:, ::13]
    probe -= rows.mT @ torch.linalg.solve(rows @ rows.mT, rows @ probe)  # every 13th query averages it to zero
    x, values = tokens(LENGTH), Remembered(None, probe)
    torch.testing.assert_close(run(layer, x, values), run(layer, x, values, plain=True), rtol=1e-12, atol=1e-12)
    assert outcomes == [False]


def test_little_weight_on_the_keys_that_are_kept(outcomes):
    """The last keys have a millionth of the weight; with nothing else left, their errors are no longer small."""
    layer = smooth()
    with torch.no_grad():
        layer.synthesizer.get_parameter("matrix")[:, :, SHORTER:] -= 14.0
    assert compress(layer, ERROR)[0].pays
    x, pad = tokens(LENGTH), torch.zeros(2, LENGTH, dtype=torch.bool)
    pad[1, :SHORTER] = True
    y = run(layer, x, key_padding_mask=pad)
    assert outcomes == [False]
    torch.testing.assert_close(y, exact(layer, x, key_padding_mask=pad), rtol=1e-12, atol=1e-12)
    run(layer, x, key_padding_mask=pad & False)
    assert outcomes == [False, True]


def test_an_example_of_nothing_but_padding_gives_the_bias(outcomes):
    layer, x, pad = compressed(), tokens(LENGTH), torch.zeros(2, LENGTH, dtype=torch.bool)
    pad[1] = True
    y = run(layer, x, key_padding_mask=pad)
    assert outcomes == [True]
    assert torch.equal(y[1], layer.output.bias.detach().expand_as(y[1]))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_values_that_are_not_finite_give_what_they_give_without(outcomes, bad):
    layer, x = compressed(), tokens(LENGTH)
    x[0, 3, 5] = bad
    torch.testing.assert_close(run(layer, x), run(smooth(), x), equal_nan=True)
    assert outcomes == [False]


def test_noise_is_not_of_low_rank(outcomes):
    layer, x = make("random", max_length=LENGTH).eval(), tokens(LENGTH)
    (report,) = compress(layer)
    assert report.exact == "head 0 needs more than rank 24, above which 97 keys are cheaper as they are"
    assert (report.pays, report.ranks, report.distance, report.length) == (False, (), None, LENGTH)
    torch.testing.assert_close(run(layer, x), exact(layer, x))
    assert outcomes == []


def test_stretched_noise_is_of_the_rank_that_it_had(outcomes):
    layer = SyntheticAttention(D_MODEL, HEADS, "random(std=0.0027)", 13, head_dim=HEAD_DIM).eval()
    assert not compress(layer)[0].pays
    layer.resize_max_length(LENGTH, how="interpolate")
    (report,) = compress(layer)
    assert report.ranks == (13, 13, 13)
    x = tokens(LENGTH, dtype=torch.float32) + 1.0
    assert largest_error(run(layer, x), exact(layer, x)) < ERROR
    assert outcomes == [True]


LONG = 521


def stretched(std: float, short: int) -> SyntheticAttention:
    torch.manual_seed(0)
    layer = SyntheticAttention(D_MODEL, HEADS, f"random(std={std})", short, head_dim=HEAD_DIM).eval()
    layer.resize_max_length(LONG, how="interpolate")
    return layer


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize(("std", "short", "inside"), [(0.1, 31, torch.float32), (1.0, 11, torch.float64)])
def test_a_long_stretched_table_in_single_precision(outcomes, std, short, inside, padded):
    """The rougher the table, the larger the rank, and the more rounding could add up: then it is done in float64."""
    layer = stretched(std, short)
    (report,) = compress(layer, ERROR)
    assert report.pays, report.exact
    assert layer.low_rank is not None
    assert layer.low_rank.factors.left.dtype == inside
    x = tokens(LONG, dtype=torch.float32) + 1.0
    masks = {"key_padding_mask": padding(LONG)} if padded else {}
    y, expected = run(layer, x, **masks), exact(layer, x, **masks)
    assert outcomes == [True]
    assert y.dtype == torch.float32
    assert 1e-8 < largest_error(y, expected) < ERROR


def test_factors_that_only_float64_could_use_must_be_thinner():
    layer = stretched(1.0, 17)
    assert compress(layer, ERROR)[0].exact == (
        "float32 rounds too much for an error of 0.001, and in float64 521 keys are cheaper as they are above rank 43, "
        "not 64"
    )
    assert compress(layer.double(), ERROR)[0].ranks[0] > 43


def test_in_float64_short_inputs_are_exact_sooner(outcomes):
    layer = stretched(1.0, 11)
    rank = max(compress(layer, ERROR)[0].ranks)
    run(layer, tokens(12 * rank - 1, dtype=torch.float32) + 1.0)
    assert outcomes == []
    run(layer, tokens(12 * rank, dtype=torch.float32) + 1.0)
    assert outcomes == [True]


@pytest.mark.parametrize("length", [499, 4099])
def test_float64_inside_leaves_the_rounding_of_the_result(length):
    factors = factorize(torch.full((7, length), 1.0 / length, dtype=torch.float64), 1e-6, 3, torch.float64)
    assert factors is not None
    value = torch.rand(2, 1, length, 5, generator=torch.Generator().manual_seed(0))
    result, bound = factors.attend(value, None, 7)
    assert result.dtype == torch.float32
    expected = value.double().mean(-2, keepdim=True)
    error = (result - expected).norm(dim=-1)[:, 0]
    assert (error <= bound).all()
    assert (bound < 7e-8 * expected.norm(dim=-1)[:, 0]).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_norms_of_values(dtype):
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(2, 3, 401, 7, generator=generator, dtype=dtype)
    thin = noise[..., :1] * torch.arange(1.0, 8.0, dtype=dtype)
    for values, tight in ((noise, 1.3), (thin, 1.0001), (1e-12 * thin, 1.0001), (0.0 * thin, 1.0)):
        size, stretch = _norms(values)
        wide = values.double()
        torch.testing.assert_close(size.double(), wide.norm(dim=(-2, -1)), rtol=1e-5, atol=0)
        largest = torch.linalg.matrix_norm(wide, 2)
        assert (stretch >= largest * (1 - 1e-6)).all()
        assert (stretch <= tight * largest * (1 + 1e-6)).all()
        assert (stretch <= size).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("row", [0, 50, 96])
def test_the_bound_holds_for_values_in_all_directions(dtype, row):
    """A row's missing weights in one column among many others that are as large."""
    layer = compressed("random", dtype)
    assert layer.low_rank is not None
    factors = layer.low_rank.factors
    missing = weights(layer) - factors.left.double() @ factors.right.double().mT
    values = torch.linalg.qr(torch.randn(2, HEADS, LENGTH, HEAD_DIM, dtype=torch.float64)).Q.to(dtype)
    values[..., 2] = missing[:, row] / missing[:, row].norm(dim=-1, keepdim=True)
    result, bound = factors.attend(values, None, LENGTH)
    error = (result - weights(layer) @ values.double()).transpose(1, 2).flatten(2).norm(dim=-1)
    assert (error <= bound).all()
    if dtype == torch.float64:  # with the root of the sum of squares of all five columns, it would be twice as large
        assert (error[:, row] >= 0.5 * bound[:, row]).all()


def test_what_the_report_says():
    layer = smooth()
    (loose,), (tight,) = compress(layer, 1e-2), compress(layer, 1e-4)
    assert layer.low_rank is not None
    factors = layer.low_rank.factors
    assert loose.name == tight.name == ""
    assert tight.length == LENGTH
    assert all(a < b for a, b in zip(loose.ranks, tight.ranks, strict=True))
    assert max(tight.ranks) == factors.rank
    assert loose.distance is not None
    assert tight.distance is not None
    assert tight.distance < 1e-4 < loose.distance * 32 < 1e-2
    missing = (weights(layer) - factors.left @ factors.right.mT).norm(dim=-1)
    assert tight.distance == pytest.approx(float(missing.max()) * LENGTH**0.5)


def test_the_rank_is_the_smallest():
    layer = smooth(length=251)
    p = layer.logits(tokens(251))[0, 1].detach().softmax(-1)
    for deviation in (1e-3, 1e-5, 1e-8):
        found = factorize(p, deviation, highest_rank(251, 251), torch.float64)
        left, sizes, right = torch.linalg.svd(p)
        ranks = range(1, 251)
        off = [(p - left[:, :r] * sizes[:r] @ right[:r]).norm(dim=-1).max() for r in ranks]
        best = next(r for r, o in zip(ranks, off, strict=True) if o <= deviation)
        assert found is not None
        assert found.rank == best
        assert found.deviation.max() < deviation * 1.001 + 1e-15
        assert factorize(p, deviation, best - 1, torch.float64) is None


def test_weights_of_rank_one():
    layer = make("random", max_length=LENGTH).eval()
    layer.synthesizer.get_parameter("matrix").data.zero_()
    assert compress(layer)[0].ranks == (1, 1, 1)


def test_several_blocks_are_found_one_after_the_other():
    """Far more columns than the first block has, of sizes that fall slowly."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.linalg.qr(torch.randn(401, 401, dtype=torch.float64, generator=generator)).Q for _ in range(2))
    sizes = torch.where(torch.arange(401) < 90, 1.0, 1e-9).double()
    found = factorize(a * sizes @ b.mT, 1e-6, 100, torch.float64)
    assert found is not None
    assert found.rank == 90
    torch.testing.assert_close(found.right[0].mT @ found.right[0], torch.eye(90, dtype=torch.float64))


def step(fused: bool):
    def change(layer):
        with torch.enable_grad():
            layer.train()(tokens(LENGTH)).square().sum().backward()
        torch.optim.AdamW(layer.parameters(), lr=1e-2, fused=fused).step()
        layer.eval()

    return change


def edit_data(layer):
    layer.synthesizer.matrix.data[1, 7, 5] += 0.5


def edit_output_data(layer):
    layer.output.weight.data[3, 5] += 0.5


def assign(layer):
    layer.synthesizer.matrix.data = layer.synthesizer.matrix.data * 1.5


def load(layer):
    layer.load_state_dict(make("random", max_length=LENGTH, seed=3).state_dict())


def load_assigning(layer):
    layer.load_state_dict(make("random", max_length=LENGTH, seed=3).state_dict(), assign=True)


def resize(layer):
    layer.resize_max_length(2 * LENGTH, how="interpolate")


def round_to_float32(layer):
    layer.float().double()


def change_type(layer):
    layer.float()


CHANGES = [
    step(fused=True),
    step(fused=False),
    edit_data,
    edit_output_data,
    assign,
    load,
    load_assigning,
    resize,
    round_to_float32,
    change_type,
]


@pytest.mark.parametrize("change", CHANGES)
def test_never_stale(outcomes, change):
    layer = compressed()
    run(layer, tokens(LENGTH))
    with torch.no_grad():
        change(layer)
    x = tokens(LENGTH, dtype=layer.value.weight.dtype)
    for _ in range(2):  # and not in the second call either
        tolerance = 1e-12 if x.dtype == torch.float64 else 1e-5
        torch.testing.assert_close(run(layer, x).double(), exact(layer, x), rtol=tolerance, atol=tolerance)
    assert outcomes == [True]


def test_after_a_change_it_is_compressed_again_when_asked_for(outcomes):
    layer, x = compressed(), tokens(LENGTH)
    layer.synthesizer.get_parameter("matrix").data.mul_(1.1)
    run(layer, x)
    assert outcomes == []
    compress(layer, ERROR)
    assert largest_error(run(layer, x), exact(layer, x)) < ERROR
    assert outcomes == [True]


def test_off_again(outcomes):
    layer, x = compressed(), tokens(LENGTH)
    (report,) = compress(layer, error=None)
    assert (report.pays, report.exact) == (False, "turned off")
    torch.testing.assert_close(run(layer, x), exact(layer, x))
    assert outcomes == []


def test_asking_for_more_than_pays_turns_it_off(outcomes):
    layer, x = compressed(), tokens(LENGTH)
    assert not compress(layer, 1e-13)[0].pays
    torch.testing.assert_close(run(layer, x), exact(layer, x))
    assert outcomes == []


def test_exact_where_something_else_was_asked_for(outcomes):
    layer, x = compressed(), tokens(LENGTH)
    same = partial(torch.testing.assert_close, rtol=1e-12, atol=1e-12)
    expected = exact(layer, x)
    same(layer(x).detach(), expected)  # gradients
    same(run(layer.train(), x), expected)
    layer.eval()
    same(run(layer, x, is_causal=True), exact(layer, x, is_causal=True))
    same(run(layer, x, plain=True), expected)
    same(run(layer, x, need_weights=True)[0], expected)
    same(run(layer, x, positions=torch.arange(LENGTH)), expected)
    hook = layer.output.register_forward_hook(lambda *call: torch.neg(call[-1]))
    same(run(layer, x), -expected)
    hook.remove()
    few = tokens(19)  # more columns than half of the keys
    same(run(layer, few), exact(layer, few))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        run(layer, x)
    assert outcomes == []
    run(layer, x)
    assert outcomes == [True]


def test_exact_where_only_the_bias_of_the_output_is_trained(outcomes):
    layer, x = compressed("fixed_random").requires_grad_(False), tokens(LENGTH)
    layer.output.bias.requires_grad_(True)
    torch.testing.assert_close(layer(x).detach(), exact(layer, x), rtol=1e-12, atol=1e-12)
    assert outcomes == []


def test_gradients_are_those_of_the_layer_without():
    one, two, x = compressed(), smooth(), tokens(LENGTH)
    for layer in (one, two):
        layer(x).square().sum().backward()
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=0, atol=0)


def test_nothing_is_saved():
    layer, state = smooth(), copy.deepcopy(smooth().state_dict())
    compress(layer, ERROR)
    after = layer.state_dict()
    assert list(after) == list(state)
    assert all(torch.equal(after[name], state[name]) for name in state)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))])
def test_a_copy_is_compressed_too_and_on_its_own(outcomes, duplicate):
    layer, x = compressed(), tokens(LENGTH)
    other = duplicate(layer)
    torch.testing.assert_close(run(other, x), run(layer, x), rtol=0, atol=0)
    edit_data(other)
    run(other, x)
    assert outcomes == [True, True]
    run(layer, x)
    assert outcomes == [True, True, True]


def test_no_random_number_is_taken_from_others_and_factors_are_reproducible():
    layer = smooth()
    state = torch.get_rng_state()
    one = compressed_factors(layer)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(5)
    two = compressed_factors(layer)
    for a, b in zip(vars(one).values(), vars(two).values(), strict=True):
        assert torch.equal(a, b)


def compressed_factors(layer: SyntheticAttention) -> LowRank:
    compress(layer, ERROR)
    assert layer.low_rank is not None
    return layer.low_rank.factors


def test_every_attention_of_a_module_is_named():
    model = nn.ModuleDict(
        {
            "a": smooth(),
            "b": nn.Sequential(make("random+vanilla")),
            "c": make("random", torch.bfloat16),
            "d": make("relative", max_length=None),
            "e": make("random", max_length=LENGTH).to("meta"),
            "f": nn.Linear(2, 3),
            "g": make("random", max_length=5),
        }
    )
    reports = {report.name: report.exact for report in compress(model, ERROR)}
    assert reports == {
        "a": None,
        "b.0": "random+vanilla looks at the tokens",
        "c": "bfloat16 rounds more than low-rank weights would save",
        "d": "relative has no longest input",
        "e": "its parameters are on meta or not plain tensors",
        "g": "head 0 needs more than rank 1, above which 5 keys are cheaper as they are",
    }


def test_layers_that_something_takes_part_in():
    layer = smooth()
    layer.synthesizer.register_forward_hook(lambda *args: None)
    assert compress(layer)[0].exact == "hooks or adapters take part in it"


def test_logits_that_are_not_finite():
    layer = smooth()
    layer.synthesizer.get_parameter("matrix").data[1, 3] = float("-inf")
    assert compress(layer)[0].exact == "head 1 has rows of logits that are not finite"


def test_errors_below_what_the_precision_can_give():
    layer = smooth("random", torch.float32)
    layer.synthesizer.get_parameter("matrix").data.zero_()
    assert compress(layer, 1e-5)[0].pays
    assert compress(layer, 1e-6)[0].exact == "float32 rounds too much for an error of 1e-06"


@pytest.mark.parametrize("error", [0.0, 1.0, -1e-3, float("nan"), float("inf")])
def test_bad_errors(error):
    layer = smooth()
    text = f"error must be a number between 0 and 1, or None to turn low-rank inference off, got {error!r}"
    with pytest.raises(ValueError, match="error must be") as caught:
        compress(layer, error)
    assert str(caught.value) == text


@pytest.mark.parametrize("error", [ERROR, None])
@pytest.mark.parametrize("spec", ["vanilla", "random+dense"])
def test_nothing_to_compress(error, spec):
    with pytest.raises(ValueError, match="no batch-free") as caught:
        compress(nn.Sequential(make(spec)), error)
    assert str(caught.value) == (
        "Sequential has no batch-free attention to compress (random, fixed_random, factorized_random or a mixture of "
        "these)"
    )
