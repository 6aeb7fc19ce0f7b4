"""The command line that a user has typed."""

import shlex
import sys

from synthattn.messages import printable


def command() -> str:
    """Return the command line as typed, for records and pages."""
    return printable(shlex.join(["synthattn", *sys.argv[1:]]))
