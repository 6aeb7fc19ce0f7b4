"""What a benchmark found, as data: from here every table, page and plot is made."""

import dataclasses
import json
import platform
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from synthattn.saved_file import read_dataclass

KINDS = ("layer", "model", "train", "decode")
"""An attention layer alone; a whole encoder's forward pass; its training step; generation."""


class UnsupportedError(ValueError):
    """A contender has no way to do what a case asks for."""


@dataclass(frozen=True)
class Case:
    """What is done, by whoever does it."""

    kind: str
    batch: int
    length: int
    mode: str = "eval"
    """``eval`` or ``train``: a forward pass without gradients, or one with the backward pass."""
    mask: str = "full"
    """``full``, ``causal`` or ``padded``."""
    beams: int = 1
    """Of generation."""

    def __str__(self) -> str:
        words = [f"{self.batch}x{self.length}"]
        words += [self.mode, self.mask] if self.kind == "layer" else []
        words += [f"{self.beams} beams"] if self.beams > 1 else []
        return ", ".join(words)


@dataclass(frozen=True)
class Measurement:
    """One contender in one case. Ratios are medians, over rounds, of ratios within a round."""

    contender: str
    case: Case
    seconds: float
    """Median over rounds. Good for growth within a run, noise between machines."""
    spread: float
    """Interquartile range of the seconds, divided by the median."""
    ratios: dict[str, float] = field(default_factory=dict)
    """How many times faster than these, by their names; more than 1 is faster."""
    megabytes: float | None = None
    """Peak memory above that of the weights and the input, in a process of its own."""
    rival_megabytes: dict[str, float] = field(default_factory=dict)
    """The same of those it was compared with."""
    gigaflop: float | None = None
    """Multiplications and additions of all matrix products that were executed."""
    gemm_share: float | None = None
    """Throughput as a share of plain matrix products of the same shapes, measured in the same rounds."""
    error: float | None = None
    """Largest difference from the reference, relative to its largest entry, found before anything was timed."""
    cache_bytes: float | None = None
    """Of the self-attention cache, per token that is kept and example."""


@dataclass
class Record:
    """One run of the command."""

    command: str = ""
    rounds: int = 0
    machine: str = ""
    threads: int = 0
    versions: dict[str, str] = field(default_factory=dict)
    started: str = ""
    seconds: float = 0.0
    measurements: list[Measurement] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """What was left out, and why."""

    def save(self, path: Path) -> None:
        """Written beside and then renamed: a reader never sees half of it."""
        beside = path.with_name(path.name + ".part")
        beside.write_text(json.dumps(dataclasses.asdict(self), indent=1, allow_nan=False) + "\n", encoding="utf-8")
        beside.replace(path)

    def of(self, kind: str) -> list[Measurement]:
        return [m for m in self.measurements if m.case.kind == kind]

    def leave_out(self, line: str) -> None:
        """Note what was left out; once, also where a run goes on after a stop."""
        if line not in self.skipped:
            self.skipped.append(line)


def load(path: Path) -> Record:
    """Read what ``save`` wrote."""
    return read_dataclass(Record, path, "is not a record of synthattn bench", ("measurements",))


def merged(records: Iterable[Record]) -> Record:
    """Several runs as one record; where two measured the same, the later one counts. Each command says where it ran."""
    records = list(records)
    if len(records) == 1:
        return records[0]
    last = records[-1]
    measurements = {(m.contender, m.case): m for record in records for m in record.measurements}
    return Record(
        command="\n".join(f"{record.command}  # {record.machine}, {record.started[:10]}" for record in records),
        rounds=min(record.rounds for record in records),
        machine="; ".join(dict.fromkeys(record.machine for record in records)),
        threads=last.threads,
        versions=last.versions,
        started=records[0].started,
        seconds=sum(record.seconds for record in records),
        measurements=list(measurements.values()),
        skipped=list(dict.fromkeys(line for record in records for line in record.skipped)),
    )


def new(command: str, rounds: int) -> Record:
    """A record of this machine, with nothing measured yet."""
    import torch

    return Record(
        command=command,
        rounds=rounds,
        machine=cpu_name(),
        threads=torch.get_num_threads(),
        versions=_versions(),
        started=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    from synthattn.engine.native.library import load

    found = {"python": platform.python_version()}
    for name in ("synthattn", "torch", "transformers", "linformer", "x-transformers"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    kernel = load()
    return found | {"compiled kernel": "none" if kernel is None else Path(kernel._name).name.split(".")[1]}


def cpu_name() -> str:
    """What the processor calls itself."""
    info = Path("/proc/cpuinfo")
    for line in info.read_text().splitlines() if info.exists() else []:
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.processor() or platform.machine()
