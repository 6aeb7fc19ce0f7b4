"""Words and measures of reproduced tables, and the overview of all tables as Markdown."""

import math
import posixpath
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

from synthattn.compare.results import FILE, Score
from synthattn.compare.results import PublishedNumber as Published
from synthattn.compare.results import Results as Part
from synthattn.compare.results import Variant as Row
from synthattn.compare.table import certainty, decimals, difference_cell, score_cell
from synthattn.paper.claims import main_metric, read_beside
from synthattn.paper.outcome import JUDGEMENTS, Judgement, Outcome, Verdict
from synthattn.paper.table1 import Synthesized
from synthattn.render.document import JudgedClaim, JudgedClaims
from synthattn.render.markdown import grid, lines_of, safe
from synthattn.render.numbers import (
    NOTHING,
    TIMES,
    Number,
    digits,
    duration,
    fixed,
    quantity,
    signed,
    times,
    typed_alike,
    whole,
)
from synthattn.render.table import Cell, Span, Text, number_cell

PAGE, TABLE = "page.html", "table.md"
"""In a folder of each table, which has its name, in the folder of all results."""
ROOT = "../"
"""From there to the folder of all results."""

CAUTION = (
    "Each is judged by itself, scores with 95 %: among so many, a few verdicts may be chance, and the more so those of "
    "one run of each row, whose interval does not know how far another start of the training would have gone."
)
ONE_RUN = "in one run"
AGREES = {True: "text and numbers agree", False: "text and numbers disagree", None: ""}
"""Whether the paper's own numbers say what its text says."""


@dataclass
class Measure:
    """One thing about all rows of a part: ours, and beside it the paper's."""

    head: str
    unit: str
    ours: list[Cell]
    differences: list[Cell] = field(default_factory=list)
    """From the baseline; empty where no row has one."""
    paper: list[Cell] = field(default_factory=list)
    """Empty where the paper has no number."""
    paper_head: str = ""
    source: str = ""
    """Where most of the paper's numbers are from."""
    notes: list[str] = field(default_factory=list)
    """Of each row, what else must be said of the paper's number."""
    main: bool = False
    """Whether it is the main metric, where rows without a score say why."""


def measures(part: Part) -> list[Measure]:
    """All that have something to say."""
    rows = part.rows
    found = [_measure(part, "parameters", "Parameters", "", [number_cell(row.parameters, quantity) for row in rows])]
    for n, (name, metric) in enumerate(part.metrics.items()):
        scores = [row.scores.get(name) for row in rows]
        places = decimals(scores)
        measure = _measure(part, name, name, better(part, name), [score_cell(score, places) for score in scores])
        cells = [difference_cell(score, metric.higher_is_better, places) for score in scores]
        measure.differences = cells if any(cell.text for cell in cells) else []
        measure.main = n == 0
        found.append(measure)
    flops = [number_cell(row.gigaflop, digits) for row in rows]
    found.append(_measure(part, "gigaflop", "GFLOP", "forward, one example", flops))
    found.append(_measure(part, "speed", "Training speed", f"{TIMES} baseline", [_speed(row) for row in rows]))
    return [each for each in found if each.main or each.paper or any(cell.text for cell in each.ours)]


def heading(part: Part) -> str:
    return part.title[:1].upper() + part.title[1:]


def better(part: Part, metric: str) -> str:
    return "higher is better" if part.metrics[metric].higher_is_better else "lower is better"


def _speed(row: Row) -> Cell:
    if row.speed is None:
        return Cell()
    return Cell(times(row.speed.value), f"[{fixed(row.speed.low, 2)}, {fixed(row.speed.high, 2)}]", "", row.speed.value)


def _measure(part: Part, name: str, head: str, unit: str, ours: list[Cell]) -> Measure:
    measure = Measure(head, unit, ours)
    theirs = [row.published.get(name) for row in part.rows]
    known = [each for each in theirs if each is not None]
    if known:
        base = published_base(part, name)
        typed = _typed(name, [each.value for each in known], base)
        measure.paper = [Cell() if each is None else typed(each.value) for each in theirs]
        measure.paper_head = part.published_metrics.get(name, "")
        plain = Counter(each.source for each in known if not each.doubt)
        # A footnote at each number would hide those that say something.
        measure.source = plain.most_common(1)[0][0] if plain else ""
        measure.notes = ["" if each is None else footnote(each, measure.source) for each in theirs]
    return measure


