"""The verb ``synthattn convert``."""

import math
import platform
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from synthattn import __version__
from synthattn.cli.command import command
from synthattn.cli.probe import labelled, load, read_lines
from synthattn.convert.conversion import LEAST, Conversion, convert
from synthattn.convert.probe import kind_of
from synthattn.convert.saved_work import SETTINGS, clear
from synthattn.convert.tuning import Tuning
from synthattn.messages import printable_json
from synthattn.render import terminal
from synthattn.render.table import Cell, Column, Row, Table, number_cell
from synthattn.saved_file import write_text
from synthattn.terminal import SafeConsole
from synthattn.training.progress import Display, display

RECORD = "conversion.json"
"""The file in the folder of a converted model that holds its evaluation."""

NAMES = {
    "original": "original",
    "converted": "converted",
    "first layers": "control: the first layers",
    "random layers": "control: layers at random",
}


@dataclass(frozen=True)
class ConvertOptions:
    """Options of the verb but those of the tuning."""

    attention: str
    layers: str
    budget_kl: float
    max_length: int | None
    limit: int
    batch: int


def run(
    folder: str,
    data: Path,
    wanted: ConvertOptions,
    tuning: dict[str, Any],
    output: Path | None,
    resume: bool,
    quiet: bool,
    as_json: bool,
) -> int:
    if wanted.limit < LEAST:
        raise ValueError(f"--limit must be at least {LEAST}, got {wanted.limit}")
    if not (math.isfinite(wanted.budget_kl) and wanted.budget_kl > 0):
        raise ValueError(f"--budget-kl must be a number above 0, in nats for each prediction; got {wanted.budget_kl}")
    settings = Tuning(**tuning)
    place = output or Path(f"{Path(folder).name}-converted")
    unfinished = place.with_name(f"{place.name}-unfinished")
    _check_place(place, unfinished, resume)
    lines = read_lines(data, wanted.limit, LEAST)
    shown = display("convert", quiet)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        model, tokenizer = load(folder)
        texts, labels = labelled(lines, model, data) if kind_of(model) == "class" else (lines, None)
        found = convert(
            model,
            tokenizer,
            texts,
            labels,
            attention=wanted.attention,  # pyright: ignore[reportArgumentType]  (checked there)
            layers=wanted.layers,
            budget_kl=wanted.budget_kl,
            max_length=wanted.max_length,
            batch=wanted.batch,
            tuning=settings,
            folder=unfinished,
            show=_Progress(shown),
            note=shown.note,
        )
        record = {"command": command(), "versions": _versions(), **found.record()}
        _write(place, unfinished, record, found.model, tokenizer)
    except KeyboardInterrupt:
        kept = f"{unfinished} is kept, --resume goes on" if (unfinished / SETTINGS).exists() else "nothing is kept"
        SafeConsole(stderr=True).print(f"stopped; {place} was not written; {kept}", soft_wrap=True)
        return 130
    finally:
        shown.close()
        signal.signal(signal.SIGTERM, before)
    if as_json:
        print(printable_json(record, 2))
        return 0
    console = SafeConsole()
    terminal.show(console, [table(found)])
    console.print(found.sentence())
    console.print(f"The model is in {place}: synthattn.from_pretrained({str(place)!r}).", soft_wrap=True)
    return 0


class _Progress:
    """Show the steps of each model that is tuned."""

    def __init__(self, shown: Display) -> None:
        self.shown, self.last = shown, ""

    def __call__(self, name: str, step: int, steps: int, loss: float) -> None:
        if step == 1:
            self.shown.note(f"tuning: {NAMES[name]}")
        self.shown.step(step, steps, {"loss": f"{loss:.4f}"})


def _check_place(place: Path, unfinished: Path, resume: bool) -> None:
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise ValueError(f"{place} exists; choose another --output")
    parent = place.absolute().parent
    if not parent.is_dir():
        raise ValueError(f"{parent} is not a folder; make it, or choose another --output")
    stopped = (unfinished / SETTINGS).exists()
    if resume and not stopped:
        raise ValueError(f"--resume goes on with what a stopped command has kept; there is no {unfinished / SETTINGS}")
    if stopped and not resume:
        raise ValueError(f"{unfinished} is of a command that was stopped; go on by --resume, or remove it")


def _write(place: Path, unfinished: Path, record: dict[str, Any], *parts: Any) -> None:
    """Write a folder that takes its name when all is written, and remove what was kept."""
    beside = unfinished / "model"
    shutil.rmtree(beside, ignore_errors=True)
    for part in parts:
        part.save_pretrained(beside)
    write_text(beside / RECORD, printable_json(record, 2) + "\n")
    beside.replace(place)
    clear(unfinished)


def _versions() -> dict[str, str]:
    import torch
    import transformers

    found = {"synthattn": __version__, "torch": torch.__version__, "transformers": transformers.__version__}
    return {**found, "python": platform.python_version()}


def table(found: Conversion) -> Table:
    """Return the outcomes as a table."""
    rows, every = [], found.outcomes
    for one in every:
        tuned = f", {found.tuning.steps:,} steps" if one.tuned else ""
        rows.append(Row(f"{NAMES[one.name]}{tuned}"))
    columns = [
        Column("layers", [Cell(", ".join(map(str, one.effect.layers)) or "none") for one in every]),
        Column("KL", [number_cell(one.effect.kl, lambda v: f"{v:.4f}") for one in every], direction="lower"),
        Column("agreement", [number_cell(one.effect.agreement, lambda v: f"{v:.1%}") for one in every]),
        Column("accuracy", [number_cell(one.effect.accuracy, lambda v: f"{v:.1%}") for one in every]),
        Column("parameters", [number_cell(one.parameters, lambda v: f"{v:,}") for one in every]),
    ]
    title = f"{found.predictions:,} predictions on {found.texts[2]:,} texts that were held out"
    return Table(title, "model", rows, columns).filled()
