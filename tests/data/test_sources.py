"""Sources: every format and folder layout in use, as tiny files, and the text of every error."""

import bz2
import contextlib
import gzip
import json
import lzma
import re
import sys
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from synthattn.data import files
from synthattn.data.folder import FolderSource, arrange
from synthattn.data.holdout import HeldOut, content_hash
from synthattn.data.hub import HubSource, parse_hub_name
from synthattn.data.open import RenamedColumns, open_source, parse_columns, used_columns
from synthattn.data.source import FirstRecords, Record, Source

COMPRESS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


def make(folder: Path, contents: Mapping[str, str | bytes]) -> Path:
    for name, content in contents.items():
        compressed = COMPRESS.get(Path(name).suffix, bytes)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(compressed(content.encode()) if isinstance(content, str) else content)
    return folder


def fields(source: Source, split: str = "train") -> list[dict[str, Any]]:
    return [dict(record.fields) for record in source.read(split)]


def read_all(source: Source) -> dict[str, list[dict[str, Any]]]:
    return {split: fields(source, split) for split in source.splits}


def table(name: str) -> list[list[str]]:
    """The rows of a table beside this file."""
    lines = Path(__file__).with_name(name).read_text(encoding="utf-8").splitlines()
    return [line.split("\t") for line in lines[1:]]


def error(path: Path) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        read_all(open_source(str(path)))
    text = str(caught.value)
    assert "\n" not in text
    return text


@contextlib.contextmanager
def says(text: str) -> Iterator[None]:
    """Expect a ValueError with exactly this message."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        yield
    assert str(caught.value) == text


def error_of(folder: Path, name: str, content: str | bytes) -> str:
    """The error about one file; what comes before its colon is file and line. The number of such lines is cut off."""
    make(folder, {name: content})
    return re.sub(r" \(1 broken line in this file; --skip-bad leaves it out\)$", "", error(folder / name))


# Formats


def test_text_leaves_blank_lines_out_and_counts_them(tmp_path: Path):
    source = open_source(str(make(tmp_path, {"train.txt": "\n = Title = \n\n one\u2028two\x85three \n  \nlast"})))
    records = list(source.read("train"))
    assert [r.fields["text"] for r in records] == [" = Title = ", " one\u2028two\x85three ", "last"]
    assert [r.where for r in records] == ["train.txt, line 2", "train.txt, line 4", "train.txt, line 6"]
    assert source.notes == ("train.txt: 3 blank lines left out",)
    assert list(source.read("train")) == records
    assert source.notes == ("train.txt: 3 blank lines left out",)


def test_parlai_text_is_text(tmp_path: Path):
    source = open_source(str(make(tmp_path, {"train.txt.gz": "1 your persona: i read.\n2 hello ?\thi , you ?\n"})))
    assert fields(source) == [{"text": "1 your persona: i read."}, {"text": "2 hello ?\thi , you ?"}]


def test_tsv_has_a_header_and_no_quoting(tmp_path: Path):
    make(
        tmp_path,
        {"train.tsv": 'sentence1\tlabel\n" The " pie\t1\n\'t\t0\n\n\n', "dev.tsv.gz": "Source\tTarget\r\na\t\r\n"},
    )
    source = open_source(str(tmp_path))
    records = list(source.read("train"))
    assert [r.fields for r in records] == [
        {"sentence1": '" The " pie', "label": "1"},
        {"sentence1": "'t", "label": "0"},
    ]
    assert records[1].where == "train.tsv, line 3"
    assert fields(source, "validation") == [{"Source": "a", "Target": ""}]


def test_csv_without_header_numbers_its_columns(tmp_path: Path):
    content = '3,"Wall St. Bears ""Claw"" Back, again"\n4,"two\nlines\r\nthree"\n1,plain\n'
    source = open_source(str(make(tmp_path, {"train.csv": content})))
    records = list(source.read("train"))
    assert [r.fields["1"] for r in records] == ['Wall St. Bears "Claw" Back, again', "two\nlines\nthree", "plain"]
    assert [r.where for r in records] == ["train.csv, line 1", "train.csv, line 2", "train.csv, line 5"]
    assert source.notes == ("train.csv: the first row is no header, columns are 0, 1",)


@pytest.mark.parametrize(
    ("first", "header"),
    [
        ("label,sentence1", True),
        ('"label","text"', True),
        ("label,2", False),
        ("label,a text of four", False),
        ("label,Donaudampfschifffahrtsgesellschaft", True),
        ("label,Donaudampfschifffahrtsgesellschaft!", False),
    ],
)
def test_csv_header_is_a_row_of_distinct_words(tmp_path: Path, first: str, header: bool):
    make(tmp_path, {"train.csv": f"{first}\nx,y\n"})
    assert len(fields(open_source(str(tmp_path)))) == (1 if header else 2)


def test_csv_takes_a_long_article(tmp_path: Path):
    text = "word, " * 50_000
    make(tmp_path, {"train.csv": f'id,text\n7,"{text}"\n'})
    assert fields(open_source(str(tmp_path))) == [{"id": "7", "text": text}]


def test_jsonl_keeps_nested_values(tmp_path: Path):
    rows = [{"persona": ["i like to hunt", "é"], "passage": {"text": "a\nb", "n": [1, 2.5, None]}, "label": False}, {}]
    content = "\n \n".join(json.dumps(row) for row in rows) + "\n\n"
    source = open_source(str(make(tmp_path, {"train.jsonl.gz": content})))
    records = list(source.read("train"))
    assert [r.fields for r in records] == rows
    assert records[1].where == "train.jsonl.gz, line 3"


def test_json_is_lines_or_an_array(tmp_path: Path):
    make(tmp_path, {"train.json": '{"a": 1}\n{"a": 2}\n', "test.json.gz": '\n[{"a": 3},\n {"a": 4}]'})
    source = open_source(str(tmp_path))
    assert read_all(source) == {"train": [{"a": 1}, {"a": 2}], "test": [{"a": 3}, {"a": 4}]}
    assert [r.where for r in source.read("test")] == ["test.json.gz, item 1", "test.json.gz, item 2"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("train.txt", "é\r\nb\r\n"),
        ("train.tsv", "text\tn\r\né\t1\r\nb\t2\r\n"),
        ("train.csv", "text,n\r\né,1\r\nb,2\r\n"),
        ("train.jsonl", '{"text": "é"}\r\n{"text": "b"}\r\n'),
        ("train.json", '[{"text": "é"},\r\n{"text": "b"}]\r\n'),
    ],
)
def test_byte_order_mark_and_carriage_returns_are_tolerated(tmp_path: Path, name: str, content: str):
    make(tmp_path, {name: b"\xef\xbb\xbf" + content.encode()})
    assert [row["text"] for row in fields(open_source(str(tmp_path)))] == ["é", "b"]


# Errors of files


@pytest.mark.parametrize(("name", "content", "text"), table("broken_files.tsv"))
def test_broken_files(tmp_path: Path, name: str, content: str, text: str):
    """The table has the bytes of a file as Python's escapes."""
    assert error_of(tmp_path, name, content.encode("latin-1").decode("unicode_escape").encode("latin-1")) == text


