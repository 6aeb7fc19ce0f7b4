"""Documents and tables as Markdown."""

import re
from collections.abc import Callable, Iterable, Sequence

from synthattn.messages import printable
from synthattn.render import document as blocks
from synthattn.render.numbers import NOTHING
from synthattn.render.table import Cell, Row, Span, Table, Text

WRAPPED = {"strong": "**{}**", "code": "`{}`", "flag": "**({})**", "badge": "**{}**."}


def safe(text: str) -> str:
    """Return text as one line of Markdown that ends no cell of a table and begins no tag or entity."""
    text = re.sub("&(?=#?[a-zA-Z0-9]+;)", "&amp;", printable(text, lines=True))
    text = re.sub("<(?=[a-zA-Z/!?])", "&lt;", text)
    # A backslash before a bar would take back the one that escapes the bar.
    return " ".join(re.sub(r"(\\*)\|", r"\1\1\|", text).split())


def inline(text: Text) -> str:
    """Return text with its links and emphasis."""
    return safe(text) if isinstance(text, str) else "".join(map(_part, text)).strip()


def _part(part: str | Span) -> str:
    if isinstance(part, str):
        # Blanks at the ends divide it from its neighbours.
        return " " * part.startswith(" ") + safe(part) + " " * (part.endswith(" ") and bool(part.strip()))
    text = WRAPPED.get(part.kind, "{}").format(safe(part.text))
    return f"[{text}]({part.link})" if part.link and not part.link.startswith("#") else text


def grid(heads: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1) -> list[str]:
    """Return the lines of a table; the first columns hold words, the others numbers."""
    rule = ["---"] * words + ["---:"] * (len(heads) - words)
    return [f"| {' | '.join(cells)} |" for cells in (heads, rule, *rows)]


def table(found: Table) -> list[str]:
    """Return a table with its footnotes below."""

    def noted(note: str) -> str:
        return f"<sup>{found.number(note)}</sup>" if note else ""

    heads = [safe(found.first)]
    for column in found.columns:
        title = f"{column.group}, {column.title}" if column.group else column.title
        heads.append(safe(title) + noted(column.note))
    rows = [
        [_name(row), *(_cell(each.cells[n], each.kind) + noted(each.cells[n].note) for each in found.columns)]
        for n, row in enumerate(found.rows)
    ]
    words = 1
    while words <= len(found.columns) and found.columns[words - 1].words:
        words += 1
    below = ["", *(f"{n}. {safe(note)}" for n, note in enumerate(found.notes, 1))] if found.notes else []
    return [*grid(heads, rows, words), *below]


def joined_table(found: Table) -> list[str]:
    """Return a table whose groups are one column each, with lines above it that explain them."""
    explained: dict[str, list[str]] = {}
    for group, members in found.groups:
        if len(members) > 1:
            explained.setdefault(" / ".join(column.head for column in members), []).append(group)
    lines = [f"{safe(', '.join(names))}: {safe(heads)}." for heads, names in explained.items()]
    return [*(["  \n".join(lines), ""] if lines else []), *table(found.joined())]


def _name(row: Row) -> str:
    remark = f" ({row.remark})" if row.remark else ""
    below = f"<br>`{safe(row.below)}`" if row.below else ""
    trouble = f"<br>{safe(row.trouble)}" if row.trouble else ""
    return f"{inline(row.name)}{remark}{below}{trouble}"


def _cell(cell: Cell, kind: str) -> str:
    text = inline(cell.text)
    if kind == "paper" and text:
        return f"*{text} ({safe(cell.detail)})*" if cell.detail else f"*{text}*"
    found = " ".join(filter(None, (text, safe(cell.detail), cell.mark and f"**{safe(cell.mark)}**")))
    said = safe(cell.trouble)
    return (f"{found} ({said})" if found and said else found or said) or NOTHING


Tables = Callable[[Table], list[str]]


def markdown(document: blocks.Document, tables: Tables = table, title: str = "") -> str:
    """Return a whole file; ``tables`` decides how groups of columns are shown."""
    parts = [[f"# {safe(title or document.title)}"], *_all(document.lead, tables)]
    for section in document.sections:
        inner = _all(section.blocks, tables)
        parts += [[f"## {safe(section.title)}"], *inner] if inner else []
    return "\n\n".join("\n".join(lines) for lines in parts) + "\n"


def _all(found: Iterable[blocks.Block], tables: Tables) -> list[list[str]]:
    return [lines for block in found if (lines := lines_of(block, tables))]


def lines_of(block: blocks.Block, tables: Tables = table) -> list[str]:
    """Return the lines of one block; charts, images and what is for pages alone have none."""

    def inside(found: Iterable[blocks.Block]) -> str:
        return "\n\n".join("\n".join(lines) for lines in _all(found, tables))

    match block:
        case Table():
            return tables(block) if block.rows else []
        case blocks.Paragraph():
            return [inline(block.text)]
        case blocks.Heading():
            return [f"### {safe(block.text)}"]
        case blocks.Listing():
            title = [f"**{safe(block.title)}**", ""] if block.title else []
            return [*title, *(f"- {inline(item)}" for item in block.items)]
        case blocks.Facts():
            return [f"- {safe(name)}: {safe(value)}" for facts in block.lists.values() for name, value in facts.items()]
        case blocks.Command():
            return ["```", printable(block.text, lines=True), "```"]
        case blocks.JudgedClaims():
            heads = ["Here", "The paper's claim", "Its own numbers", "Why"]
            return grid(heads, map(_claim, block.items), len(heads))
        case blocks.Folded(summary=summary) | blocks.Box(label=summary):
            inner = inside(block.blocks)
            return [f"<details><summary>{safe(summary)}</summary>", "", inner, "", "</details>"] if inner else []
        case blocks.MarkdownOnly():
            return inside(block.blocks).split("\n") if block.blocks else []
    return []


def _claim(found: blocks.JudgedClaim) -> list[str]:
    word = f"**{found.word}**" + (f" ({found.below})" if found.below else "")
    claim = safe(f"{found.claim} ({found.where})")
    return [word, claim, inline(found.theirs) or NOTHING, inline(found.reason) or NOTHING]
