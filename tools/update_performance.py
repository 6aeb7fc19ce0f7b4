"""Put what ``synthattn bench`` found into docs/performance.md, and make its pages.

    python tools/update_performance.py [RECORD.json ...]

Without records, from those that are kept in ``docs/performance``, in a folder for each machine; given ones are kept
there first. A test makes it again and compares.
"""

import re
import sys
from pathlib import Path

from synthattn.bench.page import markdown, page
from synthattn.bench.record import Record, load, merged

DOCS = Path(__file__).parents[1] / "docs"
KEPT = DOCS / "performance"
BEGIN, END = "<!-- made by tools/update_performance.py -->", "<!-- end of what was made -->"


def folder_of(record: Record) -> Path:
    """``docs/performance/amd-epyc``, for example."""
    words = re.findall(r"[a-z0-9]+", record.machine.lower().replace("(r)", ""))
    return KEPT / "-".join(words)


def records() -> dict[Path, Record]:
    """What is kept of each machine, by its folder."""
    folders = sorted({path.parent for path in KEPT.glob("*/*.json")})
    return {folder: merged(load(path) for path in sorted(folder.glob("*.json"))) for folder in folders}


def part(found: dict[Path, Record]) -> str:
    """The tables of all machines, each with a heading of its own."""
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
        # Whose folders they were is nobody's business.
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
