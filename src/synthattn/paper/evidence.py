"""From the records of runs to the numbers of a table, how certain they are, and what is published beside them."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from synthattn.compare import statistics
from synthattn.messages import suggestion
from synthattn.metrics.base import Metric
from synthattn.paper import outcome
from synthattn.paper.claims import Apart, Gap, Number, Printed, verdicts
from synthattn.paper.entries import Entry, load_all
from synthattn.paper.execute import chosen_rate
from synthattn.paper.recipe import SCALES, Part, Recipe, Row
from synthattn.paper.recipes import TABLES, recipe
from synthattn.render import published
from synthattn.render.results import Difference, Score
from synthattn.render.results import Metric as Shown
from synthattn.tasks import SUITES, find_task
from synthattn.training.evaluation import metrics_of_tasks

TITLES = {
    "translation": "Table 2: machine translation",
    "lm1b": "Table 2: language modelling",
    "generation": "Table 3: summarisation and dialogue",
    "c4": "Masked language modelling on C4",
    "glue": "GLUE",
    "superglue": "SuperGLUE",
    "encoding": "Encoders against Linformer",
    "heads": "The number of heads",
    "lra": "Long Range Arena",
}
COSTS = {"steps per second": "speed", "TFLOPs": "gigaflop"}
"""By what the paper calls it, what it is here."""
Pair = tuple[Entry, Entry]
"""Two runs that were asked the same."""
DRAWS, FEW_DRAWS = 1000, 200
"""Of the bootstrap, for the main metric and for the others."""


def collect(results: Path, table: str) -> outcome.Outcome:
    """What is known of a table, from its records alone."""
    if table not in TABLES:
        raise ValueError(f"there is no table {table!r}{suggestion(table, TABLES)}")
    found = load_all(results, table)
    parts = []
    for chosen in (recipe(table, scale, Path("DATA")) for scale in SCALES):
        own = [entry for entry in found if entry.scale == chosen.scale]
        # What nobody has run yet is still a table: of what is published, and of claims to be judged.
        if own or (not found and chosen.scale == "cpu"):
            for part in chosen.parts:
                runs = [entry for entry in own if entry.part == part.name]
                draw = statistics.remembered()
                shown = _part(chosen, part, runs, results, draw)
                parts.append((shown, _differences(runs, draw), _printed(part, list(shown.metrics))))
    # Tiny runs show that a command works, and nothing else: beside real ones they would only be in the way.
    parts = [one for one in parts if one[0].scale != "tiny"] or parts
    made = {
        f"{name} {entry.record.versions[name]}"
        for entry in found
        for name in ("synthattn", "torch")
        if name in entry.record.versions
    }
    made |= {f"on {entry.record.hardware['processor']}" for entry in found if "processor" in entry.record.hardware}
    notes = sorted({note for entry in found for note in entry.record.notes if not entry.candidate})
    notes += _left_out(found)
    notes.append("P-values of the first metric of a part are adjusted for the number of its rows (Holm).")
    return outcome.Outcome(
        table, TITLES[table], [part for part, _, _ in parts], verdicts(table, parts), notes, sorted(made)
    )


def _part(chosen: Recipe, part: Part, found: Sequence[Entry], results: Path, draw: statistics.Draw) -> outcome.Part:
    tried = [entry for entry in found if entry.candidate and entry.record.status == "done"]
    tried.sort(key=lambda entry: entry.rate)
    runs = _by_row(found)
    known = _metrics(runs) or _metrics_of(_task_names(part))
    # A suite of which some tasks are missing has another mean, which comes first.
    names = [name for name in part.metrics if name in known]
    if known and part.metrics[0] not in known:
        names.insert(0, next(iter(known)))
    main = names[0] if names else ""
    rows = [
        _row(part, row, runs.get(row.name, {}), runs.get(part.baseline.name, {}), known, names, results, draw)
        for row in part.rows
    ]
    if names:
        scores = [row.scores[main] for row in rows if row.attention and main in row.scores]
        statistics.adjust([score.difference for score in scores if score.difference is not None])
    table = part.published
    return outcome.Part(
        part.name,
        part.title,
        chosen.scale,
        part.baseline.name,
        {name: Shown(_definition(name, known[name], runs), known[name].higher_is_better) for name in names},
        rows,
        {}
        if table is None
        else {ours: _called(table, column) for column in _columns(part) if (ours := _ours(column, names)) is not None},
        "" if table is None else table.note,
        "" if table is None else table.doubt,
        _facts(part, tried or [run for row in part.rows if row.trained for run in runs.get(row.name, {}).values()]),
        {f"{entry.rate:g}": loss for entry in tried if (loss := entry.validation_loss) is not None},
        {f"{entry.rate:g}": _relative(entry, results) for entry in tried},
        part.note,
    )


def _by_row(found: Sequence[Entry]) -> dict[str, dict[int, Entry]]:
    """The runs that count: of several for the same row and seed, the first that was done."""
    runs: dict[str, dict[int, Entry]] = {}
    for entry in found:
        if not entry.candidate:
            known = runs.setdefault(entry.row, {})
            if entry.seed not in known or known[entry.seed].record.status != "done":
                known[entry.seed] = entry
    return runs


def _left_out(found: Sequence[Entry]) -> Iterator[str]:
    """Records that are in no table."""
    chosen = {scale: recipe(found[0].table, scale) for scale in SCALES} if found else {}
    places = {(scale, part.name, row.name) for scale in chosen for part in chosen[scale].parts for row in part.rows}
    groups: dict[tuple[str, str], list[Entry]] = {}
    for entry in found:
        if (entry.scale, entry.part, entry.row) not in places:
            name = f"{entry.row!r} of {entry.part}, scale {entry.scale}"
            yield f"{entry.path and entry.path.name} is in no table: there is no row {name}"
        groups.setdefault((entry.scale, entry.part), []).append(entry)
    for runs in groups.values():
        counted = [entry for by_seed in _by_row(runs).values() for entry in by_seed.values()]
        for entry in runs:
            if not entry.candidate and all(entry is not one for one in counted):
                yield f"{entry.path and entry.path.name} is left out: there is another run of the same row and seed"


def _differences(found: Sequence[Entry], draw: statistics.Draw) -> Apart:
    """Between any two rows, where the table itself has differences from the baseline alone."""
    runs = _by_row(found)
    known = _metrics(runs)

    def apart(row: str, than: str, metric: str) -> Gap | None:
        one, other = (_done(runs.get(name, {})) for name in (row, than))
        pairs = _pairs(one, other, metric) if metric in known else []
        if not pairs:
            return None
        score = _score(known[metric], metric, {n: ours for n, (ours, _) in enumerate(pairs)}, {}, DRAWS, draw)
        difference = _difference(known[metric], metric, pairs, DRAWS, draw)
        if score is None or not math.isfinite(difference.value):
            return None
        examples = len(pairs[0][0].rows[metric])
        return Gap(score.value, score.value - difference.value, difference, len(pairs), examples)

    return apart


def _done(runs: Mapping[int, Entry]) -> dict[int, Entry]:
    return {seed: entry for seed, entry in sorted(runs.items()) if entry.record.status == "done"}


def _row(
    part: Part,
    row: Row,
    runs: Mapping[int, Entry],
    base: Mapping[int, Entry],
    metrics: Mapping[str, Metric],
    names: Sequence[str],
    results: Path,
    draw: statistics.Draw,
) -> outcome.Row:
    done = _done(runs)
    first = next(iter(done.values()), None)
    failed = next((entry for entry in runs.values() if entry.record.status == "failed"), None)
    differs = ", ".join(f"{name}={value}" for name, value in row.fields.items())
    if row.control and first is not None:
        differs = f"d_ff={first.record.model['configuration']['d_ff']}"
    if not row.trained:
        differs = "the best one, with hindsight"
    result = outcome.Row(row.name, row.key, row.attention, differs, wanted_seeds=row.seeds)
    result.published = _published(part, row, names)
    if first is None:
        if failed is not None:
            result.status, result.reason = "failed", failed.record.reason
        return result
    result.status = "done"
    result.parameters, result.gigaflop = first.record.model.get("parameters"), first.gigaflop
    if first.speed is not None:
        result.speed = outcome.Speed(*first.speed)
    elif part.speed and row == part.baseline:
        result.speed = outcome.Speed(1.0, 1.0, 1.0)
    if first.after:
        result.look = outcome.Look(first.before, first.after)
    result.validation = [[float(step), float(loss)] for step, loss in first.record.validation if math.isfinite(loss)]
    result.runs = [
        outcome.Run(
            seed, _relative(entry, results), entry.command, round(entry.record.times.get("training_seconds", 0.0), 1)
        )
        for seed, entry in done.items()
    ]
    others = _done(base) if row != part.baseline else {}
    for name in names:
        score = _score(metrics[name], name, done, others, DRAWS if name == names[0] else FEW_DRAWS, draw)
        if score is not None:
            result.scores[name] = score
    return result


def _score(
    metric: Metric,
    name: str,
    done: Mapping[int, Entry],
    base: Mapping[int, Entry],
    draws: int,
    draw: statistics.Draw,
) -> Score | None:
    """The mean over all seeds; the difference from the baseline is over the seeds that both have."""
    rows = [entry.rows[name] for entry in done.values() if name in entry.rows]
    if not rows:
        values = [entry.record.scores[name] for entry in done.values() if name in entry.record.scores]
        if not values:
            return None
        by_seed = [float(value["value"]) for value in values]
        ends = (float(values[0]["low"]), float(values[0]["high"]))
        return Score(sum(by_seed) / len(by_seed), min(ends[0], *by_seed), max(ends[1], *by_seed), by_seed)
    score = statistics.score(metric, rows, None, draws, draw)
    if pairs := _pairs(done, base, name):
        score.difference = _difference(metric, name, pairs, draws, draw)
    numbers = [score.value, score.low, score.high]
    return score if all(map(math.isfinite, numbers)) else None


def _difference(metric: Metric, name: str, pairs: Sequence[Pair], draws: int, draw: statistics.Draw) -> Difference:
    ours, theirs = ([entry.rows[name] for entry in entries] for entries in zip(*pairs, strict=True))
    found = statistics.score(metric, ours, theirs, draws, draw).difference
    assert found is not None
    return found


def _pairs(one: Mapping[int, Entry], other: Mapping[int, Entry], metric: str) -> list[Pair]:
    """The runs of the same seeds that have been scored on the same examples."""
    # One answer for all has no seed: it is compared with every run.
    if one and not any(entry.record.model for entry in one.values()):
        one = dict.fromkeys(other, next(iter(one.values())))
    if other and not any(entry.record.model for entry in other.values()):
        other = dict.fromkeys(one, next(iter(other.values())))
    pairs = [(entry, other[seed]) for seed, entry in one.items() if seed in other]
    return [(a, b) for a, b in pairs if metric in a.rows and metric in b.rows and _alike(a, b, metric)]


def _alike(one: Entry, other: Entry, metric: str) -> bool:
    """Whether two runs were scored on the same examples, wherever these were stored."""
    data = [sorted(entry.record.data.get("sources", {}).values()) for entry in (one, other)]
    splits = [entry.record.evaluation.get("splits") for entry in (one, other)]
    return data[0] == data[1] and splits[0] == splits[1] and len(one.rows[metric]) == len(other.rows[metric])


def _metrics(runs: Mapping[str, Mapping[int, Entry]]) -> dict[str, Metric]:
    """All metrics of a part by name, the main one first, as the records have them."""
    for by_seed in runs.values():
        for entry in by_seed.values():
            if entry.record.status == "done":
                return _metrics_of(list(entry.record.evaluation["splits"]))
    return {}


def _task_names(part: Part) -> list[str]:
    """As evaluation names them; MNLI is two tasks, its two sets."""
    tasks = SUITES.get(part.settings.data.task, (part.settings.data.task,))
    return [name for task in tasks for name in (("mnli-matched", "mnli-mismatched") if task == "mnli" else (task,))]


def _metrics_of(names: Sequence[str]) -> dict[str, Metric]:
    return metrics_of_tasks(
        {name: find_task(name.removesuffix("-mismatched").removesuffix("-matched")) for name in names}
    )


def _definition(name: str, metric: Metric, runs: Mapping[str, Mapping[int, Entry]]) -> str:
    """As the runs have it, which know with which vectors of words they were scored."""
    scores = (entry.record.scores.get(name, {}) for by_seed in runs.values() for entry in by_seed.values())
    return next((str(score["definition"]) for score in scores if "definition" in score), metric.definition)


def _columns(part: Part) -> list[published.Column]:
    table = part.published
    if table is None:
        return []
    return [column for column in table.columns if not part.published_data or column.data == part.published_data]


def _ours(column: published.Column, names: Sequence[str]) -> str | None:
    """Our metric that a column is to be read beside, of those that there are."""
    if column.ours in SUITES and "mean" in names:  # of a suite of which some tasks are missing
        return "mean"
    return column.ours if column.ours in names else None


def _called(table: published.Table, column: published.Column) -> str:
    printed = "exp of " if column.logarithm else ""
    return f"{printed}{column.metric}, {column.data}, {table.number}"


def _published(part: Part, row: Row, names: Sequence[str]) -> dict[str, outcome.Published]:
    """What the paper has for a row, by our metric; parameters and speed among them."""
    table = part.published
    theirs = None if table is None else next((one for one in table.rows if one.name == row.name), None)
    if table is None or theirs is None:
        return {}
    source = theirs.source or f"{table.source}, {table.number}"
    found: dict[str, Any] = {}
    for column in _columns(part):
        value = theirs.values[table.columns.index(column)]
        name = _ours(column, names) or COSTS.get(column.metric)
        if name is None or math.isnan(value):
            continue
        found[name] = outcome.Published(round(math.exp(value), 2) if column.logarithm else value, source, theirs.doubt)
    if theirs.parameters is not None:
        found["parameters"] = outcome.Published(float(theirs.parameters), source, theirs.doubt)
    return found


def _printed(part: Part, names: Sequence[str]) -> Printed:
    """The paper's numbers as they stand there, of all of its rows, also of those that are not run at a scale."""
    table = part.published

    def printed(row: str, metric: str) -> Number | None:
        theirs = None if table is None else next((one for one in table.rows if one.name == row), None)
        if table is None or theirs is None:
            return None
        for column in _columns(part):
            value = theirs.values[table.columns.index(column)]
            if metric == _ours(column, names) or metric == COSTS.get(column.metric):
                source = published.SHORT.get(theirs.source, theirs.source)
                return None if math.isnan(value) else Number(value, column.metric, source, column.logarithm)
        return None

    return printed


