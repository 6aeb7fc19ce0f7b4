"""Sentences about a reproduced table, the same on its page, in Markdown and in a terminal."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from urllib.parse import quote

from synthattn.compare.results import PublishedNumber, Results, Variant
from synthattn.compare.table import certainty
from synthattn.paper.outcome import JUDGEMENTS, ClaimVerdict, Outcome
from synthattn.render.numbers import Number, digits, duration, fixed


def full_stop(text: str) -> str:
    """Append a full stop if the text has none."""
    return text if text.endswith((".", "?", "!")) or not text else f"{text}."


def heading(part: Results) -> str:
    return part.title[:1].upper() + part.title[1:]


def direction(part: Results, metric: str) -> str:
    return "higher" if part.metrics[metric].higher_is_better else "lower"


def seeds(row: Variant) -> str:
    return f"{len(row.runs)} of {max(row.wanted_seeds, len(row.runs))}"


def runs_done(outcome: Outcome) -> str:
    rows = [row for part in outcome.parts for row in part.models]
    done, wanted = sum(len(row.runs) for row in rows), sum(max(row.wanted_seeds, len(row.runs)) for row in rows)
    return f"{done} of {wanted} runs are done"


def link(record: str, root: str = "") -> str:
    return root + quote(record, safe="/+,=")


def footnote(found: PublishedNumber, known: str = "") -> str:
    """Return the source of a number and the doubts about it; nothing if the source is known and there is no doubt."""
    if not found.doubt:
        return "" if found.source == known else full_stop(found.source)
    return f"{full_stop(found.source)} To be read with care: {full_stop(found.doubt)}"


def about_rates(part: Results) -> tuple[str, list[tuple[str, str, str, bool]]]:
    """Describe how the learning rate was chosen; for each rate: its loss, its record, and whether it was taken."""
    if not part.rates:
        return "", []
    best = min(part.rates, key=lambda rate: part.rates[rate])
    tried = list(part.rates)
    # The baseline may not be tuned well if its best rate is the highest or the lowest.
    edge = {tried[-1]: ", the highest that was tried", tried[0]: ", the lowest that was tried"}.get(best, "")
    edge = edge if len(tried) > 1 else ""
    words = f"Learning rate: {best}{edge}, for all rows, after the validation loss of {part.baseline}:"
    return words, [
        (rate, digits(loss, 4), part.rate_runs.get(rate, ""), rate == best) for rate, loss in part.rates.items()
    ]


def how_certain(part: Results) -> list[str]:
    lines = certainty([score for row in part.models for score in row.scores.values()], part.baseline)
    if any(row.speed for row in part.rows):
        lines.append(
            f"Speed is of a training step, times that of {part.baseline}; in brackets: quartiles of the rounds."
        )
    return lines


def counted(verdicts: Sequence[ClaimVerdict]) -> str:
    """Return a sentence on how many claims hold."""
    several = {
        "holds": "hold", "does not hold": "do not hold", "moving": "are moving", "undecided": "are undecided",
        "below the floor": "are below the floor of their task", "one run": "rest on one run and are not counted",
        "not comparable": "are not comparable", "not run": "were not run",
    }  # fmt: skip
    one = {
        "holds": "holds", "does not hold": "does not hold", "moving": "is moving", "undecided": "is undecided",
        "below the floor": "is below the floor of its task", "one run": "rests on one run and is not counted",
        "not comparable": "is not comparable", "not run": "was not run",
    }  # fmt: skip
    count = Counter(verdict.judgement for verdict in verdicts)
    texts = [f"{count[each]} {(one if count[each] == 1 else several)[each]}" for each in JUDGEMENTS if count[each]]
    return f"{len(verdicts)} claim{'s' if len(verdicts) > 1 else ''}{_sources(verdicts)}; here {', '.join(texts)}."


def _sources(verdicts: Sequence[ClaimVerdict]) -> str:
    words = {"text": "of the paper's text", "table": "read from its tables", "elsewhere": "of another paper"}
    count = Counter(verdict.kind for verdict in verdicts)
    found = [(count[kind], word) for kind, word in words.items() if count[kind]]
    if len(found) == 1:
        return f" {found[0][1]}"
    return f", {', '.join(f'{number} {word}' for number, word in found)}"


def agreement(verdict: ClaimVerdict) -> str:
    """Say whether the paper's numbers agree with its text; a claim that is read from a table cannot contradict it."""
    if verdict.kind != "text" or verdict.in_paper_holds is None:
        return ""
    return "text and numbers agree" if verdict.in_paper_holds else "text and numbers disagree"


def contradicts_itself(verdict: ClaimVerdict) -> bool:
    """Return whether the paper's numbers contradict its text."""
    return verdict.kind == "text" and verdict.in_paper_holds is False


def about_scale(scale: str, parts: Iterable[Results]) -> str:
    """Describe a scale with the sizes of its models, here and in the paper."""
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
        "The scores cannot be compared with the paper's. The order of the models can, with care: training this short "
        "favours models that learn fast."
    )


def _millions(value: Number) -> str:
    return digits(value, 2) if value < 10 else fixed(value, 0)


def _span(values: Iterable[Number], text: Callable[[Number], str], unit: str) -> str:
    known = sorted(value for value in values if math.isfinite(value))
    if not known:
        return ""
    low, high = text(known[0]), text(known[-1])
    return f"{low}{unit}" if low == high else f"{low} to {high}{unit}"
