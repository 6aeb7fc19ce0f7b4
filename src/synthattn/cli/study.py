"""The verb ``synthattn study``."""

import shlex
import signal
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from synthattn.cli.command import split
from synthattn.compare.plan import PlannedRun
from synthattn.paper.study import RECORD, find_study, make
from synthattn.render import terminal
from synthattn.terminal import SafeConsole
from synthattn.training.memory import keep_memory
from synthattn.training.progress import displays
from synthattn.training.run import Stopped


def run(
    name: str, options: Mapping[str, Any], output: Path, work: Path, jobs: int, resume: bool, show: bool, quiet: bool
) -> int:
    kind = find_study(name)
    if jobs < 1:
        raise ValueError(f"--jobs must be at least 1, got {jobs}")
    console, path = SafeConsole(), output / kind.name / RECORD
    if show:
        if not path.is_file():
            raise ValueError(f"there is no record {path}; leave --show out to make one")
        found = kind.load(path)
        kind.write(output)
    else:
        keep_memory()
        plan = kind.plan(**_chosen(name, {field.name for field in fields(kind.plan)}, options))
        shown, close = displays(quiet)

        def announce(number: int, total: int, run: PlannedRun) -> None:
            if not quiet:
                said = f"run {number} of {total}: {run.part.name}, {run.name}"
                SafeConsole(stderr=True).print(said, soft_wrap=True)

        # Outside of training there is nothing to save, and a scheduler's signal is as good as Ctrl-C.
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            found = make(kind, plan, output, work, jobs, resume, shown, announce)
        except (Stopped, KeyboardInterrupt):
            close()
            words = shlex.join(["synthattn", "study", name, "--resume"])
            text = f"stopped; all that was done is kept. Go on with: {words} and the other options as before"
            SafeConsole(stderr=True).print(text, soft_wrap=True)
            return 130
        finally:
            signal.signal(signal.SIGTERM, before)
            close()
    if not quiet:
        terminal.show(console, [kind.table(found)])
        console.print(f"Page: {path.parent}", soft_wrap=True)
    return 0


def _chosen(study: str, known: set[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that were given as fields of a plan."""
    found: dict[str, Any] = {}
    for option, value in options.items():
        if value is None:
            continue
        field = {"data": "source"}.get(option, option)
        if option == "attention" and "attention" not in known:
            field = "rows"
        if field not in known:
            raise ValueError(f"the study of {study} has no --{option}; leave it out")
        if field in ("attention", "rows"):
            value = split(value)
        elif field == "abilities":
            value = [one.strip() for one in value.split(",")]
        found[field] = value
    return found
