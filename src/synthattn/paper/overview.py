"""The overview of all reproduced tables: what holds, and where everything is; and the verdicts that have changed."""

from collections import Counter
from collections.abc import Mapping, Sequence

from synthattn.compare.results import FILE
from synthattn.paper.outcome import JUDGEMENTS, ClaimVerdict, Judgement, Outcome
from synthattn.paper.page import PAGE, TABLE
from synthattn.paper.table1 import TITLE as TABLE1_TITLE
from synthattn.paper.words import contradicts_itself
from synthattn.render import markdown as md
from synthattn.render.charts import ForestPlot, Point
from synthattn.render.document import Block, Document, Listing, MarkdownOnly, Paragraph, Section
from synthattn.render.numbers import signed
from synthattn.render.table import Cell, Column, Row, Span, Table

PICTURE, CHANGES = "picture.svg", "changes.md"
REASONS: dict[Judgement, str] = {
    "holds": "the interval, adjusted for all counted claims of the table, is beyond what the claim needs",
    "does not hold": "the interval, adjusted for all counted claims of the table, is on the other side",
    "moving": "the gap in validation loss changes its sign or halves in the last quarter of training",
    "undecided": "after adjustment for all counted claims of the table, the difference may be chance",
    "below the floor": "neither row is better than a system without a model",
    "one run": "one run of each row does not say how much another seed would change",
    "not comparable": "the paper timed another implementation on another machine",
    "not run": "rows that the claim needs are missing",
}
COLOURS: dict[Judgement, int] = {"holds": 3, "does not hold": 2, "moving": 5, "undecided": 1, "one run": 1}
"""Place of a judgement among the colours of charts; grey for the others."""
Earlier = Mapping[str, Sequence[Sequence[str]]]
"""By table, claim and judgement of an earlier edition, in the order of the claims."""


def overview(outcomes: Sequence[Outcome], with_table1: bool = False, more: Sequence[tuple[str, str]] = ()) -> str:
    """Return ``README.md`` of the folder of all results.

    Args:
        outcomes: all tables.
        with_table1: whether there is a page of Table 1.
        more: further pages, as words and link.
    """
    return md.markdown(document(outcomes, with_table1, more))


def document(outcomes: Sequence[Outcome], with_table1: bool, more: Sequence[tuple[str, str]]) -> Document:
    verdicts = [verdict for outcome in outcomes for verdict in outcome.verdicts]
    lead: list[Block] = [
        Paragraph(
            "The paper *Synthesizer: Rethinking Self-Attention* asks whether a Transformer needs the dot product of "
            "queries and keys. Dense computes attention weights from each token alone. Random learns one matrix of "
            "weights for all texts. Mixtures (+ Vanilla, +V) add the dot product. `synthattn reproduce` trained small "
            "models again, and wrote this page from the records of these runs."
        )
    ]
    sections = []
    if verdicts:
        found: list[Block] = [Paragraph(" ".join(findings(outcomes)))]
        if any(verdict.effect for verdict in verdicts):
            found.append(MarkdownOnly([Paragraph(f"![Claims and their effects]({PICTURE})")]))
            found.append(
                Paragraph(
                    "Effect beyond what each claim needs, in percent of the other row's score, with its 95 % interval; "
                    "right of the line supports the claim. Green: holds. Grey: below the floor. Hollow: one run, not "
                    "counted."
                )
            )
        sections.append(Section("holds", "What holds", found))
    if outcomes or with_table1:
        sections.append(Section("tables", "Claims by table", [_tables(outcomes, with_table1)]))
    links = [(Span(words, link=target),) for words, target in more]
    if links:
        sections.append(Section("more", "More", [Listing(links)]))
    return Document("What of the paper holds", "synthattn reproduce", lead, sections)


def findings(outcomes: Sequence[Outcome]) -> list[str]:
    """Return what of the paper holds, in at most five sentences."""
    verdicts = [verdict for outcome in outcomes for verdict in outcome.verdicts]
    count = Counter(verdict.judgement for verdict in verdicts)
    decided = count["holds"] + count["does not hold"]
    sentences = [
        f"Of {len(verdicts)} claims, {decided or 'none'} {'is' if decided == 1 else 'are'} decided: "
        f"{count['holds'] or 'none'} hold, {count['does not hold'] or 'none'} fail."
    ]
    words: dict[Judgement, str] = {"holds": "These hold", "does not hold": "These fail"}
    for judgement, word in words.items():
        if count[judgement]:
            sentences.append(f"{word}: {'; '.join(_named(outcomes, judgement))}.")
    left = [f"{count[each]} {each}" for each in JUDGEMENTS[2:] if count[each]]
    if left:
        sentences.append(f"The others are not decided: {', '.join(left)}.")
    if any(part.scale == "cpu" for outcome in outcomes for part in outcome.parts):
        sentences.append(
            "Small models that train for minutes favour attention that learns fast: after longer training in "
            "translation, no attention could be told from another (docs/multi30k, one seed)."
        )
    return sentences


