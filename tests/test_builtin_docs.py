"""Prose from installed documentation: clean, the same each time, and read once."""

import re
import subprocess
import sys
from collections import Counter

import pytest

from synthattn.data.builtin import docs, open_builtin
from synthattn.data.builtin.docs_text import MIN_WORDS, paragraphs

LEFTOVERS = re.compile(r">>>|::|:\w+:|[`*|\\{}<>\[\]]|->|(?<!\w)=|=(?!\w)|https?:")
CODE_NAME = re.compile(r"\w_\w|__|\w\.\w|\w\(\w*\)|=|[a-z][A-Z]")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """One folder for all tests, since reading all sources takes long: longer still with the tests' type checker."""
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
    words = [word for text in texts for word in text.split()]
    assert len(words) > 500_000
    assert not [text for text in texts if LEFTOVERS.search(text)]
    assert all(len(text.split()) >= MIN_WORDS and text[-1] in ".!?\"')" and text == text.strip() for text in texts)
    # Prose speaks of code; it does not consist of it.
    assert 0.01 < sum(CODE_NAME.search(word) is not None for word in words) / len(words) < 0.05


def test_splits_are_disjoint_and_in_proportion(found):
    texts = [fields["text"].casefold() for split in found.values() for fields in split]
    assert len(set(texts)) == len(texts)
    for split in ("validation", "test"):
        assert 0.04 < len(found[split]) / len(texts) < 0.06


def test_labels_are_large_classes(found):
    counts = Counter(fields["module"] for split in found.values() for fields in split)
    assert {"torch", "torch.nn", "torch.distributed", "asyncio", "language", docs.OTHER} <= set(counts)
    assert min(counts.values()) >= docs.MIN_PARAGRAPHS


def test_the_cache_is_used_and_repaired(cache, found, monkeypatch):
    (path,) = cache.iterdir()
    whole = path.read_bytes()
    print_of = open_builtin("docs").fingerprint()
    some = [(fields["text"], fields["module"]) for fields in found["test"]]
    monkeypatch.setattr(docs, "extract", lambda: some)
    for broken in (whole[: len(whole) // 2], b"", b"{}\n[1, 2]\n", whole.replace(b"torch", b"touch", 1), b"\xff"):
        path.write_bytes(broken)
        assert len(list(open_builtin("docs").read("test"))) == len(some)
        assert open_builtin("docs").fingerprint() != print_of
        assert path.read_bytes() not in (broken, whole)
    path.write_bytes(whole)
    assert open_builtin("docs").fingerprint() == print_of
    assert list(cache.iterdir()) == [path]


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SYNTHATTN_CACHE", str(tmp_path / "file" / "below"))
    monkeypatch.setattr(docs, "extract", lambda: [("A text.", "torch")])
    source = open_builtin("docs")
    assert [r.fields for split in source.splits for r in source.read(split)] == [{"text": "A text.", "module": "torch"}]


def test_notes_have_the_versions(cache):
    import platform

    source = open_builtin("docs")
    assert f"python {platform.python_version()}" in source.notes[0]
    assert "torch 2" in source.notes[0]
    with pytest.raises(ValueError, match="docs has no split 'dev'; choose from train, validation, test"):
        next(source.read("dev"))


def test_paragraphs():
    docstring = """Compute the sum of all elements in the given input tensor.

    Heading of a section that is long enough to be prose
    -----------------------------------------------------
    The function :func:`torch.sum` and the class :class:`~torch.nn.Module` work with ``dtype`` *very* well together.

    Args:
        x (Tensor, optional): the input of which the sum is computed and returned. Default: ``None``
        y, z (int): the first and the last of the dimensions
            along which the sum is taken

            More about this argument, which stands in a paragraph of its own.

    Returns:
        The sum of the elements, as a tensor with a single element.

    .. math:: a formula that is written in words so that it looks like prose.

    .. note:: This is a note that somebody wrote for those who read documentation.

    - The first item of a list is long enough to be a paragraph.
    - The second item of a list is long enough too, and continues
      on another line.

    Here is some code that shows how the function is to be used::

        result = the code block that has words and ends with a full stop.

    >>> this is a doctest and not a sentence that anybody would write.
    and this is what it would have printed on the screen of its author.

    ```
    fenced code is not a sentence that anybody would write either.

    even where it goes on after an empty line that looks like its end.
    ```

    The result has as many dimensions as ``x``. It is ``[y[0], {z}]`` and nobody would say so aloud. If ``keepdim=True``
    then :meth:`squeeze` and `torch.squeeze(x)` give the same result for *args of :math:`n` elements [1]_.

    A sentence with a formula :math:`x^2 + y` cannot be said aloud by anybody.

    sum(x, dim) -> Tensor

    TERM
        Describes a term that stands on a line of its own above it.

    Too short to keep.

    :param x: a parameter that is described by a sentence of some length.
    :type x: a type that is described by something that looks like prose to a program
    """
    assert list(paragraphs(docstring)) == [
        "Compute the sum of all elements in the given input tensor.",
        "The function torch.sum and the class Module work with dtype very well together.",
        "The input of which the sum is computed and returned.",
        "The first and the last of the dimensions along which the sum is taken.",
        "More about this argument, which stands in a paragraph of its own.",
        "The sum of the elements, as a tensor with a single element.",
        "This is a note that somebody wrote for those who read documentation.",
        "The first item of a list is long enough to be a paragraph.",
        "The second item of a list is long enough too, and continues on another line.",
        "The result has as many dimensions as x.",
        "If keepdim=True then squeeze and torch.squeeze(x) give the same result for args of n elements.",
        "Describes a term that stands on a line of its own above it.",
        "A parameter that is described by a sentence of some length.",
    ]


def test_where_texts_are_found(tmp_path):
    module = tmp_path / "module.py"
    module.write_text('''"""Of the module."""
class A:
    """Of the class."""
    b = 3
    """Of the attribute."""
    if b:
        def f(self):
            """Of the method."""
    else:
        def f(self):
            """Of the other method."""
c = _add_docstr(d, r"""
Of the function.""")
_e_doc = """
Of a variable."""
f = """
Of nothing."""
''')
    assert [text.strip() for text in docs._docstrings(module)] == [
        "Of the module.",
        "Of the class.",
        "Of the attribute.",
        "Of the method.",
        "Of the other method.",
        "Of the function.",
        "Of a variable.",
    ]
    header = tmp_path / "header.h"
    header.write_text("// No documentation.\n/// Of the function,\n/// on two lines.\nvoid f(); /// after it\n")
    assert [text.split() for text in docs._docstrings(header)] == [["Of", "the", "function,", "on", "two", "lines."]]
    page = tmp_path / "help.html"
    page.write_text("<html><h1>Title</h1><p>One &amp; <b>two</b>.</p><pre>code</pre><p>Three.</p></html>")
    assert [text.split() for text in docs._docstrings(page)] == [["One", "&", "two.", "Three."]]
