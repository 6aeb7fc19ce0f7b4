"""The record of a run as a table needs it: small files that can be kept, sent, and dropped in by anybody."""

import dataclasses
import functools
import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from synthattn.metrics.base import Rows
from synthattn.render.results import Histogram
from synthattn.saved_file import read_dataclass
from synthattn.training import record
from synthattn.training.checkpoints import write_text
from synthattn.training.evaluation import load_rows

RECORDS = "records"


@dataclass
class Entry:
    """One run of a row.

    Args:
        table: its table, such as ``translation``.
        scale: ``tiny``, ``cpu`` or ``paper``.
        part: the part of the table.
        row: the row, as the paper calls it.
        seed: counted from 0.
        command: makes it again.
        record: what training and scoring left, see ``synthattn.training.record``.
        gigaflop: of one forward pass over one example of the longest length.
        speed: of a training step, times that of the baseline: median, lower and upper quartile.
        before: sizes of attention weights before training.
        after: the same after it.
        candidate: whether it is one of the runs that a learning rate was chosen from, and no number of the table.
    """

    table: str
    scale: str
    part: str
    row: str
    seed: int
    command: str
    record: record.RunRecord
    gigaflop: float | None = None
    speed: tuple[float, float, float] | None = None
    before: list[Histogram] = field(default_factory=list)
    after: list[Histogram] = field(default_factory=list)
    candidate: bool = False
    path: Path | None = None
    """Where it was read from; not part of the file."""

    @property
    def rate(self) -> float:
        return float(self.record.settings["training"]["learning_rate"])

    @property
    def validation_loss(self) -> float | None:
        """Of the weights that were kept: the best look where that was chosen, else the last."""
        losses = [float(loss) for _, loss in self.record.validation]
        if not losses:
            return None
        return min(losses) if self.record.settings["training"].get("keep") == "best" else losses[-1]

    def save(self, path: Path, hidden: Mapping[str, str]) -> None:
        """Write it.

        Args:
            path: of the file.
            hidden: folders of this machine, and what stands for them in the file.
        """
        content = without_folders(dataclasses.asdict(self), hidden)
        del content["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")

    @functools.cached_property
    def rows(self) -> dict[str, Rows]:
        """What its scores were computed from, by metric; nothing where that was not kept."""
        return {} if self.path is None else load_rows(self.path.with_suffix(""))


def without_folders(value: Any, hidden: Mapping[str, str]) -> Any:
    """The same with names in place of folders, where a text has a path into one of them."""
    if isinstance(value, dict):
        return {without_folders(name, hidden): without_folders(one, hidden) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [without_folders(one, hidden) for one in value]
    if isinstance(value, str):
        for folder in sorted(hidden, key=len, reverse=True):
            value = re.sub(rf"(?<![\w./~-]){re.escape(folder)}(?=/)", hidden[folder], value)
    return value


def load(path: Path) -> Entry:
    """Read a file that ``Entry.save`` wrote."""
    return dataclasses.replace(read_dataclass(Entry, path, "is no record of a reproduction"), path=path)


def load_all(results: Path, table: str) -> list[Entry]:
    """All records of a table, whoever made them, in the order of their paths."""
    return [load(path) for path in sorted((results / RECORDS / table).rglob("*.json"))]


def place(results: Path, table: str, scale: str, part: str, name: str) -> Path:
    """Where the record of a run is kept; its rows are in the folder of the same name."""
    return results / RECORDS / table / scale / part / f"{name}.json"


def copy_rows(run: Path, kept: Path) -> None:
    """Keep what a run's scores were computed from, beside its record."""
    folder = kept.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(run / "rows.npz", folder / "rows.part.npz")
    (folder / "rows.part.npz").replace(folder / "rows.npz")
