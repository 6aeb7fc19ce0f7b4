"""From the records of a table's runs to its numbers, and what is published beside them."""

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from synthattn.compare import records, statistics
from synthattn.compare.collect import (
    Runs,
    Scoring,
    add_runs,
    by_row,
    done,
    over_seeds,
    relative,
    same_seeds,
    seed_variance,
)
from synthattn.compare.execution import chosen_rate
from synthattn.compare.plan import ONE_ANSWER, Study, StudyRow
from synthattn.compare.records import StudyRecord
from synthattn.compare.results import Difference, MetricInfo, PublishedNumber, Results, Variant
from synthattn.compare.verdict import curve_gaps
from synthattn.messages import suggestion
from synthattn.metrics.base import Metric
from synthattn.paper.claims import Apart, Gap, Number, Printed, verdicts
from synthattn.paper.outcome import Outcome
from synthattn.paper.published import SHORT, PaperColumn, PaperRow, PaperTable
from synthattn.paper.recipes import SCALES, TABLES, PaperPart, experiments, recipe, whole
from synthattn.render.numbers import digits
from synthattn.tasks import SUITES, find_task
from synthattn.training.evaluation import metrics_of_tasks

RECORDS = "records"
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
DRAWS, FEW_DRAWS = 1000, 200
"""Of the bootstrap, for the main metric and for the others."""


def load_all(results: Path, table: str) -> list[StudyRecord]:
    """Read all records of a table, whoever made them, in the order of their paths."""
    return [records.load(path) for path in records.record_files((results / RECORDS / table).rglob("*"))]


def place(results: Path, table: str, scale: str, part: str, name: str) -> Path:
    """Return where the record of a run is kept; its rows are beside it."""
    return results / RECORDS / table / scale / part / f"{name}.json.xz"


def collect(results: Path, table: str) -> Outcome:
    """Return what is known of a table, from its records alone."""
    if table not in TABLES:
        raise ValueError(f"there is no table {table!r}{suggestion(table, TABLES)}")
    found = load_all(results, table)
    parts = []
    for chosen in (recipe(table, scale, Path("DATA")) for scale in SCALES):
        own = [entry for entry in found if entry.scale == chosen.scale]
        # What nobody has run yet is still a table: of what is published, and of claims to be judged.
        if own or (not found and chosen.scale == "cpu"):
            for group in experiments(chosen):
                names = {part.name for part in group}
                parts.append(_part(chosen, whole(group), [entry for entry in own if entry.part in names], results))
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
    notes += sorted({entry.trouble for entry in found if entry.trouble})
    notes += _left_out(found)
    if any(entry.after for entry in found):
        notes.append("Attention weights before and after training are on the page of the table analysis.")
    notes.append(
        "P-values of the first metric of a part are adjusted for the number of its rows with several runs (Holm). "
        "Those of claims are adjusted for the number of counted claims. Rows with one run are shown and not counted."
    )
    shown = [part for part, _, _ in parts]
    return Outcome(table, TITLES[table], shown, notes, sorted(made), verdicts=verdicts(table, parts))


def _part(
    chosen: Study, part: PaperPart, found: Sequence[StudyRecord], results: Path
) -> tuple[Results, Apart, Printed]:
    tried = [entry for entry in found if entry.candidate and entry.record.status == "done"]
    tried.sort(key=lambda entry: entry.rate)
    runs = by_row(found)
    scored = _metrics(runs)
    known = scored or _metrics_of(_task_names(part))
    # A suite of which some tasks are missing has another mean, which comes first.
    names = [name for name in part.metrics if name in known]
    if known and part.metrics[0] not in known:
        names.insert(0, next(iter(known)))
    main = names[0] if names else ""
    scoring = Scoring(known, statistics.remembered(), same_seeds, DRAWS, FEW_DRAWS)
    rows = [_row(part, row, runs, names, scoring, results) for row in part.rows]
    apart = _differences(runs, scoring if scored else None, rows)
    for row in rows:
        for name, score in row.scores.items():
            # The seed variance of a whole table says more than that of one row.
            gap = apart(row.name, part.baseline.name, name) if row.name != part.baseline.name else None
            if gap is not None and gap.estimate is not None and row.attention:
                score.difference = gap.difference
    scores = [row.scores[main] for row in rows if row.attention and main in row.scores and len(row.runs) > 1]
    statistics.adjust([score.difference for score in scores if score.difference is not None])
    table = part.published
    # Rows that were tuned one by one have no candidates in common.
    each = not part.rates and any(entry.part != part.name for entry in found)
    rates = _own_rates(found) if each else ""
    tried = [] if each else tried
    shown = Results(
        task=part.settings.data.task,
        data=part.title,
        baseline=part.baseline.name,
        main_metric=main,
        answer=[],
        rows=rows,
        metrics={
            name: MetricInfo(_definition(name, known[name], runs), known[name].higher_is_better) for name in names
        },
        facts=_facts(
            part, tried or [run for row in part.rows if row.trained for run in runs.get(row.name, {}).values()]
        ),
        name=part.name,
        title=part.title,
        scale=chosen.scale,
        published_note="" if table is None else table.note,
        published_doubt="" if table is None else table.doubt,
        rates={f"{entry.rate:g}": loss for entry in tried if (loss := entry.validation_loss) is not None},
        rate_runs={f"{entry.rate:g}": relative(entry, results) for entry in tried},
        note=part.note,
    )
    if rates:
        shown.facts["learning rate"] = f"chosen for each row by its own validation loss: {rates}"
    elif shown.facts and len([row for row in part.rows if row.trained]) > 1:
        shown.facts["learning rate"] += f"; chosen for {part.baseline.name} alone, which may favour it"
    if table is not None:
        columns = ((_ours(column, names), _called(table, column)) for column in _columns(part))
        shown.published_metrics = {ours: called for ours, called in columns if ours is not None}
    return shown, apart, _printed(part, names)


