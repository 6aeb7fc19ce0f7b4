"""Prose out of docstrings: paragraphs in plain words, without code, tables, formulas and markup."""

import inspect
import re
from collections.abc import Iterator

_BULLET = re.compile(r"^(?:[*+•-]|\(?\d{1,2}[.)]|#\.)\s+")
_UNDERLINE = re.compile(r"^([=\-~^*#+`\"'.])\1{2,}$")
# The block below such a line is a table of names, or code.
_DROPPED = re.compile(
    r"^(args?|arguments?|keyword arg(ument)?s?|kwargs|param(eter)?s?|other parameters|attributes|shapes?|examples?"
    r"|inputs?|outputs?|usage|variables|members|fields|see also|references?)\s*(\(.*\))?\s*:{1,2}$",
    re.IGNORECASE,
)
_DIRECTIVE = re.compile(r"^\.\. +([\w-]+)::\s*(.*)$")
_SPOKEN_DIRECTIVES = {"note", "warning", "tip", "important", "caution", "attention", "hint", "seealso"}
_LEAD = re.compile(
    r"^(notes?|warnings?|returns?|raises|yields|tip|important|caution|todo|implementation details?)\s*:+\s*",
    re.IGNORECASE,
)
# "name (type): ...", ":param x:", "@param x", "name: ..." with a small letter.
_FIELD = re.compile(r"^(:\w|@\w|[*\w.,\[\]' -]{1,60}\([^)]*\)\s*(:|--|-\s)|[a-z_*][\w.*]*\s*(:|--)\s|[\w.]+\s{2,}\S)")
_ROLE_WITH_TARGET = re.compile(r"(?::[\w:+.-]+:)?`([^`<]+?)\s*<[^`>]+>`_{0,2}")
_ROLE = re.compile(r":[\w:+.-]+:`~[^`]*?([^`.]+)`|:(?!math)[\w:+.-]+:`!?([^`]*)`")
_EMPHASIS = re.compile(r"(?<![\w*])(\*{1,2})([A-Za-z][^*]*?)\1(?![\w*])")
_UNSPOKEN = re.compile(r"[{}|<>=\\`$@#^~\[\]]|::|:\w+:|>>>|\.\.\.|https?:|__|\s\*|\bXXX\b|[\"]{2}|\d{4}-\d\d")
_WORD = re.compile(r"^[A-Za-z]+(?:['/-][A-Za-z]+)*$")


def paragraphs(docstring: str) -> Iterator[str]:
    """The paragraphs of a docstring that are prose, in one line each."""
    dropped_below: int | None = None
    for block in re.split(r"\n[ \t]*\n", inspect.cleandoc(docstring)):
        lines = [line.expandtabs().rstrip() for line in block.splitlines() if line.strip()]
        if not lines:
            continue
        if dropped_below is not None:
            if _indent(lines[0]) > dropped_below:
                continue
            dropped_below = None
        for item in _items(lines):
            first = item[0].strip()
            directive = _DIRECTIVE.match(first)
            if _DROPPED.match(first) or (directive and directive[1].lower() not in _SPOKEN_DIRECTIVES):
                dropped_below = _indent(item[0])
                break
            if directive:
                item = [directive[2], *item[1:]]
            elif first.startswith(".."):
                break
            text = _plain(" ".join(line.strip() for line in item))
            if text is not None:
                yield text
            if item[-1].endswith("::"):
                dropped_below = _indent(lines[0])


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _items(lines: list[str]) -> Iterator[list[str]]:
    """A block, parted at bullets, at headings, and where a table of names begins."""
    item: list[str] = []
    for i, line in enumerate(lines):
        text = line.strip()
        if _UNDERLINE.match(text):
            # The line above was a heading.
            item = []
            continue
        bullet = _BULLET.match(text)
        if bullet or _DROPPED.match(text) or (i > 0 and _LEAD.match(text)):
            if item:
                yield item
            item = []
        if bullet:
            line = line[: _indent(line)] + text[bullet.end() :]
        item.append(line)
    if item:
        yield item


def _plain(text: str) -> str | None:
    """The text without markup, or None if it is not prose."""
    text = _LEAD.sub("", text)
    if not text or ">>>" in text or ":math:" in text or _FIELD.match(text):
        return None
    text = _ROLE_WITH_TARGET.sub(r"\1", text)
    text = _ROLE.sub(lambda match: match[1] or match[2], text)
    text = re.sub(r"`{1,2}([^`]+)`{1,2}_{0,2}", r"\1", text)
    text = _EMPHASIS.sub(r"\2", text)
    text = re.sub(r"\s+", " ", text).strip()
    return text if _is_prose(text) else None


def _is_prose(text: str) -> bool:
    if (
        not re.search(r"[.!?]['\")]?$", text)
        or not text[0].isalnum()
        or _UNSPOKEN.search(text)
        or not text.isprintable()
    ):
        return False
    words = text.split()
    spoken = sum(_WORD.match(word.strip(".,;:!?()\"'")) is not None for word in words)
    return len(words) >= 8 and spoken >= 0.85 * len(words)
