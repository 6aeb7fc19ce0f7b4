"""The overview of all reproduced tables: how many claims hold, and where everything is."""

import posixpath
from collections import Counter
from collections.abc import Sequence

from synthattn.compare.results import FILE
from synthattn.paper.outcome import JUDGEMENTS, Outcome
from synthattn.paper.page import PAGE, TABLE
from synthattn.paper.table1 import TITLE as TABLE1_TITLE
from synthattn.paper.words import CAUTION, about_scale, basis, contradicts_itself, counted, link, runs_done
from synthattn.render import markdown as md
from synthattn.render.document import Block, Document, Listing, Paragraph, Section
from synthattn.render.table import Cell, Column, Row, Span, Table

WORDS = [
    ("holds", "our runs show it."),
    ("does not hold", "our runs show the opposite."),
    ("undecided", "the difference may be chance."),
    ("not run", "rows that the claim needs are missing."),
]


def overview(outcomes: Sequence[Outcome], with_table1: bool = False) -> str:
    """Return ``README.md`` of the folder of all results."""
    return md.markdown(document(outcomes, with_table1))


def document(outcomes: Sequence[Outcome], with_table1: bool) -> Document:
    verdicts = [verdict for outcome in outcomes for verdict in outcome.verdicts]
    parts = [part for outcome in outcomes for part in outcome.parts]
    lead: list[Block] = [
        Paragraph(
            "The paper *Synthesizer: Rethinking Self-Attention* asks whether a Transformer needs the dot product of "
            "queries and keys. Its Dense variants compute attention weights from each token alone. Its Random variants "
            "learn one matrix of weights for all texts. Mixtures add either of them to the dot product."
        ),
        Paragraph(
            "We trained the paper's models again, at a small scale, and judged every claim that the paper makes about "
            "them. `synthattn reproduce` wrote this page from the records of these runs."
        ),
    ]
    sections = []
    if verdicts:
        lead += [Paragraph(f"{counted(verdicts)} {CAUTION}")]
        judged = [outcome for outcome in outcomes if outcome.verdicts]
        blocks: list[Block] = [_counts(judged)]
        blocks += [Listing([(Span(word, "strong"), f": {text}") for word, text in WORDS])]
        sections.append(Section("verdicts", "Verdicts", blocks))
        failed: list[Block] = [_different(judged)] if any(v.judgement == "does not hold" for v in verdicts) else []
        contradicted = sum(map(contradicts_itself, verdicts))
        if contradicted:
            claims = "1 claim" if contradicted == 1 else f"{contradicted} claims"
            said = f"The paper's own numbers contradict its text in {claims}; the pages mark them."
            failed.append(Paragraph(said))
        sections.append(Section("different", "Claims that do not hold here", failed))
    scales = list(dict.fromkeys(part.scale for part in parts))
    sizes = [(Span(scale, "strong"), f": {about_scale(scale, parts)}") for scale in scales]
    sections.append(Section("sizes", "Size of these experiments", [Listing(sizes)] if sizes else []))
    found = "Each page has the claims with our numbers and the paper's, all scores, and doubts about published numbers."
    if outcomes or with_table1:
        sections.append(Section("places", "Tables and records", [Paragraph(found), _places(outcomes, with_table1)]))
    return Document("The paper's claims, and our verdicts", "synthattn reproduce", lead, sections)


def _counts(outcomes: Sequence[Outcome]) -> Table:
    counts = [Counter(verdict.judgement for verdict in outcome.verdicts) for outcome in outcomes]
    columns = [Column(each, [Cell(str(count[each] or "")) for count in counts]) for each in JUDGEMENTS]
    rows = [Row((Span(outcome.title, link=f"{outcome.table}/{TABLE}"),)) for outcome in outcomes]
    return Table("Claims by table", "Table", rows, columns)


def _different(outcomes: Sequence[Outcome]) -> Table:
    """Return the claims that do not hold, without their numbers."""
    found = [(o, v) for o in outcomes for v in o.verdicts if v.judgement == "does not hold"]
    return Table(
        "Claims that do not hold",
        "Claim",
        [Row(verdict.claim) for _, verdict in found],
        [
            Column("Based on", [Cell(basis(verdict)) for _, verdict in found], words=True),
            Column("Table", [Cell((Span(o.title, link=f"{o.table}/{TABLE}"),)) for o, _ in found], words=True),
        ],
    )


def _places(outcomes: Sequence[Outcome], with_table1: bool) -> Table:
    """Return links to pages, tables, data and records of all tables."""
    places = [(each.table, each.title, runs_done(each), _records(each)) for each in outcomes]
    if with_table1:
        places.append(("table1", TABLE1_TITLE, "computed, not trained", Cell()))
    files = {"page": PAGE, "table": TABLE, "data": FILE}

    def link_to(table: str, word: str) -> Cell:
        missing = word == "data" and table == "table1"
        return Cell() if missing else Cell((Span(word, link=f"{table}/{files[word]}"),))

    columns = [Column("Runs", [Cell(done) for _, _, done, _ in places], words=True)]
    columns += [Column(word.title(), [link_to(table, word) for table, *_ in places], words=True) for word in files]
    columns.append(Column("Records", [records for *_, records in places], words=True))
    return Table("Tables and records", "Table", [Row(title) for _, title, *_ in places], columns)


def _records(outcome: Outcome) -> Cell:
    folders = [posixpath.dirname(run.record) for part in outcome.parts for row in part.rows for run in row.runs]
    shared = posixpath.commonpath(folders) if folders else ""
    return Cell((Span("records", link=link(shared)),)) if shared else Cell()
