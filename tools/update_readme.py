"""Write table, answer and picture of a comparison into the README or into another folder of docs.

    python tools/update_readme.py RUN
    python tools/update_readme.py RUN docs/multi30k

The results in the README come from ``RUN/results.json``, which is copied to ``docs/demo`` without its pictures of
attention. A test repeats this and compares the results, for other folders too. The answer is computed again from the
figures, so RUN may be ``docs/demo`` itself when the wording has changed.
"""

import dataclasses
import re
import sys
from pathlib import Path

from synthattn.compare.page import markdown, picture
from synthattn.compare.results import Results, load
from synthattn.compare.table import tables
from synthattn.compare.verdict import LEAD, answer
from synthattn.paper.published import published
from synthattn.render.markdown import grid
from synthattn.render.numbers import duration
from synthattn.render.table import plain

ROOT = Path(__file__).parents[1]
DEMO = ROOT / "docs" / "demo"
BEGIN, END = "<!-- demo: made by tools/update_readme.py -->", "<!-- end of demo -->"


def part(results: Results) -> str:
    """Return the table with the main columns, and the answer without the groups of variants, which the table shows."""
    shown, _ = tables(results)
    heads = [column.head.lower() + (f" ({column.unit})" if column.unit == "MB" else "") for column in shown.columns]
    rows = [
        [f"`{variant.attention}`", *(f"{plain(c.cells[n].text)} {c.cells[n].mark}".strip() for c in shown.columns)]
        for n, variant in enumerate(results.models)
    ]
    lines = grid(["attention", *heads], rows)
    said = [f"> {paragraph}" for paragraph in results.answer[:LEAD]]
    took = f"{results.hardware['cores']} cores, {duration(results.seconds)}"
    return "\n".join([*lines, "", "\n>\n".join(said), "", f"({took}; {results.facts['training']} of each variant.)"])


def slim(results: Results) -> Results:
    """Return results without the fields that the README does not show."""
    variants = [
        dataclasses.replace(variant, heads=[], histograms=[], loss_curve=[], validation_curve=[], samples=[])
        for variant in results.models
    ]
    # Records from before may have the paper's numbers beside other data.
    return dataclasses.replace(results, rows=variants, samples=[], published=published(results.task, results.data))


def without_folders(text: str, source: str) -> str:
    """Remove paths of the machine from a text; data is called by its name."""
    place = Path(source)
    return re.sub(r" --output [^ \"]+", "", text.replace(source, place.name) if place.is_absolute() else text)


def page(results: Results) -> str:
    """Return the page of a comparison: the command, the answer and the table."""
    said = "\n".join(f"> {paragraph}\n>" for paragraph in results.answer).removesuffix("\n>")
    took = f"{results.hardware['cores']} cores, {duration(results.seconds)}"
    title = f"# {results.task}: {Path(results.data).name}, {results.facts['training']}"
    return f"{title}\n\n```\n{results.command}\n```\n\n{said}\n\n{markdown(results)}\n({took}.)\n"


def main() -> None:
    if len(sys.argv) not in (2, 3):
        sys.exit("give the folder of a comparison: python tools/update_readme.py RUN [FOLDER]")
    results = slim(load(Path(sys.argv[1]) / "results.json"))
    results.answer = answer(results)
    folder = Path(sys.argv[2]) if len(sys.argv) > 2 else DEMO
    folder.mkdir(parents=True, exist_ok=True)
    results.save(folder / "results.json")
    kept = without_folders((folder / "results.json").read_text(), results.data)
    (folder / "results.json").write_text(kept)
    results = load(folder / "results.json")
    (folder / "picture.svg").write_text(picture(results))
    if folder != DEMO:
        (folder / "README.md").write_text(page(results))
        return
    readme = ROOT / "README.md"
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    text = f"{BEGIN}\n\n{part(results)}\n\n{END}"
    readme.write_text(pattern.sub(lambda match: text, readme.read_text()))


if __name__ == "__main__":
    main()
