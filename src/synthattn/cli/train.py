"""The verb ``synthattn train``."""

import os
import shlex
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from synthattn.cli import scores
from synthattn.cli.choose import say
from synthattn.cli.command import command
from synthattn.compare.choose import with_chosen_start
from synthattn.terminal import SafeConsole
from synthattn.training.gather import gather, new_folder
from synthattn.training.memory import keep_memory
from synthattn.training.progress import Display, display
from synthattn.training.record import MODEL, SETTINGS, saved_settings
from synthattn.training.run import Stopped, train


def run(
    config: Path | None,
    options: Mapping[str, Any],
    overrides: list[str],
    output: Path | None,
    resume: Path | None,
    quiet: bool,
) -> int:
    if resume is not None:
        given = [name for name, value in options.items() if value is not None]
        if config is not None or given or overrides or output is not None:
            raise ValueError(f"--resume takes all settings from {resume}; leave the other options out")
        settings, folder = saved_settings(resume), resume
    else:
        settings, said = with_chosen_start(gather(config, options, overrides))
        say(said, quiet)
        folder = output or _agreed(settings.data.task)
    keep_memory()
    main = int(os.environ.get("RANK", "0")) == 0
    shown = display(folder.name, quiet) if main else Display()
    # Outside training there is nothing to save, so a scheduler's signal acts like Ctrl-C.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        found = train(settings, folder, shown, command(), resume=resume is not None)
    except (Stopped, KeyboardInterrupt) as stopped:
        if main and (folder / SETTINGS).is_file():
            said = str(stopped) or "stopped"
            again = f"synthattn train --resume {shlex.quote(str(folder))}"
            SafeConsole(stderr=True).print(f"{said}. Go on with: {again}", soft_wrap=True)
        return 130
    finally:
        signal.signal(signal.SIGTERM, before)
    if main and not quiet:
        kept = f"The model, weights {found.weights}, is in {folder / MODEL}."
        scores.show(str(folder), found.scores, found.evaluation, kept)
    return 0


def _agreed(task: str) -> Path:
    """Return the default folder; several processes would each choose another one."""
    if "RANK" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError("with several processes, say where the run goes: --output FOLDER")
    return new_folder("train", task)
