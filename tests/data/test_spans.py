"""Span corruption against T5's description, written as a loop."""

import numpy as np
import pytest

from synthattn.data.spans import corrupt, noise_mask, text_length


def by_hand(ids, mask, first, end):
    """Walk along the text: a hidden run becomes one sentinel here, and is written after that sentinel there."""
    source, target, sentinel, hidden_before = [], [], first, False
    for token, hidden in zip(ids, mask, strict=True):
        if hidden:
            if not hidden_before:
                source.append(sentinel)
                target.append(sentinel)
                sentinel -= 1
            target.append(token)
        else:
            source.append(token)
        hidden_before = hidden
    return [*source, end], [*target, end]


def test_the_figure_of_the_t5_paper():
    words = ["Thank", "you", "for", "inviting", "me", "to", "your", "party", "last", "week"]
    ids = np.arange(len(words)) + 10
    mask = np.isin(words, ["for", "inviting", "last"])
    source, target = corrupt(ids, mask, 99, 1)
    assert source.tolist() == [10, 11, 99, 14, 15, 16, 17, 98, 19, 1]
    # The figure ends in a kept word, for which the answer has a last sentinel.
    assert target.tolist() == [99, 12, 13, 98, 18, 97, 1]


@pytest.mark.parametrize("length", [2, 3, 5, 17, 114, 568])
@pytest.mark.parametrize("density", [0.15, 0.5])
def test_against_a_loop(length, density):
    rng = np.random.default_rng(length)
    for _ in range(50):
        mask = noise_mask(length, density, 3.0, rng)
        assert mask.shape == (length,)
        assert not mask[0]
        assert mask[-1]
        assert mask.sum() == min(max(round(length * density), 1), length - 1)
        ids = rng.integers(3, 50, length)
        source, target = corrupt(ids, mask, 99, 1)
        assert (source.tolist(), target.tolist()) == by_hand(ids.tolist(), mask.tolist(), 99, 1)


def test_nothing_is_lost():
    """The spans put back in place of their sentinels give the text."""
    rng = np.random.default_rng(0)
    ids = rng.integers(3, 50, 100)
    source, target = corrupt(ids, noise_mask(100, 0.15, 3.0, rng), 199, 1)
    hidden: dict[int, list[int]] = {}
    for token in target[:-1].tolist():
        if token > 150:
            hidden[token] = []
        else:
            hidden[max(hidden, key=lambda s: -s)].append(token)
    restored = [part for token in source[:-1].tolist() for part in hidden.get(token, [token])]
    assert restored == ids.tolist()


def test_spans_are_as_long_as_asked_on_average():
    rng = np.random.default_rng(0)
    mask = noise_mask(568, 0.15, 3.0, rng)
    assert int((mask & ~np.concatenate([[False], mask[:-1]])).sum()) == 28  # 85 hidden tokens
    where = np.mean([noise_mask(100, 0.15, 3.0, rng) for _ in range(2000)], axis=0)
    assert where[-1] == 1.0, "a text always ends in a hidden span, as in T5"
    assert 0.1 < where[5:90].min() <= where[5:90].max() < 0.2


def test_the_lengths_of_t5():
    assert text_length(512) == (568, 114)
    for inputs in (3, 10, 64, 513):
        text, answer = text_length(inputs)
        source, target = corrupt(np.arange(text), noise_mask(text, 0.15, 3.0, np.random.default_rng(1)), 999, 1)
        assert len(source) <= inputs
        assert len(target) == answer
    with pytest.raises(ValueError, match="at least 3 tokens, got 2"):
        text_length(2)


def test_texts_too_short_to_hide_anything():
    rng = np.random.default_rng(0)
    for length in (0, 1):
        assert not noise_mask(length, 0.15, 3.0, rng).any()
        source, target = corrupt(np.arange(length), noise_mask(length, 0.15, 3.0, rng), 99, 1)
        assert len(source) == length + 1
        assert target[-1] == 1
