"""The documentation site: its pages and what they name exist. ``make docs`` builds it, which takes more packages."""

import importlib
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.unchecked

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
MADE = runpy.run_path(str(ROOT / "tools" / "site_pages.py"))
SETTINGS = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


def pages(entry: Any) -> list[str]:
    """All pages of the navigation or of a part of it."""
    if isinstance(entry, str):
        return [entry]
    parts = entry.values() if isinstance(entry, dict) else entry
    return [page for part in parts for page in pages(part)]


def test_every_page_that_is_written_by_hand_is_in_the_navigation():
    shown = pages(SETTINGS["nav"])
    by_hand = [*DOCS.glob("*.md"), *DOCS.glob("api/*.md")]
    assert sorted(shown) == sorted(set(shown))
    assert {path.relative_to(DOCS).as_posix() for path in by_hand} <= set(shown)
    assert {page for page in shown if not (DOCS / page).is_file()} == set(MADE["PAGES"])
    assert all((ROOT / source).is_file() for source in MADE["PAGES"].values())


def test_nothing_is_loaded_from_elsewhere():
    assert SETTINGS["theme"]["font"] is False
    assert not {"extra_javascript", "repo_url"} & set(SETTINGS)
    assert all((DOCS / sheet).is_file() for sheet in SETTINGS["extra_css"])


@pytest.mark.parametrize("page", sorted(DOCS.glob("api/*.md")), ids=lambda page: page.stem)
def test_the_objects_of_the_api_pages_exist_and_are_documented(page):
    names = re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(names) > 0
    for name in names:
        home, _, last = name.rpartition(".")
        found = getattr(importlib.import_module(home), last, None) or importlib.import_module(name)
        assert found.__doc__, name


def test_links_of_the_top_folder_become_links_of_the_site():
    text = "[a](docs/a.md#b) [c](CONTRIBUTING.md) [CITATION.cff](CITATION.cff) ![d](docs/demo/picture.svg)"
    site = "[a](a.md#b) [c](contributing.md) `CITATION.cff` ![d](demo/picture.svg)"
    assert MADE["with_links_of_the_site"](text) == site
    assert MADE["with_links_of_the_site"]("[a layer](examples/a_b.ipynb)") == "a layer (`examples/a_b.ipynb`)"


def test_links_to_folders_of_records_become_text():
    text = "see [records](records/glue/cpu) and [a table](glue/table.md)"
    assert MADE["on_page_markdown"](text, None, None, None) == "see records and [a table](glue/table.md)"
