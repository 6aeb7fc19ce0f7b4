"""Hooks of mkdocs: pages of the site that are made from files beside docs/, and links that only folders have."""

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGES = {"index.md": "README.md", "contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
"""Page of the site, and the file that it is made from."""


def on_files(files: Any, config: Any) -> Any:
    """Add the pages to those in docs/."""
    # Not imported, because types are checked where mkdocs is not installed.
    file_class = type(files.get_file_from_path("compare.md"))
    for page, source in PAGES.items():
        content = with_links_of_the_site((ROOT / source).read_text(encoding="utf-8"))
        files.append(file_class.generated(config, page, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Keep only the text of links to folders of records, which a site cannot show."""
    return re.sub(r"\[([^\]]+)\]\((records[\w/-]*)\)", r"\1", markdown)


def with_links_of_the_site(text: str) -> str:
    """Rewrite links of a file in the top folder as links of a page of the site."""
    text = text.replace("](docs/", "](").replace("[CITATION.cff](CITATION.cff)", "`CITATION.cff`")
    text = re.sub(r"\[([^\]]+)\]\((examples/[\w.]+)\)", r"\1 (`\2`)", text)  # notebooks are not pages of the site
    for page, source in PAGES.items():
        text = text.replace(f"]({source})", f"]({page})")
    return text
