"""``synthattn generate``."""

import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from synthattn.data.batching import pad
from synthattn.tasks import SUITES, Task, find_task
from synthattn.training.evaluation import write
from synthattn.training.model import check_answers, load, load_tokenizer_of, placed
from synthattn.training.run import SETTINGS, final_model, saved_settings
from synthattn.training.settings import EvaluationSettings, Settings


def run(
    what: Path,
    file: Path | None,
    beams: int,
    max_new_tokens: int | None,
    batch: int,
    temperature: float,
    seed: int,
    raw: bool,
) -> int:
    """Answers line by line, as soon as a batch is done."""
    if batch < 1:
        raise ValueError(f"--batch must be at least 1, got {batch}")
    if temperature < 0:
        raise ValueError(f"--temperature must be at least 0, got {temperature:g}")
    settings = EvaluationSettings(beams=beams, max_new_tokens=max_new_tokens)
    Settings(evaluation=settings)  # which checks the numbers
    if file is None and sys.stdin.isatty():
        batch = 1  # who types a line waits for its answer
    folder, task = _model(what)
    if task is not None and not raw and task.form():
        raise ValueError(f"{task.name} reads more than one text; write each line as '{task.form()}', and say --raw")
    loaded = load(folder)
    check_answers(loaded, folder)
    model = placed(loaded).eval()
    tokenizer = load_tokenizer_of(folder)
    torch.manual_seed(seed)
    lines = _lines(file)
    while chunk := list(itertools.islice(lines, batch)):
        texts = chunk if raw or task is None else [task.prompt(text) for text in chunk]
        with torch.inference_mode():
            for answer in _answers(model, tokenizer, texts, settings, temperature):
                print(answer.replace("\n", " "), flush=True)
    return 0


def _model(what: Path) -> tuple[Path, Task | None]:
    if not what.is_dir():
        raise ValueError(f"there is no folder {what}; give that of a run or of a model")
    run = what if (what / SETTINGS).is_file() else what.parent
    if not (run / SETTINGS).is_file():
        return what, None
    name = saved_settings(run).data.task
    folder = final_model(run) if what == run else what
    # The tasks of a suite are written out by the user: which of them a line is for, nobody else knows.
    return folder, None if name in SUITES else find_task(name)


def _lines(file: Path | None) -> Iterator[str]:
    # A locale may have Python read standard input in another way, or let through what is no text. By default a lone
    # carriage return would end a line as well, and there would be more answers than lines.
    name = sys.stdin.fileno() if file is None else file
    with open(name, encoding="utf-8", newline="\n", closefd=file is not None) as source:
        try:
            for line in source:
                yield re.sub("\r?\n$", "", line)
        except UnicodeDecodeError as error:
            raise ValueError(f"{file or 'standard input'} is not UTF-8: {error.reason}") from error


def _answers(
    model: Any, tokenizer: Any, texts: list[str], settings: EvaluationSettings, temperature: float
) -> Iterator[str]:
    longest = model.config.max_position_embeddings
    if hasattr(model, "generate") and not model.config.is_encoder_decoder:
        for text in texts:
            yield text + _continued(model, tokenizer, text, settings, temperature)
        return
    end = tokenizer.eos_token_id
    ids = [tokenizer(text).input_ids for text in texts]
    ids = [one if len(one) <= longest else [*one[: longest - 1], end] for one in ids]
    arrays = [torch.tensor(one).numpy() for one in ids]
    given = {
        "input_ids": torch.from_numpy(pad(arrays, 0)),
        "attention_mask": torch.from_numpy(pad([array * 0 + 1 for array in arrays], 0)),
    }
    if not hasattr(model, "generate"):
        logits = model(**{name: value.to(model.device) for name, value in given.items()}).logits
        names = model.config.id2label
        yield from (names[int(n)] for n in logits.argmax(-1))
        return
    yield from write(model, tokenizer, given, settings)


def _continued(model: Any, tokenizer: Any, text: str, settings: EvaluationSettings, temperature: float) -> str:
    """What follows a text; of a long one only the end is read."""
    longest = model.config.max_position_embeddings
    count = min(settings.max_new_tokens or longest // 2, longest - 2)
    start = [model.config.decoder_start_token_id]
    read = tokenizer(text, add_special_tokens=False).input_ids[-(longest - count - 1) :]
    given = torch.tensor([start + read], device=model.device)
    options: dict[str, Any] = {"do_sample": True, "temperature": temperature} if temperature else {"do_sample": False}
    found = model.generate(
        input_ids=given,
        attention_mask=torch.ones_like(given),
        num_beams=settings.beams,
        max_new_tokens=count,
        **options,
    )[0]
    whole = tokenizer.decode(found[1:], skip_special_tokens=True)
    before = tokenizer.decode(read, skip_special_tokens=True)
    return whole[len(before) :]
