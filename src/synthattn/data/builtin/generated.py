"""Sources whose examples are made in memory: by a generator, or from what is installed anyway."""

import functools
import hashlib
import random
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from synthattn.data.source import Record, Source

SPLITS = ("train", "validation", "test")
# One in this many examples is for validation, and one for testing.
_SHARE = 20
# A generator that finds nothing new this often in a row has said everything it can say.
_PATIENCE = 20_000

Example = Mapping[str, Any]


def split_of(text: str) -> str:
    """Return the split that a text belongs to, wherever and whenever it is generated."""
    return {0: "validation", 1: "test"}.get(zlib.crc32(text.encode()) % _SHARE, "train")


class BuiltinSource(Source):
    """Base class of built-in sources, whose examples are made when they are first read.

    Args:
        name: the text that the user wrote.
        label: the source's name, for messages.
        notes: remarks about the examples for the user.
    """

    def __init__(self, name: str, label: str, *notes: str) -> None:
        super().__init__(name, SPLITS, notes)
        self.label = label

    @functools.cached_property
    def examples(self) -> Mapping[str, Sequence[Example]]:
        """The examples of each split."""
        raise NotImplementedError

    def records(self, split: str) -> Iterator[Record]:
        for i, example in enumerate(self.examples[split], 1):
            yield Record(example, f"builtin:{self.label}, example {i}")


class GeneratedSource(BuiltinSource):
    """Distinct examples of a generator. A hash of an example's text chooses its split, whatever the seed or size.

    A smaller source is the beginning of a larger one with the same seed, split by split, and sources of the default
    size or more have the same held-out splits: models trained on more or less data can be compared.

    Args:
        name: the text that the user wrote.
        label: the generator's name, for messages.
        version: a number that changes whenever the generator writes other examples for the same seed.
        generate: function that writes one example.
        key: function that returns the text of an example that must be new, and that decides the split.
        size: number of training examples.
        held_out: number of examples for validation, and as many for testing; fewer beside a small training split.
        seed: start of the random numbers.
        note: remark about the examples for the user.
        options: other options of the generator, for the fingerprint.
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
        # Twenty examples show that a run works, and larger held-out splits would take longer than the training.
        held_out = min(held_out, max(20, size // 10))
        super().__init__(name, label, f"{note}; seed {seed}, {size} for training, {held_out} + {held_out} held out")
        self.version, self.size, self.held_out, self.seed = version, size, held_out, seed
        self.generate, self.key, self.options = generate, key, options

    def fingerprint(self) -> str:
        content = f"{self.label} version={self.version} seed={self.seed} size={self.size} held_out={self.held_out}"
        return hashlib.sha256(f"{content} {self.options}".rstrip().encode()).hexdigest()

    @functools.cached_property
    def examples(self) -> Mapping[str, Sequence[Example]]:
        rng = random.Random(self.seed)
        wanted = {"train": self.size, "validation": self.held_out, "test": self.held_out}
        examples: dict[str, list[Example]] = {split: [] for split in SPLITS}
        seen: set[str] = set()
        missing, in_vain = sum(wanted.values()), 0
        while missing:
            example = self.generate(rng)
            key = self.key(example)
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


def generator(
    label: str,
    version: int,
    generate: Callable[[random.Random], Example],
    key: Callable[[Example], str],
    default: int,
    held_out: int,
    note: str,
) -> Callable[..., GeneratedSource]:
    """Return a function that makes sources of a name, a size (``default`` examples) and a seed."""

    def source(name: str, *, size: int = default, seed: int = 0) -> GeneratedSource:
        return GeneratedSource(name, label, version, generate, key, size=size, held_out=held_out, seed=seed, note=note)

    return source
