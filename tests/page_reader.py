"""Reads a page as strictly as no browser does, and in a browser where there is one."""

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"]
BROWSER = next((found for name in NAMES if (found := shutil.which(name))), None)
in_a_browser = pytest.mark.skipif(BROWSER is None, reason="no chromium to be found")

VOID = {"meta", "br", "wbr", "input", "link", "img", "hr"}


class Reader(HTMLParser):
    """What a page consists of; fails where an element is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"{tag} ends at {self.getpos()}"

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    def text(self, tag: str) -> str:
        return "".join(text for inside, text in self.texts if inside == tag)

    def sections(self) -> set[str | None]:
        return {attributes["id"] for tag, attributes in self.tags if tag == "section"}


def assert_alone(text: str, scripts: bool = False) -> None:
    """Check that a page loads nothing, and that its policy forbids it; ``scripts`` allows those, and images, in it."""
    reader = Reader(text)
    absent = {"link", "iframe", "object", "embed", "base"} | (set() if scripts else {"img", "script"})
    assert {tag for tag, _ in reader.tags}.isdisjoint(absent)
    for _, attributes in reader.tags:
        assert "src" not in attributes or (scripts and str(attributes["src"]).startswith("data:image/png;base64,"))
        assert not {"srcset", "xlink:href", "action"} & attributes.keys()
        assert not any(name.startswith("on") for name in attributes)
    assert set(re.findall(r"https?:[^\s\"')]*", text)) == {"http://www.w3.org/2000/svg"}
    assert "@import" not in text
    assert "url(" not in text
    policies = [a["content"] or "" for tag, a in reader.tags if tag == "meta" and a.get("http-equiv")]
    assert len(policies) == 1
    assert policies[0].startswith("default-src 'none'")


def local_links(text: str) -> bool:
    """Return True if all links of a page lead to places in it."""
    return all((attributes.get("href") or "#").startswith("#") for _, attributes in Reader(text).tags)


def shown(file: Path, *flags: str) -> str:
    """Return the elements of a page after a browser has run its script to its end."""
    fixed = ["--headless=new", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000", "--dump-dom"]
    command = [str(BROWSER), *fixed, *flags, f"--user-data-dir={file.parent / 'profile'}", file.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
