"""One number for a benchmark: the mean over its tasks, each the mean of its own metrics."""

from collections.abc import Mapping

from synthattn.metrics.base import Score

Parts = tuple[tuple[str, str], ...]
"""Names of tasks and metrics whose mean is the score of one task of the benchmark."""

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


def glue_average(scores: Mapping[str, Mapping[str, float]]) -> Score:
    """The average of GLUE from ``scores[task][metric]``; MNLI is two tasks, its two test sets."""
    definition = (
        "mean over 8 tasks of GLUE (WNLI left out, as in T5), of which MRPC and QQP are the mean of F1 and accuracy, "
        "STS-B of Pearson and Spearman, MNLI of matched and mismatched"
    )
    return _average("glue", GLUE, scores, definition)


def superglue_average(scores: Mapping[str, Mapping[str, float]]) -> Score:
    """The average of SuperGLUE from ``scores[task][metric]``."""
    definition = (
        "mean over the 8 tasks of SuperGLUE, of which CB is the mean of macro F1 and accuracy, MultiRC of F1a and EM, "
        "ReCoRD of F1 and EM"
    )
    return _average("superglue", SUPERGLUE, scores, definition)


def _average(
    name: str, tasks: Mapping[str, Parts], scores: Mapping[str, Mapping[str, float]], definition: str
) -> Score:
    wanted = [pair for parts in tasks.values() for pair in parts]
    missing = [f"{task} {metric}" for task, metric in wanted if metric not in scores.get(task, {})]
    if missing:
        raise ValueError(f"the average of {name} needs {len(wanted)} scores, missing: {', '.join(missing)}")
    means = {
        label: sum(float(scores[task][metric]) for task, metric in parts) / len(parts) for label, parts in tasks.items()
    }
    return Score(name, sum(means.values()) / len(means), definition, parts=means)
