"""Word vectors from a corpus, for comparing all models by equal vectors when no others are available.

The vectors are the largest singular vectors of the positive pointwise mutual information of nearby words (Levy and
Goldberg 2014; Levy, Goldberg and Dagan 2015).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synthattn.metrics.texts import lowered_words
from synthattn.saved_file import write_text

WINDOW = 4
SMOOTHING = 0.75
"""Exponent of context counts; without it, rare contexts would count too much."""


def corpus_vectors(texts: Iterable[str], words: int = 4000, width: int = 64) -> dict[str, NDArray[np.float32]]:
    """Return a vector for each of the most frequent words of some texts.

    Args:
        texts: the corpus.
        words: maximum number of words; words that occur only once have no vector.
        width: length of a vector.
    """
    counts: Counter[str] = Counter()
    lines = []
    for text in texts:
        lines.append(lowered_words(text))
        counts.update(lines[-1])
    known = [word for word, count in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])) if count > 1][:words]
    if len(known) < 2:
        raise ValueError("vectors of words need texts in which at least two words occur more than once")
    number = {word: n for n, word in enumerate(known)}
    together = _together([[number.get(word, -1) for word in line] for line in lines], len(known))
    found = _largest(_information(together), min(width, len(known)))
    return {word: found[n] for word, n in number.items()}


def save_vectors(vectors: Mapping[str, NDArray[np.floating[Any]]], path: Path) -> None:
    """Save vectors in the form that ``load_vectors`` reads."""
    lines = (f"{word} {' '.join(f'{number:.5g}' for number in vector)}\n" for word, vector in vectors.items())
    write_text(path, "".join(lines))


def _together(lines: list[list[int]], words: int) -> NDArray[np.float64]:
    """Count how often two words stand close together, weighted by one over their distance."""
    # Gaps wider than the window separate the lines.
    ids = np.array([n for line in lines for n in (*line, *[-1] * WINDOW)], np.int64)
    counts = np.zeros(words * words)
    for distance in range(1, WINDOW + 1):
        left, right = ids[:-distance], ids[distance:]
        both = (left >= 0) & (right >= 0)
        counts += np.bincount(left[both] * words + right[both], minlength=words * words) / distance
    square = counts.reshape(words, words)
    return square + square.T


def _information(together: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the positive pointwise mutual information of word pairs."""
    contexts = together.sum(0) ** SMOOTHING
    expected = np.outer(together.sum(1), contexts / contexts.sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nan_to_num(np.maximum(np.log(together / expected), 0.0), nan=0.0, posinf=0.0, neginf=0.0)


def _largest(matrix: NDArray[np.float64], width: int) -> NDArray[np.float32]:
    """Return the largest singular vectors, times the square roots of their values (Halko et al. 2011)."""
    probes = np.random.default_rng(0).standard_normal((len(matrix), min(len(matrix), width + 16)))
    for _ in range(4):
        probes, _ = np.linalg.qr(matrix @ (matrix.T @ probes))
    left, values, _ = np.linalg.svd(probes.T @ matrix, full_matrices=False)
    return ((probes @ left[:, :width]) * np.sqrt(values[:width])).astype(np.float32)
