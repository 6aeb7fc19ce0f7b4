"""The records of a study's runs: small files that can be kept, sent, and dropped in by anybody."""

import dataclasses
import functools
import json
import lzma
import re
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from synthattn.compare.results import VERSION, Heads, Histogram, MixtureShares, compact
from synthattn.metrics.base import Rows
from synthattn.saved_file import read_dataclass, replacing
from synthattn.training.evaluation import read_rows
from synthattn.training.record import RunRecord

DIGITS = 8
"""Significant digits of the numbers in a compressed record, as many as single precision has."""


@dataclass
class StudyRecord:
    """One run of a row, with everything that results are made from.

    Args:
        table: name of the study, such as ``translation``.
        scale: ``tiny``, ``cpu`` or ``paper``; empty for a comparison.
        part: the part of the study.
        row: the name of the row.
        seed: counted from 0.
        command: makes it again.
        record: what training and scoring left, see ``synthattn.training.record``.
        gigaflop: of one forward pass over one example of the longest length.
        speeds: by the name of a speed, times that of the baseline: median, lower and upper quartile, number of rounds.
        training_memory: bytes that a training step needs at its peak.
        cache_bytes_per_token: bytes that generation keeps of each token.
        before: sizes of attention weights before training.
        after: sizes of attention weights after training.
        heads: maps of attention weights after training.
        mixture: weights of the terms of a mixture after training.
        candidate: a run that a learning rate was chosen from, whose scores are in no table.
        measured: nothing is left to measure besides the scores.
        trouble: why it could not be measured.
        version: of the form of the file.
    """

    table: str
    scale: str
    part: str
    row: str
    seed: int
    command: str
    record: RunRecord
    gigaflop: float | None = None
    speeds: dict[str, list[float]] = field(default_factory=dict)
    training_memory: int | None = None
    cache_bytes_per_token: int | None = None
    before: list[Histogram] = field(default_factory=list)
    after: list[Histogram] = field(default_factory=list)
    heads: list[Heads] = field(default_factory=list)
    mixture: list[MixtureShares] = field(default_factory=list)
    candidate: bool = False
    measured: bool = True
    trouble: str = ""
    version: int = VERSION
    path: Path | None = None
    """Where it was read from; not part of the file."""

    @property
    def rate(self) -> float:
        """Its learning rate."""
        return float(self.record.settings["training"]["learning_rate"])

    @property
    def validation_loss(self) -> float | None:
        """Return the validation loss of the weights that were kept."""
        losses = [float(loss) for _, loss in self.record.validation]
        if not losses:
            return None
        return min(losses) if self.record.settings["training"].get("keep") == "best" else losses[-1]

    def save(self, path: Path, hidden: Mapping[str, str]) -> None:
        """Write it.

        Args:
            path: of the file, which is compressed if its name ends with ``.xz``.
            hidden: folders of this machine, and what stands for them in the file.
        """
        digits = DIGITS if path.suffix == ".xz" else None
        content = without_folders(compact(dataclasses.replace(self, path=None), digits), hidden)
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(content, separators=(",", ":"), ensure_ascii=False) + "\n"
        with replacing(path) as beside:
            beside.write_bytes(lzma.compress(text.encode()) if path.suffix == ".xz" else text.encode())

    @property
    def rows(self) -> Mapping[str, Rows]:
        """Rows that its scores were computed from, by metric; empty where they were not kept."""
        if self.path is None:
            return {}
        file = rows_file(self.path)
        return _rows(file, file.stat().st_mtime_ns) if file.is_file() else {}


@functools.lru_cache(maxsize=1024)
def _rows(file: Path, written: int) -> dict[str, Rows]:
    """Read rows once, so that what was drawn from them can be remembered."""
    return read_rows(file)


def without_folders(value: Any, hidden: Mapping[str, str]) -> Any:
    """Put names in place of folders, where a text has a path into one of them."""
    if isinstance(value, dict):
        return {without_folders(name, hidden): without_folders(one, hidden) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [without_folders(one, hidden) for one in value]
    if isinstance(value, str):
        for folder in sorted(hidden, key=len, reverse=True):
            value = re.sub(rf"(?<![\w./~-]){re.escape(folder)}(?=/)", hidden[folder], value)
    return value


def record_files(paths: Iterable[Path]) -> list[Path]:
    """Return the files of records among some paths, in their order; compressed ones end with ``.json.xz``."""
    return sorted(path for path in paths if path.name.endswith((".json", ".json.xz")))


def load(path: Path) -> StudyRecord:
    """Read a file that ``StudyRecord.save`` wrote."""
    found = read_dataclass(
        StudyRecord, path, "is no record of a study; delete it, and its run is made again", ("version",)
    )
    return dataclasses.replace(found, path=path)


def rows_file(record: Path) -> Path:
    """Return the file with the rows of a record: in the folder of the run, or beside a compressed record."""
    if record.suffix == ".xz":
        return record.with_name(f"{record.name.removesuffix('.json.xz')}.npz")
    return record.with_suffix("") / "rows.npz"


def copy_rows(run: Path, kept: Path) -> None:
    """Keep the rows that a run's scores were computed from with its record, in as little room as possible."""
    source, target = run / "rows.npz", rows_file(kept)
    if source == target:
        return
    if not source.is_file():
        raise ValueError(f"{source} is missing; delete the record of this run, and it is made again")
    target.parent.mkdir(parents=True, exist_ok=True)
    with (
        np.load(source, allow_pickle=False) as found,
        replacing(target) as beside,
        zipfile.ZipFile(beside, "w") as file,
    ):
        for name in found.files:
            member = zipfile.ZipInfo(f"{name}.npy")  # without a date: the same rows make the same file
            member.compress_type = zipfile.ZIP_LZMA
            with file.open(member, "w") as opened:
                np.lib.format.write_array(opened, found[name], allow_pickle=False)
