"""The folder of a run: its record, with all facts needed to trust and repeat its numbers, its settings and model."""

import dataclasses
import json
import os
import platform
import subprocess
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from synthattn.messages import listed
from synthattn.saved_file import read_dataclass, write_text
from synthattn.training import checkpoints
from synthattn.training.settings import Settings, as_dict, from_dict, read_settings

FILE, SETTINGS, MODEL, COMPARISON = "record.json", "settings.yaml", "model", "compare.yaml"
MOVABLE = {("data", "source"), ("model", "start"), ("evaluation", "vectors")}
"""Settings that are paths; the files may have been moved since the run was started."""


@dataclass
class RunRecord:
    """Record of a run. A repeated run differs only in ``times``, ``versions`` and ``hardware``."""

    status: str = "running"
    """Status of the run: ``running``, ``stopped``, ``failed`` or ``done``."""
    reason: str = ""
    """Error message of a run that failed."""
    command: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    data: dict[str, Any] = field(default_factory=dict)
    """Fingerprints, counts of examples and tokens, and what was truncated or dropped."""
    model: dict[str, Any] = field(default_factory=dict)
    steps: int = 0
    tokens: int = 0
    """Number of training tokens, padding not counted."""
    epochs: float = 0.0
    loss: list[list[int | float]] = field(default_factory=list)
    """Pairs of step and training loss."""
    validation: list[list[int | float]] = field(default_factory=list)
    """Pairs of step and validation loss."""
    best_step: int | None = None
    weights: str = ""
    """Description of the weights that were kept."""
    scores: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Value, interval and definition of each metric."""
    evaluation: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    times: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    hardware: dict[str, str] = field(default_factory=dict)

    def save(self, run: Path) -> None:
        write_text(run / FILE, json.dumps(dataclasses.asdict(self), indent=1, ensure_ascii=False) + "\n")


def load(run: Path) -> RunRecord:
    """Read the record in the folder of a run."""
    file = run / FILE
    if not file.is_file():
        raise ValueError(f"{run} holds no {FILE}, so it is not the folder of a run")
    return read_dataclass(RunRecord, file, "is damaged", ("status", "settings", "data"))


def refuse_comparison(folder: Path) -> None:
    """Raise a ValueError that lists the runs of a folder, if it is that of a comparison."""
    if not (folder / COMPARISON).is_file():
        return
    runs = [str(one) for one in sorted((folder / "runs").glob("*")) if (one / SETTINGS).is_file()]
    if not runs:
        raise ValueError(f"{folder} is a comparison without trained models; go on with: synthattn compare --resume")
    raise ValueError(f"{folder} is a comparison of several models; choose one: {listed(runs)}")


def saved_settings(run: Path) -> Settings:
    """Load the settings that a run was started with."""
    refuse_comparison(run)
    file = run / SETTINGS
    if not file.is_file():
        raise ValueError(f"{run} holds no {SETTINGS}, so it is not the folder of a run")
    found = read_settings(file)
    try:
        settings = from_dict(found)
    except ValueError as error:
        raise ValueError(f"{file} is damaged: {error}") from error
    if (run / FILE).is_file():
        _check_recorded(run, settings)
    return settings


def _check_recorded(run: Path, settings: Settings) -> None:
    """Raise an error if settings differ from the record, which was written with them. Files may have moved."""
    recorded = load(run).settings
    if not recorded:
        return
    file = run / FILE
    try:
        before = as_dict(from_dict(recorded))
    except ValueError as error:
        raise ValueError(f"{file} is damaged: settings: {error}") from error
    for group, values in as_dict(settings).items():
        for name, value in values.items():
            earlier = before[group].get(name)
            if value != earlier and (group, name) not in MOVABLE:
                raise ValueError(
                    f"{run / SETTINGS} has {group}.{name}={value}, {file} has {earlier}: one of them was "
                    "changed or damaged; put back what it was"
                )


def final_model(run: Path) -> Path:
    """Return the folder of a run's model, or of its last complete checkpoint if the run is not done."""
    refuse_comparison(run)
    if (run / MODEL / "config.json").is_file():
        return run / MODEL
    folder, _ = checkpoints.last_good(run)
    if folder is None:
        raise ValueError(f"{run} has no model yet, and no whole checkpoint")
    return folder


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def versions() -> dict[str, str]:
    """Return the versions of the libraries that affect results."""
    names = ("synthattn", "torch", "transformers", "accelerate", "tokenizers", "sentencepiece", "sacrebleu", "numpy")
    found = {"python": platform.python_version()}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    commit = _commit()
    return found | ({"commit": commit} if commit else {})


def _commit() -> str | None:
    """Return the commit of the package's own repository, if it runs from one."""
    here = Path(__file__).parent
    try:
        command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
        shown = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return None
    tracked = (here.parents[2] / ".git").exists()
    return shown.stdout.strip() or None if tracked and shown.returncode == 0 else None


def hardware() -> dict[str, str]:
    """Describe the processor, the threads and the accelerators."""
    import torch

    found = {
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "threads": str(torch.get_num_threads()),
        "system": f"{platform.system()} {platform.machine()}",
    }
    if torch.cuda.is_available():
        found["accelerators"] = ", ".join(torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count()))
    return found


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
