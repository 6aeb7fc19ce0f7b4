"""What a user has typed, and how a verb that was stopped goes on."""

import contextlib
import os
import re
import shlex
import signal
import sys
from collections.abc import Iterator

import typer

from synthattn.messages import printable


def command() -> str:
    """Return the command line as typed, for records and pages."""
    return printable(shlex.join(["synthattn", *sys.argv[1:]]))


def split(attention: str) -> list[str]:
    """Split specs at commas outside brackets."""
    return [spec.strip() for spec in re.split(r",(?![^(]*\))", attention) if spec.strip()]


@contextlib.contextmanager
def resumable(*options: str) -> Iterator[None]:
    """End with the command that goes on if the block is stopped; a scheduler's signal is as good as Ctrl-C.

    Args:
        options: what that command needs besides ``--resume``.
    """
    from synthattn.api import Interrupted
    from synthattn.terminal import SafeConsole

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except Interrupted as stopped:
        if not stopped.begun:
            raise
        if int(os.environ.get("RANK", "0")) == 0:  # of the processes of torchrun, the first one speaks
            again = shlex.join(["synthattn", stopped.verb, "--resume", str(stopped.folder), *options])
            SafeConsole(stderr=True).print(f"{stopped.said}. Go on with: {again}", soft_wrap=True)
        raise typer.Exit(130) from stopped
    finally:
        signal.signal(signal.SIGTERM, before)
