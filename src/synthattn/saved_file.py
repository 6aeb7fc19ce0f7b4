"""Write files whole, and read JSON and YAML files that were written by this package or by another program.

Reading any file either succeeds or raises a one-line ``ValueError`` that names the file.
"""

import contextlib
import dataclasses
import json
import os
import types
import typing
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

DEEPEST = 100
"""Maximum nesting of lists and objects in a file; fixed, because Python's own limit depends on the caller."""
LONGEST = 100_000_000
"""Maximum bytes of a compressed file after decompression."""

T = TypeVar("T")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a file beside ``path`` to write to, which then takes its place: readers see the old file or the new one."""
    beside = path.with_name(f"{path.name}.part")
    try:
        yield beside
        with beside.open("rb") as file:
            os.fsync(file.fileno())
    except OSError:
        beside.unlink(missing_ok=True)  # leaves more room on a full disk
        raise
    beside.replace(path)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with replacing(path) as beside:
        beside.write_text(text, encoding="utf-8")


def read_json(file: Path) -> Any:
    """Return the value of a JSON file."""
    return _read(file, json.loads, "valid JSON")


def read_yaml(file: Path) -> Any:
    """Return the value of a YAML file. Tags that would create Python objects are refused."""
    import yaml

    def load(text: str) -> Any:
        try:
            # A few lines of aliases can stand for more values than fit into memory.
            alias = next((e.anchor for e in yaml.parse(text, yaml.SafeLoader) if isinstance(e, yaml.AliasEvent)), None)
            if alias is not None:
                raise ValueError(f"it uses an alias, *{alias}; write its value out")
            return yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ValueError(str(error)) from error

    return _read(file, load, "YAML")


def _read(file: Path, parse: Callable[[str], Any], form: str) -> Any:
    try:
        found = parse(_content(file).decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not {form}: {error.reason} at byte {error.start}") from error
    except RecursionError:
        raise ValueError(f"{file} nests more than {DEEPEST} lists or objects; flatten it") from None
    except ValueError as error:
        raise ValueError(f"{file} is not {form}: {one_line(error)}") from error
    if nests_deeper(found, DEEPEST):
        raise ValueError(f"{file} nests more than {DEEPEST} lists or objects; flatten it")
    return found


def _content(file: Path) -> bytes:
    """Return the bytes of a file, decompressed if its name ends with ``.xz``."""
    if file.suffix != ".xz":
        return file.read_bytes()
    import lzma

    try:
        with lzma.open(file) as opened:
            found = opened.read(LONGEST + 1)
    except (lzma.LZMAError, EOFError) as error:
        raise ValueError(f"it cannot be decompressed: {error}") from error
    if len(found) > LONGEST:
        raise ValueError(f"it is longer than {LONGEST:,} bytes after decompression")
    return found


def one_line(error: BaseException, longest: int = 300) -> str:
    """Return an error's message without line breaks; the middle of a long message is left out."""
    text = " ".join(str(error).split()) or type(error).__name__
    half = longest // 2
    return text if len(text) <= longest else f"{text[:half]} ... {text[-half:]}"


def nests_deeper(value: Any, levels: int) -> bool:
    """Return True if lists and objects are nested more than ``levels`` deep."""
    layer = [value]
    for _ in range(levels + 1):
        layer = [
            part
            for one in layer
            if isinstance(one, list | dict)
            for part in (one.values() if isinstance(one, dict) else one)
            if isinstance(part, list | dict)
        ]
        if not layer:
            return False
    return True


def read_dataclass(kind: type[T], file: Path, problem: str, required: Collection[str] = ()) -> T:
    """Read a dataclass that was saved with ``dataclasses.asdict`` as JSON, and check the type of every field.

    Args:
        kind: a dataclass, whose fields may be dataclasses.
        file: a JSON file. Missing fields get their defaults.
        problem: the message for a file of another form, such as ``"is damaged"``.
        required: fields that must be in the file although they have a default.
    """
    try:
        found = read_json(file)
        missing = sorted(set(required) - set(found)) if isinstance(found, dict) else []
        if missing:
            raise ValueError(f"it lacks {', '.join(missing)}")
        return restore(kind, found)
    except ValueError as error:
        raise ValueError(f"{file} {problem}: {one_line(error).removeprefix(f'{file} ')}") from error


def restore(kind: type[T], value: Any) -> T:
    """Create a dataclass from the JSON form of ``dataclasses.asdict``, and check the type of every field."""
    try:
        return _restored(kind, value, "")
    except _MismatchError as error:
        path, problem = error.args
        raise ValueError(f"{path.lstrip('.') or 'it'} {problem}") from None


class _MismatchError(Exception):
    """The path of a value inside a file, and its problem."""


def _restored(hint: Any, value: Any, path: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin in (types.UnionType, typing.Union):
        return _one_of(arguments, value, path)
    if origin is Literal and value in arguments:
        return value
    if dataclasses.is_dataclass(hint) and isinstance(value, dict):
        return _dataclass(hint, value, path)
    if origin is list and isinstance(value, list):
        return [_restored(arguments[0], one, f"{path}[{n}]") for n, one in enumerate(value)]
    if origin is tuple and isinstance(value, list) and len(value) == len(arguments):
        pairs = enumerate(zip(arguments, value, strict=True))
        return tuple(_restored(each, one, f"{path}[{n}]") for n, (each, one) in pairs)
    if origin is dict and isinstance(value, dict):
        return {name: _restored(arguments[1], one, f"{path}.{name}") for name, one in value.items()}
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if isinstance(hint, type) and type(value) is hint:
        return value
    raise _MismatchError(path, f"must be {_word(hint)}, got {_shown(value)}")


def _one_of(hints: tuple[Any, ...], value: Any, path: str) -> Any:
    for hint in hints:
        try:
            return _restored(hint, value, path)
        except _MismatchError as error:
            if len(error.args[0]) > len(path):  # this type is the right one, but a value inside it is not
                raise
    raise _MismatchError(path, f"must be {' or '.join(_word(hint) for hint in hints)}, got {_shown(value)}")


def _dataclass(kind: Any, value: dict[str, Any], path: str) -> Any:
    hints = typing.get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind) if field.init}
    for name in value:
        if name not in fields:
            raise _MismatchError(path, f"has an unknown field {_shown(name)}")
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in value:
            raise _MismatchError(path, f"lacks the field {name!r}")
    return kind(**{name: _restored(hints[name], one, f"{path}.{name}") for name, one in value.items()})


def _word(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return " or ".join(repr(choice) for choice in get_args(hint))
    words = {int: "a whole number", float: "a number", str: "a text", bool: "true or false", type(None): "null"}
    shapes = {list: "a list", dict: "an object", tuple: f"a list of {len(get_args(hint))} numbers"}
    return words.get(hint) or shapes.get(get_origin(hint) or hint, "an object")


def _shown(value: Any) -> str:
    if isinstance(value, list | dict):
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value)}"
    text = repr(value) if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."