def _own_rates(found: Sequence[StudyRecord]) -> str:
    """Return the chosen rate of each row, and the validation loss with every rate that was tried."""
    groups: dict[str, list[StudyRecord]] = {}
    for entry in sorted((entry for entry in found if entry.candidate), key=lambda entry: entry.rate):
        groups.setdefault(entry.row, []).append(entry)
    texts = []
    for row, tried in groups.items():
        losses = [(entry.rate, entry.validation_loss) for entry in tried if entry.record.status == "done"]
        shown = ", ".join(f"{rate:g}: {digits(loss, 4)}" for rate, loss in losses if loss is not None)
        texts.append(f"{row} {chosen_rate(tried) or 0:g} ({shown})")
    return "; ".join(texts)


def _left_out(found: Sequence[StudyRecord]) -> Iterator[str]:
    """Name the records that are in no table."""
    chosen = {scale: recipe(found[0].table, scale) for scale in SCALES} if found else {}
    places = {(scale, part.name, row.name) for scale in chosen for part in chosen[scale].parts for row in part.rows}
    groups: dict[tuple[str, str], list[StudyRecord]] = {}
    for entry in found:
        if (entry.scale, entry.part, entry.row) not in places:
            name = f"{entry.row!r} of {entry.part}, scale {entry.scale}"
            yield f"{entry.path and entry.path.name} is in no table: there is no row {name}"
        groups.setdefault((entry.scale, entry.part), []).append(entry)
    for runs in groups.values():
        counted = [entry for by_seed in by_row(runs).values() for entry in by_seed.values()]
        for entry in runs:
            if not entry.candidate and all(entry is not one for one in counted):
                yield f"{entry.path and entry.path.name} is left out: there is another run of the same row and seed"


def _differences(runs: Mapping[str, Runs], scoring: Scoring | None, rows: Sequence[Variant]) -> Apart:
    """Compare any two rows, where the table itself has differences from the baseline alone."""
    pooled: dict[str, statistics.SeedVariance | None] = {}

    def variance(metric: str) -> statistics.SeedVariance | None:
        if metric not in pooled:
            pooled[metric] = seed_variance(runs, rows, metric)
        return pooled[metric]

    @functools.cache
    def apart(row: str, than: str, metric: str) -> Gap | None:
        found = scoring and scoring.compare(metric, done(runs.get(row, {})), done(runs.get(than, {})))
        if not found or not scoring:
            return None
        score, difference, pairs = found
        ours, theirs = zip(*pairs, strict=True)
        estimate, of_seeds = None, variance(metric)
        trained = all(entry.record.model for entry in (*ours, *theirs))
        if trained and of_seeds is not None and len(pairs) > 1:
            estimate = scoring.estimate(metric, pairs, of_seeds)
            difference = Difference(estimate.value, *estimate.interval, estimate.p_value())
        curves = _curve(ours), _curve(theirs)
        trend = curve_gaps(*curves) if trained else None
        loss = curves[1][-1][1] if trend else 0.0
        examples = len(pairs[0][0].rows[metric])
        return Gap(score.value, score.value - difference.value, difference, len(pairs), examples, estimate, trend, loss)

    return apart


def _curve(entries: Sequence[StudyRecord]) -> list[list[float]]:
    """Return the mean validation loss over runs: of the weights that would have been kept at each step."""
    curves = []
    for entry in entries:
        losses = [float(loss) for _, loss in entry.record.validation]
        if entry.record.model and entry.record.settings["training"].get("keep") == "best":
            losses = list(itertools.accumulate(losses, min))
        curves.append([[float(step), loss] for (step, _), loss in zip(entry.record.validation, losses, strict=True)])
    return over_seeds(curves)[0]


