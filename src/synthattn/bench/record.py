"""The record of a benchmark: every table, page and plot is made from it."""

import dataclasses
import json
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from synthattn.saved_file import read_dataclass, write_text

SHAPES = {
    "layer": ((16, 512), (4, 2048)),
    "model": ((8, 512),),
    "train": ((8, 512),),
    "decode": ((8, 128),),
}
"""Default shapes by kind of benchmark: an attention layer alone, a whole encoder's forward pass, its training step, and
generation. A shape is batch and length; for generation, batch and new tokens."""
KINDS = tuple(SHAPES)
DIGITS = 6
"""Significant digits of the numbers in a file; times of one call differ in the second."""


class UnsupportedError(ValueError):
    """A contender cannot do what a case asks for."""


@dataclass(frozen=True)
class Case:
    """A computation that all contenders do."""

    kind: str
    batch: int
    length: int
    mode: str = "eval"
    """``eval`` or ``train``: a forward pass without gradients, or one with the backward pass."""
    mask: str = "full"
    """``full``, ``causal`` or ``padded``."""
    beams: int = 1
    """Width of the beam search in generation."""
    device: str = ""
    """The accelerator; empty for the CPU."""

    def __str__(self) -> str:
        words = [f"{self.batch}x{self.length}"]
        words += [self.mode, self.mask] if self.kind == "layer" else []
        words += [f"{self.beams} beams"] if self.beams > 1 else []
        words += [f"on {self.device}"] if self.device else []
        return ", ".join(words)


@dataclass(frozen=True)
class Measurement:
    """Figures of one contender in one case. Ratios are medians, over rounds, of ratios within a round."""

    contender: str
    case: Case
    seconds: float
    """Median over rounds, comparable within one run only."""
    spread: float
    """Interquartile range of the seconds, divided by the median."""
    ratios: dict[str, float] = field(default_factory=dict)
    """Speed relative to each rival, by name; more than 1 is faster."""
    megabytes: float | None = None
    """Peak memory above that of weights and input, in a process of its own."""
    rival_megabytes: dict[str, float] = field(default_factory=dict)
    """Peak memory of rivals, by name."""
    gigaflop: float | None = None
    """Multiplications and additions of all matrix products that were executed."""
    gemm_share: float | None = None
    """Throughput as a share of plain matrix products of the same shapes, measured in the same rounds."""
    error: float | None = None
    """Largest difference from the reference, relative to its largest entry, found before timing."""
    cache_bytes: float | None = None
    """Bytes of the self-attention cache per token and example."""


@dataclass
class BenchRecord:
    """All measurements of one run of ``synthattn bench``."""

    command: str = ""
    rounds: int = 0
    machine: str = ""
    threads: int = 0
    versions: dict[str, str] = field(default_factory=dict)
    started: str = ""
    seconds: float = 0.0
    measurements: list[Measurement] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """Contenders that were left out, each with the reason."""

    def save(self, path: Path) -> None:
        """Write the record atomically as JSON, with one line per measurement."""
        head = dataclasses.asdict(dataclasses.replace(self, measurements=[]))
        del head["measurements"]
        lines = ",\n".join(_line(_compact(dataclasses.asdict(each))) for each in self.measurements)
        write_text(path, f'{_line(_compact(head))[:-1]},"measurements":[\n{lines}\n]}}\n')

    def of(self, kind: str) -> list[Measurement]:
        return [m for m in self.measurements if m.case.kind == kind]

    def leave_out(self, line: str) -> None:
        """Add a line on a contender that was left out, unless a resumed run has it already."""
        if line not in self.skipped:
            self.skipped.append(line)


def _compact(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Round numbers, and leave out fields that are empty."""
    kept = {name: value for name, value in fields.items() if value not in (None, {}, [], "")}
    return {
        name: float(f"{value:.{DIGITS}g}")
        if isinstance(value, float)
        else _compact(value)
        if isinstance(value, dict)
        else value
        for name, value in kept.items()
    }


def _line(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def load(path: Path) -> BenchRecord:
    """Read a file that ``BenchRecord.save`` wrote."""
    return read_dataclass(BenchRecord, path, "is not a record of synthattn bench", ("measurements",))


def merged(records: Iterable[BenchRecord]) -> BenchRecord:
    """Join several runs; the later measurement of a case counts. Each command is followed by machine and date."""
    records = list(records)
    if len(records) == 1:
        return records[0]
    last = records[-1]
    measurements = {(m.contender, m.case): m for record in records for m in record.measurements}
    return BenchRecord(
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


def new(command: str, rounds: int, device: str = "") -> BenchRecord:
    """Return an empty record of this machine, or of its accelerator."""
    import torch

    return BenchRecord(
        command=command,
        rounds=rounds,
        machine=torch.cuda.get_device_name() if device else cpu_name(),
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
    """Return the processor's own name."""
    info = Path("/proc/cpuinfo")
    for line in info.read_text().splitlines() if info.exists() else []:
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.processor() or platform.machine()