GZIPPED = gzip.compress(b"a\n" * 99, mtime=0)
CUT_OFF = "Compressed file ended before the end-of-stream marker was reached"


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("a.txt", bytes(range(8)) * 99, "a.txt, line 1: this is binary, not text; give a text file in UTF-8"),
        ("a.txt", GZIPPED, "a.txt, line 1: this is compressed with gzip; give it a name that ends in .gz"),
        ("a.gz", "", "a.gz: the file is empty; remove it or fetch it again"),
        ("a.gz", GZIPPED[:-9], f"a.gz: the gzip file is broken ({CUT_OFF}); fetch or compress it again"),
        ("a.gz", b"a", "a.gz: the gzip file is broken (Not a gzipped file (b'a')); fetch or compress it again"),
        ("a.jsonl", '{"a": ' + "[" * 99_999, "a.jsonl, line 1: JSON is nested too deeply; flatten it"),
    ],
)
def test_what_is_broken_is_told_with_file_and_line(tmp_path: Path, name: str, content: str | bytes, text: str):
    assert error_of(tmp_path, name, content) == text


def test_a_pair_of_surrogates_is_a_character(tmp_path: Path):
    make(tmp_path, {"train.jsonl": '{"a": "\\ud83d\\ude00"}\n'})
    assert fields(open_source(str(tmp_path))) == [{"a": "😀"}]


def test_records_are_bounded_so_that_memory_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(files, "LONGEST_RECORD", 9)
    assert error_of(tmp_path, "a.txt", "123456789\n1234567890\n").startswith("a.txt, line 2: longer than 0 MB")
    assert error_of(tmp_path, "a.csv", '1,"\n123456\n1\n2,""\n').startswith("a.csv, line 1: a quote is opened and not")
    text = error_of(tmp_path, "a.json", '[\n{"a": 1}\n]')
    assert text == "a.json, line 3: an array of more than 0 MB; write one object a line, as .jsonl"


def test_a_strange_file_name_stays_on_one_line(tmp_path: Path):
    assert error_of(tmp_path, "a\n\u2028b.txt", b"\0").startswith("a\\n\\u2028b.txt, line 1: ")


@pytest.mark.parametrize("ending", ["bz2", "xz"])
def test_other_compressions(tmp_path: Path, ending: str):
    make(tmp_path, {f"train.en.{ending}": "a\nb\n", "train.de": "A\nB\n", f"test.tsv.{ending}": "x\ty\n1\t2\n"})
    assert read_all(open_source(str(tmp_path))) == {
        "train": [{"de": "A", "en": "a"}, {"de": "B", "en": "b"}],
        "test": [{"x": "1", "y": "2"}],
    }
    program = {"bz2": "bzip2", "xz": "xz"}[ending]
    for content in (b"a\n", COMPRESS[f".{ending}"](b"a\n" * 99)[:-9]):
        assert error_of(tmp_path, f"a.txt.{ending}", content).startswith(f"a.txt.{ending}: the {program} file is brok")


def test_a_header_that_the_user_named_is_a_header(tmp_path: Path):
    make(tmp_path, {"train.csv": 'Class Index,Title\n3,"a, b"\n', "test.csv": '4,"Class Index"\n'})
    columns = parse_columns("label=Class Index,text=Title")
    source = open_source(str(tmp_path / "train.csv"), columns)
    assert fields(source) == [{"Class Index": "3", "Title": "a, b", "label": "3", "text": "a, b"}]
    numbers = open_source(str(tmp_path / "test.csv"), parse_columns("label=0,text=1+4?"))
    assert fields(numbers) == [{"0": "4", "1": "Class Index", "label": "4", "text": "Class Index"}], "4 is no name"


def test_a_first_row_unlike_all_below_is_a_header(tmp_path: Path):
    names, rows = "Class Index;Headline and Text;", "World;a headline of five words;\n"
    make(tmp_path, {"train.csv": f"{names}Author\n{rows * 5}"})
    source = open_source(str(tmp_path))
    assert (
        fields(source) == [{"Class Index": "World", "Headline and Text": "a headline of five words", "Author": ""}] * 5
    )
    assert "train.csv: the first row names the columns Class Index, Headline and Text, Author" in source.notes
    for unclear in (f"{names}Author\n{rows * 4}", f"{names}\n{rows * 9}", f"{names}Author\n{rows * 9}a;b;c\n"):
        assert "could be a header or a row" in error_of(tmp_path, "train.csv", unclear)


def test_semicolons_between_columns(tmp_path: Path):
    make(tmp_path, {"train.csv": 'label;text\n1;"a; ""b"""\n2;c, d\n'})
    source = open_source(str(tmp_path))
    assert fields(source) == [{"label": "1", "text": 'a; "b"'}, {"label": "2", "text": "c, d"}]
    assert source.notes == ("train.csv: read with semicolons between its columns",)


@pytest.mark.parametrize(
    ("name", "content", "kept", "first"),
    [
        ("train.txt", b"a\n\xfc\nb\n\0\n", ["a", "b"], "line 2: byte 0xfc"),
        ("train.tsv", "text\tn\na\t1\nx\n\nb\t2\n", ["a", "b"], "line 3: 1 field"),
        ("train.csv", 'text,n\na,1\nx"y"z,2\nx,2,3\nb,4\n', ["a", "b"], "line 3: a stray quote"),
        ("train.jsonl", '{"text": "a"}\n{\n[]\n{"text": "b"}\n', ["a", "b"], "line 2: not JSON"),
        ("train.json", '[{"text": "a"}, 1, {"text": "b"}, 2]', ["a", "b"], "item 2 is a number"),
    ],
)
def test_broken_lines_are_counted_and_left_out_if_asked(
    tmp_path: Path, name: str, content: str | bytes, kept: list[str], first: str
):
    make(tmp_path, {name: content})
    text = error(tmp_path)
    assert first in text
    assert text.endswith(" (2 broken lines in this file; --skip-bad leaves them out)")
    source = open_source(str(tmp_path), skip_bad=True)
    assert [row["text"] for row in fields(source)] == kept
    note = source.notes[-1]
    assert note.startswith(f"{name}: 2 broken lines left out, the first: {name}")
    assert first in note


