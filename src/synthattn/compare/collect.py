"""From the records of runs to the rows of results: scores, how certain they are, and costs."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from synthattn.compare import statistics
from synthattn.compare.records import StudyRecord
from synthattn.compare.results import SPEEDS, Difference, Run, Score, Variant
from synthattn.metrics.base import Metric

Runs = Mapping[int, StudyRecord]
"""The runs of a row, by seed."""
Pair = tuple[StudyRecord, StudyRecord]
"""Two runs that were asked the same."""


def by_row(found: Sequence[StudyRecord]) -> dict[str, dict[int, StudyRecord]]:
    """Group the runs that count: of several for the same row and seed, the first that was done."""
    runs: dict[str, dict[int, StudyRecord]] = {}
    for entry in found:
        if not entry.candidate:
            known = runs.setdefault(entry.row, {})
            if entry.seed not in known or known[entry.seed].record.status != "done":
                known[entry.seed] = entry
    return runs


def done(runs: Runs) -> dict[int, StudyRecord]:
    """Return the runs that are done, by seed."""
    return {seed: entry for seed, entry in sorted(runs.items()) if entry.record.status == "done"}


def add_runs(row: Variant, runs: Runs, root: Path) -> None:
    """Fill in all of a row but its scores: whether it failed, its costs, its curves, and where its records are.

    Args:
        row: is filled.
        runs: all runs of the row.
        root: the folder of all results.
    """
    failed = [entry for entry in runs.values() if entry.record.status == "failed"]
    finished = done(runs)
    if failed:
        row.failed_seeds, row.reason = len(failed), failed[0].record.reason
    if not finished:
        return
    first = next(iter(finished.values()))
    row.parameters, row.gigaflop = first.record.model.get("parameters"), first.gigaflop
    row.training_memory, row.cache_bytes_per_token = first.training_memory, first.cache_bytes_per_token
    row.training_seconds = first.record.times.get("training_seconds")
    for name in SPEEDS:
        if name in first.speeds:
            median, *row.spread[name] = first.speeds[name][:3]
            setattr(row, name, median)
            # Records from before the rounds were counted have three numbers.
            row.rounds |= dict.fromkeys([name] if first.speeds[name][3:] else [], int(first.speeds[name][-1]))
    row.histograms_before, row.histograms, row.heads = first.before, first.after, first.heads
    row.mixture = first.mixture
    # A loss that is no number any more says why a run failed; a curve cannot show it, nor JSON hold it.
    row.loss_curve, row.validation_curve = (
        [[float(step), float(loss)] for step, loss in curve if math.isfinite(loss)]
        for curve in (first.record.loss, first.record.validation)
    )
    row.runs = [
        Run(seed, relative(entry, root), entry.command, round(entry.record.times.get("training_seconds", 0.0), 1))
        for seed, entry in finished.items()
    ]


def over_seeds(curves: Sequence[Sequence[Sequence[int | float]]]) -> tuple[list[list[float]], list[list[float]]]:
    """Return the mean of the curves of several seeds, and for each step the least and the largest value.

    Only steps that all curves have count. One curve, or the first of several without common steps, has no band.
    """
    known = [{float(step): float(value) for step, value in curve if math.isfinite(value)} for curve in curves]
    steps = sorted(set.intersection(*map(set, known))) if known else []
    known = known if steps else known[:1]
    found = [(step, [curve[step] for curve in known]) for step in steps or (known[0] if known else ())]
    band = [[step, min(values), max(values)] for step, values in found] if len(known) > 1 else []
    return [[step, sum(values) / len(values)] for step, values in found], band


def relative(entry: StudyRecord, root: Path) -> str:
    """Return the path of a record from the folder of all results."""
    assert entry.path is not None
    return entry.path.relative_to(root).as_posix()


def same_seeds(one: Runs, other: Runs) -> list[Pair]:
    """Pair the runs of the seeds that both rows have; a row that is no model has no seed and goes with every run."""
    if one and not any(entry.record.model for entry in one.values()):
        one = dict.fromkeys(other, next(iter(one.values())))
    if other and not any(entry.record.model for entry in other.values()):
        other = dict.fromkeys(one, next(iter(other.values())))
    return [(entry, other[seed]) for seed, entry in one.items() if seed in other]


def all_seeds(one: Runs, other: Runs) -> list[Pair]:
    """Pair all runs of two rows, or none where a seed has failed or is missing: survivors are no sample of all."""
    finished = all(entry.record.status == "done" for entry in (*one.values(), *other.values()))
    return same_seeds(one, other) if finished and one.keys() == other.keys() else []


def seed_variance(runs: Mapping[str, Runs], rows: Sequence[Variant], metric: str) -> statistics.SeedVariance | None:
    """Return the variance between seeds that all rows with several runs have together."""
    known = {
        (name := row.name or row.attention): dict(
            zip(done(runs.get(name, {})), row.scores[metric].by_seed, strict=False)
        )
        for row in rows
        if row.attention and metric in row.scores
    }
    several = {name: found for name, found in known.items() if len(found) > 1}
    shared = sorted(set.intersection(*(set(found) for found in several.values()))) if several else []
    return statistics.seed_variance([[found[seed] for seed in shared] for found in several.values()])


@dataclass(frozen=True)
class Scoring:
    """Computes scores and differences of rows from what their runs were scored on.

    Args:
        metrics: all metrics by name.
        draw: draws examples; the same draws for all rows make differences paired.
        pairs: which runs of two rows are compared.
        draws: how often is drawn for the main metric.
        few: how often for the others: corpus metrics take their time.
    """

    metrics: Mapping[str, Metric]
    draw: statistics.Draw
    pairs: Callable[[Runs, Runs], list[Pair]]
    draws: int
    few: int

    def score(self, name: str, runs: Runs, base: Runs, main: bool = True) -> Score | None:
        """Return the mean over all seeds that are done, with its difference from the baseline; None if not finite."""
        own, draws = done(runs), self.draws if main else self.few
        rows = [entry.rows[name] for entry in own.values() if name in entry.rows]
        if not rows:
            return _recorded(name, own)
        score = statistics.score(self.metrics[name], rows, None, draws, self.draw)
        numbers = [score.value, score.low, score.high]
        if pairs := self._alike(name, runs, base):
            score.difference = self._difference(name, pairs, draws)
            numbers += [score.difference.value, score.difference.low, score.difference.high]
        return score if all(map(math.isfinite, numbers)) else None

    def compare(self, name: str, one: Runs, other: Runs) -> tuple[Score, Difference, list[Pair]] | None:
        """Return the score of one row on the runs that it shares with another, and the difference of the two."""
        pairs = self._alike(name, one, other) if name in self.metrics else []
        if not pairs:
            return None
        score = self.score(name, {n: ours for n, (ours, _) in enumerate(pairs)}, {})
        difference = self._difference(name, pairs, self.draws)
        return None if score is None or not math.isfinite(difference.value) else (score, difference, pairs)

    def estimate(self, name: str, pairs: Sequence[Pair], of_seeds: statistics.SeedVariance) -> statistics.Estimate:
        """Return the difference of two rows, whose error has the seed variance of a whole table."""
        ours, theirs = ([entry.rows[name] for entry in entries] for entries in zip(*pairs, strict=True))
        return statistics.estimate(self.metrics[name], ours, theirs, of_seeds, self.draws, self.draw)

    def pool(self, rows: Sequence[Variant], runs: Mapping[str, Runs], baseline: str, name: str) -> None:
        """Judge the differences of rows with several seeds by the seed variance of all rows together."""
        of_seeds = seed_variance(runs, rows, name)
        for row in rows:
            score = row.scores.get(name)
            pairs = self._alike(name, runs.get(row.name or row.attention, {}), runs.get(baseline, {}))
            if score is not None and score.difference is not None and of_seeds is not None and len(pairs) > 1:
                found = self.estimate(name, pairs, of_seeds)
                score.difference = Difference(found.value, *found.interval, found.p_value())

    def _alike(self, name: str, one: Runs, other: Runs) -> list[Pair]:
        """Return the pairs that were scored on the same examples."""
        pairs = self.pairs(one, other)
        finished = [pair for pair in pairs if all(entry.record.status == "done" for entry in pair)]
        return [(a, b) for a, b in finished if name in a.rows and name in b.rows and _same_examples(a, b, name)]

    def _difference(self, name: str, pairs: Sequence[Pair], draws: int) -> Difference:
        ours, theirs = ([entry.rows[name] for entry in entries] for entries in zip(*pairs, strict=True))
        found = statistics.score(self.metrics[name], ours, theirs, draws, self.draw).difference
        assert found is not None
        return found


def _recorded(name: str, runs: Runs) -> Score | None:
    """Return the score that the records have, where the rows that it came from were not kept."""
    values = [entry.record.scores[name] for entry in runs.values() if name in entry.record.scores]
    if not values:
        return None
    by_seed = [float(value["value"]) for value in values]
    ends = (float(values[0]["low"]), float(values[0]["high"]))
    return Score(sum(by_seed) / len(by_seed), min(ends[0], *by_seed), max(ends[1], *by_seed), by_seed)


def _same_examples(one: StudyRecord, other: StudyRecord, metric: str) -> bool:
    """Return whether two runs were scored on the same examples, wherever these were stored."""
    data = [sorted(entry.record.data.get("sources", {}).values()) for entry in (one, other)]
    splits = [entry.record.evaluation.get("splits") for entry in (one, other)]
    return data[0] == data[1] and splits[0] == splits[1] and len(one.rows[metric]) == len(other.rows[metric])
