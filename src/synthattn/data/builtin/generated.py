"""A source whose examples are written by a generator: any number of them, the same for the same seed."""

import hashlib
import random
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from synthattn.data.source import Record

SPLITS = ("train", "validation", "test")
# One in this many examples is for validation, and one for testing.
_SHARE = 20
# A generator that finds nothing new this often in a row has said everything it can say.
_PATIENCE = 20_000

Example = Mapping[str, Any]


def split_of(text: str) -> str:
    """The split that a text belongs to, wherever and whenever it is generated."""
    return {0: "validation", 1: "test"}.get(zlib.crc32(text.encode()) % _SHARE, "train")


class GeneratedSource:
    """Distinct examples, parted by a hash of their text, so that no text is in two splits, whatever seed or size.

    A smaller source is the beginning of a larger one with the same seed, split by split, and sources of the default
    size or more have the same held-out splits: models trained on more or less data can be compared.

    Args:
        name: what the user wrote.
        label: the generator's name, for messages.
        version: changes whenever the generator writes other examples for the same seed.
        generate: writes one example.
        key: the text of an example that must be new, and that decides the split.
        size: number of training examples.
        held_out: number of examples for validation, and as many for testing; fewer beside a small training split.
        seed: start of the random numbers.
        note: what the user should know about the examples.
        options: what else decides which examples are generated, for the fingerprint.
    """

    def __init__(
        self,
        name: str,
        label: str,
        version: int,
        generate: Callable[[random.Random], Example],
        key: Callable[[Example], str],
        *,
        size: int,
        held_out: int,
        seed: int,
        note: str,
        options: str = "",
    ) -> None:
        if size < 1:
            raise ValueError(f"{label} needs a size of at least 1, got {size}; such as {label}?size=1000")
        self.name, self.label, self.version = name, label, version
        self.size, self.seed = size, seed
        # Twenty examples show that a run works, and larger held-out splits would take longer than the training.
        self.held_out = min(held_out, max(20, size // 10))
        self._generate, self._key, self._note, self._options = generate, key, note, options
        self._examples: dict[str, list[Example]] | None = None

    @property
    def splits(self) -> tuple[str, ...]:
        return SPLITS

    @property
    def notes(self) -> tuple[str, ...]:
        return (
            f"{self._note}; seed {self.seed}, {self.size} for training, {self.held_out} + {self.held_out} held out",
        )

    def read(self, split: str) -> Iterator[Record]:
        if split not in SPLITS:
            raise ValueError(f"{self.name} has no split {split!r}; choose from {', '.join(SPLITS)}")
        if self._examples is None:
            self._examples = self._generate_all()
        for i, example in enumerate(self._examples[split], 1):
            yield Record(example, f"builtin:{self.label}, example {i}")

    def fingerprint(self) -> str:
        content = f"{self.label} version={self.version} seed={self.seed} size={self.size} held_out={self.held_out}"
        return hashlib.sha256(f"{content} {self._options}".rstrip().encode()).hexdigest()

    def _generate_all(self) -> dict[str, list[Example]]:
        rng = random.Random(self.seed)
        wanted = {"train": self.size, "validation": self.held_out, "test": self.held_out}
        examples: dict[str, list[Example]] = {split: [] for split in SPLITS}
        seen: set[str] = set()
        missing, in_vain = sum(wanted.values()), 0
        while missing:
            example = self._generate(rng)
            key = self._key(example)
            if key in seen:
                in_vain += 1
                if in_vain > _PATIENCE:
                    raise ValueError(f"{self.label} has no {self.size} different examples; ask for a smaller size")
                continue
            seen.add(key)
            in_vain = 0
            split = split_of(key)
            if len(examples[split]) < wanted[split]:
                examples[split].append(example)
                missing -= 1
        return examples
