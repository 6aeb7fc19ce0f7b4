"""Read a folder of files, or one file, as a source: find its splits, its shards and its parallel files."""

import contextlib
import hashlib
import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise, takewhile, zip_longest
from pathlib import Path

from synthattn.data.files import (
    COMPRESSED,
    FORMATS,
    Reading,
    broken,
    format_of,
    raw_lines,
    read_lines,
    read_records,
    read_whole,
    uncompressed,
)
from synthattn.data.source import Record, Source
from synthattn.messages import printable
from synthattn.regular_file import open_regular

ROLES = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev", "development", "eval", "heldout", "held_out"),
    "test": ("test", "testing", "tst"),
}
"""Standard split names and the words that mean them. Earlier words win over later ones."""

_ROLE_OF = {word: role for role, words in ROLES.items() for word in words}
_NUMBERED = re.compile(rf"({'|'.join(sorted(_ROLE_OF, key=len, reverse=True))})\d\w*")
_SHARD = re.compile(r"(.+)[-_.](\d{1,9})-of-(\d{1,9})")
_SIDE = re.compile(r"[A-Za-z][\w-]{0,19}")
_LANGUAGE = re.compile(r"(?!py|sh|md|gz)[a-z]{2}")
_ABOUT = re.compile(
    r"[._]|cache-|(?:readme|licen[cs]e|copying|manifest|notice|citation|changelog|authors|about)(?![a-z])"
)
_LISTS = re.compile(
    r"classes|class_names|labels|label_(?:list|names|map)|vocab(?:ulary)?|merges|dataset_infos|config|"
    r"tokenizer(?:_config)?|special_tokens_map"
)
_UNLABELLED = re.compile(r"[._]|unsup|unlabel")
_SAVED = ("dataset_dict.json", "dataset_info.json", "state.json")
"""Descriptions in the folders that ``datasets`` saves; they are left out without a note."""

NO_DATA = "left out, no data"

