"""Put what ``synthattn bench`` found into docs/performance.md, and make its page.

    python examples/update_performance.py [RECORD.json ...]

Without records, from those that are kept in ``docs/performance``; given ones are kept there first. A test makes it
again and compares.
"""

import re
import sys
from pathlib import Path

from synthattn.bench.markdown import markdown
from synthattn.bench.page import page
from synthattn.bench.record import Record, load, merged

DOCS = Path(__file__).parents[1] / "docs"
KEPT = DOCS / "performance"
BEGIN, END = "<!-- made by examples/update_performance.py -->", "<!-- end of what was made -->"


def records() -> Record:
    return merged(load(path) for path in sorted(KEPT.glob("*.json")))


def part(record: Record) -> str:
    """The tables, their headings below the one of the section that they are in."""
    return re.sub(r"^(#+) ", r"#\1 ", markdown(record), flags=re.MULTILINE)


def main() -> None:
    KEPT.mkdir(exist_ok=True)
    for path in map(Path, sys.argv[1:]):
        record = load(path)
        # Whose folders they were is nobody's business.
        record.command = re.sub(r"(?<=\s)/\S*/", "", record.command)
        record.save(KEPT / path.name)
    found = records()
    (KEPT / "report.html").write_text(page(found), encoding="utf-8")
    document = DOCS / "performance.md"
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    text = f"{BEGIN}\n\n{part(found)}\n\n{END}"
    document.write_text(pattern.sub(lambda match: text, document.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