def _facts(part: Part, found: Sequence[Entry]) -> dict[str, str]:
    """What was equal for all rows, as the records say; where there are none yet, as the recipe does."""
    settings: Mapping[str, Any] = found[0].record.settings if found else {}
    if not settings:
        return {}
    data, model, training = settings["data"], settings["model"], settings["training"]
    chosen = (chosen_rate(found) if part.rates else None) or float(training["learning_rate"])
    # What rows differ in, they say themselves.
    own = {name for row in part.rows for name in row.fields} | {"d_ff"}
    changes = ", ".join(f"{name}={value}" for name, value in model["fields"].items() if name not in own)
    return {
        "data": data["source"],
        "vocabulary": f"{found[0].record.data.get('vocabulary', data['vocab_size']):,} tokens",
        "preset": model["preset"] if not model["start"] else "as before",
        "changes to the preset": changes or "none",
        "steps": f"{found[0].record.steps:,}",
        "batch": f"{training['batch_tokens'] * training['accumulation']:,} tokens",
        "optimizer": f"{training['optimizer']}, {training['schedule']} after {training['warmup']} steps "
        + ("at the highest rate" if training["schedule"] == "t5" else "of warm-up"),
        "learning rate": f"{chosen:g}"
        + (" (the best of " + ", ".join(f"{r:g}" for r in part.rates) + ")" if len(part.rates) > 1 else ""),
        "weights": training["keep"],
        "scored on": ", ".join(sorted(set(found[0].record.evaluation.get("splits", {}).values()))),
    }


def _relative(entry: Entry, results: Path) -> str:
    assert entry.path is not None
    return entry.path.relative_to(results).as_posix()