def published_base(part: Part, name: str) -> float | None:
    """What the paper has for the baseline."""
    found = next((row.published.get(name) for row in part.rows if row.name == part.baseline), None)
    return None if found is None else found.value


def _typed(name: str, values: list[float], base: float | None) -> Callable[[float], Cell]:
    """As the paper prints it, and what that is beside its baseline."""
    alike = typed_alike(values)
    if name == "parameters":
        return lambda value: Cell(f"{alike(value)} M", key=value)
    if name == "gigaflop":  # of what, the paper does not say
        return lambda value: Cell(f"{alike(value)} TFLOPs", key=value)
    if name == "speed":
        steps = "steps/s"
        return lambda value: (
            Cell(times(value / base), f"{alike(value)} {steps}", key=value)
            if base
            else Cell(f"{alike(value)} {steps}", key=value)
        )
    places = len(alike(values[0]).partition(".")[2])
    return lambda value: Cell(alike(value), "" if base in (None, value) else signed(value - base, places), key=value)


def footnote(found: Published, known: str = "") -> str:
    """Where a number is from and what speaks against it; nothing where that is all known."""
    if not found.doubt:
        return "" if found.source == known else ended(found.source)
    return f"{ended(found.source)} To be read with care: {ended(found.doubt)}"


def ended(text: str) -> str:
    """As a sentence, where another follows."""
    return text if text.endswith((".", "?", "!")) or not text else f"{text}."


def trouble(row: Row) -> str:
    """What is said of a row that is not done, and nothing otherwise."""
    if row.status == "done":
        return ""
    return f"{row.status}: {row.reason}" if row.reason else row.status


def seeds(row: Row) -> str:
    return f"{len(row.runs)} of {max(row.wanted_seeds, len(row.runs))}"


def runs_done(outcome: Outcome) -> str:
    rows = [row for part in outcome.parts for row in part.models]
    done, wanted = sum(len(row.runs) for row in rows), sum(max(row.wanted_seeds, len(row.runs)) for row in rows)
    return f"{done} of {wanted} runs are done"


def own_words(row: Row) -> str:
    """What builds a row, beside its name."""
    return ", ".join(filter(None, (row.attention, row.differs)))


def link(record: str, root: str = "") -> str:
    return root + quote(record, safe="/+,=")


def about_rates(part: Part) -> tuple[str, list[tuple[str, str, str, bool]]]:
    """How the learning rate was chosen; of each its loss, its record and whether it was taken."""
    if not part.rates:
        return "", []
    best = min(part.rates, key=lambda rate: part.rates[rate])
    tried = list(part.rates)
    # A baseline that is not tuned makes every claim worthless, so readers are told where it may not be.
    edge = {tried[-1]: ", the highest that was tried", tried[0]: ", the lowest that was tried"}.get(best, "")
    edge = edge if len(tried) > 1 else ""
    words = f"Learning rate: {best}{edge}, for all rows, after the validation loss of {part.baseline}:"
    return words, [
        (rate, digits(loss, 4), part.rate_runs.get(rate, ""), rate == best) for rate, loss in part.rates.items()
    ]


def how_certain(part: Part) -> list[str]:
    scores: list[Score] = [score for row in part.models for score in row.scores.values()]
    lines = certainty(scores, part.baseline)
    if any(row.speed for row in part.rows):
        lines.append(
            f"Speed is of a training step, times that of {part.baseline}; in brackets: quartiles of the rounds."
        )
    return lines


