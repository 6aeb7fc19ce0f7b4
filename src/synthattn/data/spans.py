"""T5's span corruption: sentinels replace spans of a text, and the answer is the hidden spans."""

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]


def noise_mask(length: int, density: float, mean_span: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Choose the tokens to hide: about ``density`` of them, in spans of ``mean_span`` tokens on average.

    The lengths of spans and gaps are random partitions of their totals. As in T5, the first token is never hidden.
    """
    if length < 2:
        return np.zeros(length, dtype=bool)
    noise = min(max(round(length * density), 1), length - 1)
    spans = min(max(round(noise / mean_span), 1), noise, length - noise)
    lengths = np.stack([_partition(length - noise, spans, rng), _partition(noise, spans, rng)], axis=1).ravel()
    return np.repeat(np.tile([False, True], spans), lengths)


def _partition(total: int, parts: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw ``parts`` positive numbers that sum to ``total``, all ways equally likely."""
    cuts = np.sort(rng.choice(total - 1, parts - 1, replace=False)) + 1 if parts > 1 else np.empty(0, dtype=np.int64)
    return np.diff(np.concatenate([[0], cuts, [total]])).astype(np.int64)


def corrupt(ids: Ids, mask: NDArray[np.bool_], first_sentinel: int, end: int) -> tuple[Ids, Ids]:
    """Return the text with a sentinel per span, and the spans each after its sentinel; both end with ``end``.

    Sentinels count down from ``first_sentinel``. The text starts with tokens that are kept. In the answer, a sentinel
    replaces each kept part, so every hidden span follows its own sentinel.
    """
    source, target = (_with_sentinels(ids, hidden, first_sentinel) for hidden in (mask, ~mask))
    return np.append(source, end), np.append(target, end)


def _with_sentinels(ids: Ids, mask: NDArray[np.bool_], first_sentinel: int) -> Ids:
    starts = mask & ~np.concatenate([[False], mask[:-1]])
    sentinels = first_sentinel - (np.cumsum(starts) - 1)
    return np.where(starts, sentinels, ids)[~mask | starts].astype(np.int64)


def text_length(inputs: int, density: float = 0.15, mean_span: float = 3.0) -> tuple[int, int]:
    """Return the number of text tokens that fit an input of ``inputs`` tokens, and the length of the answer."""

    def lengths(text: int) -> tuple[int, int]:
        noise = min(max(round(text * density), 1), text - 1)
        spans = min(max(round(noise / mean_span), 1), noise, text - noise)
        return text - noise + spans + 1, noise + spans + 1

    if inputs < 3:
        raise ValueError(f"span corruption needs inputs of at least 3 tokens, got {inputs}")
    text = 2
    while lengths(text + 1)[0] <= inputs:
        text += 1
    return text, lengths(text)[1]
