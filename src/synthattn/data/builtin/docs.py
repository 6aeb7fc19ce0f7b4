"""English prose that is on every machine with this package: the documentation inside Python and torch.

Docstrings are read from source files, not from imported modules: importing all of them would take long and do things.
"""

import ast
import hashlib
import html
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import sysconfig
import tempfile
import warnings
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from synthattn.data.builtin.docs_text import paragraphs
from synthattn.data.cache import cache_folder
from synthattn.data.source import Record

VERSION = 2
OTHER = "other"
MIN_PARAGRAPHS = 100
"""Modules with fewer paragraphs share the label ``other``: no classifier could learn them."""
SPLITS = ("train", "validation", "test")
_SHARE = 20
# Tests, tables and copies of other packages document nothing.
_SKIPPED = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__", "_internal", "_vendor"}
_SKIPPED |= {"encodings"}
_TOPICS = "pydoc_data"
# What the wheel of torch contains.
_TORCH = ("torch", "functorch", "torchgen")
# Documentation in files of its own; histories and licences are none.
_MANUALS = {"help.html", "extend.txt", "architecture.rst", "README.txt", "README.md"}
# Folders of headers whose comments are the documentation of the C++ interface; the other ones are generated, or copies.
_HEADERS = ("ATen/core", "ATen/detail", "c10", "torch")
_BODIES = ("finalbody", "orelse", "handlers", "body")
# Files of torch that document the functions of the package itself.
_TOP = {"__init__", "_torch_docs", "_tensor_docs", "_tensor", "functional"}


def docs_source(name: str = "builtin:docs") -> "DocsSource":
    """Paragraphs with the fields ``text`` and ``module``."""
    return DocsSource(name)


class DocsSource:
    """Paragraphs of documentation, in a split each by a hash of their text.

    The field ``module`` is the top-level module of the standard library, ``language`` for the reference that
    ``help()`` shows, or ``torch`` with one more level if there is one; ``other`` for modules with fewer than
    ``MIN_PARAGRAPHS``.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.versions = {"python": platform.python_version(), "torch": _torch_version()}
        self._paragraphs: list[tuple[str, str]] | None = None

    @property
    def splits(self) -> tuple[str, ...]:
        return SPLITS

    @property
    def notes(self) -> tuple[str, ...]:
        versions = ", ".join(f"{package} {version}" for package, version in self.versions.items())
        return (
            f"prose from the documentation of {versions}; other versions have other texts",
            f"modules with fewer than {MIN_PARAGRAPHS} paragraphs have the label {OTHER!r}",
        )

    def read(self, split: str) -> Iterator[Record]:
        if split not in SPLITS:
            raise ValueError(f"{self.name} has no split {split!r}; choose from {', '.join(SPLITS)}")
        i = 0
        for text, module in self._all():
            if _split_of(text) == split:
                i += 1
                yield Record({"text": text, "module": module}, f"builtin:docs, example {i}")

    def fingerprint(self) -> str:
        return _digest(self._all())

    def _all(self) -> list[tuple[str, str]]:
        if self._paragraphs is None:
            path = cache_folder() / f"docs-{VERSION}-{'-'.join(f'{k}{v}' for k, v in self.versions.items())}.jsonl"
            self._paragraphs = _cached(path)
            if self._paragraphs is None:
                self._paragraphs = extract()
                _store(path, self._paragraphs)
        return self._paragraphs


def _torch_version() -> str:
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return "none"


def _split_of(text: str) -> str:
    return {0: "validation", 1: "test"}.get(zlib.crc32(text.encode()) % _SHARE, "train")


def _digest(found: list[tuple[str, str]]) -> str:
    content = hashlib.sha256()
    for pair in found:
        content.update(json.dumps(pair).encode() + b"\n")
    return content.hexdigest()


def _cached(path: Path) -> list[tuple[str, str]] | None:
    """What was stored, or None if there is nothing or not all of it."""
    try:
        header, *lines = path.read_text(encoding="utf-8").splitlines()
        found = [(str(text), str(module)) for text, module in map(json.loads, lines)]
        return found if json.loads(header)["sha256"] == _digest(found) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _store(path: Path, found: list[tuple[str, str]]) -> None:
    """Write all or nothing; a cache that cannot be written costs time, not the run."""
    lines = [json.dumps({"sha256": _digest(found)}), *map(json.dumps, found)]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as file:
            file.write("\n".join(lines) + "\n")
        os.replace(file.name, path)
    except OSError:
        return


def extract() -> list[tuple[str, str]]:
    """All paragraphs with their labels, each text once, in the order of the files' names."""
    found: dict[str, tuple[str, str]] = {}
    for path, label in _files():
        for docstring in _docstrings(path):
            for text in paragraphs(docstring):
                # Texts that differ in their marks only are the same.
                found.setdefault(re.sub(r"\W+", " ", text.casefold()), (text, label))
    counts = Counter(label for _, label in found.values())
    return [(text, label if counts[label] >= MIN_PARAGRAPHS else OTHER) for text, label in found.values()]


