"""Documents as pages: one HTML file that asks for nothing else and can be read without a script."""

import base64
import functools
import hashlib
import re
from typing import TYPE_CHECKING

from synthattn.messages import printable
from synthattn.render.charts import COLOURS, SHAPES
from synthattn.render.document import Document
from synthattn.render.numbers import NOTHING, TIMES

if TYPE_CHECKING:
    from jinja2 import Environment


def page(document: Document) -> str:
    """Return the whole file."""
    environment = _environment()
    script = _source(environment, "page.js") if document.scripted else ""
    policy = "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'unsafe-inline'; img-src data:"
    if script:
        policy += f"; script-src 'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
    sections = [section for section in document.sections if section.blocks]
    return environment.get_template("page.html").render(
        document=document,
        sections=sections,
        policy=policy,
        script=script,
        style=_source(environment, "page.css"),
    )


@functools.cache
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    made = Environment(
        loader=PackageLoader("synthattn.render"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        # No control character of a text from outside gets into a page.
        finalize=lambda value: value if isinstance(value, Markup) else printable(str(value), lines=True),
    )
    made.filters |= {"kind": lambda block: type(block).__name__, "head": _head}
    made.tests |= {"text": lambda value: isinstance(value, str)}
    made.globals |= {"colours": COLOURS, "shapes": SHAPES, "nothing": NOTHING, "drawn": _drawn}
    return made


def _source(environment: "Environment", name: str) -> str:
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]


def _drawn(chart: object) -> object:
    """Return the SVG of a chart, whose texts have been escaped where it was made."""
    from markupsafe import Markup

    return Markup(chart.svg())  # pyright: ignore[reportAttributeAccessIssue]


def _head(text: str) -> object:
    """Return a head that may be broken before capitals, but not after a sign."""
    from markupsafe import Markup, escape

    found = str(escape(printable(text, lines=True))).replace(f"{TIMES} ", f"{TIMES}&nbsp;")
    return Markup(re.sub("(?<=[a-z.])(?=[A-Z])", "<wbr>", found))
