"""Average scores of benchmarks: the mean over tasks, each the mean of its metrics."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from synthattn.metrics.base import Metric, Rows

Parts = tuple[tuple[str, str], ...]
"""Pairs of task and metric whose mean is the score of one task of a benchmark."""

GLUE: dict[str, Parts] = {
    "cola": (("cola", "matthews"),),
    "sst2": (("sst2", "accuracy"),),
    "mrpc": (("mrpc", "f1"), ("mrpc", "accuracy")),
    "stsb": (("stsb", "pearson"), ("stsb", "spearman")),
    "qqp": (("qqp", "f1"), ("qqp", "accuracy")),
    "mnli": (("mnli-matched", "accuracy"), ("mnli-mismatched", "accuracy")),
    "qnli": (("qnli", "accuracy"),),
    "rte": (("rte", "accuracy"),),
}
SUPERGLUE: dict[str, Parts] = {
    "boolq": (("boolq", "accuracy"),),
    "cb": (("cb", "macro-f1"), ("cb", "accuracy")),
    "copa": (("copa", "accuracy"),),
    "multirc": (("multirc", "f1a"), ("multirc", "em")),
    "record": (("record", "f1"), ("record", "em")),
    "rte": (("superglue-rte", "accuracy"),),
    "wic": (("wic", "accuracy"),),
    "wsc": (("wsc", "accuracy"),),
}

GLUE_DEFINITION = (
    "mean over 8 tasks of GLUE (WNLI left out, as in T5), of which MRPC and QQP are the mean of F1 and accuracy, "
    "STS-B of Pearson and Spearman, MNLI of matched and mismatched"
)
SUPERGLUE_DEFINITION = (
    "mean over the 8 tasks of SuperGLUE, of which CB is the mean of macro F1 and accuracy, MultiRC of F1a and EM, "
    "ReCoRD of F1 and EM"
)


class Mean(Metric):
    """The mean over tasks as one metric with rows, so that it has an interval and can be compared.

    Args:
        name: name of the mean.
        tasks: for each task, the keys of its metrics; their mean is the score of the task.
        metrics: the metrics by key.
        definition: exact definition of the mean.
    """

    def __init__(
        self,
        name: str,
        tasks: Sequence[Sequence[tuple[str, str]]],
        metrics: Mapping[tuple[str, str], Metric],
        definition: str,
    ) -> None:
        self.name, self.tasks, self.metrics, self.definition = name, tasks, metrics, definition
        self.keys = [key for task in tasks for key in task]

    def rows(self, predictions: Sequence[Any], references: Sequence[Any]) -> Rows:
        raise ValueError(f"{self.name} is made of the rows of its tasks, see joined()")

    def joined(self, rows: Sequence[Rows]) -> Rows:
        """Return the rows of all tasks, stacked: task number, widths of the metrics' rows, and these rows.

        The metrics of a task stand side by side, because a bootstrap must draw equal examples for all of them.
        """
        found = dict(zip(self.keys, rows, strict=True))
        groups = [[found[key] for key in keys] for keys in self._groups]
        widths = [[one.shape[1] for one in group] for group in groups]
        metrics, columns = max(map(len, widths)), max(map(sum, widths))
        return np.concatenate(
            [
                np.hstack(
                    [
                        np.full((len(group[0]), 1 + metrics), [n, *width, *[0] * (metrics - len(width))]),
                        *group,
                        np.zeros((len(group[0]), columns - sum(width))),
                    ]
                )
                for n, (group, width) in enumerate(zip(groups, widths, strict=True))
            ]
        )

    def value(self, rows: Rows) -> float:
        values = self._values(rows)
        # A bootstrap of few examples may draw no example of a task or a metric.
        tasks = [[values[key] for key in task if key in values] for task in self.tasks]
        return float(np.mean([np.mean(task) for task in tasks if task]))

    def parts(self, rows: Rows) -> dict[str, float]:
        return {" ".join(key): value for key, value in self._values(rows).items()}

    @property
    def _groups(self) -> list[list[tuple[str, str]]]:
        """Keys of the metrics by task; MNLI, the mean of two scores, counts as two tasks here."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for key in self.keys:
            groups.setdefault(key[0], []).append(key)
        return list(groups.values())

    def _values(self, rows: Rows) -> dict[tuple[str, str], float]:
        """Return the values of the metrics that have rows."""
        groups = self._groups
        metrics = max(map(len, groups))
        # A bootstrap calls this thousands of times: a stable sort of small integers makes each task a slice.
        task = rows[:, 0].astype(np.int16)
        ends = np.cumsum(np.bincount(task, minlength=len(groups)))
        rows = rows[np.argsort(task, kind="stable")]
        found = {}
        for keys, begin, end in zip(groups, [0, *ends], ends, strict=False):
            own = rows[begin:end]
            if not len(own):
                continue
            start = 1 + metrics
            for key, width in zip(keys, own[0, 1:].astype(int), strict=False):
                found[key] = self.metrics[key].value(own[:, start : start + width])
                start += width
        return found


def suite_average(metrics: Mapping[tuple[str, str], Metric]) -> Mean:
    """Return the average of GLUE or SuperGLUE if all their tasks are present, else the mean of the tasks."""
    for name, benchmark, definition in (
        ("glue", GLUE, GLUE_DEFINITION),
        ("superglue", SUPERGLUE, SUPERGLUE_DEFINITION),
    ):
        parts = list(benchmark.values())
        if all(key in metrics for part in parts for key in part):
            return Mean(name, parts, metrics, definition)
    tasks: dict[str, list[tuple[str, str]]] = {}
    for task, name in metrics:
        tasks.setdefault(task, []).append((task, name))
    shown = ", ".join(tasks)
    return Mean("mean", list(tasks.values()), metrics, f"mean over {shown}, each the mean of its metrics")
