"""Specs print back what was parsed, and mistakes are errors of one line."""

import random
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import SPECS, make
from synthattn import SyntheticAttention, parse
from synthattn.synthesizers import SYNTHESIZERS, Spec
from synthattn.synthesizers.dense import Dense
from synthattn.synthesizers.vanilla import Vanilla


@pytest.mark.parametrize("spec", SPECS)
def test_prints_back(spec):
    assert str(parse(spec)) == spec
    assert parse(parse(spec)) == parse(spec)
    assert repr(str(parse(spec))) in repr(make(spec))


def test_canonical_form_drops_spaces_and_defaults():
    assert str(parse(" random +vanilla ")) == "random+vanilla"
    assert str(parse("dense( bias = TRUE,shared_keys=true )")) == "dense(shared_keys=true)"
    assert str(parse("factorized_random(rank=8)")) == "factorized_random"
    assert str(parse("random(std=0.0027)")) == "random(std=0.0027)"
    assert str(parse("random()")) == "random"


def test_terms_are_dataclasses_that_need_no_text():
    layer = SyntheticAttention(8, 2, Dense(bias=False), max_length=4)
    assert layer.spec == Spec((Dense(bias=False),))
    assert str(Spec((Dense(), Vanilla()))) == "dense+vanilla"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ramdom", "unknown attention 'ramdom'; did you mean random?"),
        ("vanila+random", "unknown attention 'vanila'; did you mean vanilla?"),
        ("xyz", "unknown attention 'xyz'; choose from alibi, dense, factorized_dense, "),
        ("", "malformed attention '': expected a name"),
        ("random+", "malformed attention 'random+': expected a name"),
        ("+random", "expected a name at '+random'"),
        ("random vanilla", "expected '+' or the end at 'vanilla'"),
        ("random(std=1", "expected '+' or the end at '(std=1'"),
        ("dense(bias)", "expected name=value at 'bias'"),
        ("dense(bias=true,)", "expected name=value at ''"),
        ("dense(bais=true)", "dense has no option 'bais'; did you mean bias?"),
        ("vanilla(bias=true)", "vanilla has no option 'bias'; it has none"),
        ("dense(bias=1)", "dense: bias must be true or false, got '1'"),
        ("factorized_random(rank=2.5)", "factorized_random: rank must be a whole number, got '2.5'"),
        ("factorized_random(rank=0)", "factorized_random: rank must be at least 1, got 0"),
        ("factorized_random(rank=2, rank=3)", "option 'rank' of factorized_random is given twice"),
        ("factorized_dense(a=-1)", "factorized_dense: a must be at least 1, got -1"),
        ("random(std=nan)", "random: std must be a number, got 'nan'"),
        ("random(std=0)", "random: std must be positive, got 0.0"),
        ("toeplitz(range=0)", "toeplitz: range must be from 1 to 1048576, got 0"),
        ("toeplitz(range=-3)", "toeplitz: range must be from 1 to 1048576, got -3"),
        ("toeplitz(range=999999999)", "toeplitz: range must be from 1 to 1048576, got 999999999"),
        ("toeplitz(range=2.5)", "toeplitz: range must be a whole number, got '2.5'"),
        ("toeplitz(std=0)", "toeplitz: std must be positive, got 0.0"),
        ("alibi(slope=1)", "alibi has no option 'slope'; it has none"),
        ("dense(window=4)", "dense: window must be a positive odd number, got 4"),
        ("relative(buckets=6)", "relative: buckets must be a multiple of 4, got 6"),
        ("relative(distance=8)", "relative: distance must exceed the 8 distances"),
    ],
)
def test_errors_say_what_was_meant(text, message):
    with pytest.raises(ValueError, match=r"\w") as caught:
        parse(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def parses_or_explains(text: str) -> bool:
    try:
        spec = parse(text)
    except ValueError as error:
        assert str(error)
        assert "\n" not in str(error)
        return False
    assert parse(str(spec)) == spec
    assert str(parse(str(spec))) == str(spec)
    return True


def test_two_thousand_random_and_mutated_specs():
    dice = random.Random(0)
    alphabet = string.ascii_lowercase + string.digits + "()+=,._- \n\té"
    parsed = 0
    for n in range(2000):
        text = dice.choice(SPECS)
        if n % 4 == 0:
            text = "+".join(dice.choice(SPECS) for _ in range(dice.randint(1, 4)))
        for _ in range(dice.choice([0, 1, 1, 2, 5])):
            at = dice.randint(0, len(text))
            text = text[:at] + dice.choice(["", dice.choice(alphabet)]) + text[at + dice.randint(0, 1) :]
        parsed += parses_or_explains(text)
    assert 200 < parsed < 1800  # both outcomes are well represented


@given(st.text(max_size=40))
def test_any_text(text):
    parses_or_explains(text)


@given(
    st.lists(
        st.one_of(
            st.sampled_from(sorted(SYNTHESIZERS)),
            st.builds("factorized_random(rank={})".format, st.integers(-3, 10**10)),
            st.builds("random(std={})".format, st.floats()),
            st.builds(
                "dense(bias={}, window={})".format,
                st.sampled_from(["true", "false", "yes"]),
                st.integers(-5, 99),
            ),
            st.builds("relative(buckets={}, distance={})".format, st.integers(-2, 64), st.integers(-2, 200)),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_generated_specs(terms):
    parses_or_explains("+".join(terms))
