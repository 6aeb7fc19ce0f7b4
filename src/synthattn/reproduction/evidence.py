"""From the records of runs to the numbers of a table, how certain they are, and what is published beside them."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from synthattn.comparison import statistics
from synthattn.messages import suggestion
from synthattn.metrics.averages import suite_average
from synthattn.metrics.base import Metric, Rows
from synthattn.report import published
from synthattn.report.results import Difference, Score
from synthattn.report.results import Metric as Shown
from synthattn.reproduction import outcome
from synthattn.reproduction.claims import Apart, verdicts
from synthattn.reproduction.entries import Entry, load_all
from synthattn.reproduction.execute import chosen_rate
from synthattn.reproduction.recipe import SCALES, Part, Recipe, Row
from synthattn.reproduction.recipes import TABLES, recipe
from synthattn.tasks import SUITES, find_task
from synthattn.training.evaluation import similarities

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
DRAWS, FEW_DRAWS = 1000, 200
"""Of the bootstrap, for the main metric and for the others."""


def collect(results: Path, table: str) -> outcome.Outcome:
    """What is known of a table, from its records alone."""
    if table not in TABLES:
        raise ValueError(f"there is no table {table!r}{suggestion(table, TABLES)}")
    found = load_all(results, table)
    parts = []
    for chosen in (recipe(table, scale, Path("DATA")) for scale in SCALES):
        for part in chosen.parts:
            runs = [entry for entry in found if (entry.scale, entry.part) == (chosen.scale, part.name)]
            # What nobody has run yet is still a table: of what is published, and of claims to be judged.
            if runs or (not found and chosen.scale == "cpu"):
                parts.append((_part(chosen, part, runs, results), _differences(runs)))
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
    notes.append("P-values of the first metric of a part are adjusted for the number of its rows (Holm).")
    return outcome.Outcome(
        table, TITLES[table], [part for part, _ in parts], verdicts(table, parts), notes, sorted(made)
    )


def _part(chosen: Recipe, part: Part, found: Sequence[Entry], results: Path) -> outcome.Part:
    tried = [entry for entry in found if entry.candidate]
    runs = _by_row(found)
    known = _metrics(runs) or _metrics_of(_task_names(part))
    # A suite of which some tasks are missing has another mean, which comes first.
    names = [name for name in part.metrics if name in known]
    if known and part.metrics[0] not in known:
        names.insert(0, next(iter(known)))
    main = names[0] if names else ""
    rows = [
        _row(part, row, runs.get(row.name, {}), runs.get(part.baseline.name, {}), known, names, results)
        for row in part.rows
    ]
    if names:
        statistics.adjust([s.difference for row in rows if (s := row.scores.get(main)) and s.difference is not None])
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
        else {column.ours: _called(table, column) for column in _columns(part) if column.ours in names},
        "" if table is None else table.note,
        "" if table is None else table.doubt,
        _facts(part, tried or [entry for by_seed in runs.values() for entry in by_seed.values()]),
        {f"{entry.rate:g}": loss for entry in tried if (loss := entry.validation_loss) is not None},
        {f"{entry.rate:g}": _relative(entry, results) for entry in tried},
        part.note,
    )


def _by_row(found: Sequence[Entry]) -> dict[str, dict[int, Entry]]:
    runs: dict[str, dict[int, Entry]] = {}
    for entry in found:
        if not entry.candidate:
            runs.setdefault(entry.row, {})[entry.seed] = entry
    return runs


def _differences(found: Sequence[Entry]) -> Apart:
    """Between any two rows, where the table itself has differences from the baseline alone."""
    runs = _by_row(found)
    known = _metrics(runs)

    def apart(row: str, than: str, metric: str) -> Difference | None:
        one, other = (_done(runs.get(name, {})) for name in (row, than))
        score = _score(known[metric], metric, one, other, DRAWS) if one and other and metric in known else None
        return None if score is None else score.difference

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
) -> outcome.Row:
    done = _done(runs)
    first = next(iter(done.values()), None)
    failed = next((entry for entry in runs.values() if entry.record.status == "failed"), None)
    differs = ", ".join(f"{name}={value}" for name, value in row.fields.items())
    if row.control and first is not None:
        differs = f"d_ff={first.record.model['configuration']['d_ff']}"
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
    result.runs = [
        outcome.Run(
            seed, _relative(entry, results), entry.command, round(entry.record.times.get("training_seconds", 0.0), 1)
        )
        for seed, entry in done.items()
    ]
    others = _done(base) if row != part.baseline else {}
    for name in names:
        score = _score(metrics[name], name, done, others, DRAWS if name == names[0] else FEW_DRAWS)
        if score is not None:
            result.scores[name] = score
    return result


def _score(metric: Metric, name: str, done: Mapping[int, Entry], base: Mapping[int, Entry], draws: int) -> Score | None:
    """The mean over all seeds; the difference from the baseline is over the seeds that both have."""
    rows = {seed: found for seed, entry in done.items() if (found := _rows(entry, name)) is not None}
    if not rows:
        values = [entry.record.scores[name] for entry in done.values() if name in entry.record.scores]
        if not values:
            return None
        by_seed = [float(value["value"]) for value in values]
        ends = (float(values[0]["low"]), float(values[0]["high"]))
        return Score(sum(by_seed) / len(by_seed), min(ends[0], *by_seed), max(ends[1], *by_seed), by_seed)
    score = statistics.score(metric, list(rows.values()), None, draws)
    others = {seed: found for seed in rows if seed in base and (found := _rows(base[seed], name)) is not None}
    if others and all(len(others[seed]) == len(rows[seed]) for seed in others):
        both = statistics.score(metric, [rows[seed] for seed in others], list(others.values()), draws)
        score.difference = both.difference
    numbers = [score.value, score.low, score.high]
    return score if all(map(math.isfinite, numbers)) else None


def _rows(entry: Entry, name: str) -> Rows | None:
    return entry.rows().get(name)


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


def _metrics_of(tasks: Sequence[str]) -> dict[str, Metric]:
    groups = {name: find_task(name.removesuffix("-mismatched").removesuffix("-matched")).metrics() for name in tasks}
    if len(groups) == 1:
        ((name, metrics),) = groups.items()
        # Vectors of words are in the rows already.
        found = [*metrics, *similarities(find_task(name), {"": np.zeros(1, np.float32)}, "")]
        return {metric.name: metric for metric in found}
    parts = {(task, metric.name): metric for task, metrics in groups.items() for metric in metrics}
    mean = suite_average(parts)
    return {mean.name: mean} | {f"{task} {name}": metric for (task, name), metric in parts.items()}


def _definition(name: str, metric: Metric, runs: Mapping[str, Mapping[int, Entry]]) -> str:
    """As the runs have it, which know with which vectors of words they were scored."""
    scores = (entry.record.scores.get(name, {}) for by_seed in runs.values() for entry in by_seed.values())
    return next((str(score["definition"]) for score in scores if "definition" in score), metric.definition)


def _columns(part: Part) -> list[published.Column]:
    table = part.published
    if table is None:
        return []
    return [column for column in table.columns if not part.published_data or column.data == part.published_data]


def _called(table: published.Table, column: published.Column) -> str:
    printed = "exp of " if column.logarithm else ""
    return f"{printed}{column.metric}, {column.data}, {table.number}"


def _published(part: Part, row: Row, names: Sequence[str]) -> dict[str, outcome.Published]:
    """What the paper has for a row, by our metric; parameters and speed among them."""
    table = part.published
    theirs = None if table is None else next((one for one in table.rows if one.name == row.name), None)
    if table is None or theirs is None:
        return {}
    source = f"{theirs.source or table.source}, {table.number}" if not theirs.source else theirs.source
    found: dict[str, Any] = {}
    for column in _columns(part):
        value = theirs.values[table.columns.index(column)]
        name = column.ours if column.ours in names else "speed" if column.metric == "steps per second" else None
        if name is None or math.isnan(value):
            continue
        found[name] = outcome.Published(round(math.exp(value), 2) if column.logarithm else value, source, theirs.doubt)
    if theirs.parameters is not None:
        found["parameters"] = outcome.Published(float(theirs.parameters), source, theirs.doubt)
    return found


def _facts(part: Part, found: Sequence[Entry]) -> dict[str, str]:
    """What was equal for all rows, as the records say; where there are none yet, as the recipe does."""
    settings: Mapping[str, Any] = found[0].record.settings if found else {}
    if not settings:
        return {}
    data, model, training = settings["data"], settings["model"], settings["training"]
    chosen = chosen_rate(found) if part.rates else float(training["learning_rate"])
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
        "optimizer": f"{training['optimizer']}, {training['schedule']} after {training['warmup']} steps of warm-up",
        "learning rate": f"{chosen:g}"
        + (" (the best of " + ", ".join(f"{r:g}" for r in part.rates) + ")" if part.rates else ""),
        "weights": training["keep"],
        "scored on": ", ".join(sorted(set(found[0].record.evaluation.get("splits", {}).values()))),
    }


def _relative(entry: Entry, results: Path) -> str:
    assert entry.path is not None
    return entry.path.relative_to(results).as_posix()
