"""The verb ``synthattn train``."""

import os
from collections.abc import Mapping
from typing import Any

from synthattn import api
from synthattn.cli import scores
from synthattn.cli.command import command, resumable
from synthattn.training.record import MODEL


def run(settings: Mapping[str, Any], quiet: bool, **options: Any) -> int:
    """Train, and print the scores; ``options`` are those of ``synthattn.train``."""
    with resumable():
        made = api.train(progress=not quiet, command=command(), **options, **settings)
    if int(os.environ.get("RANK", "0")) == 0 and not quiet:
        kept = f"The model, weights {made.record.weights}, is in {made.folder / MODEL}."
        scores.show(str(made.folder), made.scores, made.record.evaluation, kept)
    return 0