def _files() -> Iterator[tuple[Path, str]]:
    """Files and their labels."""
    library = Path(sysconfig.get_paths()["stdlib"])
    for path in _sources(library):
        module = path.relative_to(library).parts[0].removesuffix(".py")
        yield path, "language" if module == _TOPICS else module
    for package in _TORCH:
        spec = importlib.util.find_spec(package)
        for location in (spec.submodule_search_locations if spec is not None else None) or ():
            for path in _sources(Path(location)):
                module = path.relative_to(location).parts[0].removesuffix(".py")
                yield path, package if module in _TOP or package != "torch" else f"torch.{module}"
            for name in _HEADERS:
                yield from ((path, "torch.cpp") for path in _sources(Path(location, "include", name), ".h"))


def _sources(root: Path, suffix: str = ".py") -> list[Path]:
    """The files below a folder; sorted, since file systems have orders of their own."""
    found: list[Path] = []
    for folder, inner, files in os.walk(root):
        inner[:] = [name for name in inner if name not in _SKIPPED]
        found += [Path(folder, name) for name in files if name.endswith(suffix) or name in _MANUALS]
    return sorted(found)


def _docstrings(path: Path) -> Iterator[str]:
    """The docstrings in a file, and texts that are made docstrings by a call or are topics of ``help()``."""
    try:
        source = path.read_bytes()
        if path.suffix == ".h":
            yield from _comments(source) if b"///" in source else ()
            return
        if path.suffix != ".py":
            yield _without_tags(source.decode())
            return
        # Parsing is slow, and a file without them has no docstring worth it.
        if b'"""' not in source and b"'''" not in source and path.parent.name != _TOPICS:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (OSError, SyntaxError, ValueError):
        return
    if path.parent.name == _TOPICS:
        yield from _texts(tree)
    else:
        yield from _of_definitions(tree)


def _without_tags(text: str) -> str:
    """The text of a page: a blank line for every tag that parts paragraphs, and no code."""
    if not text.lstrip().startswith("<"):
        return text
    text = re.sub(r"<(pre|script|style|title|h\d)\b.*?</\1>", "\n\n", text, flags=re.DOTALL)
    text = re.sub(r"\n\s*", "\n", text)
    text = re.sub(r"</?(p|li|ul|ol|dl|dt|dd|div|section|table|tr|td|body|html|head)\b[^>]*>", "\n\n", text)
    return html.unescape(re.sub(r"<[^>]*>", "", text))


def _comments(source: bytes) -> Iterator[str]:
    """The comments that Doxygen takes for documentation."""
    for found in re.finditer(r"(?:^[ \t]*///.*\n)+", source.decode(), re.MULTILINE):
        yield re.sub(r"^[ \t]*///+[!<]?", "", found[0], flags=re.MULTILINE)


def _texts(tree: ast.AST) -> Iterator[str]:
    """All strings of more than one line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" in node.value:
            yield node.value


def _of_definitions(tree: ast.Module) -> Iterator[str]:
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        match node:
            case ast.Expr(value=ast.Constant(value=str() as text)):
                # The first one in a body is its docstring; later ones describe the attribute above them.
                yield text
            case ast.Expr(value=ast.Call() as call) | ast.Assign(value=ast.Call() as call) if _documents(call.func):
                # torch documents its compiled functions with calls of add_docstr.
                yield from _texts(call)
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if "doc" in name.lower():
                yield from _texts(value)
            case _:
                # Statements only: expressions have no docstrings, and are most of a file.
                for part in _BODIES:
                    todo += reversed(getattr(node, part, ()))


def _documents(function: ast.expr) -> bool:
    return "doc" in (function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")).lower()
