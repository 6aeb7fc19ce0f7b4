"""Check every kind of conversion of every family of models, and write the table into docs/convert.md.

    python tools/update_conversions.py [--compile] [--only bert,gpt2]
    python tools/update_conversions.py --speed    # only the figures of docs/convert/speed.json

Each cell runs the check of that name in tests/convert/conversion_checks.py. The command ends with an error, and writes
nothing, if a check fails. Compilation takes minutes of processor time, the other checks less than one.
"""

import argparse
import importlib
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "convert.md"
BEGIN, END = "<!-- made by tools/update_conversions.py -->", "<!-- end of what was made -->"
SPEED = ROOT / "docs" / "convert" / "speed.json"
SPEED_BEGIN, SPEED_END = "<!-- made by tools/update_conversions.py --speed -->", "<!-- end of the speeds -->"


def checks_and_families() -> tuple[Any, dict[str, Any]]:
    """Return the module of the checks, and the families of models that it checks."""
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "convert")]
    return importlib.import_module("conversion_checks"), importlib.import_module("model_families").FAMILIES


def cells(only: list[str], compiled: bool) -> dict[tuple[str, str], dict[str, str]]:
    """Return the result of each check, by family and spec."""
    checks, families = checks_and_families()
    every = {label: check for label, check in checks.CHECKS.items() if compiled or label != "compile"}
    found: dict[tuple[str, str], dict[str, str]] = {}
    for name, family in families.items():
        for spec in checks.SPECS if not only or name in only else ():
            start = time.perf_counter()
            found[family.model, spec] = {label: check(name, spec) for label, check in every.items()}
            print(f"{name} {spec}: {time.perf_counter() - start:.0f} s", flush=True)
    return found


def table(found: dict[tuple[str, str], dict[str, str]]) -> list[str]:
    """Return the table as lines of Markdown."""
    heads = ["model", "attention", *next(iter(found.values()))]
    rows = [heads, ["---"] * len(heads)]
    rows += [[f"`{model}`", f"`{spec}`", *results.values()] for (model, spec), results in found.items()]
    return [f"| {' | '.join(row)} |" for row in rows]


def speed_lines(record: dict[str, Any]) -> list[str]:
    """Return the speeds of a converted BERT, a record of benchmarks/converted.py, as lines of Markdown."""
    machine = record["machine"]
    rows = [["attention", "parameters", *(f"{mode}, times as fast" for mode in ("inference", "training"))]]
    rows += [["---", "---:", "---:", "---:"]]
    for name, count in record["parameters"].items():
        figures = ["1" if name == "original" else _speed(record[mode][name]) for mode in ("inference", "training")]
        rows.append([name if name == "original" else f"`{name}`", f"{count:,}", *figures])
    seconds = {mode: record[mode]["original"]["seconds"] for mode in ("inference", "training")}
    about = (
        f"{record['batch']} texts of {record['length']} tokens, {record['rounds']} rounds, {machine['processor']}, "
        f"{machine['threads']} threads. The original takes {seconds['inference']:.2f} s for inference and "
        f"{seconds['training']:.2f} s for a training step; in brackets, the spread of the times."
    )
    return [*(f"| {' | '.join(row)} |" for row in rows), "", about]


def _speed(figures: dict[str, float]) -> str:
    return f"{figures['faster']:.2f} ({figures['spread']:.0%})"


def put(lines: list[str], begin: str, end: str) -> None:
    """Write lines between two markers of the page."""
    before, rest = PAGE.read_text(encoding="utf-8").split(begin)
    PAGE.write_text("\n".join([before + begin, "", *lines, "", end + rest.split(end)[1]]), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Check every kind of conversion.")
    parser.add_argument("--only", default="", help="names of families, separated by commas; the page stays as it is")
    parser.add_argument("--compile", action="store_true", help="also compile every model")
    parser.add_argument("--speed", action="store_true", help="only write the speeds")
    options = parser.parse_args()
    if options.speed:
        put(speed_lines(json.loads(SPEED.read_text(encoding="utf-8"))), SPEED_BEGIN, SPEED_END)
        return
    only = [name for name in options.only.split(",") if name]
    warnings.simplefilter("ignore")
    importlib.import_module("transformers").logging.set_verbosity_error()
    importlib.import_module("transformers").logging.disable_progress_bar()
    lines = table(cells(only, options.compile))
    print(*lines, sep="\n")
    if not only:
        put(lines, BEGIN, END)


if __name__ == "__main__":
    main()