# Files are large, and several caches need their digests; the key is path, size and modification time.
_digests: dict[tuple[str, int, int], str] = {}


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Files that are read together: a single file, or parallel files with the names of their sides."""

    paths: Mapping[str, Path]
    """One path under the key ``""``, or one path per side."""
    shard: int = 0
    shards: int = 0
    """Number of shards of the split; 0 if it is not sharded."""

    @property
    def kind(self) -> str:
        """Return the format or the sides, by which splits of the same data are recognised."""
        first = next(iter(self.paths.values()))
        return " ".join(self.paths) if len(self.paths) > 1 else format_of(first.name)


@dataclass(frozen=True, slots=True)
class ClassFolders(FileGroup):
    """Texts in a folder for each class, such as ``pos/0_9.txt``: a file is an example, its folder the label.

    The files are ordered by a hash of their names, so that the first examples are like the whole.
    """

    @property
    def kind(self) -> str:
        return "a folder for each class"


class BrokenLines:
    """The number of broken lines of a file, and the error about the first."""

    def __init__(self) -> None:
        self.count, self.first = 0, ""

    def add(self, error: ValueError) -> None:
        self.count, self.first = self.count + 1, self.first or str(error)


class FolderSource(Source):
    """Splits from the files of a folder; a file by itself is the split ``train``.

    ``FORMATS`` lists the formats; those of text may be compressed. Files such as ``train.en`` and ``train.de`` are
    sides of parallel text and become the fields ``de`` and ``en``. Files such as ``train-00000-of-00004.jsonl`` are
    read one after the other, and so are the files of a folder ``train`` in a folder without other data. A folder that
    the package ``datasets`` has saved is one of these. In
    ``train/pos/0_9.txt`` the folder is the label. Files that are not data are left out and noted.

    Args:
        path: the folder or the file.
        name: the text that the user wrote; the path by default.
        columns: columns that the user named; a first row of CSV that has one of them is a header.
        skip_bad: leave broken lines out, and note their number.
    """

    def __init__(
        self, path: str | Path, name: str | None = None, columns: Collection[str] = (), skip_bad: bool = False
    ) -> None:
        super().__init__(str(path) if name is None else name)
        self.path = Path(path)
        self.columns, self.skip_bad = columns, skip_bad
        try:
            if self.path.is_dir():
                self.folder = self.path
                self._parts = self._arranged(self._inside(self.path))
            else:
                self.folder = self.path.parent
                self._parts = {"train": (FileGroup({"": self.path}),)}
                if not format_of(self.path.name):
                    self.note(f"{printable(self.path.name)}: read as text, one example a line")
        except OSError as error:
            raise broken(printable(str(path)), None, f"cannot be read: {error.strerror or error}") from None
        self.splits = tuple(self._parts)

    def fingerprint(self) -> str:
        """Return the SHA-256 of the names and contents of all files that are read."""
        paths = {path for parts in self._parts.values() for part in parts for path in part.paths.values()}
        total = hashlib.sha256()
        for path in sorted(paths):
            total.update(f"{self._called(path)}\0{_digest(path, self._called(path))}\n".encode())
        return total.hexdigest()

    def check(self) -> None:
        """Raise an error if parallel files differ in their numbers of lines."""
        for parts in self._parts.values():
            for part in parts:
                if len(part.paths) > 1 and not isinstance(part, ClassFolders):
                    self._check_lengths(part)

    def records(self, split: str) -> Iterator[Record]:
        for part in self._parts[split]:
            if isinstance(part, ClassFolders):
                yield from self._read_classes(part)
            elif len(part.paths) > 1:
                yield from self._read_parallel(part)
            else:
                yield from self._read_file(part.paths[""])

    def _read_file(self, path: Path) -> Iterator[Record]:
        name = self._called(path)
        found = BrokenLines()

        def broken_line(error: ValueError) -> None:
            found.add(error)
            if self.skip_bad:
                return
            every = BrokenLines()
            with contextlib.suppress(ValueError):  # what cannot be left out ends the count
                for _ in read_records(path, Reading(name, lambda note: None, self.columns, every.add)):
                    pass
            lines, them = ("1 broken line", "it") if every.count < 2 else (f"{every.count:,} broken lines", "them")
            raise ValueError(f"{error} ({lines} in this file; --skip-bad leaves {them} out)")

        yield from read_records(path, Reading(name, self.note, self.columns, broken_line))
        if found.count:
            self.note(f"{name}: {found.count:,} broken lines left out, the first: {found.first}")

    def _read_classes(self, part: ClassFolders) -> Iterator[Record]:
        found = BrokenLines()
        for name, path in part.paths.items():
            try:
                text = read_whole(path, name)
            except ValueError as error:
                found.add(error)
                continue
            if not found.count or self.skip_bad:  # else the other files are only counted
                yield Record({"text": text, "label": path.parent.name}, name)
        if found.count and not self.skip_bad:
            files, them = ("1 broken file", "it") if found.count < 2 else (f"{found.count:,} broken files", "them")
            raise ValueError(f"{found.first} ({files} in this split; --skip-bad leaves {them} out)")
        if found.count:
            self.note(f"{found.count:,} broken files left out, the first: {found.first}")

    def _read_parallel(self, part: FileGroup) -> Iterator[Record]:
        names = [self._called(path) for path in part.paths.values()]
        where = " and ".join(names)
        empty = 0
        sides = [read_lines(path, name) for path, name in zip(part.paths.values(), names, strict=True)]
        for number, lines in enumerate(zip_longest(*sides), 1):
            if None in lines:
                self._check_lengths(part)
                raise broken(where, number, "the files changed while they were read; start again")
            fields = {side: text for side, (_, text) in zip(part.paths, lines, strict=True)}
            empty += not all(text.strip() for text in fields.values())
            yield Record(fields, f"{where}, line {number}")
        if empty:
            self.note(f"{where}: {empty} lines with an empty side, which are kept")

    def _check_lengths(self, part: FileGroup) -> None:
        named = {self._called(path): path for path in part.paths.values()}
        counts = {name: sum(1 for _ in raw_lines(path, name)) for name, path in named.items()}
        if len(set(counts.values())) > 1:
            found = ", ".join(f"{name} has {count}" for name, count in counts.items())
            raise ValueError(f"parallel files differ in their numbers of lines: {found}; find the line that is missing")

    def _called(self, path: Path) -> str:
        return printable(str(path.relative_to(self.folder)))

    def _found(self, folder: Path) -> dict[str, tuple[FileGroup, ...]]:
        """Return the files of each split by the stem of their names; the splits are not named yet."""
        data: list[Path] = []
        for path in sorted(folder.iterdir()):
            stem = _stem(path.name).lower()
            if path.name in _SAVED:
                continue
            if path.is_dir() or _ABOUT.match(path.name.lower()) or _LISTS.fullmatch(stem):
                self.note(f"{self._called(path)}: {NO_DATA}")
            else:
                data.append(path)
        parallel = self._parallel(data)
        found: dict[str, list[FileGroup]] = {}
        for stem, part in parallel:
            found.setdefault(stem, []).append(part)
        used = {path for _, part in parallel for path in part.paths.values()}
        for path in data:
            if path not in used and format_of(path.name):
                stem, shard, shards = _without_shard(_stem(path.name))
                found.setdefault(stem, []).append(FileGroup({"": path}, shard, shards))
            elif path not in used:
                self._lone(path, parallel)
        return {stem: self._in_order(stem, parts) for stem, parts in found.items()}

    def _inside(self, folder: Path) -> dict[str, tuple[FileGroup, ...]]:
        """Return the files of a folder, or else of folders in it: for splits, such as ``train``, or ``data``."""
        found = self._found(folder)
        if not any(map(_role, found)) and (by_class := self._by_class(folder)):
            for path in (path for parts in found.values() for part in parts for path in part.paths.values()):
                self.note(f"{self._called(path)}: {NO_DATA}")
            return by_class
        if found:
            return found
        inner = sorted(path for path in folder.iterdir() if path.is_dir())
        for split in (path for path in inner if _role(path.name)):
            parts = tuple(part for _, several in sorted(self._found(split).items()) for part in several)
            if not parts:
                continue
            name = self._called(split)
            if len({part.kind for part in parts}) > 1:
                kinds = ", ".join(sorted({part.kind for part in parts}))
                raise broken(name, None, f"files of several kinds, {kinds}; leave one kind in the folder")
            if len(parts) > 1:
                self.note(f"{name}: {len(parts)} files, read in the order of their names")
            self._notes.pop(f"{name}: {NO_DATA}", None)
            found[split.name] = parts
        data = folder / "data"  # repositories of the hub have their files there
        if not found and data in inner and folder == self.folder:
            self._notes.pop(f"data: {NO_DATA}", None)
            return self._inside(data)
        if not found:
            raise broken(printable(self.name), None, f"no data in this folder; {self._way_out()}")
        return found

    def _by_class(self, folder: Path) -> dict[str, tuple[FileGroup, ...]]:
        """Return the texts of splits that have a folder for each class, such as ``train/pos/0_9.txt``."""
        found: dict[str, tuple[FileGroup, ...]] = {}
        for split in sorted(path for path in folder.iterdir() if path.is_dir() and _role(path.name)):
            inner = sorted(split.iterdir())
            texts = {path: _texts(path) for path in inner if path.is_dir() and not _UNLABELLED.match(path.name.lower())}
            labels = [path.name for path in inner if texts.get(path)]
            if len(labels) < 2:
                continue
            for path in inner:
                if not texts.get(path):
                    self.note(f"{self._called(path)}: {NO_DATA}")
            name = self._called(split)
            self._notes.pop(f"{name}: {NO_DATA}", None)
            self.note(f"{name}: each file is an example, and its folder is its label: {printable(', '.join(labels))}")
            named = {self._called(path): path for several in texts.values() for path in several}
            order = sorted(named, key=lambda file: (zlib.crc32(file.encode()), file))
            found[split.name] = (ClassFolders({file: named[file] for file in order}),)
        return found

    def _parallel(self, data: Iterable[Path]) -> list[tuple[str, FileGroup]]:
        """Find files whose names differ only in their last ending, such as ``train.en`` and ``train.de.gz``."""
        groups: dict[str, dict[str, list[Path]]] = {}
        for path in data:
            stem, _, side = _stem(path.name).rpartition(".")
            # The name of a table may contain a dot for other reasons.
            if format_of(path.name) in ("", ".txt") and stem and _SIDE.fullmatch(side) and not _role(side):
                groups.setdefault(stem, {}).setdefault(side, []).append(path)
        found = []
        for whole, sides in groups.items():
            stem, shard, shards = _without_shard(whole)
            # Without a split name, "spm.model" and "spm.vocab" are not likely to be two languages.
            if len(sides) > 1 and (_role(stem) or all(_LANGUAGE.fullmatch(side) for side in sides)):
                for paths in sides.values():
                    _check_one(paths)
                found.append((stem, FileGroup({side: sides[side][0] for side in sorted(sides)}, shard, shards)))
        return found

    def _lone(self, path: Path, parallel: Iterable[tuple[str, FileGroup]]) -> None:
        """Note that a file of unknown format is left out; raise an error if it lost its parallel files."""
        side = _stem(path.name).rpartition(".")[2]
        for _, part in parallel:
            if side in part.paths and _role(_stem(path.name)):
                others = " and ".join(f".{other}" for other in part.paths if other != side)
                raise broken(printable(path.name), None, f"there is no such file with {others}; add or remove one")
        self.note(f"{self._called(path)}: left out, not one of {', '.join(FORMATS)}")

    def _in_order(self, stem: str, parts: list[FileGroup]) -> tuple[FileGroup, ...]:
        parts = sorted(parts, key=lambda part: part.shard)
        numbers = {part.shard for part in parts}
        if len(parts) > 1 and (len(numbers) < len(parts) or len({part.shards for part in parts}) > 1):
            _check_one([path for part in parts for path in part.paths.values()])
        if len(parts) < parts[0].shards:
            self.note(f"{printable(stem)}: {len(parts)} of {parts[0].shards} shards")
        return tuple(parts)

    def _arranged(self, found: dict[str, tuple[FileGroup, ...]]) -> dict[str, tuple[FileGroup, ...]]:
        names, notes = arrange({stem: parts[0].kind for stem, parts in found.items()})
        for note in notes:
            self.note(note)
        return {split: found[stem] for split, stem in names.items()}

    def _way_out(self) -> str:
        inner = sorted(printable(path.name) for path in self.folder.iterdir() if path.is_dir() and path.name[0] != ".")
        if inner:
            classes = sum(path.is_dir() and bool(_texts(path)) for path in self.folder.iterdir()) > 1
            way_out = f"give one of its folders: {', '.join(inner[:12])}"
            return f"{way_out}; if these are classes, move them into a folder train" if classes else way_out
        return f"files are {', '.join(FORMATS)}, text also with {', '.join(COMPRESSED)}, or sides such as train.en"


def arrange(kinds: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Choose which of a source's split names are train, validation and test; the others keep their names.

    A plain name such as ``dev`` comes first. A longer name such as ``dev_32`` is chosen if it is the only candidate of
    the same kind as train. The ``matched`` and ``mismatched`` splits of MNLI keep their names, and matched is also
    the split itself.

    Args:
        kinds: the source's split names, each with the kind of its data.

    Returns:
        The source's name for each split, in listing order, and notes for the user.
    """
    notes: list[str] = []
    prefix = _common_prefix(kinds)
    words = {name: _without_prefix(_tokens(name), prefix) for name in kinds}
    taken: dict[str, str] = {}
    others: dict[str, str] = {}
    for role, exact in ROLES.items():
        candidates = [name for name in kinds if _role(" ".join(words[name])) == role]
        plain = sorted(
            (name for name in candidates if "_".join(words[name]) in exact),
            key=lambda name: exact.index("_".join(words[name])),
        )
        alike = [name for name in candidates if "train" not in taken or kinds[name] == kinds[taken["train"]]]
        matched = [name for name in candidates if "matched" in words[name]]
        mismatched = [name for name in candidates if "mismatched" in words[name]]
        if plain:
            taken[role] = plain[0]
        elif len(matched) == 1 and len(mismatched) == 1:
            taken[role] = matched[0]
            others |= {f"{role}_matched": matched[0], f"{role}_mismatched": mismatched[0]}
            notes.append(f"{role} is {printable(matched[0])}")
        elif len(alike) == 1:
            taken[role] = alike[0]
            notes.append(f"{role} is {printable(alike[0])}")
        elif candidates:
            notes.append(f"no split was taken for {role}: it could be {' or '.join(map(printable, candidates))}")
    if len(kinds) == 1 and not taken:
        taken["train"] = next(iter(kinds))
        notes.append(f"train is {printable(taken['train'])}, the only data")
    named = {*taken.values(), *others.values()}
    others |= {name: name for name in kinds if name not in named}
    return taken | others, tuple(notes)


