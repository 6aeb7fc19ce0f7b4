"""Words that messages to users share."""

import difflib
from collections.abc import Iterable


def suggestion(name: str, known: Iterable[str]) -> str:
    """The end of an error message about a name: the closest names, or all of them."""
    names = sorted(known)
    if not names:
        return "; it has none"
    close = difflib.get_close_matches(name, names, n=3)
    if close:
        return f"; did you mean {' or '.join(close)}?"
    return f"; choose from {', '.join(names)}"
