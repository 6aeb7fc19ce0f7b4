"""The verb ``synthattn generate``."""

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

from synthattn.api import chosen
from synthattn.data.files import LONGEST_RECORD, broken
from synthattn.messages import printable
from synthattn.training.answering import Answerer
from synthattn.training.settings import EvaluationSettings


def run(
    what: Path,
    name: str | None,
    file: Path | None,
    beams: int,
    max_new_tokens: int | None,
    batch: int,
    temperature: float,
    seed: int,
    raw: bool,
) -> int:
    """Print answers line by line, as soon as a batch is done."""
    if batch < 1:
        raise ValueError(f"--batch must be at least 1, got {batch}")
    if not temperature >= 0:
        raise ValueError(f"--temperature must be at least 0, got {temperature:g}")
    if file is None and sys.stdin.isatty():
        batch = 1  # a typed line is answered at once
    what = chosen(what, name, quiet=False)
    settings = EvaluationSettings(beams=beams, max_new_tokens=max_new_tokens)
    for answer in Answerer(what, settings, temperature, seed, raw).answers(_lines(file), batch):
        line = answer.replace("\n", " ")
        print(printable(line) if sys.stdout.isatty() else line, flush=True)
    return 0


def _lines(file: Path | None) -> Iterator[str]:
    # Read bytes: a locale may change the encoding of standard input or accept invalid text, and a lone carriage return
    # would end a line, so that there would be more answers than lines.
    name = "standard input" if file is None else str(file)
    with open(sys.stdin.fileno() if file is None else file, "rb", closefd=file is not None) as source:
        for number in itertools.count(1):
            line = source.readline(LONGEST_RECORD + 2)
            if not line:
                return
            if len(line) > LONGEST_RECORD + 1:
                raise broken(name, number, f"longer than {LONGEST_RECORD >> 20} MB; is this one text a line? split it")
            line = line[:-1].removesuffix(b"\r") if line.endswith(b"\n") else line
            try:
                yield line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise ValueError(f"{name} is not UTF-8: {error.reason} in line {number}") from error
