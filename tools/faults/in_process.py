"""Run ``synthattn`` in this process, with a time limit, and judge how it ended."""

import contextlib
import os
import resource
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from synthattn.cli.app import main
from tools.faults.outcome import Verdict


class ExpiredError(BaseException):
    """Raised if a command does not end in time; handlers of ordinary exceptions do not catch it."""


class Said(NamedTuple):
    """The exit code and the output of a command, and the exception that it ended with, if any."""

    code: int | None
    out: str
    err: str
    error: BaseException | None = None


def call(*arguments: str | Path | int, stdin: str = "", seconds: float = 30.0) -> Said:
    """Run the command as a shell would, and capture the output of the whole process."""
    code, error = None, None
    with tempfile.TemporaryFile("w+b") as out, tempfile.TemporaryFile("w+b") as err:
        with _redirected(stdin, out, err), _limited(seconds):
            sys.argv = ["synthattn", *map(str, arguments)]
            try:
                main()
            except SystemExit as ended:
                code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
            except BaseException as caught:  # anything that reaches the user counts
                error = caught
        return Said(code, _text(out), _text(err), error)


def _text(file: Any) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")


def judge(said: Said, right: Callable[[], str | None]) -> tuple[Verdict, str]:
    """Return the verdict on a command, and a reason if the verdict is bad.

    Args:
        said: how the command ended.
        right: checks the result of a command that succeeded; returns a problem, or None.
    """
    if isinstance(said.error, ExpiredError | MemoryError):
        return "crash", repr(said.error)
    if said.error is not None:
        last = traceback.extract_tb(said.error.__traceback__)[-1]
        text = " ".join(str(said.error).split())[:200]
        return "traceback", f"{type(said.error).__name__}: {text} ({Path(last.filename).name}:{last.lineno})"
    if said.code != 0:
        one = said.err.startswith("synthattn: ") and said.err.count("\n") == 1 and said.err.endswith("\n")
        return ("clear", "") if one else ("traceback", f"exit code {said.code}, said {said.err[-300:]!r}")
    try:
        wrong = right()
    except Exception as error:  # the accepted input has no right result
        return "wrong", f"accepted, but {type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return ("right", "") if wrong is None else ("wrong", wrong)


@contextlib.contextmanager
def _redirected(stdin: str, out: Any, err: Any) -> Iterator[None]:
    """Redirect the three standard streams, both of Python and of the process."""
    streams, argv = (sys.stdin, sys.stdout, sys.stderr), sys.argv
    for stream in streams[1:]:
        stream.flush()
    kept = [os.dup(number) for number in range(3)]
    with tempfile.TemporaryFile("w+b") as given:
        given.write(stdin.encode("utf-8", "surrogateescape"))
        given.seek(0)
        for number, file in enumerate((given, out, err)):
            os.dup2(file.fileno(), number)
        try:
            sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 (it must outlive this line)
            sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
            # Options as Python itself opens it.
            sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
            yield
        finally:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            for number, old in enumerate(kept):
                os.dup2(old, number)
                os.close(old)
            sys.stdin, sys.stdout, sys.stderr = streams
            sys.argv = argv


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    def expire(number: int, frame: Any) -> None:
        raise ExpiredError(f"no end after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def memory_limit(more: int = 4 * 10**9) -> Iterator[None]:
    """Limit the additional memory of this process, so that a MemoryError comes before the kernel kills it."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
