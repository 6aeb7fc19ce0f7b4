"""Check every kind of conversion of every family of models, and write the table into docs/convert.md.

    python tools/update_conversions.py [--compile] [--only bert,gpt2]

Each cell runs the check of that name in tests/convert/conversion_checks.py. The command ends with an error, and writes
nothing, if a check fails. Compilation takes minutes of processor time, the other checks less than one.
"""

import argparse
import importlib
import sys
import time
import warnings
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "convert.md"
BEGIN, END = "<!-- made by tools/update_conversions.py -->", "<!-- end of what was made -->"


def cells(only: list[str], compiled: bool) -> dict[tuple[str, str], dict[str, str]]:
    """Return the result of each check, by family and spec."""
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "convert")]
    checks: Any = importlib.import_module("conversion_checks")
    families: dict[str, Any] = importlib.import_module("model_families").FAMILIES
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


def put(lines: list[str], begin: str, end: str) -> None:
    """Write lines between two markers of the page."""
    before, rest = PAGE.read_text(encoding="utf-8").split(begin)
    PAGE.write_text("\n".join([before + begin, "", *lines, "", end + rest.split(end)[1]]), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Check every kind of conversion.")
    parser.add_argument("--only", default="", help="names of families, separated by commas; the page stays as it is")
    parser.add_argument("--compile", action="store_true", help="also compile every model")
    options = parser.parse_args()
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
