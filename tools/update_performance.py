"""Write the results of ``synthattn bench`` into docs/performance.md and its pages.

    python tools/update_performance.py [RECORD.json ...]

Given records are first copied to ``docs/performance``, which has a folder per machine. All records there are used. A
test repeats this and compares the results.
"""

import re
import sys
from pathlib import Path

from synthattn.bench.markdown import markdown
from synthattn.bench.page import page
from synthattn.bench.record import Record, load, merged

DOCS = Path(__file__).parents[1] / "docs"
KEPT = DOCS / "performance"
BEGIN, END = "<!-- made by tools/update_performance.py -->", "<!-- end of what was made -->"


def folder_of(record: Record) -> Path:
    """Return the folder of a machine, such as ``docs/performance/amd-epyc``."""
    words = re.findall(r"[a-z0-9]+", record.machine.lower().replace("(r)", ""))
    return KEPT / "-".join(words)


def records() -> dict[Path, Record]:
    """Return the records of each machine by its folder."""
    folders = sorted({path.parent for path in KEPT.glob("*/*.json")})
    return {folder: merged(load(path) for path in sorted(folder.glob("*.json"))) for folder in folders}


def part(found: dict[Path, Record]) -> str:
    """Return the tables of all machines, each with a heading."""
    return "\n\n".join(_section(folder, record) for folder, record in found.items())


def _section(folder: Path, record: Record) -> str:
    title, rest = markdown(record).split("\n", 1)
    assert title.startswith("# ")
    below = re.sub(r"^(#+) ", r"#\1 ", rest, flags=re.MULTILINE).strip()
    link = (folder / "report.html").relative_to(DOCS)
    return f"## {record.machine}\n\nThe same with plots: [{link}]({link}).\n\n{below}"


def main() -> None:
    for path in map(Path, sys.argv[1:]):
        record = load(path)
        # Remove the names of folders.
        record.command = re.sub(r"(?<=\s)/\S*/", "", record.command)
        folder_of(record).mkdir(parents=True, exist_ok=True)
        record.save(folder_of(record) / path.name)
    found = records()
    for folder, record in found.items():
        (folder / "report.html").write_text(page(record), encoding="utf-8")
    document = DOCS / "performance.md"
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    text = f"{BEGIN}\n\n{part(found)}\n\n{END}"
    document.write_text(pattern.sub(lambda match: text, document.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
