"""Score a run, a saved model or a file of predictions on the data of a task."""

import contextlib
import json
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from transformers.utils import logging

from synthattn.data.locks import locked_folder
from synthattn.metrics.vectors import check_vectors, load_vectors
from synthattn.models.modeling import SynthesizerPreTrainedModel
from synthattn.saved_file import write_text
from synthattn.tasks import find_tasks
from synthattn.tasks.classification import Classification
from synthattn.training import record
from synthattn.training.evaluation import Evaluation, Scored, evaluate, merged, score, similarities
from synthattn.training.gather import gather
from synthattn.training.model import check_classes, check_kind, class_names, load, load_tokenizer_of, placed
from synthattn.training.prepare import TaskData, open_for_evaluation
from synthattn.training.progress import display
from synthattn.training.record import SETTINGS, final_model, refuse_comparison, saved_settings
from synthattn.training.settings import Settings, as_dict, from_dict, put


def score_saved(
    what: Path, options: Mapping[str, Any], output: Path | None, quiet: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Score a run, a model or a file, and write the results to the output folder, if there is one.

    Args:
        what: the folder of a run or a model, or a file of predictions.
        options: settings that differ from those of the run, by path, such as ``data.task``; None where not given.
        output: a folder for scores and predictions.
        quiet: show no progress.

    Returns:
        The scores by metric, as in a record, and the counts of the evaluation.
    """
    with locked_folder(output) if output is not None else contextlib.nullcontext():
        return _scores(what, options, output, quiet)


def _scores(
    what: Path, options: Mapping[str, Any], output: Path | None, quiet: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    if what.is_file():
        if options.get("data.task") is None:
            raise ValueError(f"{what} does not say what its predictions are for; give --task, and --data")
        settings = gather(None, options, [])
        scored, facts = _score_file(what, settings, _learned(what.parent, options))
    else:
        settings, folder = _settings(what, options)
        learned = _learned(_run(what), options)
        if learned is not None and options.get("evaluation.split") is None:
            settings = settings.changed(evaluation__split=None)  # the run's split was chosen for other data
        logging.disable_progress_bar()
        model = load(folder)
        parts = _parts(model, folder, settings, learned)
        with contextlib.closing(display(what.name, quiet)) as shown:
            result = evaluate(placed(model), load_tokenizer_of(folder), parts, settings.evaluation, shown.scored)
        scored, facts = result.scored, result.facts()
        if output is not None:
            result.save(output)
    found = {name: one.as_dict() for name, one in scored.items()}
    if output is not None:
        text = json.dumps(found | {"facts": facts}, indent=1, ensure_ascii=False)
        write_text(output / "scores.json", text + "\n")
    return found, facts


def _settings(what: Path, options: Mapping[str, Any]) -> tuple[Settings, Path]:
    """Return the run's settings with the user's changes, and the folder of the model."""
    refuse_comparison(what)
    if not what.is_dir():
        raise ValueError(f"there is no {what}; give the folder of a run or a model, or a file of predictions")
    run = _run(what)
    if (run / SETTINGS).is_file():
        saved = as_dict(saved_settings(run))
        for path, value in options.items():
            if value is not None:
                put(saved, path, value)
        return from_dict(saved), final_model(what) if what == run else what
    if not (what / "config.json").is_file():
        raise ValueError(f"{what} is neither the folder of a run nor of a model")
    if options.get("data.task") is None:
        raise ValueError(f"{what} does not say what it was trained for; give --task, and --data")
    return gather(None, options, []), what


def _run(what: Path) -> Path:
    """Return the folder of the run that a model belongs to, if there is one."""
    return what if (what / SETTINGS).is_file() else what.parent


def _learned(run: Path, options: Mapping[str, Any]) -> Collection[str] | None:
    """Return fingerprints of a run's training data, empty without a run; None if that data is scored."""
    source = options.get("data.source")
    if source is None:
        return None
    if not (run / SETTINGS).is_file():
        return ()
    if _place(source) == _place(saved_settings(run).data.source):
        return None
    found = record.load(run).data if (run / record.FILE).is_file() else {}
    return found.get("sources", {}).values()


def _place(source: str) -> Path:
    return Path(os.path.expanduser(source)).resolve()


def _parts(
    model: SynthesizerPreTrainedModel, folder: Path, settings: Settings, learned: Collection[str] | None
) -> list[TaskData]:
    """Open the data after checking that the model fits its task."""
    tasks = find_tasks(settings.data.task)
    kind = tasks[0].kind
    check_kind(model, folder, kind, settings.data.task)
    if settings.evaluation.vectors is not None and any(task.compares_vectors for task in tasks):
        check_vectors(settings.evaluation.vectors)  # checked now, since vectors are read only after all predictions
    names = class_names(model) if kind == "classification" else ()
    parts = open_for_evaluation(settings.data, settings.evaluation.split, names, learned)
    for part in parts:
        if isinstance(part.task, Classification) and part.task.labels is not None:
            if not names and "train" not in part.source.splits:
                raise ValueError(
                    f"{folder} does not name its classes, and {part.source.name} has no train split that would; "
                    "write id2label into its config.json"
                )
            check_classes(model, folder, part.task.labels.names)
    return parts


def _score_file(
    file: Path, settings: Settings, learned: Collection[str] | None
) -> tuple[dict[str, Scored], dict[str, Any]]:
    """Score a file with one prediction per line, in the order of the examples."""
    parts = open_for_evaluation(settings.data, settings.evaluation.split, learned=learned)
    if len(parts) > 1:
        raise ValueError(f"a file of predictions is for one task, {settings.data.task} has {len(parts)}")
    (part,) = parts
    if part.task.kind not in ("seq2seq", "classification"):
        raise ValueError(f"{part.task.name} scores a text by its probability, which a file of predictions lacks")
    splits = part.evaluation_splits(settings.evaluation.split)
    if len(splits) > 1:
        raise ValueError(f"which of {', '.join(splits.values())} are these predictions for? Say --split")
    (split,) = splits.values()
    asked = part.examples(split, settings.evaluation.limit)
    lines = _lines(file)
    if len(lines) != len(asked):
        raise ValueError(f"{file} has {len(lines):,} predictions, {part.source.name} has {len(asked):,} in {split}")
    answers = [part.task.parse(line, example) for line, example in zip(lines, asked, strict=True)]
    metrics = list(part.task.metrics())
    if settings.evaluation.vectors is not None:
        metrics += similarities(part.task, load_vectors(settings.evaluation.vectors), settings.evaluation.vectors)
    scored = score(metrics, answers, asked)
    unparsable = sum(answer is None for answer in answers)
    facts = Evaluation(scored, splits=splits, examples=len(asked), unparsable=unparsable).facts()
    return merged({part.task.name: scored}), facts


def _lines(file: Path) -> list[str]:
    """Return the lines of a file, or the ``prediction`` of JSON lines."""
    try:
        text = file.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not UTF-8: {error.reason} at byte {error.start}") from error
    # splitlines() and text files would split at other characters, which a prediction may contain.
    lines = re.split("\r?\n", text)
    if not lines[-1]:  # after the last line feed
        del lines[-1]
    if file.suffix != ".jsonl":
        return lines
    try:
        return [str(json.loads(line)["prediction"]) for line in lines]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{file}: every line must be an object with a 'prediction': {error}") from error
