"""Check and split the texts that metrics compare."""

from collections.abc import Sequence
from typing import Any


def checked_texts(name: str, predictions: Sequence[Any], references: Sequence[Any]) -> list[tuple[str, list[str]]]:
    """Return each prediction with a list of its references, so that one reference is no special case."""
    return [
        (_text(name, f"prediction {n}", prediction), _texts(name, n, reference))
        for n, (prediction, reference) in enumerate(zip(predictions, references, strict=True))
    ]


def _text(name: str, which: str, text: Any) -> str:
    if not isinstance(text, str):
        raise ValueError(f"{name}: {which} must be a text, got {type(text).__name__}; give '' where there is none")
    return text


def _texts(name: str, n: int, reference: Any) -> list[str]:
    if isinstance(reference, str):
        return [reference]
    if not isinstance(reference, Sequence):
        raise ValueError(f"{name}: reference {n} must be a text or several, got {type(reference).__name__}")
    if len(reference) == 0:
        raise ValueError(f"{name}: reference {n} has no text; remove the example")
    return [_text(name, f"reference {n}", text) for text in reference]


def lowered_words(text: str) -> list[str]:
    """Return the lower-case words between the spaces of a tokenised text."""
    return text.lower().split()