def test_what_is_no_line_is_never_left_out(tmp_path: Path):
    make(tmp_path, {"train.txt": "a text\n".encode("utf-16"), "test.en": "a\n", "test.de": "b\nc\n"})
    for split, message in (("train", "this is UTF-16"), ("test", "parallel files differ in their numbers of lines")):
        with pytest.raises(ValueError, match=message):
            fields(open_source(str(tmp_path), skip_bad=True), split)


# Tables and folders that other programs write


ROWS = [{"text": "eins", "label": 0}, {"text": "zwei", "label": 1}]


def write_table(path: Path, rows: list[dict[str, Any]], form: str) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pyarrow.Table.from_pylist(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    if form == "parquet":
        parquet.write_table(table, path)
        return
    with {"file": pyarrow.ipc.new_file, "stream": pyarrow.ipc.new_stream}[form](str(path), table.schema) as writer:
        writer.write_table(table)


@pytest.mark.parametrize("form", ["parquet", "file", "stream"])
def test_tables(tmp_path: Path, form: str):
    path = tmp_path / f"train.{'parquet' if form == 'parquet' else 'arrow'}"
    write_table(path, ROWS, form)
    source = open_source(str(tmp_path))
    assert [(record.fields, record.where) for record in source.read("train")] == [
        (row, f"{path.name}, row {n}") for n, row in enumerate(ROWS, 1)
    ]
    path.write_bytes(path.read_bytes()[:40])
    text = error(path)
    assert text.startswith(f"{path.name}: cannot be read as {path.suffix[1:]}: ")
    assert text.endswith("; fetch or write it again")


def test_languages_of_the_hub_stand_without_their_ids(tmp_path: Path):
    pairs = [{"id": f"{n}", "translation": {"fr": f"f{n}", "en": f"e{n}"}} for n in range(2)]
    write_table(tmp_path / "data" / "train-00000-of-00001.parquet", pairs, "parquet")
    make(tmp_path, {"pairs/train.jsonl": "".join(json.dumps(pair) + "\n" for pair in pairs)})
    texts = [{"fr": "f0", "en": "e0"}, {"fr": "f1", "en": "e1"}]
    assert fields(open_source(str(tmp_path))) == texts
    assert fields(open_source(str(tmp_path / "pairs"))) == texts
    make(tmp_path, {"texts/train.jsonl": '{"id": 1, "translation": "oui", "en": "yes"}\n'})
    assert fields(open_source(str(tmp_path / "texts"))) == [{"id": 1, "translation": "oui", "en": "yes"}]


def test_tables_need_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    make(tmp_path, {"train.parquet": b"PAR1"})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert error(tmp_path) == "train.parquet needs the package pyarrow: pip install 'synthattn[parquet]'"


def test_folders_that_datasets_has_saved(tmp_path: Path):
    """They hold streams of Arrow in shards, and descriptions as JSON."""
    for folder in ("several/train", "one"):
        for n, row in enumerate(ROWS):
            write_table(tmp_path / folder / f"data-{n:05}-of-00002.arrow", [row], "stream")
        make(tmp_path / folder, {"dataset_info.json": "{}", "state.json": '{"_split": null}', "cache-1.arrow": b"x"})
    pairs = [{"translation": {"de": "ja", "en": "yes"}}]
    write_table(tmp_path / "several" / "test" / "data-00000-of-00001.arrow", pairs, "stream")
    make(tmp_path / "several", {"dataset_dict.json": '{"splits": ["train", "test"]}'})
    assert read_all(open_source(str(tmp_path / "several"))) == {"train": ROWS, "test": [{"de": "ja", "en": "yes"}]}
    assert read_all(open_source(str(tmp_path / "one"))) == {"train": ROWS}
    notes = open_source(str(tmp_path / "several")).notes
    assert notes == ("train/cache-1.arrow: left out, no data", "train: 2 files, read in the order of their names")


@pytest.mark.parametrize("layout", ["data/train-00000-of-00001.jsonl", "data/train/some.jsonl"])
def test_a_folder_as_repositories_of_the_hub_have_it(tmp_path: Path, layout: str):
    make(tmp_path, {layout: '{"text": "a"}\n', "README.md": "x"})
    source = open_source(str(tmp_path))
    assert [(dict(r.fields), r.where) for r in source.read("train")] == [({"text": "a"}, f"{layout}, line 1")]
    assert source.notes == ("README.md: left out, no data",)


def test_folders_with_the_names_of_splits(tmp_path: Path):
    make(tmp_path, {"train/b.txt": "2\n", "train/a.txt.gz": "1\n", "dev/only.txt": "3\n", "more/x.txt": "4\n"})
    make(tmp_path, {"test/corpus.en": "5\n", "test/corpus.de": "6\n"})
    source = open_source(str(tmp_path))
    assert read_all(source) == {
        "train": [{"text": "1"}, {"text": "2"}],
        "validation": [{"text": "3"}],
        "test": [{"de": "6", "en": "5"}],
    }
    assert [record.where for record in source.read("train")] == ["train/a.txt.gz, line 1", "train/b.txt, line 1"]
    assert source.notes == ("more: left out, no data", "train: 2 files, read in the order of their names")
    make(tmp_path, {"train/c.tsv": "a\n1\n"})
    assert error(tmp_path) == "train: files of several kinds, .tsv, .txt; leave one kind in the folder"


# A folder for each class, as the IMDB reviews have it


def reviews(folder: Path) -> Path:
    make(folder, {"train/neg/1_2.txt": "bad\n\nvery\n", "train/pos/0_9.txt": "good", "train/pos/2_9.txt.gz": " é\n"})
    make(folder, {"test/neg/0_1.txt": "poor", "test/pos/7_7.txt": "fine"})
    make(folder, {"train/unsup/0_0.txt": "?", "train/urls_pos.txt": "http", "imdb.txt": "a\n", "README": "x"})
    return folder


def test_folders_of_classes_are_labels(tmp_path: Path):
    source = open_source(str(reviews(tmp_path)))
    good, bad = {"text": "good", "label": "pos"}, {"text": "bad\n\nvery", "label": "neg"}
    assert sorted(fields(source), key=str) == sorted([good, bad, {"text": "é", "label": "pos"}], key=str)
    assert sorted(row["label"] for row in fields(source, "test")) == ["neg", "pos"]
    assert source.splits == ("train", "test")
    assert {record.where for record in source.read("test")} == {"test/neg/0_1.txt", "test/pos/7_7.txt"}
    assert source.notes == (
        "README: left out, no data",
        "test: each file is an example, and its folder is its label: neg, pos",
        "train/unsup: left out, no data",
        "train/urls_pos.txt: left out, no data",
        "train: each file is an example, and its folder is its label: neg, pos",
        "imdb.txt: left out, no data",
    )
    before = source.fingerprint()
    make(tmp_path, {"test/neg/0_1.txt": "poorer"})
    assert open_source(str(tmp_path)).fingerprint() != before


def test_the_first_examples_of_classes_are_like_the_whole(tmp_path: Path):
    make(tmp_path, {f"train/{label}/{n}.txt": f"{label} {n}" for label in ("neg", "pos") for n in range(100)})
    labels = [row["label"] for row in fields(open_source(str(tmp_path)))]
    assert 12 <= labels[:40].count("pos") <= 28


def test_broken_files_of_classes_are_counted(tmp_path: Path):
    make(reviews(tmp_path), {"train/neg/8_1.txt": b"\xff\xe9", "train/pos/9_9.txt": ""})
    assert re.fullmatch(
        r"train/(neg/8_1|pos/9_9)\.txt.*\(2 broken files in this split; --skip-bad leaves them out\)", error(tmp_path)
    )
    source = FolderSource(tmp_path, skip_bad=True)
    assert len(fields(source)) == 3
    assert source.notes[-1].startswith("2 broken files left out, the first: train/")


def test_classes_without_a_split_have_a_way_out(tmp_path: Path):
    make(tmp_path, {"films/pos/1.txt": "a", "films/neg/2.txt": "b"})
    what = (
        "no data in this folder; give one of its folders: neg, pos; if these are classes, move them into a folder train"
    )
    assert error(tmp_path / "films") == f"{tmp_path}/films: {what}"


def test_a_file_with_the_name_of_a_split_comes_before_folders_of_classes(tmp_path: Path):
    make(reviews(tmp_path), {"train.tsv": "text\tlabel\na\tpos\n"})
    assert fields(open_source(str(tmp_path))) == [{"text": "a", "label": "pos"}]


# Folders


def test_parallel_text_of_any_compression(tmp_path: Path):
    make(tmp_path, {"train.en.gz": "a\n\nc\n", "train.de": "A\nB\rb\nC", "train.fr": "x\ny\nz\n", "val.en": "d\n"})
    make(tmp_path, {"val.de": "D\n", "test2016.en": "e\n", "test2016.de": "E\n"})
    source = FolderSource(tmp_path)
    source.check()
    records = list(source.read("train"))
    assert [r.fields for r in records] == [
        {"de": "A", "en": "a", "fr": "x"},
        {"de": "B\rb", "en": "", "fr": "y"},
        {"de": "C", "en": "c", "fr": "z"},
    ]
    assert records[2].where == "train.de and train.en.gz and train.fr, line 3"
    assert source.splits == ("train", "validation", "test2016")  # of other sides than train has
    assert "train.de and train.en.gz and train.fr: 1 lines with an empty side, which are kept" in source.notes


def test_sides_need_not_be_languages(tmp_path: Path):
    make(tmp_path, {"train.article.gz": "a\n", "train.title": "t\n", "valid.en.txt": "b\n", "valid.de.txt": "B\n"})
    assert read_all(open_source(str(tmp_path))) == {
        "train": [{"article": "a", "title": "t"}],
        "validation": [{"de": "B", "en": "b"}],
    }


def test_unequal_parallel_files(tmp_path: Path):
    make(tmp_path, {"train.en": "a\nb\nc\n", "train.de.gz": "A\nB\n"})
    text = "parallel files differ in their numbers of lines: train.de.gz has 2, train.en has 3; find the line that is "
    assert error(tmp_path) == f"{text}missing"
    with says(f"{text}missing"):
        FolderSource(tmp_path).check()


def test_a_side_that_lost_the_other(tmp_path: Path):
    make(tmp_path, {"train.en": "a\n", "train.de": "A\n", "valid.en": "b\n"})
    assert error(tmp_path) == "valid.en: there is no such file with .de; add or remove one"


def test_what_is_no_data_is_left_out_and_said(tmp_path: Path):
    no_data = [".hidden", "LICENSE", "MANIFEST.tsv", "README.md", "_about.txt", "classes.txt", "raw", "readme_en.txt"]
    unknown = ["spm.model", "spm.vocab", "train.py"]
    (tmp_path / "raw").mkdir()
    make(tmp_path, dict.fromkeys({*no_data, *unknown} - {"raw"}, "x\n") | {"train.txt": "a\n"})
    source = open_source(str(tmp_path))
    assert read_all(source) == {"train": [{"text": "a"}]}
    assert source.notes == (
        *(f"{name}: left out, no data" for name in no_data),
        *(f"{name}: left out, not one of .txt, .tsv, .csv, .jsonl, .json, .parquet, .arrow" for name in unknown),
    )


@pytest.mark.parametrize(("names", "splits"), table("split_names.tsv"))
def test_splits_by_the_names_of_files(tmp_path: Path, names: str, splits: str):
    content = {".tsv": "text\tn\n{}\t1\n", ".jsonl": '{{"text": "{}"}}\n', ".csv": "text,n\n{},1\n", ".txt": "{}\n"}
    make(tmp_path, {name: content[Path(name).suffix].format(Path(name).stem) for name in names.split()})
    source = open_source(str(tmp_path))
    assert " ".join(f"{split}={rows[0]['text']}" for split, rows in read_all(source).items()) == splits


def test_what_was_decided_about_splits_is_said():
    assert arrange({"train": "", "test2016": "", "test2017": "", "dev_32": ""})[1] == (
        "validation is dev_32",
        "no split was taken for test: it could be test2016 or test2017",
    )


def test_shards_are_read_in_order(tmp_path: Path):
    make(tmp_path, {f"c4-train.{n:05}-of-00012.json.gz": f'{{"n": {n}}}\n' for n in (10, 2, 0)})
    make(tmp_path, {"c4-validation.00000-of-00001.json.gz": '{"n": 7}\n'})
    source = open_source(str(tmp_path))
    assert read_all(source) == {"train": [{"n": 0}, {"n": 2}, {"n": 10}], "validation": [{"n": 7}]}
    assert "c4-train: 3 of 12 shards" in source.notes


@pytest.mark.parametrize("second", ["train.txt.gz", "train.jsonl", "train-0-of-2.txt"])
def test_two_files_for_a_split(tmp_path: Path, second: str):
    make(tmp_path, {"train.txt": "a\n", second: "a\n"})
    text = error(tmp_path)
    assert text.endswith("are for the same split; remove one, or give the path of one file")
    assert "train.txt" in text
    assert second in text


def test_a_file_by_itself_is_train(tmp_path: Path):
    make(tmp_path, {"test.tsv": "a\tb\n1\t2\n", "corpus.en": "x\n"})
    source = open_source(str(tmp_path / "test.tsv"))
    assert source.splits == ("train",)
    assert [r.where for r in source.read("train")] == ["test.tsv, line 2"]
    other = open_source(str(tmp_path / "corpus.en"))
    assert fields(other) == [{"text": "x"}]
    assert other.notes == ("corpus.en: read as text, one example a line",)


def test_fingerprint_is_of_the_content(tmp_path: Path):
    first, second = tmp_path / "one", tmp_path / "two"
    for folder in (first, second):
        folder.mkdir()
        make(folder, {"train.txt": "a\n", "test.txt": "b\n", "README.md": folder.name})
    before = open_source(str(first)).fingerprint()
    assert open_source(str(second)).fingerprint() == before
    make(second, {"test.txt": "bb\n"})
    assert open_source(str(second)).fingerprint() != before
    (first / "test.txt").rename(first / "dev.txt")
    assert open_source(str(first)).fingerprint() != before


# What a user writes


def test_open_errors(tmp_path: Path):
    make(tmp_path, {"news.txt": "a\n"})
    (tmp_path / "glue" / "CoLA").mkdir(parents=True)
    assert error(tmp_path / "newss.txt") == f"there is no {tmp_path}/newss.txt; did you mean news.txt?"
    write = "write a path, hub:NAME or builtin:NAME"
    assert error(tmp_path / "other") == f"there is no {tmp_path}/other; {write}"
    assert error(tmp_path / "x" / "y") == f"there is no {tmp_path}/x/y, nor a folder {tmp_path}/x; {write}"
    assert error(tmp_path / "glue") == f"{tmp_path}/glue: no data in this folder; give one of its folders: CoLA"
    assert error(tmp_path / "glue" / "CoLA").startswith(f"{tmp_path}/glue/CoLA: no data in this folder; files are .txt")
    with says("there is no wmt14; for the data set of the hub, write hub:wmt14"):
        open_source("wmt14")
    with pytest.raises(ValueError, match=r"^'' is no source; write a path"):
        open_source("")
    with pytest.raises(ValueError, match=r"has no split 'tran'; did you mean train\?$"):
        open_source(str(tmp_path / "news.txt")).read("tran")


def test_built_in_data_are_opened_under_the_name_that_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fake = types.ModuleType("synthattn.data.builtin")
    fake.__dict__["open_builtin"] = lambda name: FolderSource(make(tmp_path, {"train.txt": "a\n"}), name)
    monkeypatch.setitem(sys.modules, fake.__name__, fake)
    source = open_source("builtin:docs?seed=7")
    assert source.name == "builtin:docs?seed=7"
    assert fields(source) == [{"text": "a"}]


def test_columns_are_renamed_and_joined(tmp_path: Path):
    make(tmp_path, {"train.csv": '3,"a b",c\n', "test.jsonl": '{"a+b": 1, "c": [2], "d": "e"}\n'})
    source = open_source(str(tmp_path / "train.csv"))
    chosen = RenamedColumns(source, parse_columns("label=0, text=1+2"))
    assert list(chosen.read("train")) == [
        Record({"0": "3", "1": "a b", "2": "c", "label": "3", "text": "a b c"}, "train.csv, line 1")
    ]
    assert (chosen.name, chosen.splits, chosen.notes) == (source.name, source.splits, source.notes)
    assert chosen.fingerprint() != source.fingerprint()
    other = RenamedColumns(open_source(str(tmp_path / "test.jsonl")), {"x": "a+b", "y": "c"})
    assert fields(other) == [{"a+b": 1, "c": [2], "d": "e", "x": 1, "y": [2]}]


def test_a_column_may_be_missing_where_that_is_said(tmp_path: Path):
    make(tmp_path, {"train.csv": "3,a b\n", "test.csv": "4,c,d\n"})
    chosen = RenamedColumns(open_source(str(tmp_path)), parse_columns("label=0,text=1+2?"))
    assert [row["text"] for split in ("train", "test") for row in fields(chosen, split)] == ["a b", "c d"]


def test_a_column_with_a_question_mark_in_its_name_is_that_column(tmp_path: Path):
    make(tmp_path, {"train.jsonl": '{"true?": 1, "true": 0, "x": "a"}\n{"true": 0, "x": "b"}\n'})
    chosen = RenamedColumns(open_source(str(tmp_path)), parse_columns("label=true?,text=x+true?"))
    assert [(row["label"], row["text"]) for row in fields(chosen)] == [(1, "a 1"), (0, "b 0")]


def test_several_columns_are_a_list(tmp_path: Path):
    make(tmp_path, {"train.csv": "en,one,two\na,b,c\n"})
    (row,) = fields(open_source(str(tmp_path), parse_columns("source=en,target=one|two+en")))
    assert (row["source"], row["target"]) == ("a", ["b", "c a"])


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ("text=3", "a.csv, line 1: no column '3', which text=3 asks for; there are 0, 1"),
        ("text=0+b", "a.csv, line 1: no column 'b', which text=0+b asks for; there are 0, 1"),
        ("text=3?+4?", "a.csv, line 1: no column '3', which text=3?+4? asks for; there are 0, 1"),
        ("text=3?+4", "a.csv, line 1: no column '4', which text=3?+4 asks for; there are 0, 1"),
    ],
)
def test_missing_columns(tmp_path: Path, columns: str, text: str):
    make(tmp_path, {"a.csv": "1,2\n"})
    with says(text):
        fields(RenamedColumns(open_source(str(tmp_path / "a.csv")), parse_columns(columns)))


