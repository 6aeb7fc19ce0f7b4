"""Options of the command line as settings: a file first, then options, then ``--set``."""

import shlex
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from synthattn.messages import printable
from synthattn.tasks import SUITES, find_task
from synthattn.training.settings import Settings, from_dict, put, read_settings

DATA = {
    "translation": "builtin:grammar-de",
    "summarization": "builtin:summaries",
    "dialogue": "builtin:dialogue",
    "classification": "builtin:docs",
    "language-modeling": "builtin:docs",
    "sentence-modeling": "builtin:docs",
    "span-corruption": "builtin:docs",
}
"""What is learned from where no data is given."""


def gather(
    file: Path | None, options: Mapping[str, Any], overrides: list[str], defaults: Mapping[str, Any] | None = None
) -> Settings:
    """Settings from all that the user said; ``options`` are by path, such as ``data.task``, None where not given."""
    found: dict[str, Any] = {}
    for path, value in (defaults or {}).items():
        put(found, path, value)
    # A group without anything in it says nothing.
    _merge(found, {name: group for name, group in read_settings(file).items() if group is not None})
    for path, value in options.items():
        if value is not None:
            put(found, path, value)
    _merge(found, read_settings(None, overrides))
    data = found.setdefault("data", {})
    if isinstance(data, dict) and "source" not in data:
        task = str(data.get("task", "language-modeling"))
        if task not in DATA:
            if task not in SUITES:
                find_task(task)  # which knows what it may have been meant to be
            raise ValueError(f"{task} has no built-in data; say where yours is: --data FOLDER")
        put(found, "data.source", DATA[task])
    _one_end(found, options, overrides)
    return from_dict(found)


def _merge(settings: dict[str, Any], other: Mapping[str, Any]) -> None:
    for name, value in other.items():
        if isinstance(value, dict) and isinstance(settings.get(name), dict):
            _merge(settings[name], value)
        else:
            settings[name] = value


def _one_end(found: dict[str, Any], options: Mapping[str, Any], overrides: list[str]) -> None:
    """Steps, tokens or minutes of an option take the place of what a file or a default says."""
    ends = ("steps", "tokens", "minutes")
    said = [end for end in ends if options.get(f"training.{end}") is not None]
    said += [end for end in ends if any(text.startswith(f"training.{end}=") for text in overrides)]
    if said:
        training = found.get("training")
        for end in ends:
            if end not in said and isinstance(training, dict):  # what is no group is refused with all settings
                training.pop(end, None)


def command() -> str:
    """Return the command line as the user typed it, for records and pages."""
    return printable(shlex.join(["synthattn", *sys.argv[1:]]))


def new_folder(verb: str, task: str) -> Path:
    """Where a run goes unless the user says."""
    return Path("runs") / f"{verb}-{task}-{datetime.now().strftime('%Y%m%d-%H%M%S')}"
