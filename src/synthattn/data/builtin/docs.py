"""English prose that is on every machine with this package: docstrings of the standard library and of torch.

They are read from source files, not from imported modules: importing all of them would take long and do things.
"""

import functools
import hashlib
import importlib.metadata
import importlib.util
import inspect
import json
import os
import platform
import re
import sysconfig
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from synthattn.data.builtin.generated import SPLITS, BuiltinSource, Example, split_of
from synthattn.data.cache import cached_folder, key
from synthattn.saved_file import read_json

VERSION = 3
OTHER = "other"
MIN_PARAGRAPHS = 100
"""Modules with fewer paragraphs share the label ``other``: no classifier could learn them."""
MIN_WORDS = 7
FILE = "paragraphs.json"
# Tests, tables and copies of other packages document nothing.
_SKIPPED = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__", "_vendor", "encodings"}
# Read without a parser, which takes half a minute; torch documents its compiled functions by calls of add_docstr.
_DOCSTRING = re.compile(r'(?:\A(?:\s*#[^\n]*\n)*\s*|:[ \t]*\n\s*|docstr\(\s*[\w.]+,\s*)[rRuU]?"""(.+?)"""', re.DOTALL)
_HEADING = re.compile(r"^.*\n *([=~^*#-])\1{2,} *$", re.MULTILINE)
# A blank line, or what is before an item of a list, a described name or an example.
_BLOCK_END = re.compile(r"\n\s*\n|\n(?=\s*(?:[+*-]|:\w+|\w+ \(.*\):|>>>) )")
# Roles, literals and emphasis become the words in them; only names and plain words remain.
_MARKUP = re.compile(r"(?::[\w:+.-]+:)?`+~?([\w .,()'-]+?)(?:\s*<[^`>]+>)?`+_{0,2}|(?<!\w)\*{1,2}(\w[\w ]*)\*{0,2}")
_FIELD = re.compile(r"(?:[+*-]|[\w*]+ ?(?:\([^()]*\))?:|:\w+(?: \w+)*:|\.\. \w+::|\w+\(.*?\)[:.]? *-[->])\s+")
_CODE = re.compile(r"[{}|<>\\`$@^~\[\]*%=#]|::|:\w+:|\.\.|https?:|->|>>>|\"\"|''|--|\w\(\w")
_WORD = re.compile(r"[A-Za-z]+(?:['/-][A-Za-z]+)*")
_COMMON = re.compile(r"the|an?|of|to|in|is|are|be|and|or|that|this|it|for|with|by|as|on|from|not|if|will|can")


class DocsSource(BuiltinSource):
    """Paragraphs of documentation with the fields ``text`` and ``module``, in a split each by a hash of their text.

    The field ``module`` is the top-level module of the standard library, or ``torch`` with one more level if there is
    one; ``other`` for modules with fewer than ``MIN_PARAGRAPHS``.
    """

    def __init__(self, name: str) -> None:
        self.versions = f"python {platform.python_version()}, torch {importlib.metadata.version('torch')}"
        prose = f"prose from the documentation of {self.versions}; other versions have other texts"
        super().__init__(
            name, "docs", prose, f"modules with fewer than {MIN_PARAGRAPHS} paragraphs have the label {OTHER!r}"
        )

    def fingerprint(self) -> str:
        return hashlib.sha256("".join(f"{json.dumps(pair)}\n" for pair in self.paragraphs).encode()).hexdigest()

    @functools.cached_property
    def paragraphs(self) -> list[tuple[str, str]]:
        """All texts with their modules, which are kept in the cache."""

        def make(folder: Path) -> None:
            (folder / FILE).write_text(json.dumps(extract()), encoding="utf-8")

        file = cached_folder("docs", key(VERSION, self.versions), make) / FILE
        try:
            return [(text, module) for text, module in read_json(file)]
        except (OSError, ValueError, TypeError) as error:
            raise ValueError(f"{file} is damaged ({error}); remove its folder, and it is made again") from error

    @functools.cached_property
    def examples(self) -> Mapping[str, Sequence[Example]]:
        found: dict[str, list[Example]] = {split: [] for split in SPLITS}
        for text, module in self.paragraphs:
            found[split_of(text)].append({"text": text, "module": module})
        return found


def extract() -> list[tuple[str, str]]:
    """Return all paragraphs with their labels, each text once, in the order of the files' names."""
    found: dict[str, tuple[str, str]] = {}
    for path, label in _files():
        for docstring in docstrings(path.read_text(encoding="utf-8", errors="ignore")):
            for text in paragraphs(docstring):
                found.setdefault(text.casefold(), (text, label))
    counts = Counter(label for _, label in found.values())
    return [(text, label if counts[label] >= MIN_PARAGRAPHS else OTHER) for text, label in found.values()]


def _files() -> Iterator[tuple[Path, str]]:
    """Yield source files and their labels; sorted, since file systems have orders of their own."""
    spec = importlib.util.find_spec("torch")
    folders = [Path(sysconfig.get_paths()["stdlib"]), *map(Path, spec.submodule_search_locations or [] if spec else [])]
    for torch, folder in enumerate(folders):
        found: list[Path] = []
        for inside, inner, files in os.walk(folder):
            inner[:] = [name for name in inner if name not in _SKIPPED]
            found += [Path(inside, name) for name in files if name.endswith(".py")]
        for path in sorted(found):
            first, *more = path.relative_to(folder).parts
            module = first.removesuffix(".py")
            yield path, (f"torch.{module}" if more else "torch") if torch else module


def docstrings(source: str) -> Iterator[str]:
    """Yield what stands in triple quotes where docstrings stand: first in a file, a class or a function."""
    for found in _DOCSTRING.finditer(source):
        yield found[1]


def paragraphs(docstring: str) -> Iterator[str]:
    """Yield the paragraphs of a docstring that are prose, in one line each; sentences with code end a paragraph."""
    for block in _BLOCK_END.split(_HEADING.sub("\n", inspect.cleandoc(docstring))):
        text = re.sub(r"\s+", " ", _MARKUP.sub(lambda m: m[1] or m[2], block)).strip()
        text = _FIELD.sub("", text, count=1) if _FIELD.match(text) else text
        run: list[str] = []
        for sentence in (*re.split(r"(?<=[a-z)][.!?])\s+(?=[A-Z])", text), ""):
            if sentence and sentence[-1] in ".!?" and sentence.isprintable() and not _CODE.search(sentence):
                run.append(sentence)
                continue
            whole, run = " ".join(run), []
            if whole and _is_prose(whole):
                yield whole[0].upper() + whole[1:]


def _is_prose(text: str) -> bool:
    words = [word.strip(".,;:!?()\"'") for word in text.split()]
    spoken = sum(_WORD.fullmatch(word) is not None for word in words)
    common = sum(_COMMON.fullmatch(word.lower()) is not None for word in words)
    return len(words) >= MIN_WORDS and spoken >= 0.8 * len(words) and common >= 0.15 * len(words) and text[0].isalnum()