def test_lists_cannot_be_joined(tmp_path: Path):
    make(tmp_path, {"a.jsonl": '{"a": ["x"], "b": "y"}\n'})
    with says("a.jsonl, line 1: text=a+b joins texts, got list; name one column"):
        fields(RenamedColumns(open_source(str(tmp_path / "a.jsonl")), {"text": "a+b"}))


def test_parse_columns():
    assert parse_columns("") == {}
    for text, message in (
        ("label", "'label' is no choice of a column; write FIELD=COLUMN or FIELD=COLUMN+COLUMN"),
        ("a=1+", "'a=1+' is no choice of a column; write FIELD=COLUMN or FIELD=COLUMN+COLUMN"),
        ("a=1,a=2", "a is given twice: 1 and 2; join columns with +"),
    ):
        with says(message):
            parse_columns(text)


# Several sources as one


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
    make(one, {"train.txt": "a\n\nb\n", "dev.txt": "c\n", "test.txt": "d\n"})
    make(other, {"train.jsonl": '{"article": "e"}\n', "valid.jsonl": '{"article": "f"}\n', "README.md": "x"})
    return one, other


def test_sources_are_joined(two: tuple[Path, Path]):
    one, other = two
    name = f"{one} + {other}"
    source = open_source(name)
    assert isinstance(source, Source)
    assert source.name == name
    assert read_all(source) == {
        "train": [{"text": "a"}, {"text": "b"}, {"article": "e"}],
        "validation": [{"text": "c"}, {"article": "f"}],
    }
    assert [r.where for r in source.read("train")][1:] == [f"{one}: train.txt, line 3", f"{other}: train.jsonl, line 1"]
    assert source.notes == (
        f"{one}: train.txt: 1 blank lines left out",
        f"{other}: README.md: left out, no data",
        f"{one}: test left out, not in all that is joined",
    )
    assert len({open_source(text).fingerprint() for text in (name, f"{other} + {one}", str(one), str(other))}) == 4
    before = source.fingerprint()
    make(other, {"train.jsonl": '{"article": "E"}\n'})
    assert open_source(name).fingerprint() != before