def counted(verdicts: Sequence[Verdict]) -> str:
    """How many claims hold, in a sentence."""
    one = {"undecided": "is undecided", "not run": "was not run"}
    several = {"holds": "hold", "does not hold": "do not hold", "undecided": "are undecided", "not run": "were not run"}
    count = Counter(verdict.judgement for verdict in verdicts)
    single = Counter(verdict.judgement for verdict in verdicts if verdict.runs == 1)
    texts = [
        f"{count[each]} {one.get(each, each) if count[each] == 1 else several[each]}"
        + (f" ({'' if single[each] == count[each] else f'{single[each]} of them '}{ONE_RUN})" if single[each] else "")
        for each in JUDGEMENTS
        if count[each]
    ]
    return f"{len(verdicts)} claim{'s' if len(verdicts) > 1 else ''}{_kinds(verdicts)}; here {', '.join(texts)}."


def _kinds(verdicts: Sequence[Verdict]) -> str:
    """Whose claims they are."""
    words = {"text": "of the paper's text", "table": "read from its tables", "elsewhere": "of another paper"}
    count = Counter(verdict.kind for verdict in verdicts)
    found = [(count[kind], word) for kind, word in words.items() if count[kind]]
    if len(found) == 1:
        return f" {found[0][1]}"
    return f", {', '.join(f'{number} {word}' for number, word in found)}"


def basis(verdict: Verdict) -> str:
    """What a verdict rests on, where that is little; empty else."""
    return ONE_RUN if verdict.runs == 1 else ""


def agreement(verdict: Verdict) -> str:
    """Whether the paper's numbers say what its text says; a claim that is read from its table cannot contradict it."""
    return AGREES[verdict.in_paper_holds] if verdict.kind == "text" else ""


def contradicts_itself(verdict: Verdict) -> bool:
    return verdict.kind == "text" and verdict.in_paper_holds is False


def about_scale(scale: str, parts: Iterable[Part]) -> str:
    """What a scale means, with the sizes that the models have."""
    of_scale = [part for part in parts if part.scale == scale]
    rows = [row for part in of_scale for row in part.rows]
    ours = _span((row.parameters / 1e6 for row in rows if row.parameters), _millions, " million parameters")
    took = _span((run.seconds for row in rows for run in row.runs if run.seconds), duration, " each")
    theirs = _span(
        (r.published["parameters"].value for r in rows if "parameters" in r.published), _millions, " million"
    )
    sizes = ", ".join(filter(None, (ours and f"models of {ours}", took and f"trained for {took}")))
    if scale == "tiny":
        return "Generated data and a few steps: it shows that everything runs, and nothing about which model is better."
    if scale == "paper":
        return f"The paper's own sizes, steps and data, as far as they are known{sizes and f': {sizes}'}."
    if scale != "cpu":
        return f"{sizes[:1].upper()}{sizes[1:]}." if sizes else ""
    paper = f"the paper's have {theirs}" if theirs else "the paper's are many times as large"
    return (
        f"Small real data{sizes and f' and {sizes}'}, on a processor; {paper}. "
        "The numbers cannot be read beside the paper's. Which model is better than which can, with care: training this "
        "short favours models that learn fast."
    )


def _millions(value: Number) -> str:
    return digits(value, 2) if value < 10 else fixed(value, 0)


def _span(values: Iterable[Number], text: Callable[[Number], str], unit: str) -> str:
    known = sorted(value for value in values if math.isfinite(value))
    if not known:
        return ""
    low, high = text(known[0]), text(known[-1])
    return f"{low}{unit}" if low == high else f"{low} to {high}{unit}"


WORDS: dict[Judgement, str] = {"holds": "good", "does not hold": "bad", "undecided": "open", "not run": "none"}
"""Kinds of verdicts, which the style gives a colour and a sign."""


def verdicts(found: Sequence[Verdict], places: Mapping[tuple[str, str], str]) -> JudgedClaims:
    """Return verdicts as a block; ``places`` are links by part and scale."""
    items = []
    for verdict in found:
        flag = agreement(verdict)
        theirs: list[str | Span] = [f"{verdict.in_paper} "] if verdict.in_paper else []
        theirs += [Span(flag, "flag") if contradicts_itself(verdict) else f"({flag})"] if flag else []
        where = Span(f"{verdict.part}, {verdict.scale}", link=places.get((verdict.part, verdict.scale), ""))
        reason: Text = (f"{verdict.because} (", where, ")")
        kind = WORDS[verdict.judgement]
        items.append(JudgedClaim(verdict.judgement, kind, basis(verdict), verdict.claim, verdict.where, theirs, reason))
    return JudgedClaims(items)


