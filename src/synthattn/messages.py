"""Functions for messages to users."""

import difflib
import json
import re
from collections.abc import Iterable
from typing import Any

LISTED = 30
"""Maximum number of names in a message."""
LONGEST_NAME = 100
"""Maximum length of a name that is compared with others; the comparison takes quadratic time."""
MOST_COMPARED = 2000
"""Maximum number of names that a mistyped one is compared with."""

# Control characters; line and paragraph separators, which end a line; embeddings, overrides and isolates of the
# direction of writing, which reorder what follows; and halves of surrogate pairs, which cannot be encoded.
_NOT_PRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_NOT_PRINTABLE_BUT_LINES = re.compile(f"(?![\n\t]){_NOT_PRINTABLE.pattern}")


def printable(text: str, lines: bool = False) -> str:
    """Return the text with visible escapes for characters that could control a terminal or a page.

    Labels, paths and names from outside may clear the screen, contain a line feed or reverse the direction of writing.
    Such characters become ``\\x1b`` or ``\\u202e``. Ordinary text is returned unchanged.

    Args:
        text: any text.
        lines: keep line feeds and tabs, for text of several lines.
    """
    pattern = _NOT_PRINTABLE_BUT_LINES if lines else _NOT_PRINTABLE
    return pattern.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def printable_json(value: Any, indent: int) -> str:
    """Return JSON with JSON escapes for the characters that ``printable`` escapes, so that it reads back equal."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return _NOT_PRINTABLE_BUT_LINES.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def listed(names: Iterable[str], most: int = LISTED) -> str:
    """Join names by commas; after ``most`` names, give the number of the others."""
    every = list(names)
    more = f" and {len(every) - most:,} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more


def shortened(text: str, width: int = 80) -> str:
    """Return the text, cut to ``width`` with three dots at the end if it is longer."""
    return text if len(text) <= width else text[: width - 3] + "..."


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return the end of an error message about an unknown name: close names, or a list of known ones."""
    names = sorted(known)
    if not names:
        return "; it has none"
    close = difflib.get_close_matches(name, names[:MOST_COMPARED], n=3) if len(name) <= LONGEST_NAME else []
    if close:
        return f"; did you mean {' or '.join(close)}?"
    return f"; choose from {listed(shortened(one) for one in names)}"


def out_of_memory(error: BaseException) -> bool:
    """Return True if an error means that memory ran out, on any device. On a CPU, only torch's text tells."""
    text = str(error)
    return isinstance(error, MemoryError) or "can't allocate memory" in text or "out of memory" in text