def test_the_beginning_of_a_joined_split_is_like_the_whole(two: tuple[Path, Path]):
    one, other = two
    for folder, count in ((one, 100), (other, 230)):
        lines = [f"{folder.name} {n}" for n in range(count)]
        make(folder, {"train.txt": "\n".join(lines), "dev.txt": "\n".join(lines)})
    (other / "train.jsonl").unlink()
    (other / "valid.jsonl").unlink()
    source = open_source(f"{one} + {other}")
    texts = [row["text"] for row in fields(source, "validation")]
    assert len(set(texts)) == len(texts) == 330
    for folder in two:  # in the order of their source
        assert [text for text in texts if text.startswith(f"{folder.name} ")] == [
            row["text"] for row in fields(open_source(str(folder)), "validation")
        ]
    for part in (33, 66, 165):
        assert abs(sum(text.startswith(f"{one.name} ") for text in texts[:part]) - part * 100 / 330) < 5
    assert [row["text"] for row in fields(source)] == sorted(
        (row["text"] for row in fields(source)), key=lambda text: text.startswith(f"{other.name} ")
    )


def test_joined_sources_may_be_of_any_kind(two: tuple[Path, Path], hub: "FakeHub"):
    one, _ = two
    source = open_source(f"{one}/dev.txt +  builtin:dialogue?size=3 + hub:imdb")
    texts = fields(RenamedColumns(source, parse_columns("said=text?+reply?+de?")))
    assert [text["said"] for text in texts][::4] == ["c", "A"]
    assert [r.where for r in source.read("train")][4] == "hub:imdb, train, record 1"


