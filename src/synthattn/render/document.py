"""What all pages have in common: one HTML file that asks for nothing else, with sections and links to them."""

import base64
import hashlib
import html
from collections.abc import Mapping
from importlib import resources
from string import Template

from synthattn.messages import printable


def escape(text: str) -> str:
    """Return text as HTML: no tag, no attribute can begin or end in it, and no control character is in it."""
    return html.escape(printable(text, lines=True))


def document(
    title: str,
    made_by: str,
    heading: str,
    sections: Mapping[str, tuple[str, str]],
    style: str,
    script: str = "",
    data: str = "",
) -> str:
    """The whole file.

    Args:
        title: of the window, as text.
        made_by: the command, as text.
        heading: HTML above the sections.
        sections: by id, a title as text and HTML; those without HTML are left out.
        style: CSS.
        script: JavaScript; without it none may run.
        data: JSON for the script, which cannot end the element that it is in.
    """
    kept = {key: (escape(title), inner) for key, (title, inner) in sections.items() if inner}
    policy, controls, end = "", "", ""
    if script:
        policy = f"; script-src 'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        controls = '<button type="button" id="theme" hidden>Theme</button>'
        end = (
            '<div id="tip" role="tooltip" hidden></div>\n'
            f'<script type="application/json" id="data">{data}</script>\n<script>{script}</script>\n'
        )
    return Template(text_file("synthattn.render", "page.html")).substitute(
        policy=policy,
        made_by=escape(made_by),
        title=escape(title),
        style=style,
        links="".join(f'<a href="#{key}">{title}</a>' for key, (title, _) in kept.items()),
        controls=controls,
        heading=heading,
        sections="\n".join(
            f'<section id="{key}" aria-labelledby="{key}-title">\n'
            f'<h2 id="{key}-title">{title}</h2>\n{inner}\n</section>'
            for key, (title, inner) in kept.items()
        ),
        end=end,
    )


def text_file(package: str, name: str) -> str:
    """A file that lies beside the modules of a package."""
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")
