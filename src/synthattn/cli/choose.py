"""Choose the run of a comparison that a verb works with, and say so."""

import sys
from pathlib import Path

from synthattn.compare.choose import choose_run
from synthattn.messages import printable


def chosen(what: Path, name: str | None, quiet: bool) -> Path:
    """Return the folder of a run of a comparison, or a path of another kind as it is."""
    place, said = choose_run(what, name)
    say(said, quiet)
    return place


def say(text: str, quiet: bool) -> None:
    """Print a line about a choice, if there is one, where it does not mix with answers."""
    if text and not quiet:
        print(f"synthattn: {printable(text)}", file=sys.stderr, flush=True)