def test_held_out_records_are_of_all_that_is_joined(two: tuple[Path, Path]):
    one, other = two
    make(one, {"lines.txt": "".join(f"one {n}\n" for n in range(300))})
    make(other, {"lines.txt": "".join(f"other {n}\n" for n in range(300))})
    held = HeldOut(open_source(f"{one}/lines.txt + {other}/lines.txt"))
    assert {row["text"].split()[0] for row in fields(held, "validation")} == {"one", "other"}


def test_a_plus_in_the_name_of_a_file(tmp_path: Path):
    make(tmp_path, {"a + b.txt": "ab\n", "a": "a\n", "c.txt": "c\n", "b.txt": "b\n"})
    assert fields(open_source(f"{tmp_path}/a + b.txt")) == [{"text": "ab"}]
    joined = open_source(f"{tmp_path}/c.txt + {tmp_path}/a + b.txt")
    assert fields(joined) == [{"text": "c"}, {"text": "ab"}]
    assert fields(open_source(f"{tmp_path}/a + {tmp_path}/b.txt")) == [{"text": "a"}, {"text": "b"}]


def test_errors_of_joined_sources(two: tuple[Path, Path]):
    one, other = two
    write = "write a path, hub:NAME or builtin:NAME"
    make(one, {"bad.txt": b"a\n\xfc\n"})
    (other / "train.jsonl").unlink()
    (one / "dev.txt").unlink()
    for text, message in (
        (f"{one} + {other}x", f"part 2 of 2: there is no {other}x; did you mean other?"),
        (f"{one} + ", f"part 2 of 2: '' is no source; {write}"),
        (f"{one} + {one}/test.txt + builtin:dosc", "part 3 of 3: there is no built-in data 'dosc'; did you mean docs?"),
        (
            f"{one}/test.txt + {other}",
            f"no split is in all that is joined: {one}/test.txt has train; {other} has validation",
        ),
        (
            f"{one}/test.txt + {one}/bad.txt",
            f"{one}/bad.txt: bad.txt, line 2: byte 0xfc at position 1 is not UTF-8; convert the file: iconv -f LATIN1 "
            "-t UTF-8, if that is what it is (1 broken line in this file; --skip-bad leaves it out)",
        ),
    ):
        with says(message):
            read_all(open_source(text))
    with pytest.raises(ValueError, match=r"has no split 'tran'; did you mean train\?$"):
        open_source(f"{one}/test.txt + {one}/train.txt").read("tran")


# Held-out parts


def test_missing_splits_are_cut_by_hash(tmp_path: Path):
    lines = [f"line {n % 1009}" for n in range(3000)]
    source = open_source(str(make(tmp_path, {"train.txt": "\n".join(lines)})))
    held = HeldOut(source, ("validation", "test"), every=20)
    assert held.splits == ("train", "validation", "test")
    assert held.notes[-1] == "no test split: every 20th of train by hash"
    parts = {split: [row["text"] for row in rows] for split, rows in read_all(held).items()}
    assert sorted(line for part in parts.values() for line in part) == sorted(lines)
    assert not set(parts["train"]) & set(parts["validation"]) | set(parts["validation"]) & set(parts["test"])
    for split, bucket in (("validation", 0), ("test", 1)):
        assert parts[split] == [line for line in lines if content_hash({"text": line}) % 20 == bucket]
        assert 100 < len(parts[split]) < 200
    assert held.notes[-1] == f"no test split: every 20th of train by hash, {len(parts['test'])} records"
    assert held.fingerprint() not in (source.fingerprint(), HeldOut(source, every=20).fingerprint())


def test_columns_that_are_not_used_do_not_part_what_is_the_same(tmp_path: Path):
    """Each sentence is there twice, under different numbers."""
    rows = "".join(f"{n}\tsentence {n % 300}\n" for n in range(600))
    source = open_source(str(make(tmp_path, {"train.tsv": f"id\tcontent\n{rows}"})))
    held = HeldOut(source, every=5, columns={"text": ("sentence", "content"), "label": ()})
    parts = {split: {row["content"] for row in found} for split, found in read_all(held).items()}
    assert parts["train"] | parts["validation"] == {f"sentence {n}" for n in range(300)}
    assert not parts["train"] & parts["validation"]
    assert 40 < len(parts["validation"]) < 80
    assert parts["validation"] == {text for text in parts["validation"] if content_hash({"content": text}) % 5 == 0}
    others = (None, {"text": ("content", "id"), "label": ("id",)}, {"text": ("id",)})
    fingerprints = {HeldOut(source, every=5, columns=columns).fingerprint() for columns in others}
    assert len(fingerprints | {held.fingerprint()}) == 4 - 1, "the second uses both columns, as the first does"


