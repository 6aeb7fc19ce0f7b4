"""Choose one trained model from the folder of a comparison."""

import dataclasses
from pathlib import Path

from synthattn.compare.comparison import FILE, WAY_OUT
from synthattn.messages import listed, suggestion
from synthattn.metrics.labels import label
from synthattn.render.numbers import digits
from synthattn.training import record
from synthattn.training.record import MODEL, SETTINGS, final_model
from synthattn.training.settings import Settings


def choose_run(folder: Path, name: str | None = None) -> tuple[Path, str]:
    """Return the folder of a run, and a line that says which run of a comparison was chosen.

    Args:
        folder: the folder of a comparison, or any other path, which is returned as it is, with an empty line.
        name: the name of a run in the comparison, such as ``random-0``, or its path. By default the best one.
    """
    if not (folder / FILE).is_file():
        if name is not None:
            raise ValueError(f"--run chooses from a comparison, and {folder} holds no {FILE}; leave --run out")
        return folder, ""
    runs = _finished(folder)
    if not runs:
        raise ValueError(
            f"{folder} is a comparison without a trained model; go on with synthattn compare --resume, or {WAY_OUT}"
        )
    if name is not None:
        chosen = name if name in runs else Path(name).name if Path(name).parent.name == "runs" else name
        if chosen not in runs:
            raise ValueError(f"{folder} has no finished run {name!r}{suggestion(name, runs)}")
        return runs[chosen], ""
    # The first metric is the main one; those by a model's own word vectors measure each model with another ruler.
    scored = {run: record.load(place).scores for run, place in runs.items()}
    metric, first = next((name, one) for name, one in scored[next(iter(runs))].items() if "embedding-" not in name)
    scores = {run: found[metric]["value"] for run, found in scored.items()}
    best = (max if first["higher_is_better"] else min)(scores, key=lambda run: scores[run])
    others = [run for run in runs if run != best]
    said = f"{folder} is a comparison; {best} is used, the best by {label(metric)} ({digits(scores[best], 4)})"
    return runs[best], f"{said}; --run chooses another: {listed(others)}" if others else said


def with_chosen_start(settings: Settings) -> tuple[Settings, str]:
    """Return settings whose start is a saved model, where a run or a comparison is given as the start."""
    if settings.model.start is None:
        return settings, ""
    place, said = choose_run(Path(settings.model.start))
    if (place / SETTINGS).is_file():
        place = final_model(place)
    model = dataclasses.replace(settings.model, start=str(place))
    return dataclasses.replace(settings, model=model), said.replace("--run chooses", "--start FOLDER/runs/NAME takes")


def _finished(folder: Path) -> dict[str, Path]:
    """Return the runs of a comparison that have a model and scores, by name."""
    found = {}
    for place in sorted((folder / "runs").glob("*")):
        if (place / MODEL / "config.json").is_file() and (place / record.FILE).is_file():
            run = record.load(place)
            if run.status == "done" and run.scores:
                found[place.name] = place
    return found
