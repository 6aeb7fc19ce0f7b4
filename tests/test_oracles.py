"""The reference equals plain loops over the equations, and closed forms."""

import math

import pytest
import torch

from helpers import BATCH, HEAD_DIM, HEADS, LENGTH, MAX_LENGTH, make, tokens
from synthattn import SyntheticAttention, reference
from synthattn.synthesizers.alibi import slopes_of
from synthattn.synthesizers.relative import bucket


def project(linear: torch.nn.Linear, x: torch.Tensor, head: int) -> torch.Tensor:
    """Return one head of the projection of one token."""
    rows = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)
    result = linear.weight[rows] @ x
    return result if linear.bias is None else result + linear.bias[rows]


def vanilla(s, x, h, i, j):
    return project(s.query, x[i], h).dot(project(s.key, x[j], h)) / math.sqrt(HEAD_DIM)


def dense(s, x, h, i, j):
    hidden = project(s.hidden, x[i], h).clamp(min=0)
    return s.keys[h, j].dot(hidden) + s.key_bias[h, j]


def dense_of_the_authors(s, x, h, i, j):
    return s.keys[0, j].dot(project(s.hidden, x[i], h).clamp(min=0))


def local_dense(s, x, h, i, j):
    if abs(j - i) > 2:
        return torch.tensor(float("-inf"), dtype=x.dtype)
    hidden = project(s.hidden, x[i], h).clamp(min=0)
    return s.keys[h, j - i + 2].dot(hidden) + s.key_bias[h, j - i + 2]


def random(s, x, h, i, j):
    return s.matrix[h, i, j]


def factorized_random(s, x, h, i, j):
    return sum(s.left[h, i, r] * s.right[h, j, r] for r in range(3))


def factorized_dense(s, x, h, i, j):
    hidden = project(s.hidden, x[i], h).clamp(min=0)
    b = s.b.shape[1]
    first = s.a[h, j // b].dot(hidden) + s.a_bias[h, j // b]
    second = s.b[h, j % b].dot(hidden) + s.b_bias[h, j % b]
    return first * second


def toeplitz(s, x, h, i, j):
    return s.table[h, min(max(j - i, -3), 3) + 3]


def alibi(s, x, h, i, j):
    return torch.tensor(-([2**-4, 2**-8, 2**-2][h]) * abs(j - i), dtype=x.dtype)


def relative(s, x, h, i, j):
    return s.table[h, reference.t5_bucket(j - i, 32, 128, True)]


def random_plus_vanilla(s, x, h, i, j):
    first, second = s.terms
    a = s.weights.alpha[:, h].exp()
    return (a[0] * random(first, x, h, i, j) + a[1] * vanilla(second, x, h, i, j)) / a.sum()


def with_relative(s, x, h, i, j):
    first, second, third = s.terms
    a = s.weights.alpha[:, h].exp()
    mixed = (a[0] * random(first, x, h, i, j) + a[1] * dense(second, x, h, i, j)) / a.sum()
    return mixed + relative(third, x, h, i, j)


ORACLES = {
    "vanilla": vanilla,
    "dense": dense,
    "dense(shared_keys=true, bias=false)": dense_of_the_authors,
    "dense(window=5)": local_dense,
    "random": random,
    "fixed_random": random,
    "factorized_random(rank=3)": factorized_random,
    "factorized_dense(a=4, b=7)": factorized_dense,
    "toeplitz(range=3)": toeplitz,
    "relative": relative,
    "alibi": alibi,
    "random+vanilla": random_plus_vanilla,
    "random+dense+relative": with_relative,
}


@pytest.mark.parametrize("spec", ORACLES)
def test_logits_equal_a_loop_over_the_equation(spec):
    layer, x = make(spec), tokens()
    with torch.no_grad():
        logits = layer.logits(x).expand(BATCH, -1, -1, -1)
        for b, h, i, j in torch.cartesian_prod(*map(torch.arange, (BATCH, HEADS, LENGTH, LENGTH))).tolist():
            expected = ORACLES[spec](layer.synthesizer, x[b], h, i, j)
            torch.testing.assert_close(logits[b, h, i, j], expected)


@pytest.mark.parametrize("causal", [True, False])
def test_reference_equals_a_loop_over_softmax_and_product(causal):
    layer, x = make("random+dense"), tokens()
    pad = torch.zeros(BATCH, LENGTH, dtype=torch.bool)
    pad[1, [0, 4, 10]] = True
    with torch.no_grad():
        y, weights = reference.attention(layer, x, key_padding_mask=pad, is_causal=causal)
        logits = layer.logits(x)
        for b in range(BATCH):
            heads = torch.zeros(LENGTH, HEADS, HEAD_DIM, dtype=x.dtype)
            for h in range(HEADS):
                for i in range(LENGTH):
                    keys = [j for j in range(LENGTH) if not pad[b, j] and (j <= i or not causal)]
                    total = sum(math.exp(logits[b, h, i, j]) for j in keys)
                    for j in keys:
                        weight = math.exp(logits[b, h, i, j]) / total
                        assert weight == pytest.approx(float(weights[b, h, i, j]))
                        heads[i, h] += weight * project(layer.value, x[b, j], h)
            torch.testing.assert_close(layer.output(heads.flatten(1)), y[b])


def test_a_random_matrix_of_log_weights_returns_these_weights():
    layer = SyntheticAttention(4, 1, "random", max_length=3)
    weights = torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7], [1 / 3, 1 / 3, 1 / 3]])
    with torch.no_grad():
        layer.synthesizer.matrix.copy_(weights.log())  # pyright: ignore
    _, found = layer(torch.randn(1, 3, 4), need_weights=True)
    torch.testing.assert_close(found[0, 0], weights)