TABLE1_TITLE = "Table 1: what attention is computed from, and what that costs"
TABLE1_HEADS = [
    "Attention",
    "Depends on",
    "Same for all texts",
    "Tokens interact",
    "Parameters",
    "The paper's formula",
    "The paper's value",
]
TABLE1_NOTES = [
    "Found out by trying: layers are given texts that differ in one token, and whose logits change tells what they "
    "depend on. Tokens interact where the logit of two tokens depends on both.",
    "Parameters are those that synthesize logits, trained ones of all heads of a layer, at the sizes of the paper's "
    "translation models. The paper's formulas with N alone are for one head.",
]


def table1_rows(rows: Sequence[Synthesized]) -> list[list[str]]:
    """As texts, one for each of ``TABLE1_HEADS``; the first without the spec that builds it."""
    return [
        [
            row.name,
            row.conditions_on,
            "yes" if row.scope == "global" else "no",
            "yes" if row.interaction else "no",
            whole(row.parameters),
            row.printed or NOTHING,
            NOTHING if row.printed_value is None else whole(row.printed_value),
        ]
        for row in rows
    ]


def overview(outcomes: Sequence[Outcome], with_table1: bool = False) -> str:
    """All claims and all tables; ``README.md`` of the folder of all results."""
    every = [verdict for outcome in outcomes for verdict in outcome.verdicts]
    parts = [part for outcome in outcomes for part in outcome.parts]
    lines = [
        "# The paper's claims, and what came of them here",
        "",
        "The paper *Synthesizer: Rethinking Self-Attention* asks whether a Transformer needs the dot product of "
        "queries and keys: its Dense variants compute attention from each token alone, its Random variants learn one "
        "attention for all texts, and mixtures add either to the dot product. Below are its claims, table by table, "
        "and what our own runs say of each. Written by `synthattn reproduce`, not by hand; the records of all runs are "
        "linked.",
        "",
        "- **holds**: the runs here show it.",
        "- **does not hold**: they show that it is not so.",
        "- **undecided**: what they show may be chance.",
        "- **not run**: rows that it needs are missing.",
    ]
    lines += ["", f"{counted(every)} {CAUTION}"] if every else []
    judged_tables = [outcome for outcome in outcomes if outcome.verdicts]
    lines += ["", *_in_short(judged_tables)] if len(judged_tables) > 1 else []
    scales = list(dict.fromkeys(part.scale for part in parts))
    lines += ["", "How large these experiments are:", ""] if scales else []
    lines += [f"- **{safe(scale)}**: {safe(about_scale(scale, parts))}" for scale in scales]
    for outcome in outcomes:
        if outcome.verdicts:
            lines += ["", f"## {safe(outcome.title)}", ""]
            for part in outcome.parts:
                lines += [safe(f"{part.title}. {part.note}"), ""] if part.note else []
            lines += lines_of(verdicts(outcome.verdicts, {}))
    lines += ["", "## Tables and records", "", *(_where(outcome) for outcome in outcomes)]
    if with_table1:
        lines.append(f"- {TABLE1_TITLE}: [page](table1/{PAGE}), [table](table1/{TABLE}); computed, not trained")
    doubts = _doubts(outcomes)
    lines += ["", "## Doubts in the published numbers", "", *(doubts or ["None known."])]
    return "\n".join([*lines, "", *_different(outcomes)]) + "\n"


def _in_short(outcomes: Sequence[Outcome]) -> list[str]:
    """How many claims of each table came to what."""
    counts = [Counter(verdict.judgement for verdict in outcome.verdicts) for outcome in outcomes]
    rows = (
        [safe(outcome.title), *(str(count[each] or NOTHING) for each in JUDGEMENTS)]
        for outcome, count in zip(outcomes, counts, strict=True)
    )
    return grid(["", *JUDGEMENTS], rows, 1)


