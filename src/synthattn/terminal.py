"""The consoles that everything is printed through: text from outside cannot control the terminal."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from synthattn.messages import printable


class SafeConsole(Console):
    """A console without mark-up, on which characters that would control the terminal are visible escapes.

    Colours are given as styles, never inside of texts: square brackets in a path or a label stay what they are.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, highlight=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        # Before widths are measured, so that a column has room for the escapes.
        return super().render_str(printable(text, lines=True), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            safe = segment.control or segment.text.isprintable()
            yield segment if safe else Segment(printable(segment.text, lines=True), segment.style)