def test_where_all_columns_are_used_the_cut_stays_as_it_was(tmp_path: Path):
    rows = "".join(f'{n % 3},"sentence {n}","more, {n}"\n' for n in range(300))
    plain = open_source(str(make(tmp_path, {"train.csv": rows})))
    for text in ("label=0,text=1+2", "label=0, text = 1 + 2?", "label=0,text=1+2,other=3?+0"):
        columns = parse_columns(text)
        source = RenamedColumns(plain, columns)
        whole, held = HeldOut(source), HeldOut(source, columns=used_columns({"text": (), "label": ("class",)}, columns))
        assert read_all(held) == read_all(whole)
        assert held.fingerprint() == whole.fingerprint()
        assert fields(held, "validation")


def test_what_is_there_is_not_cut(tmp_path: Path):
    source = open_source(str(make(tmp_path, {"train.txt": "a\n", "dev.txt": "b\n", "other.txt": "c\n"})))
    held = HeldOut(source)
    assert read_all(held) == read_all(source)
    assert (held.splits, held.notes, held.fingerprint()) == (source.splits, source.notes, source.fingerprint())


def test_the_first_records_of_large_data(tmp_path: Path):
    lines = [f"line {n}" for n in range(300)]
    source = open_source(str(make(tmp_path, {"train.txt": "\n".join(lines), "test.txt": "a\nb\nc\n"})))
    first = FirstRecords(source, 2)
    assert read_all(first) == {"train": [{"text": "line 0"}, {"text": "line 1"}], "test": fields(source, "test")}
    assert (first.name, first.splits) == (source.name, source.splits)
    assert first.notes[-1] == "of train, the first 2 records are read"
    assert len({source.fingerprint(), first.fingerprint(), FirstRecords(source, 3).fingerprint()}) == 3
    assert fields(FirstRecords(source, 999), "train") == fields(source, "train")
    held = HeldOut(FirstRecords(source, 200), every=7)
    found = fields(held, "train") + fields(held, "validation")
    assert sorted(row["text"] for row in found) == sorted(lines[:200]), "what is held out is of these, too"


def test_held_out_errors(tmp_path: Path):
    source = open_source(str(make(tmp_path, {"train.txt": "a\nb\n"})))
    with pytest.raises(
        ValueError, match=r"train has 2 records, and none fell into the validation split of one in 5000"
    ):
        fields(HeldOut(source, every=5000), "validation")
    with says("every=2 leaves nothing to train on; it must be at least 3"):
        HeldOut(source, ("validation", "test"), every=2)
    with pytest.raises(ValueError, match=r"has no split 'dev'; choose from train, validation$"):
        HeldOut(source).read("dev")


def test_content_hash_is_fixed():
    """Cuts of earlier runs must stay as they were."""
    assert content_hash({"b": [1, None], "a": "é"}) == content_hash({"a": "é", "b": [1, None]}) == 1754429368


# The hub


@pytest.mark.parametrize(
    ("text", "path", "config"),
    [
        ("wmt14/de-en", "wmt/wmt14", "de-en"),
        ("glue/mnli", "nyu-mll/glue", "mnli"),
        ("ag_news", "fancyzhx/ag_news", None),
        ("cnn_dailymail", "abisee/cnn_dailymail", "3.0.0"),
        ("allenai/c4", "allenai/c4", "en"),
        ("c4/de", "allenai/c4", "de"),
        ("bavard/personachat_truecased", "bavard/personachat_truecased", "full"),
        ("bavard/personachat_truecased/sample", "bavard/personachat_truecased", "sample"),
        ("owner/name", "owner/name", None),
        ("owner/name/config", "owner/name", "config"),
        ("name", "name", None),
    ],
)
def test_names_on_the_hub(text: str, path: str, config: str | None):
    assert parse_hub_name(text) == (path, config)


class DatasetNotFoundError(FileNotFoundError):
    pass


class FakeHub(types.ModuleType):
    """A stand-in for the used part of ``datasets``."""

    def __init__(self) -> None:
        super().__init__("datasets")
        self.calls: list[tuple[Any, ...]] = []
        self.scripts = False
        self.fails: Exception | None = None
        self.rows: dict[str, list[dict[str, Any]]] = {
            "test_matched": [{"n": 1}],
            "test_mismatched": [{"n": 2}],
            "train": [
                {"translation": {"de": "A", "en": "a"}, "id": 3},
                {"translation": {"de": "B", "en": "b"}, "id": 4},
            ],
        }
        self.configs = ["de-en", "fr-en"]

    def get_dataset_config_names(self, path: str, revision: str | None = None) -> list[str]:
        return self.configs

    def get_dataset_split_names(
        self, path: str, config_name: str | None = None, revision: str | None = None
    ) -> list[str]:
        if self.fails:
            raise self.fails
        if self.scripts and revision is None:
            raise RuntimeError("Dataset scripts are no longer supported, but found lm1b.py")
        return list(self.rows)

    def load_dataset(
        self, path: str, name: str | None = None, *, split: str, streaming: bool, revision: str | None = None
    ) -> list[dict[str, Any]]:
        self.calls.append((path, name, split, streaming, revision))
        return self.rows[split]

    def load_dataset_builder(self, path: str, name: str | None = None, revision: str | None = None) -> Any:
        return types.SimpleNamespace(hash=f"{path} {name}", info=types.SimpleNamespace(version="1.0.0"))


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    fake = FakeHub()
    monkeypatch.setitem(sys.modules, "datasets", fake)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    return fake


def test_hub_records(hub: FakeHub):
    source = open_source("hub:wmt14/de-en")
    assert source.name == "hub:wmt14/de-en"
    assert source.splits == ("train", "test", "test_matched", "test_mismatched")
    assert list(source.read("train")) == [
        Record({"de": "A", "en": "a"}, "hub:wmt14/de-en, train, record 1"),
        Record({"de": "B", "en": "b"}, "hub:wmt14/de-en, train, record 2"),
    ]
    assert fields(source, "test") == fields(source, "test_matched") == [{"n": 1}]
    assert hub.calls[0] == ("wmt/wmt14", "de-en", "train", False, None)
    assert source.fingerprint() == HubSource("wmt14/de-en").fingerprint() != HubSource("wmt14/fr-en").fingerprint()
    with pytest.raises(ValueError, match=r"^hub:wmt14/de-en has no split 'dev'; choose from"):
        source.read("dev")


def test_large_data_are_streamed(hub: FakeHub):
    source = open_source("hub:c4")
    assert len(fields(source)) == 2
    assert hub.calls == [("allenai/c4", "en", "train", True, None)]
    assert "hub:c4: read from the network, not stored" in source.notes