def _where(outcome: Outcome) -> str:
    rows = [row for part in outcome.parts for row in part.rows]
    links = [f"[page]({outcome.table}/{PAGE})", f"[table]({outcome.table}/{TABLE})", f"[data]({outcome.table}/{FILE})"]
    folders = [posixpath.dirname(run.record) for row in rows for run in row.runs]
    if folders and (shared := posixpath.commonpath(folders)):
        links.append(f"[records]({link(shared)})")
    scales = ", ".join(dict.fromkeys(part.scale for part in outcome.parts))
    return f"- {safe(outcome.title)}: {', '.join(links)}; {runs_done(outcome)}, at scale {safe(scales)}."


def _doubts(outcomes: Sequence[Outcome]) -> list[str]:
    """Each once, with all that it is about."""
    found: dict[str, dict[str, None]] = {}
    for outcome in outcomes:
        for part in outcome.parts:
            if part.published_doubt:
                found.setdefault(part.published_doubt, {})[outcome.title] = None
    for outcome in outcomes:
        for part in outcome.parts:
            for row in part.rows:
                for each in row.published.values():
                    if each.doubt:
                        text = f"{each.doubt[:1].upper()}{each.doubt[1:].rstrip('.')} ({each.source})."
                        found.setdefault(text, {})[f"{outcome.title}, {row.name}"] = None
    return [f"- **{safe('; '.join(about))}**: {safe(doubt)}" for doubt, about in found.items()]


def _turned(title: str, part: Part) -> Iterator[str]:
    """Rows on the other side of the baseline than the paper has them, in the main metric."""
    main = main_metric(part)
    beside = read_beside(main, list(part.published_metrics))
    base = next(
        (row.published[beside] for row in part.rows if row.name == part.baseline and beside in row.published), None
    )
    for row in part.rows if base is not None and part.learned(main) else []:
        score, printed = row.scores.get(main), row.published.get(beside)
        if score is None or score.difference is None or printed is None or base is None:
            continue
        ours, theirs = score.difference, printed.value - base.value
        if (ours.low > 0 and theirs < 0) or (ours.high < 0 and theirs > 0):
            yield (
                f"- {safe(row.name)} ({safe(title)}, {safe(part.name)}, {safe(part.scale)}): {safe(main)} "
                f"{signed(ours.value, 2)} [{signed(ours.low, 2)}, {signed(ours.high, 2)}] from {safe(part.baseline)}; "
                f"in the paper {signed(theirs, 2)} ({safe(part.published_metrics.get(beside, beside))})."
            )


def _different(outcomes: Sequence[Outcome]) -> list[str]:
    every = [(outcome, verdict) for outcome in outcomes for verdict in outcome.verdicts]
    ours = [
        f"- {safe(verdict.claim)} ({safe(outcome.title)}, {safe(verdict.where)}) Here, at scale {safe(verdict.scale)}: "
        f"{safe(ended(verdict.because))}"
        for outcome, verdict in every
        if verdict.judgement == "does not hold"
    ]
    theirs = [
        f"- {safe(verdict.claim)} ({safe(outcome.title)}, {safe(verdict.where)}) "
        f"Its numbers: {safe(ended(verdict.in_paper))} Here: {verdict.judgement}."
        for outcome, verdict in every
        if contradicts_itself(verdict)
    ]
    turned = [line for outcome in outcomes for part in outcome.parts for line in _turned(outcome.title, part)]
    return [
        "## What came out differently",
        "",
        *(ours or ["No claim that was run came out differently."]),
        "",
        "## Which models changed places",
        "",
        "Worse than the baseline in the paper and better here, or the other way round; where the interval of 95 % "
        "includes zero, nothing is said.",
        "",
        *(turned or ["None."]),
        "",
        "## Where the paper's own numbers contradict its text",
        "",
        *(theirs or ["Nowhere, as far as is known."]),
    ]