def test_two_logits_one_apart_give_one_over_one_plus_e():
    layer = SyntheticAttention(4, 1, "random", max_length=2)
    with torch.no_grad():
        layer.synthesizer.matrix.copy_(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))  # pyright: ignore
    _, weights = layer(torch.randn(1, 2, 4), need_weights=True)
    small = 1 / (1 + math.e)
    torch.testing.assert_close(weights[0, 0], torch.tensor([[small, 1 - small], [1 - small, small]]))


def test_factorized_dense_has_as_many_different_products_as_positions():
    """Tiling both factors, a common mistake, would give lcm(a, b) different products."""
    logits = make("factorized_dense(a=4, b=4)", max_length=16).logits(tokens(16))
    assert all(len(row.unique()) == 16 for row in logits[0].flatten(0, 1))


def test_factorized_random_rows_differ():
    """In the authors' code, all queries share one row of logits."""
    logits = make("factorized_random(rank=3)").logits(tokens())
    assert not torch.allclose(logits[0, 0, 0], logits[0, 0, 1])
    assert torch.linalg.matrix_rank(logits[0]).tolist() == [3] * HEADS


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "distance"), [(32, 128), (8, 20)])
def test_relative_buckets_equal_t5s(bidirectional, buckets, distance):
    distances = torch.arange(-300, 301)
    expected = [reference.t5_bucket(int(d), buckets, distance, bidirectional) for d in distances]
    assert bucket(distances, buckets, distance, bidirectional).tolist() == expected
    assert set(expected) == set(range(buckets)) - ({buckets // 2} if bidirectional else set())


def test_alibi_has_the_slopes_of_its_paper():
    """For 8 heads and for 16 as the paper gives them; for 12, those of 8 and every other one of 16."""
    eight, sixteen = [2.0**-n for n in range(1, 9)], [2.0 ** (-n / 2) for n in range(1, 17)]
    assert slopes_of(8) == eight
    assert slopes_of(16) == pytest.approx(sixteen)
    assert slopes_of(12) == pytest.approx(eight + sixteen[:8:2])
    assert slopes_of(1) == [2.0**-8]


def test_parameter_counts_are_those_of_the_papers_table_1():
    d, heads, n, k = 64, 4, 36, 8
    value_and_output = 2 * d * d

    def count(spec: str) -> int:
        layer = SyntheticAttention(d, heads, spec, max_length=n, bias=False)
        return sum(p.numel() for p in layer.parameters()) - value_and_output

    assert count("vanilla") == 2 * d * d
    assert count("random") == heads * n * n
    assert count("fixed_random") == count("alibi") == 0
    assert count("toeplitz") == heads * (2 * 128 + 1)
    assert count("toeplitz(range=5)+vanilla") == heads * 11 + count("vanilla") + 2 * heads
    assert count("factorized_random") == heads * 2 * n * k
    assert count("dense") == d * d + d * n + (d + heads * n)  # the last bracket: b_1 and b_2
    assert count("dense(bias=false)") == d * d + d * n
    assert count("dense(shared_keys=true, bias=false)") == d * d + d // heads * n
    assert count("factorized_dense") == d * d + d * (6 + 6) + (d + heads * (6 + 6))
    assert count("random+vanilla") == count("random") + count("vanilla") + 2 * heads


def test_fixed_random_is_saved_and_never_trained():
    layer = make("fixed_random")
    assert "synthesizer.matrix" in layer.state_dict()
    assert not any("matrix" in name for name, _ in layer.named_parameters())
    before = layer.state_dict()["synthesizer.matrix"].clone()
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    layer(tokens()).square().sum().backward()
    optimizer.step()
    assert torch.equal(layer.state_dict()["synthesizer.matrix"], before)


def test_softmax_mixture_starts_equal_and_sums_to_one():
    layer = SyntheticAttention(8, 2, "random+dense+vanilla", max_length=MAX_LENGTH)
    weights = torch.stack(list(layer.synthesizer.weights()))  # pyright: ignore
    torch.testing.assert_close(weights, torch.full((3, 2, 1, 1), 1 / 3))
