"""Vectors of words from a corpus: words that stand in the same places are alike."""

import random

import numpy as np
import pytest

from synthattn.metrics.corpus_vectors import corpus_vectors, save_vectors
from synthattn.metrics.vectors import load_vectors


def corpus(count: int = 400) -> list[str]:
    draw = random.Random(0)
    colours, animals, verbs = ["red", "blue", "grey"], ["dog", "cat", "cow"], ["sees", "hears"]
    pick = draw.choice
    return [
        f"The {pick(colours)} {pick(animals)} {pick(verbs)} a {pick(colours)} {pick(animals)}" for _ in range(count)
    ]


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def test_words_of_a_kind_are_alike():
    found = corpus_vectors(corpus(), width=4)
    assert cosine(found["red"], found["blue"]) > 0.9
    assert cosine(found["dog"], found["cow"]) > 0.9
    assert cosine(found["red"], found["dog"]) < 0.7


def test_they_are_the_singular_vectors_of_the_information():
    """Against the whole decomposition, written down plainly."""
    texts = corpus(60)
    found = corpus_vectors(texts, width=3)
    words = list(found)
    counts = np.zeros((len(words), len(words)))
    for text in texts:
        line = text.lower().split()
        for i, one in enumerate(line):
            for j, other in enumerate(line):
                if 0 < abs(i - j) <= 4:
                    counts[words.index(one), words.index(other)] += 1 / abs(i - j)
    contexts = counts.sum(0) ** 0.75
    share = counts / counts.sum(1, keepdims=True)
    with np.errstate(divide="ignore"):
        information = np.maximum(np.log(share / (contexts / contexts.sum())), 0)
    left, values, _ = np.linalg.svd(information)
    expected = left[:, :3] * np.sqrt(values[:3])
    ours = np.array([found[word] for word in words])
    assert np.allclose(ours @ ours.T, expected @ expected.T, atol=1e-4)


def test_saved_vectors_can_be_read(tmp_path):
    found = corpus_vectors(corpus(50), width=5)
    save_vectors(found, tmp_path / "vectors.txt")
    again = load_vectors(tmp_path / "vectors.txt")
    assert set(again) == set(found)
    assert np.allclose(again["dog"], found["dog"], rtol=1e-4)


def test_too_few_words():
    with pytest.raises(ValueError, match="at least two words occur more than once"):
        corpus_vectors(["one two three"])
