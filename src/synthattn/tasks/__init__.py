"""Tasks: columns in, texts for a model out, and the metrics of its answers. ``TASKS`` lists them by name."""

from synthattn.messages import suggestion
from synthattn.tasks.base import Example, Task
from synthattn.tasks.classification import Classification, ListOps
from synthattn.tasks.glue import GLUE, WNLI
from synthattn.tasks.language_modeling import LanguageModeling, SentenceModeling, SpanCorruption
from synthattn.tasks.superglue import SUPERGLUE
from synthattn.tasks.text_to_text import Dialogue, Summarization, Translation, Turns

TEXTS = (Translation(), Summarization(), Dialogue(), Turns())
MODELED = (LanguageModeling(), SentenceModeling(), SpanCorruption())

TASKS: dict[str, Task] = {
    task.name: task for task in (*TEXTS, *MODELED, Classification(), ListOps(), *GLUE, *SUPERGLUE)
}

SUITES: dict[str, tuple[str, ...]] = {
    # WNLI is left out, as in T5: its training pairs contradict the pairs that it is scored on.
    "glue": tuple(task.name for task in GLUE if task is not WNLI),
    "superglue": tuple(task.name for task in SUPERGLUE),
}
"""Names of the tasks that are learned together."""


def find_task(name: str) -> Task:
    """Return the task with this name."""
    if name in SUITES:
        raise ValueError(f"{name} is a suite, looked at task by task; choose from {', '.join(SUITES[name])}")
    if name not in TASKS:
        raise ValueError(f"unknown task {name!r}{suggestion(name, [*TASKS, *SUITES])}")
    return TASKS[name]


def find_tasks(name: str) -> list[Task]:
    """Return all tasks of a suite, or the task with this name."""
    return [find_task(one) for one in SUITES.get(name, (name,))]


__all__ = ["GLUE", "SUITES", "SUPERGLUE", "TASKS", "Example", "Task", "find_task", "find_tasks"]
