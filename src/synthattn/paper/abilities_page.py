"""The page and the picture of the study of abilities."""

import shlex
from collections.abc import Sequence
from statistics import mean

from synthattn.paper import abilities
from synthattn.paper.abilities import AbilityPlan, AbilityRecord, AbilityRun
from synthattn.paper.study import StudyKind
from synthattn.render.charts import Matrix
from synthattn.render.document import Block, Document, Listing, MarkdownOnly, Paragraph, Section
from synthattn.render.numbers import fixed
from synthattn.render.table import Cell, Column, Row, Span, Table, Text


def _runs(found: AbilityRecord, ability: str, attention: str) -> list[AbilityRun]:
    runs = (found.run(ability, attention, seed) for seed in range(found.plan.seeds))
    return [one for one in runs if one is not None]


def table(found: AbilityRecord) -> Table:
    """Return accuracy, variant by ability: the mean over seeds, with the lowest and the highest."""
    columns = []
    for ability in found.plan.abilities:
        cells = [_cell(_runs(found, ability, attention)) for attention in found.plan.attention]
        columns.append(Column(ability, [*cells, Cell(fixed(found.floors[ability], 1))]))
    rows = [Row((Span(name, "code"),)) for name in found.plan.attention]
    return Table("Accuracy in percent", "Attention", [*rows, Row("best constant answer")], columns)


def _cell(runs: Sequence[AbilityRun]) -> Cell:
    values = [one.accuracy[-1] for one in runs]
    if not values:
        return Cell()
    detail = f"[{fixed(min(values), 1)}, {fixed(max(values), 1)}]" if len(values) > 1 else ""
    return Cell(fixed(mean(values), 1), detail, key=mean(values))


def picture(found: AbilityRecord) -> str:
    """Return the matrix as SVG; the colour is the share of the way from the best constant answer to 100 %."""
    cells = []
    for attention in found.plan.attention:
        for ability in found.plan.abilities:
            values = [one.accuracy[-1] for one in _runs(found, ability, attention)]
            floor = found.floors[ability]
            text, share = (fixed(mean(values), 0), (mean(values) - floor) / (100 - floor)) if values else ("", 0.0)
            tip = f"{attention}, {ability}: {text} %, best constant answer {fixed(floor, 0)} %"
            cells.append((attention, ability, text, share, tip))
    return Matrix("Accuracy by attention and ability", cells, width=820).svg()


def document(found: AbilityRecord) -> Document:
    plan = found.plan
    lead: list[Block] = [
        Paragraph(
            "Small models of each attention learn tasks that are generated as needed. The number is the percentage of "
            "answers that are right; deeper colour is further above the best constant answer."
        ),
        MarkdownOnly([Paragraph("![Accuracy by attention and ability](picture.svg)")]),
        table(found),
    ]
    if not found.complete:
        lead.insert(0, Paragraph("This study is not complete: some of its planned runs are missing.", "warning"))
    told = [(Span(name, "strong"), f": {_first_line(name)}") for name in plan.abilities]
    sizes = {one.attention: one.parameters for one in found.runs if one.ability == plan.abilities[0]}
    about: list[Text] = [
        f"{plan.seeds} seeds, {plan.steps:,} steps of {plan.batch} examples; {plan.test:,} test examples for all.",
        f"Decoders of {plan.layers} layers, width {plan.d_model}, {plan.heads} heads, learned positions, no dropout. "
        "The feed-forward layers are wider where attention has fewer parameters: "
        + ", ".join(f"{name} {size:,}" for name, size in sizes.items())
        + " parameters.",
        "The learning rate of each cell is the best of "
        + ", ".join(f"{rate:g}" for rate in plan.rates)
        + " by the loss of its first seed on the test examples after a quarter of the steps: "
        + "; ".join(f"{name}: {_rates(found, name)}" for name in plan.attention)
        + ".",
        "Brackets hold the lowest and the highest seed. A cell that still rises needs more steps: "
        + (", ".join(_rising(found)) or "none")
        + " gained more than 5 points in the last quarter.",
    ]
    chosen = ",".join(plan.attention), "--abilities", ",".join(plan.abilities)
    words = ["synthattn", "study", "abilities", "--attention", *chosen, "--seeds", plan.seeds, "--steps", plan.steps]
    command = shlex.join(map(str, words))
    about.append(("Made by ", Span(command, "code"), "."))
    sections = [Section("tasks", "Tasks", [Listing(told)]), Section("setup", "Setup", [Listing(about)])]
    return Document("What synthetic attention cannot do", "synthattn study abilities", lead, sections)


def _first_line(ability: str) -> str:
    return (abilities.ABILITIES[ability].__doc__ or "").split("\n")[0]


def _rates(found: AbilityRecord, attention: str) -> str:
    chosen = [(one, found.run(one, attention, 0)) for one in found.plan.abilities]
    return ", ".join(f"{ability} {run.rate:g}" for ability, run in chosen if run is not None)


def _rising(found: AbilityRecord) -> list[str]:
    cells = ((a, b, _runs(found, b, a)) for a in found.plan.attention for b in found.plan.abilities)
    return [
        f"{attention} in {ability}"
        for attention, ability, runs in cells
        if runs and mean([one.accuracy[-1] - one.accuracy[-2] for one in runs]) > 5
    ]


STUDY = StudyKind(
    "abilities", "What synthetic attention cannot do: a study of abilities", AbilityPlan, AbilityRecord,
    abilities.open_cells, abilities.collect, table, document, lambda found: {"picture.svg": picture(found)},
)  # fmt: skip
