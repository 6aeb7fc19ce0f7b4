"""The verb ``synthattn evaluate``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from synthattn.api import by_path, chosen
from synthattn.cli import scores
from synthattn.messages import printable_json
from synthattn.training.scoring import score_saved


def run(
    what: Path, settings: Mapping[str, Any], name: str | None, output: Path | None, quiet: bool, as_json: bool
) -> int:
    what = chosen(what, name, quiet)
    found, facts = score_saved(what, by_path(settings), output, quiet or as_json)
    if as_json:
        print(printable_json({"scores": found, **facts}, 1))
    elif not quiet:
        scores.show(str(what), found, facts)
    return 0
