"""Table 1 is found out by trying; here by hand from the equations."""

import pytest

from synthattn.paper.table1 import parameters, probe, synthesized

# What a logit from i to j depends on, by the equations of the paper.
EXPECTED = {
    "vanilla": ("all tokens", "local", True),
    "dense": ("the token itself", "local", False),
    "random": ("nothing", "global", False),
    "fixed_random": ("nothing", "global", False),
    "factorized_random": ("nothing", "global", False),
    "factorized_dense": ("the token itself", "local", False),
    "random+vanilla": ("all tokens", "local", True),
    "random+dense": ("the token itself", "local", False),
    "dense+vanilla": ("all tokens", "local", True),
    "relative": ("nothing", "global", False),
}


@pytest.mark.parametrize("attention", EXPECTED)
def test_what_logits_depend_on(attention):
    assert probe(attention) == EXPECTED[attention]


def test_parameters_are_those_of_the_formulas():
    d, heads, n = 48, 4, 36
    assert parameters("vanilla", d, heads, n) == 2 * d * d
    assert parameters("random", d, heads, n) == heads * n * n
    assert parameters("fixed_random", d, heads, n) == 0
    assert parameters("factorized_random", d, heads, n) == heads * 2 * n * 8
    # Biases b1 and b2 are in the paper's equation, and not in its count.
    assert parameters("dense", d, heads, n) == d * d + d + d * n + heads * n


def test_all_rows_of_the_paper_are_there():
    rows = {row.attention: row for row in synthesized()}
    assert set(rows) == set(EXPECTED) - {"relative"}
    assert rows["vanilla"].parameters == rows["vanilla"].printed_value == 2 * 512 * 512
    assert rows["random"].printed_value == 256 * 256
    assert rows["random"].parameters == 8 * 256 * 256