def test_data_sets_that_are_programs_are_read_as_converted(hub: FakeHub):
    hub.scripts = True
    source = open_source("hub:lm1b")
    assert len(fields(source)) == 2
    assert hub.calls == [("billion-word-benchmark/lm1b", None, "train", False, "refs/convert/parquet")]
    assert source.notes[0] == "hub:lm1b: the hub's conversion to Parquet is read"


@pytest.mark.parametrize(
    ("fails", "text"),
    [
        (
            ConnectionError("Couldn't reach\nthe Hub"),
            "hub:imdb: the hub cannot be reached; "
            "connect to the network, or set HF_HUB_OFFLINE=1 to use what is in the cache",
        ),
        (
            DatasetNotFoundError("..."),
            "hub:imdb: there is no data set stanfordnlp/imdb on the hub, or it is private; "
            "look at its page for the name",
        ),
        (KeyError("a\nb"), "hub:imdb cannot be loaded: 'a\\nb'"),
        (
            # As datasets writes it.
            ValueError("Config name is missing.\nPlease pick one among the available configs: ['de-en', 'fr-en']"),
            "hub:imdb has several configurations; write hub:imdb/CONFIG with one of de-en, fr-en",
        ),
        (ValueError("Bad split:\nx"), "hub:imdb cannot be loaded: Bad split: x"),
    ],
)
def test_hub_errors(hub: FakeHub, fails: Exception, text: str):
    hub.fails = fails
    with says(text):
        open_source("hub:imdb")


def test_unknown_configurations(hub: FakeHub):
    hub.fails = ValueError("BuilderConfig 'de-eng' not found. Available: ['de-en', 'fr-en']")
    with says("hub:wmt14/de-eng: there is no configuration 'de-eng'; did you mean de-en?"):
        open_source("hub:wmt14/de-eng")
    hub.fails = ValueError("The config is broken")
    with says("hub:wmt14/de-en cannot be loaded: The config is broken"):
        open_source("hub:wmt14/de-en")
    del hub.configs
    with says("hub:wmt14/de-eng cannot be loaded: The config is broken"):
        open_source("hub:wmt14/de-eng")


def test_hub_offline(hub: FakeHub, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    hub.fails = ConnectionError()
    with says("hub:imdb: not in the cache, and HF_HUB_OFFLINE is set; unset it to download"):
        open_source("hub:imdb")


@pytest.fixture
def repositories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Data sets as they are on the hub, in folders with their names: ``datasets`` takes those first."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.chdir(tmp_path)
    string = datasets.Value("string")
    label = {"sentence1": string, "sentence2": string, "label": datasets.ClassLabel(names=["entailment", "other"])}
    pair = {"translation": datasets.Translation(languages=["de", "en"])}
    rows = {
        ("wmt/wmt14", "de-en", "train"): (pair, [{"translation": {"de": "Ja.", "en": "Yes."}}]),
        ("wmt/wmt14", "fr-en", "train"): ({"translation": datasets.Translation(languages=["fr", "en"])}, []),
        ("nyu-mll/glue", "rte", "train"): (label, [{"sentence1": "a", "sentence2": "b", "label": 1}]),
        ("nyu-mll/glue", "rte", "test"): (label, [{"sentence1": "c", "sentence2": "d", "label": -1}]),
        ("abisee/cnn_dailymail", "1.0.0", "train"): ({"article": string, "highlights": string}, []),
        ("abisee/cnn_dailymail", "3.0.0", "train"): (
            {"article": string, "highlights": string},
            [{"article": "Long.", "highlights": "Short."}],
        ),
        ("billion-word-benchmark/lm1b", "plain_text", "train"): (
            {"text": string},
            [{"text": "One ."}, {"text": "Two ."}],
        ),
        ("allenai/c4", "en", "train"): ({"text": string, "url": string}, [{"text": "One.", "url": None}]),
    }
    cards: dict[str, dict[str, list[str]]] = {}
    for (path, config, split), (features, records) in rows.items():
        columns = {name: [record[name] for record in records] for name in features}
        folder = tmp_path / path / config
        folder.mkdir(parents=True, exist_ok=True)
        data = datasets.Dataset.from_dict(columns, features=datasets.Features(features))
        data.to_parquet(str(folder / f"{split}.parquet"))
        cards.setdefault(path, {}).setdefault(config, []).append(split)
    for path, configs in cards.items():
        lines = ["---", "configs:"]
        for config, splits in configs.items():
            lines += [f"- config_name: {config}", "  data_files:"]
            lines += [f"  - split: {split}\n    path: {config}/{split}.parquet" for split in splits]
        (tmp_path / path / "README.md").write_text("\n".join([*lines, "---", ""]))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("wmt14/de-en", {"de": "Ja.", "en": "Yes."}),
        ("glue/rte", {"sentence1": "a", "sentence2": "b", "label": 1}),
        ("cnn_dailymail", {"article": "Long.", "highlights": "Short."}),
        ("lm1b", {"text": "One ."}),
        ("c4", {"text": "One.", "url": None}),
    ],
)
def test_the_package_itself(repositories: Path, name: str, expected: dict[str, Any]):
    source = HubSource(name)
    assert fields(source)[0] == expected
    assert source.fingerprint() == HubSource(name).fingerprint()


def test_the_package_itself_has_splits_and_errors(repositories: Path):
    source = HubSource("glue/rte")
    assert source.splits == ("train", "test")
    assert fields(source, "test") == [{"sentence1": "c", "sentence2": "d", "label": -1}]
    several = r"^hub:wmt14 has several configurations; write hub:wmt14/CONFIG with one of de-en, fr-en$"
    with pytest.raises(ValueError, match=several):
        HubSource("wmt14")
    with says("hub:wmt14/de-eng: there is no configuration 'de-eng'; did you mean de-en?"):
        HubSource("wmt14/de-eng")
    (repositories / "owner" / "program").mkdir(parents=True)
    (repositories / "owner" / "program" / "program.py").write_text("")
    with pytest.raises(ValueError, match=r"^hub:owner/program cannot be loaded: Dataset scripts are no longer"):
        HubSource("owner/program")


def test_the_hub_breaks_while_it_is_read(hub: FakeHub, monkeypatch: pytest.MonkeyPatch):
    def rows(*args: Any, **options: Any) -> Any:
        yield {"n": 1}
        raise TimeoutError

    source = open_source("hub:imdb")
    monkeypatch.setattr(hub, "load_dataset", rows)
    records = source.read("train")
    assert next(records).fields == {"n": 1}
    with pytest.raises(ValueError, match=r"^hub:imdb: the hub cannot be reached"):
        next(records)


def test_the_hub_needs_its_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with says("hub:imdb needs the package datasets: pip install 'synthattn[hub]'"):
        open_source("hub:imdb")
    with says("hub:a//b is no name; write hub:NAME, hub:NAME/CONFIG, hub:OWNER/NAME/CONFIG"):
        open_source("hub:a//b")
