"""Console for all output, on which text from outside cannot control the terminal."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from synthattn.messages import printable


class SafeConsole(Console):
    """A console without mark-up that shows control characters as visible escapes.

    Colours are passed as styles, never inside texts, so square brackets in a path or a label are printed as they are.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, highlight=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        # Escape before widths are measured, so that a column has room for the escapes.
        return super().render_str(printable(text, lines=True), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            safe = segment.control or segment.text.isprintable()
            yield segment if safe else Segment(printable(segment.text, lines=True), segment.style)