def _tokens(name: str) -> list[str]:
    return [token for token in re.split(r"[\W_]+", name.lower()) if token]


def _role(name: str) -> str | None:
    """Return the standard split that a name means; None if it means none or several."""
    tokens = _tokens(name)
    roles = {_ROLE_OF[token] for token in tokens if token in _ROLE_OF}
    roles |= {_ROLE_OF[match[1]] for token in tokens if (match := _NUMBERED.fullmatch(token))}
    if ("held", "out") in pairwise(tokens):
        roles.add("validation")
    return roles.pop() if len(roles) == 1 else None


def _common_prefix(names: Iterable[str]) -> list[str]:
    """Return the words that all split names begin with, such as ``ptb``."""
    split = [_tokens(name) for name in names if _role(name)]
    if len(split) < 2:
        return []
    shared = takewhile(lambda words: len(set(words)) == 1, zip(*split, strict=False))
    return list(takewhile(lambda word: _role(word) is None, (words[0] for words in shared)))


def _without_prefix(tokens: list[str], prefix: list[str]) -> list[str]:
    return tokens[len(prefix) :] if tokens[: len(prefix)] == prefix else tokens


def _stem(name: str) -> str:
    """Return a file name without the endings of its compression and its format."""
    name = uncompressed(name)
    suffix = format_of(name)
    return name[: -len(suffix)] if suffix else name


def _texts(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if format_of(path.name) == ".txt" and path.name[0] not in "._"]


def _without_shard(stem: str) -> tuple[str, int, int]:
    match = _SHARD.fullmatch(stem)
    return (match[1], int(match[2]), int(match[3])) if match else (stem, 0, 0)


def _check_one(paths: list[Path]) -> None:
    if len(paths) > 1:
        names = " and ".join(printable(path.name) for path in paths[:4])
        raise ValueError(f"{names} are for the same split; remove one, or give the path of one file")


def _digest(path: Path, name: str) -> str:
    try:
        state = path.stat()
        key = (str(path.resolve()), state.st_size, state.st_mtime_ns)
        if key not in _digests:
            with open_regular(path) as file:
                _digests[key] = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise broken(name, None, f"cannot be read: {error.strerror or error}") from None
    return _digests[key]
