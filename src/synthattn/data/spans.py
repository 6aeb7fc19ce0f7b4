"""T5's span corruption: parts of a text are replaced by sentinels, and the answer is what the sentinels hide."""

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]


def noise_mask(length: int, density: float, mean_span: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Which tokens are left out: about ``density`` of them, in spans of ``mean_span`` tokens on average.

    Spans and the gaps between them are random partitions of their totals; the first token stays, as in T5.
    """
    if length < 2:
        return np.zeros(length, dtype=bool)
    noise = min(max(round(length * density), 1), length - 1)
    spans = min(max(round(noise / mean_span), 1), noise, length - noise)
    lengths = np.stack([_partition(length - noise, spans, rng), _partition(noise, spans, rng)], axis=1).ravel()
    return np.repeat(np.tile([False, True], spans), lengths)


def _partition(total: int, parts: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """``parts`` positive numbers that sum to ``total``, every way equally likely."""
    cuts = np.sort(rng.choice(total - 1, parts - 1, replace=False)) + 1 if parts > 1 else np.empty(0, dtype=np.int64)
    return np.diff(np.concatenate([[0], cuts, [total]])).astype(np.int64)


def corrupt(ids: Ids, mask: NDArray[np.bool_], first_sentinel: int, end: int) -> tuple[Ids, Ids]:
    """The text with a sentinel for each span, and the spans each after its sentinel; both end with ``end``.

    Sentinels count down from ``first_sentinel``. The text starts with a part that is kept. In the answer, a sentinel is
    for each part that is kept, so every hidden span comes after its own.
    """
    source, target = (_with_sentinels(ids, hidden, first_sentinel) for hidden in (mask, ~mask))
    return np.append(source, end), np.append(target, end)


def _with_sentinels(ids: Ids, mask: NDArray[np.bool_], first_sentinel: int) -> Ids:
    starts = mask & ~np.concatenate([[False], mask[:-1]])
    sentinels = first_sentinel - (np.cumsum(starts) - 1)
    return np.where(starts, sentinels, ids)[~mask | starts].astype(np.int64)


def text_length(inputs: int, density: float = 0.15, mean_span: float = 3.0) -> tuple[int, int]:
    """How many tokens of text become an input of at most ``inputs`` tokens, and how long its answer then is."""

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
