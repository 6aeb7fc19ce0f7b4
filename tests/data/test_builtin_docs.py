"""Prose from installed documentation: clean, the same each time, and read once."""

import platform
import re
import subprocess
import sys
from collections import Counter

import pytest

from synthattn.data.builtin import docs, open_builtin

LEFTOVERS = re.compile(r">>>|::|:\w+:|[`*|\\{}<>\[\]]|->|=|https?:")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """One folder for all tests, filled by a process without the tests' type checker: it would take long."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("SYNTHATTN_CACHE", str(folder))
        code = "from synthattn.data.builtin import open_builtin; open_builtin('docs').fingerprint()"
        subprocess.run([sys.executable, "-c", code], check=True)
        yield folder


@pytest.fixture(scope="module")
def found(cache):
    source = open_builtin("docs")
    return {split: [record.fields for record in source.read(split)] for split in source.splits}


def test_texts_are_prose(found):
    texts = [fields["text"] for split in found.values() for fields in split]
    assert sum(len(text.split()) for text in texts) > 300_000
    assert not [text for text in texts if LEFTOVERS.search(text)]
    assert all(len(text.split()) >= docs.MIN_WORDS and text[-1] in ".!?" and text == text.strip() for text in texts)


def test_splits_are_disjoint_and_in_proportion(found):
    texts = [fields["text"].casefold() for split in found.values() for fields in split]
    assert len(set(texts)) == len(texts)
    for split in ("validation", "test"):
        assert 0.04 < len(found[split]) / len(texts) < 0.06


def test_labels_are_large_classes(found):
    counts = Counter(fields["module"] for split in found.values() for fields in split)
    assert {"torch", "torch.nn", "torch.distributed", "asyncio", docs.OTHER} <= set(counts)
    assert min(counts.values()) >= docs.MIN_PARAGRAPHS


def test_the_cache_is_used(cache, found, monkeypatch):
    (file,) = cache.rglob(docs.FILE)
    whole = file.read_bytes()
    monkeypatch.setattr(docs, "extract", lambda: pytest.fail("it is in the cache"))
    assert [record.fields for record in open_builtin("docs").read("test")] == found["test"]
    for broken in (whole[: len(whole) // 2], b"", b'["a text"]', b"\xff"):
        file.write_bytes(broken)
        with pytest.raises(ValueError, match=r"is damaged \(.*\); remove its folder, and it is made again$"):
            open_builtin("docs").fingerprint()
    file.write_bytes(whole)


def test_records_of_runs_have_the_versions(cache):
    """They go from the notes of a source to the notes of a record."""
    source = open_builtin("docs")
    assert f"python {platform.python_version()}" in source.notes[0]
    assert "torch 2" in source.notes[0]
    with pytest.raises(ValueError, match="docs has no split 'dev'; choose from test, train, validation"):
        next(source.read("dev"))


def test_docstrings_become_paragraphs():
    source = '''# A comment.
"""Of the module, which has a docstring of a few words."""
x = """Of nothing, since it is a string that is assigned to a name."""
class A:
    r"""Compute the sum of all elements in the given input tensor.

    Heading
    -------
    The function :func:`torch.sum` and the class :class:`~Module` work with ``dtype`` *very* well.

    Args:
        x (Tensor, optional): the input of which the sum is computed and returned to the caller.

    - The first item of a list is long enough to be a paragraph
      on its own.

    >>> this is a doctest and not a sentence of the documentation.

    A sentence with a formula :math:`x^2 + y` cannot be said aloud by anybody. Too short.
    """
add_docstr(torch.f, r"""Of the compiled function, which is documented by a call.""")
'''
    assert [text for docstring in docs.docstrings(source) for text in docs.paragraphs(docstring)] == [
        "Of the module, which has a docstring of a few words.",
        "Compute the sum of all elements in the given input tensor.",
        "The function torch.sum and the class Module work with dtype very well.",
        "The input of which the sum is computed and returned to the caller.",
        "The first item of a list is long enough to be a paragraph on its own.",
        "Of the compiled function, which is documented by a call.",
    ]