def _named(outcomes: Sequence[Outcome], judgement: Judgement) -> list[str]:
    """Return the claims with a judgement in a few words, by table."""
    found = []
    for outcome in outcomes:
        labels: dict[str, list[str]] = {}
        for verdict in outcome.verdicts:
            if verdict.judgement == judgement:
                labels.setdefault(_data(outcome, verdict), []).append(verdict.label)
        found += [f"{', '.join(names)} ({data})" for data, names in labels.items()]
    return found


def _data(outcome: Outcome, verdict: ClaimVerdict) -> str:
    part = next((part for part in outcome.parts if (part.name, part.scale) == (verdict.part, verdict.scale)), None)
    return part.title.split(", the tasks")[0] if part is not None else verdict.part


def picture(outcomes: Sequence[Outcome]) -> str:
    """Return the effect of every claim about scores, with its interval, as SVG."""
    points = []
    for outcome in outcomes:
        for verdict in outcome.verdicts:
            if len(verdict.effect) == 3:
                value, low, high = verdict.effect
                place = COLOURS.get(verdict.judgement, 0)
                interval = f"[{signed(low, 1)}, {signed(high, 1)}]"
                tip = f"{verdict.judgement}: {verdict.claim} {signed(value, 1)} % {interval}"
                row = f"{_data(outcome, verdict).split(',')[0]}: {verdict.label}"
                if verdict.part == "en-fr":
                    row = f"{row} (French)"
                hollow = verdict.judgement == "one run"
                points.append(Point(verdict.judgement, place, value, row, tip, low, high, hollow))
    across = "effect beyond what the claim needs, % (right supports the claim)"
    plot = ForestPlot("Claims and their effects", across, points, 0.0, width=860, together=True, longest=60)
    return plot.svg() if points else ""


def _tables(outcomes: Sequence[Outcome], with_table1: bool) -> Table:
    """Return for each table how its claims were judged, and links to its pages."""
    counts = [Counter(verdict.judgement for verdict in outcome.verdicts) for outcome in outcomes]
    names = [(outcome.table, outcome.title) for outcome in outcomes]
    if with_table1:
        counts.append(Counter())
        names.append(("table1", TABLE1_TITLE))
    shown = [each for each in JUDGEMENTS if any(count[each] for count in counts)]
    columns = [Column(each, [Cell(str(count[each] or "")) for count in counts]) for each in shown]

    def links(table: str) -> Cell:
        files = {"page": PAGE, "table": TABLE} | ({} if table == "table1" else {"data": FILE})
        spans = [Span(word, link=f"{table}/{file}") for word, file in files.items()]
        return Cell([text for n, span in enumerate(spans) for text in ([", ", span] if n else [span])])

    columns.append(Column("More", [links(table) for table, _ in names], words=True))
    return Table("Claims by table", "Table", [Row(title) for _, title in names], columns)


def changes(outcomes: Sequence[Outcome], earlier: Earlier) -> str:
    """Return the page of the verdicts that have changed since an earlier edition, and why."""
    rows: list[tuple[str, str, str, str]] = []
    for outcome in outcomes:
        before = earlier.get(outcome.table, ())
        for (_, old), verdict in zip(before, outcome.verdicts, strict=False):
            if old != verdict.judgement:
                claim = f"{_data(outcome, verdict)}: {verdict.claim}"
                rows.append((claim, old, verdict.judgement, REASONS[verdict.judgement]))
        # What was a verdict once and is none now.
        rows += [
            (claim, old, "a description", "histograms of one run are described, not judged")
            for claim, old in before[len(outcome.verdicts) :]
        ]
    heads = ("before", "now", "why")
    columns = [Column(head, [Cell(row[n]) for row in rows], words=True) for n, head in enumerate(heads, 1)]
    total = sum(map(len, earlier.values()))
    lead = [
        Paragraph(
            f"Stricter rules changed {len(rows)} of {total} verdicts. The rules are in "
            "`src/synthattn/paper/claims.py`. Each claim's page has its numbers."
        )
    ]
    table = Table("Verdicts that changed", "Claim", [Row(row[0]) for row in rows], columns)
    odd = sum(contradicts_itself(verdict) for outcome in outcomes for verdict in outcome.verdicts)
    blocks: list[Block] = [table]
    if odd:
        blocks.append(Paragraph(f"The paper's own numbers contradict its text in {odd} claims; the pages mark them."))
    return md.markdown(
        Document("Verdicts that changed", "synthattn reproduce", lead, [Section("changed", "Claims", blocks)])
    )
