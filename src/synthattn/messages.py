"""What messages to users share."""

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


def out_of_memory(error: BaseException) -> bool:
    """Whether there was not enough memory, on any device; torch says so in words, on a CPU in words alone."""
    text = str(error)
    return isinstance(error, MemoryError) or "can't allocate memory" in text or "out of memory" in text
