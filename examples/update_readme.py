"""Put the table, the answer and the picture of a comparison into the README.

    python examples/update_readme.py RUN

What the README says about results is made by this from ``RUN/results.json``, which is kept in ``docs/demo`` without
its pictures of attention; a test makes it again and compares.
"""

import dataclasses
import re
import sys
from pathlib import Path

from synthattn.report import tables
from synthattn.report.picture import picture
from synthattn.report.results import Results, load

ROOT = Path(__file__).parents[1]
DEMO = ROOT / "docs" / "demo"
BEGIN, END = "<!-- demo: made by examples/update_readme.py -->", "<!-- end of demo -->"
LEFT_OUT = ("Cache",)


def part(results: Results) -> str:
    """The table with what matters most, and the answer."""
    shown = [
        column
        for column in tables.columns(results)
        if not column.paper and column.head not in LEFT_OUT and (column.main or column.head not in results.metrics)
    ]
    heads = [column.head.lower() + (f" ({column.unit})" if column.unit == "MB" else "") for column in shown]
    lines = [f"| attention | {' | '.join(heads)} |"]
    lines.append("|---" + "|---:" * len(shown) + "|")
    for n, variant in enumerate(results.variants):
        cells = [column.cells[n] for column in shown]
        lines.append(f"| `{variant.attention}` | " + " | ".join(f"{c.text} {c.mark}".strip() for c in cells) + " |")
    answer = [f"> {paragraph}" for paragraph in results.answer]
    took = f"{results.hardware['cores']} cores, {tables.duration(results.seconds)}"
    return "\n".join([*lines, "", "\n>\n".join(answer), "", f"({took}; {results.facts['training']} of each variant.)"])


def slim(results: Results) -> Results:
    """Without what the README does not show."""
    variants = [
        dataclasses.replace(variant, heads=[], histograms=[], loss_curve=[], validation_curve=[], samples=[])
        for variant in results.variants
    ]
    return dataclasses.replace(results, variants=variants, samples=[])


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("give the folder of a comparison: python examples/update_readme.py RUN")
    results = slim(load(Path(sys.argv[1]) / "results.json"))
    DEMO.mkdir(parents=True, exist_ok=True)
    results.save(DEMO / "results.json")
    (DEMO / "picture.svg").write_text(picture(results))
    readme = ROOT / "README.md"
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    text = f"{BEGIN}\n\n{part(results)}\n\n{END}"
    readme.write_text(pattern.sub(lambda match: text, readme.read_text()))


if __name__ == "__main__":
    main()
