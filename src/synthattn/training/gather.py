"""Collect settings from a file, from options and from ``--set``, in this order."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

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
"""Default data of each task."""

DEMO = {
    "model.preset": "demo",
    "data.vocab_size": 2000,
    "training.steps": 330,
    "training.evaluate_tokens": 16_384,
    "training.batch_tokens": 2048,
    "training.warmup": 100,
    "training.learning_rate": 3e-3,
}
"""Settings of a comparison of which neither data nor model is chosen: two cores finish it in minutes."""
DEMO_SEEDS = 2
"""Runs of each variant there: an answer from one seed would be a hint."""


def gather(
    file: Path | None, options: Mapping[str, Any], overrides: Sequence[str], defaults: Mapping[str, Any] | None = None
) -> Settings:
    """Return settings from all sources; ``options`` are by path, such as ``data.task``, None if not given."""
    found: dict[str, Any] = {}
    for path, value in (defaults or {}).items():
        put(found, path, value)
    # An empty group says nothing.
    _merge(found, {name: group for name, group in read_settings(file).items() if group is not None})
    for path, value in options.items():
        if value is not None and path != DIRECTION:
            put(found, path, value)
    _merge(found, read_settings(None, overrides))
    data = found.setdefault("data", {})
    if isinstance(data, dict) and options.get(DIRECTION) is not None:
        columns, task = str(data.get("columns") or ""), str(data.get("task", "language-modeling"))
        data["columns"] = with_direction(columns, options[DIRECTION], task)
    if isinstance(data, dict) and "source" not in data:
        task = str(data.get("task", "language-modeling"))
        if task not in DATA:
            if task not in SUITES:
                find_task(task)  # raises an error with a suggestion
            raise ValueError(f"{task} has no built-in data; say where yours is: --data FOLDER")
        put(found, "data.source", DATA[task])
    _one_end(found, options, overrides)
    return from_dict(found)


DIRECTION = "data.direction"
"""Name of an option that stands for a choice of columns."""


def with_direction(columns: str, direction: str | None, task: str) -> str:
    """Return a choice of columns with those of a direction of translation, such as ``de-en``."""
    if direction is None:
        return columns
    if task != "translation":
        raise ValueError(f"--direction is for translation, and the task is {task}; leave --direction out")
    source, _, target = (word.strip() for word in direction.partition("-"))
    if not source or not target or "-" in target:
        raise ValueError(
            f"--direction needs FROM-TO, such as de-en, got {direction!r}; other names of columns can be given with "
            "--columns source=COLUMN,target=COLUMN"
        )
    return ",".join(part for part in (columns, f"source={source},target={target}") if part)


def _merge(settings: dict[str, Any], other: Mapping[str, Any]) -> None:
    for name, value in other.items():
        if isinstance(value, dict) and isinstance(settings.get(name), dict):
            _merge(settings[name], value)
        else:
            settings[name] = value


def _one_end(found: dict[str, Any], options: Mapping[str, Any], overrides: Sequence[str]) -> None:
    """Let steps, tokens or minutes of an option replace the end in a file or a default."""
    ends = ("steps", "tokens", "minutes")
    said = [end for end in ends if options.get(f"training.{end}") is not None]
    said += [end for end in ends if any(text.startswith(f"training.{end}=") for text in overrides)]
    if said:
        training = found.get("training")
        for end in ends:
            if end not in said and isinstance(training, dict):  # other values are refused with all settings
                training.pop(end, None)


def new_folder(verb: str, task: str) -> Path:
    """Return the default folder of a run."""
    return Path("runs") / f"{verb}-{task}-{datetime.now().strftime('%Y%m%d-%H%M%S')}"
