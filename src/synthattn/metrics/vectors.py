"""Read files of word vectors."""

import gzip
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from synthattn.regular_file import open_regular


def load_vectors(path: str | Path) -> dict[str, NDArray[np.float32]]:
    """Load vectors from a text file of word2vec or GloVe, with a word and its numbers on each line.

    A first line of two whole numbers is word2vec's header: the number of words, and the length of a vector. A file that
    ends in ``.gz`` is unpacked. If a word occurs twice, its first vector counts.
    """
    vectors: dict[str, NDArray[np.float32]] = {}
    for word, vector in _vectors(path):
        vectors.setdefault(word, vector)
    return vectors


def check_vectors(path: str | Path) -> None:
    """Read a file of vectors to its end and raise an error if it is damaged; nothing is kept in memory."""
    for _ in _vectors(path):
        pass


def _vectors(path: str | Path) -> Iterator[tuple[str, NDArray[np.float32]]]:
    size, promised, read = 0, None, 0
    for number, line in _lines(Path(path)):
        fields = line.split(" ")
        if number == 1 and len(fields) == 2 and all(field.isdecimal() for field in fields):
            promised, size = int(fields[0]), int(fields[1])
            continue
        size = size or len(fields) - 1
        # Split from the right: some words of GloVe contain spaces.
        word, *values = line.rsplit(" ", size)
        if size < 1 or len(values) != size or not word:
            raise ValueError(f"{path}, line {number}: expected a word and {max(size, 1)} numbers, got {_short(line)}")
        try:
            vector = np.array(values, dtype=np.float32)
        except ValueError:
            raise ValueError(f"{path}, line {number}: not all of {size} are numbers in {_short(line)}") from None
        if not np.isfinite(vector).all():
            raise ValueError(f"{path}, line {number}: not all of {size} numbers are finite in {_short(line)}")
        yield word, vector
        read += 1
    if promised is not None and promised != read:
        raise ValueError(f"{path}: line 1 says {promised} words, there are {read}; the file is cut off or damaged")
    if not read:
        raise ValueError(f"{path}: no word vectors")


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    number = 0
    try:
        # Read bytes: a word may contain a character that Python treats as a line end.
        with open_regular(path) as file:
            for number, line in enumerate(gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file, start=1):
                text = line.decode().rstrip(" \r\n")
                if text:
                    yield number, text
    except UnicodeDecodeError:
        raise ValueError(f"{path}, line {number}: not UTF-8; is it a binary file? Save the vectors as text") from None
    except (OSError, EOFError) as error:
        raise ValueError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _short(line: str) -> str:
    return repr(line if len(line) <= 40 else line[:37] + "...")
