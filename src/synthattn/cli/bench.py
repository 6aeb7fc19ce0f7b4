"""The verb ``synthattn bench``."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from synthattn.bench import memory, page, record, suite
from synthattn.bench.record import KINDS, SHAPES, BenchRecord, Case, Measurement
from synthattn.bench.side_by_side import CasePlan
from synthattn.cli.command import command, split
from synthattn.messages import printable, suggestion

MASKS = ("full", "causal", "padded")
MODES = ("eval", "train")
BATCH_LENGTH = 512
"""Length of inputs if the batch grows; if the length grows, the batch is 1."""


@dataclasses.dataclass(frozen=True)
class Wanted:
    """Options of the user; None stands for the default of the kind."""

    kind: str | None = None
    attention: str | None = None
    shapes: str | None = None
    lengths: str | None = None
    batches: str | None = None
    masks: str | None = None
    modes: str | None = None
    beams: str = "1,4"
    rounds: int = 7
    peers: bool = False
    memory: bool = True
    device: str = "cpu"

    @property
    def accelerator(self) -> str:
        """The device of cases; empty for the CPU."""
        return "" if self.device == "cpu" else self.device


def run(
    wanted: Wanted,
    shown: list[Path],
    resume: bool,
    json_file: Path | None,
    report: Path | None,
    markdown_file: Path | None,
    quiet: bool,
) -> int:
    for path in (json_file, report, markdown_file):
        if path is not None and not path.parent.is_dir():
            raise ValueError(f"{path}: there is no folder {path.parent}")
    if shown:
        if wanted.kind is not None:
            raise ValueError("--show measures nothing; leave the kind of benchmark out")
        found, code = record.merged([record.load(path) for path in shown]), 0
    else:
        found, code = _measured(wanted, resume, json_file, quiet)
    if json_file is not None:
        found.save(json_file)
    for path, make in ((report, page.page), (markdown_file, page.markdown)):
        if path is not None:
            path.write_text(make(found), encoding="utf-8")
            print(printable(f"wrote {path}"), file=sys.stderr)
    return code


def _measured(wanted: Wanted, resume: bool, json_file: Path | None, quiet: bool) -> tuple[BenchRecord, int]:
    check_device(wanted)
    found = record.new(command(), wanted.rounds, wanted.accelerator)
    if json_file is not None and json_file.exists():
        if not resume:
            raise ValueError(f"{json_file} is there already; go on with it by --resume, or name another file")
        before = record.load(json_file)
        if _circumstances(before) != _circumstances(found):
            raise ValueError(
                f"{json_file} was measured otherwise (machine, threads, versions or rounds); name another file"
            )
        found = before
    elif resume:
        raise ValueError("--resume goes on with what --json wrote; there is no such file yet")
    done = {(m.contender, m.case) for m in found.measurements}
    plans = [left for each in plan(wanted) if (left := each.without(done)).contenders]
    say = _Printer(sum(len(each.contenders) for each in plans), quiet)

    def keep(so_far: BenchRecord) -> None:
        if json_file is not None:
            so_far.save(json_file)

    try:
        suite.run(plans, found, wanted.rounds, say, keep)
    except KeyboardInterrupt:
        kept = "nothing is kept without --json" if json_file is None else f"{json_file} is kept, --resume goes on"
        print(printable(f"synthattn: stopped; {kept}"), file=sys.stderr)
        return found, 130
    return found, 0


def check_device(wanted: Wanted) -> None:
    """Raise a ValueError unless this machine can run a benchmark on the device."""
    if wanted.device not in ("cpu", "cuda"):
        raise ValueError(f"--device is cpu or cuda, got {wanted.device!r}{suggestion(wanted.device, ('cpu', 'cuda'))}")
    if wanted.device == "cpu":
        return
    if wanted.kind != "layer":
        raise ValueError("--device cuda measures layers alone; write synthattn bench layer --device cuda")
    if not torch.cuda.is_available():
        raise ValueError(
            "--device cuda needs a GPU and a build of torch for it, torch finds none here; leave --device out"
        )


def _circumstances(found: BenchRecord) -> tuple[object, ...]:
    return found.machine, found.threads, found.versions, found.rounds


def plan(wanted: Wanted) -> list[CasePlan]:
    """Return the contenders that are measured together, in each case."""
    if wanted.rounds < 1:
        raise ValueError(f"--rounds must be at least 1, got {wanted.rounds}")
    if wanted.kind is not None and wanted.kind not in KINDS:
        raise ValueError(
            f"there is no benchmark {wanted.kind!r}, only {', '.join(KINDS)}{suggestion(wanted.kind, KINDS)}"
        )
    if wanted.kind not in (None, "layer") and wanted.modes is not None:
        raise ValueError("--modes is for layers; model and train are the two modes of an encoder")
    if wanted.kind == "decode" and wanted.masks is not None:
        raise ValueError("--masks is for layers and encoders; generation is causal")
    plans = [each for kind in ([wanted.kind] if wanted.kind else KINDS) for each in _of(kind, wanted)]
    return plans if wanted.memory else [each.without_memory() for each in plans]


def _of(kind: str, wanted: Wanted) -> list[CasePlan]:
    shapes = _shapes(kind, wanted)
    masks = _chosen("--masks", wanted.masks, MASKS)
    home = memory.home(Case(kind, *shapes[0]))
    names = home.contenders(wanted.peers) if wanted.attention is None else split(wanted.attention)
    with torch.device("meta"):  # errors are reported before anything is measured
        for name in names:
            home.make(name, max(length for _, length in shapes))
    if kind == "layer":
        modes = _chosen("--modes", wanted.modes, MODES) or list(MODES)
        growing = wanted.lengths is not None or wanted.batches is not None
        if growing:  # only growth is measured, so vanilla alone is the comparison
            masks = masks or ["full"]
            return suite.layer_plans(names, shapes, masks, modes, (), straightforward=False, device=wanted.accelerator)
        return suite.layer_plans(names, shapes, masks or list(MASKS), modes, device=wanted.accelerator)
    if kind == "decode":
        return suite.decode_plans(names, shapes, _numbers("--beams", wanted.beams))
    if masks is not None and "causal" in masks:
        raise ValueError("--masks causal is for layers; encoders see the whole text")
    return suite.model_plans(kind, names, shapes, masks or ["full"])


def _shapes(kind: str, wanted: Wanted) -> list[tuple[int, int]]:
    chosen = []
    if wanted.lengths is not None:
        chosen += [(1, length) for length in _numbers("--lengths", wanted.lengths)]
    if wanted.batches is not None:
        chosen += [(batch, BATCH_LENGTH) for batch in _numbers("--batches", wanted.batches)]
    if wanted.shapes is None:
        return list(dict.fromkeys(chosen)) or list(SHAPES[kind])
    for text in wanted.shapes.split(","):
        batch, times, length = text.strip().partition("x")
        if not times:
            raise ValueError(f"--shapes are written BATCHxLENGTH, such as 16x512, got {text!r}")
        chosen.append((*_numbers("--shapes", batch), *_numbers("--shapes", length)))
    return list(dict.fromkeys(chosen))


def _numbers(option: str, text: str) -> list[int]:
    try:
        numbers = [int(number) for number in text.split(",")]
    except ValueError:
        raise ValueError(f"{option} takes whole numbers, got {text!r}") from None
    if min(numbers) < 1:
        raise ValueError(f"{option} must be at least 1, got {min(numbers)}")
    return numbers


def _chosen(option: str, text: str | None, known: Sequence[str]) -> list[str] | None:
    if text is None:
        return None
    chosen = [name.strip() for name in text.split(",")]
    for name in chosen:
        if name not in known:
            raise ValueError(f"{option} are {', '.join(known)}, got {name!r}{suggestion(name, known)}")
    return chosen


class _Printer:
    """Prints a heading per case and a line per contender."""

    def __init__(self, total: int, quiet: bool) -> None:
        self.total, self.quiet, self.number = total, quiet, 0

    def begins(self, plan: CasePlan) -> None:
        case, first, last = plan.case, self.number + 1, self.number + len(plan.contenders)
        which = f"{first} to {last}" if last > first else f"{first}"
        self.note(f"\n{case.kind}, {case}   ({which} of {self.total}; medians, more than 1x is faster)")

    def found(self, contender: str, found: Measurement | str) -> None:
        self.number += 1
        if isinstance(found, str):
            self.note(f"  {contender:26}{'':>10}  left out: {found}")
            return
        cells = [f"{ratio:6.2f}x {name}" for name, ratio in found.ratios.items()]
        cells += [f"{found.megabytes:6.0f} MB"] if found.megabytes is not None else []
        cells += [f"{name} {number:.0f} MB" for name, number in found.rival_megabytes.items()]
        cells += [f"{found.gemm_share:4.0%} of GEMM"] if found.gemm_share is not None else []
        cells += [f"{found.cache_bytes:.0f} B/token"] if found.cache_bytes is not None else []
        self.note(f"  {contender:26}{found.seconds * 1e3:9.1f}ms  {'  '.join(cells)}")

    def note(self, text: str) -> None:
        if not self.quiet:
            print(printable(text, lines=True), flush=True)
