"""The record of a run as a table needs it: small files that can be kept, sent, and dropped in by anybody."""

import dataclasses
import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from synthattn.metrics.base import Rows
from synthattn.report.results import Histogram
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
    record: record.Record
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

    def save(self, path: Path, hidden: dict[str, str]) -> None:
        """Write it.

        Args:
            path: of the file.
            hidden: folders of this machine, and what stands for them in the file.
        """
        content = {name: value for name, value in dataclasses.asdict(self).items() if name != "path"}
        text = json.dumps(content, indent=1, ensure_ascii=False)
        for folder, name in sorted(hidden.items(), key=lambda pair: -len(pair[0])):
            text = text.replace(json.dumps(folder, ensure_ascii=False)[1:-1], name)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text + "\n")

    def rows(self) -> dict[str, Rows]:
        """What its scores were computed from, by metric; nothing where that was not kept."""
        return {} if self.path is None else load_rows(self.path.with_suffix(""))


def load(path: Path) -> Entry:
    """Read a file that ``Entry.save`` wrote."""
    try:
        found = json.loads(path.read_text())
        histograms = {name: [Histogram(**one) for one in found[name]] for name in ("before", "after")}
        speed = None if found["speed"] is None else tuple(found["speed"])
        return Entry(
            **{**found, **histograms, "speed": speed, "record": record.Record(**found["record"]), "path": path}
        )
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path} is no record of a reproduction: {' '.join(str(error).split())}") from error


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
