"""Tiny data of every kind, and settings for runs of a few steps."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor
from transformers import TrainerCallback

from synthattn.data.encoded import Encoded, write
from synthattn.tasks.encoding import Counts, EncodedSplit
from synthattn.tasks.inputs import Key, RunBatches
from synthattn.training.model import build, configuration
from synthattn.training.prepare import Prepared
from synthattn.training.run import decided_fields, plan, prepare_data
from synthattn.training.settings import Settings, from_dict
from synthattn.training.trainer import SynthesizerTrainer, training_arguments

WORDS = ["ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen"]
GERMAN = dict(zip(WORDS, ["Ameise", "Biene", "Katze", "Hund", "Aal", "Fuchs", "Gnu", "Huhn"], strict=True))
LONGEST = 17
"""Tokens of the longest input of the models here."""


def on_disk(folder: Path, texts: Sequence[Sequence[int]], name: str = "texts") -> Encoded:
    write(folder, name, texts, 500)
    return Encoded(folder, name)


def split(folder: Path, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> EncodedSplit:
    return EncodedSplit(on_disk(folder, sources, "source"), on_disk(folder, targets, "target"), Counts(), folder)


def sentences(count: int, seed: int, longest: int = 9) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(2, longest))) for _ in range(count)]


SIZES = {"train": 40, "validation": 11, "test": 7}


ROWS: dict[str, tuple[str, Callable[[str], str]]] = {
    "translation": ("en\tde", lambda line: f"{line}\t{' '.join(GERMAN[word] for word in line.split())}"),
    "classification": ("text\tlabel", lambda line: f"{line}\t{'early' if line[0] < 'd' else 'late'}"),
    "dialogue": ("history\treply", lambda line: f"{line}\t{line.split()[-1]} !"),
    "rte": ("sentence1\tsentence2\tlabel", lambda line: f"{line}\tant\t{'' if 'ant' in line else 'not_'}entailment"),
    "mrpc": ("sentence1\tsentence2\tlabel", lambda line: f"{line}\tbee\t{'' if 'bee' in line else 'not_'}equivalent"),
}
"""The columns of each task whose data is a table, and the row of a sentence."""


def data(folder: Path, task: str) -> Path:
    """A folder of data for a task."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed, (name, size) in enumerate(SIZES.items()):
        lines = sentences(size, seed)
        if task in ROWS:
            columns, row = ROWS[task]
            lines = [columns, *map(row, lines)]
        (folder / f"{name}.{'tsv' if task in ROWS else 'txt'}").write_text("\n".join(lines) + "\n")
    return folder


def suite(folder: Path) -> Path:
    """A folder with two tasks of GLUE."""
    for task in ("rte", "mrpc"):
        data(folder / task, task)
    return folder


def settings(source: Path, task: str, **changes: Any) -> Settings:
    """Return settings of a tiny run; changes are named with two underscores: ``training__seed=3``."""
    base = from_dict(
        {
            "data": {"source": str(source), "task": task, "tokenizer": "words", "vocab_size": 200},
            "model": {
                "preset": "tiny",
                "attention": "random+vanilla",
                "max_position_embeddings": LONGEST,
                "encoder_layers": 1,
                "decoder_layers": 1,
            },
            "training": {
                "precision": "fp32",
                "steps": 4,
                "batch_tokens": 100,
                "warmup": 2,
                "log_every": 2,
                "evaluate_every": 2,
            },
        }
    )
    return base.changed(**changes)


def prepared(source: Path, task: str, **changes: Any) -> Prepared:
    return prepare_data(settings(source, task, **changes))


class Fixed(RunBatches):
    """The batches that a test says: numbers of examples."""

    def __init__(self, lists: Sequence[Sequence[int]]) -> None:
        self.lists = lists

    def __len__(self) -> int:
        return len(self.lists)

    def __iter__(self) -> Iterator[list[Key]]:
        return iter([[(0, n, True) for n in numbers] for numbers in self.lists])


class Gradients(TrainerCallback):
    """Keeps the gradients of every step."""

    def __init__(self) -> None:
        self.found: list[dict[str, Tensor]] = []

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        parameters = kwargs["model"].named_parameters()
        self.found.append({name: p.grad.clone() for name, p in parameters if p.grad is not None})


def new_model(chosen: Settings, ready: Prepared) -> Any:
    return build(configuration(chosen.model, **decided_fields(ready)), ready.kind, chosen.training.seed)


def trainer(
    chosen: Settings, ready: Prepared, run: Path, batches: RunBatches, model: Any = None, callbacks: Any = ()
) -> SynthesizerTrainer:
    """Build a trainer as a run does, without the run around it."""
    planned = plan(chosen.training, ready)
    steps = {"max_steps": planned.steps, "eval_steps": planned.evaluate_every, "save_steps": planned.save_every}
    arguments = training_arguments(chosen.training, run, **steps, label_smoothing_factor=planned.label_smoothing)
    model = new_model(chosen, ready) if model is None else model
    return SynthesizerTrainer(model, arguments, ready, batches, chosen, callbacks=list(callbacks))
