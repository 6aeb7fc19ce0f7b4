"""The results of the Synthesizer paper (Tay et al., ICML 2021), to be read beside ours.

Numbers are in ``published.yaml``, as printed. Two versions of the paper count their tables differently, so some have a
year: of the first version (2020) or of the last (2021). Left out is what could not be confirmed: two rows of the GLUE
and SuperGLUE of 2021 and, but for one number, the table of encoders. Where another paper has the same experiment, its
rows say so.
"""

import math
import re
from dataclasses import dataclass, field
from pathlib import Path

from synthattn.compare.results import Published
from synthattn.saved_file import read_yaml, restore


@dataclass(frozen=True)
class PaperColumn:
    """One measure on one data set."""

    data: str
    metric: str
    """As the paper calls it."""
    ours: str | None
    """Our metric that it is to be read beside; None for measures of cost."""
    words: list[str] = field(default_factory=list)
    """Of which one in the name of some data says that this column is meant, where a table has several."""
    logarithm: bool = False
    """Whether the paper prints the natural logarithm of our metric."""


@dataclass(frozen=True)
class PaperRow:
    """One model."""

    name: str
    """As the paper calls it."""
    attention: str | None
    """The spec that builds it; None for models that differ from the others in more than their attention."""
    parameters: int | None
    """In millions."""
    values: list[float]
    """One for each column; not a number where there is none."""
    source: str = ""
    """Where the numbers are from, if not from the paper itself."""
    doubt: str = ""
    """Why a reader should not trust the numbers, or what they are compared with."""


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper, or the part of one that is about the same models."""

    number: str
    title: str
    columns: list[PaperColumn]
    rows: list[PaperRow]
    note: str
    """What differs between their experiment and one that is read beside it."""
    source: str = "Tay et al., Synthesizer (2020, 2021)"
    doubt: str = ""
    """What speaks against all of it."""


NARANG = "Narang et al., Do Transformer Modifications Transfer Across Implementations and Applications? (2021)"
PARTLY = f"Tay et al., Synthesizer (2021), in part {NARANG}"
SHORT = {NARANG: "Narang et al., 2021", PARTLY: "in part Narang et al., 2021"}

PRINTED = {name: restore(PaperTable, one) for name, one in read_yaml(Path(__file__).with_suffix(".yaml")).items()}
"""All tables, by what they are about."""
TABLES = {
    "translation": PRINTED["translation"],
    "language-modeling": PRINTED["language modelling"],
    "sentence-modeling": PRINTED["language modelling"],
    "summarization": PRINTED["summarisation"],
    "dialogue": PRINTED["dialogue"],
    "dialogue-turns": PRINTED["dialogue"],
    "span-corruption": PRINTED["c4"],
    "glue": PRINTED["glue"],
    "superglue": PRINTED["superglue"],
}
"""By task or suite. Classification has none: there is no number whose attention is known."""
DATA = {
    "translation": r"wmt[-_']?(20)?14",
    "language-modeling": "lm1b|(1|one)[-_]?b(illion)?[-_]?words?",
    "sentence-modeling": "lm1b|(1|one)[-_]?b(illion)?[-_]?words?",
    "summarization": "cnn|dailymail",
    "dialogue": "persona[-_]?chat",
    "dialogue-turns": "persona[-_]?chat",
    "span-corruption": r"\bc4\b",
}
"""Names of the paper's data, by task; data of a suite is named after the suite or the task."""


def published(task: str, data: str) -> list[Published]:
    """Return the paper's numbers for a task or suite, by our metrics; none unless the data is the paper's, too.

    Args:
        task: a name in ``synthattn.tasks.TASKS`` or ``SUITES``.
        data: where the data is from. Of English to German and English to French, its words choose one, or else both.
    """
    known = DATA.get(task, rf"glue|\b{re.escape(task)}\b" if task else "(?!)")
    if data.startswith("builtin:") or not re.search(known, data, re.IGNORECASE):
        return []
    if task not in TABLES:
        return [found for table in (PRINTED["glue"], PRINTED["superglue"]) for found in _of_suite(table, task)]
    table = TABLES[task]
    words = set(re.findall("[a-z]+", data.lower()))
    named = [column for column in table.columns if words & set(column.words)]
    return [_beside(table, column, column.ours) for column in named or table.columns if column.ours]


def _of_suite(table: PaperTable, task: str) -> list[Published]:
    """The columns of one task, whose metrics have the task in their names only where there are several."""
    found = []
    for column in table.columns:
        whose, _, metric = (column.ours or "").partition(" ")
        # MNLI is two tasks, its two sets.
        if metric and whose.removesuffix("-mismatched").removesuffix("-matched") == task:
            found.append(_beside(table, column, metric if whose == task else f"{whose} {metric}"))
    return found


def _beside(table: PaperTable, column: PaperColumn, metric: str) -> Published:
    place = table.columns.index(column)
    printed = {row.attention: row.values[place] for row in table.rows if row.attention}
    notes = [table.note]
    if sizes := [row.parameters for row in table.rows if row.attention and row.parameters]:
        notes.append(f"Their models have {min(sizes)} to {max(sizes)} million parameters.")
    if column.logarithm:
        shown = {attention: round(math.exp(value), 2) for attention, value in printed.items()}
        first = next(iter(printed))
        notes.append(f"The paper prints logarithms, such as {printed[first]} for {first}, which is {shown[first]}.")
        printed = shown
    return Published(f"{table.number}, {column.data}", metric, printed, " ".join(notes))
