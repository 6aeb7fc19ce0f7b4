"""The verb ``synthattn reproduce``."""

import os
import shlex
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from synthattn.cli.command import split
from synthattn.compare.execution import processes
from synthattn.compare.executors import Executor, find_executor
from synthattn.compare.plan import PlannedRun, Study
from synthattn.compare.schedule import unfinished
from synthattn.messages import suggestion
from synthattn.paper import cost, publish, table1
from synthattn.paper.publish import COMPUTED
from synthattn.paper.recipes import LONG, SCALES, SMALL_DATA, TABLES, Scale, recipe
from synthattn.paper.runs import Folders, plan_source
from synthattn.paper.terminal import show, show_table1
from synthattn.terminal import SafeConsole
from synthattn.training.memory import keep_memory
from synthattn.training.progress import Display, displays
from synthattn.training.run import Stopped

ALL = "all"
MAIN = int(os.environ.get("RANK", "0")) == 0
"""Whether this process writes: of several that torchrun has started, the first."""


def run(
    table: str,
    scale: str,
    data: Path | None,
    rows: str | None,
    seeds: int | None,
    output: Path,
    work: Path,
    resume: bool,
    only_show: bool,
    estimate: bool,
    quiet: bool,
    check: bool = False,
    jobs: int | None = None,
    executor: str = "local",
    address: str | None = None,
    gpus: float | None = None,
) -> int:
    if check:
        return _check(output)
    if jobs is not None and jobs < 1:
        raise ValueError(f"--jobs must be at least 1, got {jobs}")
    made_by = find_executor(executor, address, gpus)
    if processes() > 1 and (executor != "local" or jobs is not None):
        raise ValueError("processes of torchrun make every run together; leave --jobs and --executor out")
    if executor == "local":
        jobs = jobs or 1
    if table != ALL and table not in (*TABLES, *COMPUTED):
        raise ValueError(f"there is no table {table!r}{suggestion(table, [*TABLES, *COMPUTED, ALL])}")
    if scale not in SCALES:
        raise ValueError(f"there is no scale {scale!r}, only {', '.join(SCALES)}{suggestion(scale, SCALES)}")
    if seeds is not None and seeds < 1:
        raise ValueError(f"--seeds must be at least 1, got {seeds}")
    console = SafeConsole()
    names = [*TABLES, *COMPUTED] if table == ALL else [table]
    trained = [name for name in names if name in TABLES]
    if scale == "long":
        trained = [name for name in trained if name in LONG]
        if not trained:
            raise ValueError(f"there is no scale long of {table}, only of {', '.join(LONG)}")
    if estimate:
        for name in trained:
            cost.show(recipe(name, _scale(scale), data), console)
        return 0
    if not only_show:
        _check_data(scale, data, trained)
        wanted = {name: _rows(recipe(name, _scale(scale), data), rows, table == ALL) for name in trained}
        if rows and not any(wanted.values()):
            raise ValueError(f"no table has a row {rows}")
        keep_memory()
        folders = Folders(output, work, data)
        chosen = [recipe(name, _scale(scale), data) for name in trained if wanted[name] or not rows]
        code = _run(table, chosen, folders, wanted, seeds, resume, quiet, made_by, jobs)
        if code:
            if MAIN:
                publish.publish(output, trained)
            return code
    if not MAIN:
        return 0
    # Figures of attention weights are of the runs of all tables.
    made = publish.publish(output, list(dict.fromkeys([*names, "analysis"] if trained else names)))
    found = [one for one in made if one.table in names]
    if only_show and not found and "table1" not in names:
        raise ValueError(f"there are no records of {table} in {output}; leave --show out to make some")
    if not quiet:
        if "table1" in names:
            show_table1(table1.synthesized(), console)
        for one in found:
            show(one, console)
        console.print(f"\nPages: {output}", soft_wrap=True)
    return 0


def _check(output: Path) -> int:
    """Print what is different from what the records say; the exit code is 1 if anything is."""
    found = publish.check(output)
    console = SafeConsole()
    for line in found:
        console.print(line, soft_wrap=True, markup=False)
    files = f"{len(found)} file{'s' if len(found) > 1 else ''} of {output}"
    console.print(f"{files} differ from the records" if found else f"every number in {output} follows from the records")
    return 1 if found else 0


def _scale(text: str) -> Scale:
    return next(scale for scale in SCALES if scale == text)


def _check_data(scale: str, data: Path | None, tables: Sequence[str]) -> None:
    """Before hours of training, not after."""
    if scale not in SMALL_DATA or not tables:
        return
    if data is None:
        raise ValueError(
            f"--scale {scale} needs --data: a folder with a folder for each data set, such as multi30k, news_lm"
        )
    if not data.is_dir():
        raise ValueError(f"there is no folder {data}")
    for table in tables:
        for part in recipe(table, _scale(scale), data).parts:
            for place in map(Path, part.settings.data.source.split(" + ")):
                if not place.is_dir():
                    raise ValueError(f"{table} needs the data set {place.name}, there is no folder {place}")


def _run(
    table: str,
    chosen: Sequence[Study],
    folders: Folders,
    rows: Mapping[str, list[str]],
    seeds: int | None,
    resume: bool,
    quiet: bool,
    executor: Executor,
    jobs: int | None,
) -> int:
    shown, close = displays(quiet or not MAIN)
    source = plan_source(chosen, folders, rows, seeds)
    tasks = source.tasks(shown)
    for study in chosen:
        every = [task for task in tasks if task[1].study.name == study.name]
        new = unfinished(every)
        begun = any(folders.run(run).exists() for _, run in new)
        # Of several processes the first may have begun already when another looks.
        if MAIN and new and not resume and (begun or len(new) < len(every)):
            raise ValueError(
                f"{len(every) - len(new)} of {len(every)} runs of {study.name} are in {folders.results} already; "
                "go on with --resume, or name another --output and --work"
            )

    def announce(number: int, total: int, run: PlannedRun) -> None:
        if MAIN and not quiet:
            text = f"{run.study.name} {run.study.scale}: run {number} of {total}, {run.part.name} {run.name}"
            SafeConsole(stderr=True).print(text, soft_wrap=True)

    # Outside of training there is nothing to save, and a scheduler's signal is as good as Ctrl-C.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        threads = torch.get_num_threads() if jobs == 1 else executor.usual_threads(jobs or len(tasks))
        jobs = jobs or executor.usual_jobs(None, threads)
        executor.execute(tasks, source, jobs, threads, announce, lambda: None)
        executor.measure(tasks, source, threads, Display())
    except (Stopped, KeyboardInterrupt):
        close()
        words = ["synthattn", "reproduce", table, "--scale", chosen[0].scale, "--resume"]
        text = f"stopped; all that was done is kept. Go on with: {shlex.join(words)} and the other options as before"
        SafeConsole(stderr=True).print(text, soft_wrap=True)
        return 130
    finally:
        signal.signal(signal.SIGTERM, before)
        close()
    return 0


def _rows(chosen: Study, text: str | None, some: bool) -> list[str]:
    """Keys of rows, from keys, names or attention; ``some``: what a table does not have, another has."""
    if text is None:
        return []
    known = {row.key: row for part in chosen.parts for row in part.rows}
    # Some names have a comma in them.
    whole = [key for key, row in known.items() if text in (key, row.name)]
    found = []
    for name in [] if whole else split(text):
        keys = [key for key, row in known.items() if name in (key, row.name)]
        keys = keys or [key for key, row in known.items() if name == row.attention]
        if not keys and not some:
            raise ValueError(f"{chosen.name} has no row {name!r}{suggestion(name, known)}")
        found += keys
    return whole or found
