"""Answer texts with a trained model."""

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from synthattn.data.batching import pad
from synthattn.tasks import SUITES, Task, find_task
from synthattn.training.evaluation import write
from synthattn.training.model import check_answers, load, load_tokenizer_of, placed
from synthattn.training.record import SETTINGS, final_model, refuse_comparison, saved_settings
from synthattn.training.settings import EvaluationSettings, Settings

FIRST_PART = 16
"""Initial number of characters per token; most tokens are shorter."""
LONGEST_PART = 1 << 20
"""Maximum number of characters of a line that are tokenized: a megabyte of spaces gives no token."""
MARGIN = 16
"""Number of tokens that may change where a text was cut."""


@dataclass
class Answerer:
    """Answers texts with a trained model: a translation, a continuation, or a class.

    Args:
        folder: the folder of a run or of a model.
        settings: settings of generation.
        temperature: temperature of sampling, for models that continue a text; 0 takes the most likely token.
        seed: seed of sampling.
        raw: the texts are whole inputs of the model, and not those of its task.
    """

    folder: Path
    settings: EvaluationSettings
    temperature: float = 0.0
    seed: int = 0
    raw: bool = False

    def __post_init__(self) -> None:
        if not self.temperature >= 0:
            raise ValueError(f"temperature must be at least 0, got {self.temperature:g}")
        Settings(evaluation=self.settings)  # checks the numbers
        folder, task = find_model(self.folder)
        if task is not None and not self.raw and task.form():
            raise ValueError(f"{task.name} reads more than one text; write each line as '{task.form()}', and say --raw")
        self.task = None if self.raw else task
        loaded = load(folder)
        check_answers(loaded, folder)
        self.model = placed(loaded).eval()
        self.reader = Reader(load_tokenizer_of(folder), self.model.config.max_position_embeddings)
        torch.manual_seed(self.seed)

    def answers(self, lines: Iterable[str], batch: int) -> Iterator[str]:
        """Yield an answer for each text, as soon as its batch is done."""
        lines = iter(lines)
        if _continues(self.model):
            batch = 1  # continued one by one in any case, and may be long
        else:
            lines = (line[: LONGEST_PART + 1] for line in lines)
        while chunk := list(itertools.islice(lines, batch)):
            texts = [self._prompt(line) for line in chunk]
            with torch.inference_mode():
                yield from _answers(self.model, self.reader, texts, self.settings, self.temperature)
        self.reader.report()

    def _prompt(self, line: str) -> str:
        """Return the model's input for a line; an empty line stays empty."""
        if not line.strip():
            return ""
        return line if self.task is None else self.task.prompt(line)


def find_model(what: Path) -> tuple[Path, Task | None]:
    """Return the folder of a model, and the task that it was trained for, if that is known."""
    refuse_comparison(what)
    if not what.is_dir():
        raise ValueError(f"there is no folder {what}; give that of a run or of a model")
    run = what if (what / SETTINGS).is_file() else what.parent
    if not (run / SETTINGS).is_file():
        return what, None
    name = saved_settings(run).data.task
    folder = final_model(run) if what == run else what
    # For a suite, the user writes the whole input: only the user knows which task a line is for.
    return folder, None if name in SUITES else find_task(name)


class Reader:
    """Tokenize texts for a model, and count those that the model can read only in part.

    Only the readable part of a long text is tokenized, because a tokenizer needs over a hundred bytes of memory per
    character.
    """

    def __init__(self, tokenizer: Any, longest: int) -> None:
        self.tokenizer, self.longest = tokenizer, longest
        self.texts = self.cut = 0

    def beginning(self, text: str) -> list[int]:
        """Return the first tokens of a text, at most ``longest``, the last of which is the end token."""
        self.texts += 1
        ids = self._enough(text, self.longest, lambda size: text[:size])
        if len(ids) > self.longest or len(text) > LONGEST_PART:
            self._note(f"the model reads {self.longest} tokens, and only the beginning of longer ones")
        return ids if len(ids) <= self.longest else [*ids[: self.longest - 1], self.tokenizer.eos_token_id]

    def end(self, text: str, count: int) -> list[int]:
        """Return the last ``count`` tokens of a text that is to be continued, without an end token."""
        self.texts += 1
        ids = self._enough(text, count, lambda size: _from_a_word(text[-size:]), add_special_tokens=False)
        if len(ids) > count or len(text) > LONGEST_PART:
            self._note(f"the model reads {count} tokens before those that it writes, and only the end of longer ones")
        return ids[-count:]

    def skip(self) -> str:
        """Count an empty text, and return its answer."""
        self.texts += 1
        return ""

    def report(self) -> None:
        """Print the number of texts that were read only in part, if it is more than one."""
        if self.cut > 1:
            print(f"synthattn: {self.cut:,} of {self.texts:,} lines were read only in part", file=sys.stderr)

    def _enough(self, text: str, count: int, part: Callable[[int], str], **options: Any) -> list[int]:
        """Tokenize a part of the text that has clearly more than ``count`` tokens, or all of it."""
        size = FIRST_PART * count
        while size < min(len(text), LONGEST_PART):
            ids = self.tokenizer(part(size), **options).input_ids
            # The last tokens may change where the text was cut.
            if len(ids) > count + MARGIN:
                return ids
            size *= 4
        return self.tokenizer(text if len(text) <= LONGEST_PART else part(LONGEST_PART), **options).input_ids

    def _note(self, what: str) -> None:
        self.cut += 1
        if self.cut == 1:
            print(f"synthattn: line {self.texts:,} is read only in part: {what}", file=sys.stderr, flush=True)


def _from_a_word(text: str) -> str:
    """Drop the text before the first space, because a tokenizer would treat half a word as a whole one."""
    return text.partition(" ")[2] or text


def _continues(model: Any) -> bool:
    """Return True if a model answers a text by continuing it."""
    return hasattr(model, "generate") and not model.config.is_encoder_decoder


def _answers(
    model: Any, reader: Reader, texts: list[str], settings: EvaluationSettings, temperature: float
) -> Iterator[str]:
    """Yield an answer for each text; an empty text gets an empty answer."""
    if _continues(model):
        for text in texts:
            yield text + _continued(model, reader, text, settings, temperature) if text else reader.skip()
        return
    arrays = [torch.tensor(reader.beginning(text)).numpy() for text in texts if text or reader.skip()]
    found = iter(_answered(model, reader, arrays, settings) if arrays else ())
    yield from (next(found) if text else "" for text in texts)


def _answered(model: Any, reader: Reader, arrays: list[Any], settings: EvaluationSettings) -> Iterator[str]:
    given = {
        "input_ids": torch.from_numpy(pad(arrays, 0)),
        "attention_mask": torch.from_numpy(pad([array * 0 + 1 for array in arrays], 0)),
    }
    if not hasattr(model, "generate"):
        logits = model(**{name: value.to(model.device) for name, value in given.items()}).logits
        names = model.config.id2label
        yield from (names[int(n)] for n in logits.argmax(-1))
        return
    yield from write(model, reader.tokenizer, given, settings)


def _continued(model: Any, reader: Reader, text: str, settings: EvaluationSettings, temperature: float) -> str:
    """Continue a text and return the continuation; only the end of a long text is read."""
    tokenizer = reader.tokenizer
    longest = model.config.max_position_embeddings
    count = min(settings.max_new_tokens or longest // 2, longest - 2)
    start = [model.config.decoder_start_token_id]
    read = reader.end(text, longest - count - 1)
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