def _row(
    part: PaperPart,
    row: StudyRow,
    runs: Mapping[str, Runs],
    names: Sequence[str],
    scoring: Scoring,
    results: Path,
) -> Variant:
    own = runs.get(row.name, {})
    first = next(iter(done(own).values()), None)
    shown = Variant(row.attention, "missing", name=row.name, key=row.key, wanted_seeds=row.seeds)
    shown.differs = ", ".join(f"{name}={value}" for name, value in row.fields.items())
    if row.control and first is not None:
        shown.differs = f"d_ff={first.record.model['configuration']['d_ff']}"
    if row == ONE_ANSWER:
        shown.differs = "the best one, with hindsight"
    shown.published = _published(part, row, names)
    add_runs(shown, own, results)
    if first is None:
        shown.status = "failed" if shown.failed_seeds else "missing"
        return shown
    shown.status, shown.reason, shown.failed_seeds = "done", "", 0
    shown.loss_curve, shown.training_seconds = [], None
    # The page of "analysis" shows the attention weights of all tables.
    shown.histograms, shown.histograms_before = [], []
    if part.speed_rounds and row == part.baseline:
        shown.training_speed = 1.0
    base = done(runs.get(part.baseline.name, {})) if row != part.baseline else {}
    found = {name: scoring.score(name, done(own), base, name == names[0]) for name in names}
    shown.scores = {name: score for name, score in found.items() if score is not None}
    return shown


def _metrics(runs: Mapping[str, Runs]) -> dict[str, Metric]:
    """All metrics of a part by name, the main one first, as the records have them."""
    for by_seed in runs.values():
        for entry in by_seed.values():
            if entry.record.status == "done":
                return _metrics_of(list(entry.record.evaluation["splits"]))
    return {}


def _task_names(part: PaperPart) -> list[str]:
    """Return task names as evaluation has them; MNLI is two tasks, its two sets."""
    tasks = SUITES.get(part.settings.data.task, (part.settings.data.task,))
    return [name for task in tasks for name in (("mnli-matched", "mnli-mismatched") if task == "mnli" else (task,))]


def _metrics_of(names: Sequence[str]) -> dict[str, Metric]:
    return metrics_of_tasks(
        {name: find_task(name.removesuffix("-mismatched").removesuffix("-matched")) for name in names}
    )


def _definition(name: str, metric: Metric, runs: Mapping[str, Runs]) -> str:
    """Return the definition that the runs have, which know with which vectors of words they were scored."""
    scores = (entry.record.scores.get(name, {}) for by_seed in runs.values() for entry in by_seed.values())
    return next((str(score["definition"]) for score in scores if "definition" in score), metric.definition)


def _columns(part: PaperPart) -> list[PaperColumn]:
    table = part.published
    if table is None:
        return []
    return [column for column in table.columns if not part.published_data or column.data == part.published_data]


def _ours(column: PaperColumn, names: Sequence[str]) -> str | None:
    """Our metric that a column is to be read beside, of those that there are."""
    if column.ours in SUITES and "mean" in names:  # of a suite of which some tasks are missing
        return "mean"
    return column.ours if column.ours in names else None


def _called(table: PaperTable, column: PaperColumn) -> str:
    printed = "exp of " if column.logarithm else ""
    return f"{printed}{column.metric}, {column.data}, {table.number}"


def _numbers(part: PaperPart, row: str, names: Sequence[str]) -> Iterator[tuple[str, PaperColumn, float, PaperRow]]:
    """Yield what the paper has for a row: our metric or cost, its column, the number and all of its row."""
    table = part.published
    theirs = None if table is None else next((one for one in table.rows if one.name == row), None)
    if table is None or theirs is None:
        return
    for column in _columns(part):
        name = _ours(column, names) or COSTS.get(column.metric)
        if name is not None:
            yield name, column, theirs.values[table.columns.index(column)], theirs


def _published(part: PaperPart, row: StudyRow, names: Sequence[str]) -> dict[str, PublishedNumber]:
    """Return what the paper has for a row, by our metric; parameters and speed among them."""
    table, found = part.published, {}
    theirs = None if table is None else next((one for one in table.rows if one.name == row.name), None)
    if table is None or theirs is None:
        return {}
    source = theirs.source or f"{table.source}, {table.number}"
    for name, column, value, _ in _numbers(part, row.name, names):
        if not math.isnan(value):
            plain = round(math.exp(value), 2) if column.logarithm else value
            found[name] = PublishedNumber(plain, source, theirs.doubt)
    if theirs.parameters is not None:
        found["parameters"] = PublishedNumber(float(theirs.parameters), source, theirs.doubt)
    return found


def _printed(part: PaperPart, names: Sequence[str]) -> Printed:
    """Return the paper's numbers as they stand there, of all of its rows, also of those that are not run at a scale."""

    def printed(row: str, metric: str) -> Number | None:
        for name, column, value, theirs in _numbers(part, row, names):
            if name == metric:
                source = SHORT.get(theirs.source, theirs.source)
                return None if math.isnan(value) else Number(value, column.metric, source, column.logarithm)
        return None

    return printed


def _facts(part: PaperPart, found: Sequence[StudyRecord]) -> dict[str, str]:
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
