"""What a recipe is made of: the parts of a table, each with its rows, as full settings of runs."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from synthattn.render.published import Table
from synthattn.training.settings import Settings

Scale = Literal["tiny", "cpu", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)


@dataclass(frozen=True)
class Row:
    """One model of a table.

    Args:
        name: as the paper calls it.
        attention: of both stacks; empty for what is no model, see ``ONE_ANSWER``.
        fields: of the configuration, where it differs from the other rows in more than its attention.
        seeds: how many runs it has.
        control: whether it is made as large as the largest of the rows.
    """

    name: str
    attention: str
    fields: dict[str, Any] = field(default_factory=dict)
    seeds: int = 1
    control: bool = False

    @property
    def key(self) -> str:
        """Short, for options, files and folders."""
        return slug(self.name)

    @property
    def trained(self) -> bool:
        """Whether it is a model."""
        return bool(self.attention)


ONE_ANSWER = Row("One answer for all", "")
"""The best that one answer, given to every question, can score: of models that cannot be told from that nothing can be
said."""


@dataclass(frozen=True)
class Part:
    """An experiment of a table: all of its rows learn from the same data in the same way.

    Args:
        name: short, for files and folders.
        title: the data, for a reader.
        settings: of all of its runs, but for what the rows say, the learning rate and the seed.
        rows: the baseline first.
        metrics: what is shown, the main one first.
        published: the paper's table; its rows have the same names.
        published_data: which data of that table, where it has several.
        rates: learning rates to choose from, by the validation loss of the baseline; the others take the same.
        rate_of: the part whose choice is taken, of the same table.
        before: where every row starts from the model of the same row: the table and the part that trained it.
        tuned: fields that these models have from then on, such as their dropout.
        speed: whether training is timed beside the baseline.
        looks: whether attention weights are looked at, before training and after.
        vectors: whether answers are compared by vectors of words, which are made from the training texts.
        note: what a reader must know of how this differs from the paper's experiment.
    """

    name: str
    title: str
    settings: Settings
    rows: tuple[Row, ...]
    metrics: tuple[str, ...]
    published: Table | None = None
    published_data: str = ""
    rates: tuple[float, ...] = ()
    rate_of: str | None = None
    before: tuple[str, str] | None = None
    tuned: dict[str, Any] = field(default_factory=dict)
    speed: bool = False
    looks: bool = False
    vectors: bool = False
    note: str = ""

    @property
    def baseline(self) -> Row:
        return self.rows[0]

    def like(self, row: Row) -> Row:
        """The row with the same model, whatever it is called."""
        return next(one for one in self.rows if (one.attention, one.fields) == (row.attention, row.fields))

    def row(self, name: str) -> Row | None:
        """By its name or its key."""
        return next((row for row in self.rows if name in (row.name, row.key)), None)


@dataclass(frozen=True)
class Recipe:
    """A table at a scale."""

    table: str
    scale: Scale
    parts: tuple[Part, ...]

    def part(self, name: str) -> Part:
        return next(part for part in self.parts if part.name == name)


def slug(name: str) -> str:
    """``Syn (R+V)`` becomes ``syn-r+v``."""
    return re.sub(r"[^a-z0-9+]+", "-", name.lower().replace(" + ", "+")).strip("-")


def with_seeds(rows: Iterable[Row], seeds: int, names: Iterable[str] | None = None) -> tuple[Row, ...]:
    """The rows, those named (or all) with that many seeds."""
    chosen = None if names is None else set(names)
    return tuple(
        row
        if chosen is not None and row.name not in chosen
        else Row(row.name, row.attention, row.fields, seeds, row.control)
        for row in rows
    )
