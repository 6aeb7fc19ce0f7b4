"""A document in blocks: what a page or a Markdown file says, without a word of mark-up."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from synthattn.render.charts import Chart
from synthattn.render.table import Table, Text


@dataclass(frozen=True)
class Paragraph:
    text: Text
    kind: str = ""
    """``note``, ``answer``, ``warning`` or nothing; a class of the style sheet."""


@dataclass(frozen=True)
class Heading:
    text: str


@dataclass(frozen=True)
class Listing:
    items: Sequence[Text]
    anchor: str = ""
    title: str = ""


@dataclass(frozen=True)
class Facts:
    """Pairs of a name and a value, in columns with a title."""

    lists: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class Command:
    text: str


@dataclass(frozen=True)
class Figures:
    """Charts side by side, on pages alone."""

    charts: Sequence[Chart]
    kind: str = ""


@dataclass(frozen=True)
class Menu:
    """Charts of which a reader chooses one by its caption, on pages alone."""

    label: str
    charts: Sequence[Chart]


@dataclass(frozen=True)
class Beside:
    """Blocks next to each other where there is room."""

    blocks: Sequence["Block"]


@dataclass(frozen=True)
class Images:
    """Heat maps in rows, on pages alone: each row has a name and images, which are a base64 file, a tip and a label."""

    title: str
    rows: Sequence[tuple[str, Sequence[tuple[str, str, str]]]]


@dataclass(frozen=True)
class Answers:
    """Texts below each other, each with the names of those that wrote it."""

    pairs: Sequence[tuple[Text, Text]]


@dataclass(frozen=True)
class JudgedClaim:
    """A claim of the paper with its verdict."""

    word: str
    kind: str
    """``good``, ``bad``, ``open`` or ``none``."""
    below: str
    claim: str
    where: str
    """Where the paper says so."""
    theirs: Text
    """What its own numbers say."""
    reason: Text


@dataclass(frozen=True)
class JudgedClaims:
    items: Sequence[JudgedClaim]


@dataclass(frozen=True)
class Folded:
    """Blocks behind a click; of those with the same ``group`` only one is open."""

    summary: str
    blocks: Sequence["Block"]
    open: bool = False
    group: str = ""


@dataclass(frozen=True)
class Box:
    """Blocks that scroll in a box of limited height."""

    label: str
    blocks: Sequence["Block"]


@dataclass(frozen=True)
class PageOnly:
    """Blocks that Markdown leaves out."""

    blocks: Sequence["Block"]


@dataclass(frozen=True)
class MarkdownOnly:
    """Blocks that pages leave out."""

    blocks: Sequence["Block"]


Block = (
    Paragraph
    | Heading
    | Listing
    | Facts
    | Command
    | Figures
    | Menu
    | Beside
    | Images
    | Answers
    | JudgedClaims
    | Folded
    | Box
    | PageOnly
    | MarkdownOnly
    | Table
)


@dataclass(frozen=True)
class Section:
    key: str
    """Where links lead to."""
    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Document:
    """A whole page.

    Args:
        title: of the window.
        made_by: the command.
        lead: above all sections.
        sections: those without blocks are left out.
        heading: the words of the heading; those of the title unless given.
        scripted: whether a reader may sort tables, copy commands and choose a theme, which takes a script.
    """

    title: str
    made_by: str
    lead: Sequence[Block]
    sections: Sequence[Section]
    heading: str = ""
    scripted: bool = False
    places: int = 0
    """Series that legends tell apart."""
