"""Functions that messages to users share."""

import difflib
import json
import re
from collections.abc import Iterable
from typing import Any

LISTED = 30
"""Names that a message lists at most."""
LONGEST_NAME = 100
"""Characters of the longest name that is compared with others: the comparison is quadratic in them."""
MOST_COMPARED = 2000
"""Names that a mistyped one is compared with at most."""

# Control characters; line and paragraph separators, which end a line; embeddings, overrides and isolates of the
# direction of writing, which reorder what follows; and halves of surrogate pairs, which cannot be encoded.
_NOT_PRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_NOT_PRINTABLE_BUT_LINES = re.compile(f"(?![\n\t]){_NOT_PRINTABLE.pattern}")


def printable(text: str, lines: bool = False) -> str:
    """Return the text with every character that could control a terminal or a page as a visible escape.

    Text from outside may hold anything: a label that clears the screen, a path with a line feed, a name that is written
    from right to left. ``\\x1b`` or ``\\u202e`` then stands in its place. Ordinary text is returned as it is.

    Args:
        text: any text.
        lines: keep line feeds and tabs, for text of several lines.
    """
    pattern = _NOT_PRINTABLE_BUT_LINES if lines else _NOT_PRINTABLE
    return pattern.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def printable_json(value: Any, indent: int) -> str:
    """Return JSON in which the characters that ``printable`` escapes are escaped as JSON does it: it reads the same."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return _NOT_PRINTABLE_BUT_LINES.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def listed(names: Iterable[str], most: int = LISTED) -> str:
    """Join names by commas; of very many the first ones, and the number of the others."""
    every = list(names)
    more = f" and {len(every) - most:,} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more


def shortened(text: str, width: int = 80) -> str:
    """Return the text, or its beginning and three dots where it is longer than ``width``."""
    return text if len(text) <= width else text[: width - 3] + "..."


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return the end of an error message about an unknown name: the closest names, or a list of the known ones."""
    names = sorted(known)
    if not names:
        return "; it has none"
    close = difflib.get_close_matches(name, names[:MOST_COMPARED], n=3) if len(name) <= LONGEST_NAME else []
    if close:
        return f"; did you mean {' or '.join(close)}?"
    return f"; choose from {listed(shortened(one) for one in names)}"


def out_of_memory(error: BaseException) -> bool:
    """Whether there was not enough memory, on any device; torch says so in words, on a CPU in words alone."""
    text = str(error)
    return isinstance(error, MemoryError) or "can't allocate memory" in text or "out of memory" in text
