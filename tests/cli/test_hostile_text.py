"""Text from outside cannot control a terminal, and what is no file is not waited for."""

import contextlib
import io
import json
import os
import pty
import re
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.table import Table
from rich.text import Text

from synthattn.cli import generate
from synthattn.data.tokenizers import train_tokenizer
from synthattn.messages import printable, printable_json, suggestion
from synthattn.terminal import SafeConsole
from synthattn.training import answering

pytestmark = pytest.mark.unchecked

HOSTILE = "[/x] [red]\x1b[2J\x07\x9b31m\u202eback\u2028\ud800 <b>&amp;\"'|\\|"
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def test_only_what_controls_is_escaped():
    ordinary = "Straße, été 日本\u3000語 \u0645\u06cc\u200c\u062e \U0001f3f3\u200d\U0001f308 a\xa0% [/x] \\n"
    assert printable(ordinary) == ordinary
    assert printable("a\nb\tc\x1b[2J\x9b\u202e\ud800") == r"a\nb\tc\x1b[2J\x9b\u202e\ud800"
    assert printable("a\nb\tc\r", lines=True) == "a\nb\tc\\r"
    assert not CONTROL.search(printable(HOSTILE))
    assert json.loads(printable_json([HOSTILE], 1)) == [HOSTILE]
    assert not CONTROL.search(printable_json([HOSTILE], 1))


def test_a_console_shows_escapes_and_no_markup():
    console = SafeConsole(file=io.StringIO(), width=200, force_terminal=True, color_system=None)
    table = Table(title=HOSTILE)
    table.add_column(HOSTILE)
    table.add_row(HOSTILE)
    table.add_row(Text(HOSTILE))
    console.print(table)
    console.print(HOSTILE, ":smile: [1, 2]")
    shown = console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]
    assert not CONTROL.search(shown.replace("\x1b[3m", "").replace("\x1b[1m", "").replace("\x1b[0m", ""))
    assert shown.count(r"[/x] [red]\x1b[2J") == 5
    assert ":smile: [1, 2]" in shown


def test_messages_list_few_names_and_compare_short_ones():
    names = [f"name{n}" for n in range(50_000)]
    assert suggestion("qqqq", names).endswith(" and 49,970 more")
    assert len(suggestion("x" * 1_000_000, ["y" * 1_000_000])) < 200
    assert suggestion("vanila", ["vanilla", "dense"]) == "; did you mean vanilla?"


@pytest.fixture
def hostile_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "[" / "x]"
    folder.mkdir(parents=True)
    for split in ("train", "valid"):
        rows = [f"a\x1b[2Jb {n}\t[/x]\u202e{n % 2}" for n in range(40)]
        (folder / f"{split}.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    return folder


def test_data_shows_hostile_texts(hostile_folder: Path, command, monkeypatch):
    monkeypatch.setenv("SYNTHATTN_CACHE", str(hostile_folder.parent / "cache"))
    for more in ([], ["--json"]):
        said = command("data", str(hostile_folder), "--task", "classification", "--tokenizer", "words", *more)
        assert said.returncode == 0, said.stderr
        assert not CONTROL.search(said.stdout)
        assert "[/x]" in said.stdout
    assert said.stdout.count("\\u202e") > 2


@pytest.mark.parametrize(
    "arguments", [["train", "--a\x1b[2J"], ["evaluate", "\x1b[2J\n[/x]"], ["describe", "[/x]\x1b"]]
)
def test_an_error_is_one_line_whatever_is_in_it(arguments: list[str], command):
    said = command(*arguments)
    assert said.returncode == 2
    assert said.stderr.startswith("synthattn: ")
    assert said.stderr.count("\n") == 1
    assert not CONTROL.search(said.stderr)
    assert r"\x1b" in said.stderr


@contextlib.contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """A deadline, which also ends a system call that waits."""

    def late(number: int, frame: Any) -> None:
        raise AssertionError(f"still waiting after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("what", ["pipe", "pipe in a folder", "device", "folder"])
def test_data_that_is_no_file(what: str, tmp_path: Path, command):
    folder = tmp_path / "data"
    folder.mkdir()
    if what == "folder":
        (folder / "train.en").mkdir()
        (folder / "train.de").mkdir()
    elif what != "device":
        os.mkfifo(folder / "train.txt")
    place = {"pipe": folder / "train.txt", "device": Path("/dev/zero")}.get(what, folder)
    with at_most(20):
        said = command("data", str(place), "--task", "language-modeling")
    assert said.returncode == 2
    assert said.stderr.count("\n") == 1
    expected = {"device": "it is a device, not a file", "folder": "no data in this folder"}.get(what, "it is a pipe")
    assert expected in said.stderr


def test_vectors_that_are_no_file(tmp_path: Path):
    from synthattn.metrics.vectors import check_vectors

    os.mkfifo(tmp_path / "vectors.txt")
    with at_most(20), pytest.raises(ValueError, match="it is a pipe, not a file"):
        check_vectors(tmp_path / "vectors.txt")


@pytest.mark.parametrize("size", [100, 12_000])
@pytest.mark.parametrize("kind", ["unigram", "bytes", "words"])
def test_a_full_disk_is_named_with_the_way_out(kind: str, size: int, tmp_path: Path, command, monkeypatch):
    """A limit to the size of files is as good as a full disk."""
    monkeypatch.setenv("SYNTHATTN_CACHE", str(tmp_path / "cache"))
    (tmp_path / "train.txt").write_text("".join(f"some words {n} and {n * n}\n" for n in range(3000)))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        arguments = ["--task", "sentence-modeling", "--tokenizer", kind, "--vocab-size", "700"]
        said = command("data", str(tmp_path / "train.txt"), *arguments)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert said.returncode == 2
    assert said.stderr.count("\n") == 1
    expected = f"cannot write {tmp_path / 'cache'}"
    if kind == "unigram":  # which writes its texts elsewhere first
        expected = "with TMPDIR"
    assert expected in said.stderr
    assert "SYNTHATTN_CACHE" in said.stderr or kind == "unigram"
    assert not [file for file in (tmp_path / "cache").rglob("*") if file.is_file()]


@pytest.mark.parametrize("option", ["--output", "--data"])
def test_a_name_that_no_record_can_hold_is_refused_before_training(option: str, tmp_path: Path, command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.txt").write_text("a text\n")
    names = {"--output": "run", "--data": "."} | {option: "x\udcff"}
    said = command("train", *(word for pair in names.items() for word in pair))
    assert (said.returncode, said.stderr.count("\n")) == (2, 1)
    assert r"the name x\udcff is not UTF-8; rename it, or choose another" in said.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["train.txt"]


def test_a_cache_without_a_home(monkeypatch):
    from synthattn.data.cache import cache_folder

    monkeypatch.delenv("SYNTHATTN_CACHE", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    with pytest.raises(ValueError, match="set SYNTHATTN_CACHE to a folder"):
        cache_folder()


class Recording:
    """A tokenizer that remembers how much it was given at once."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer, self.most = tokenizer, 0

    def __call__(self, text: str, **options: Any) -> Any:
        self.most = max(self.most, len(text))
        return self.tokenizer(text, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tokenizer, name)


@pytest.fixture(scope="module", params=["unigram", "bytes", "words"])
def tokenizer(request: pytest.FixtureRequest) -> Any:
    texts = [f"the {n} old house sees a small tree, unbelievably {n * n}" for n in range(300)]
    return train_tokenizer(request.param, texts, 600)


def test_long_lines_are_read_as_far_as_the_model_reads(tokenizer: Any, capsys):
    reader = answering.Reader(Recording(tokenizer), 32)
    for words in (1, 20, 31, 32, 200, 5000):
        text = " ".join(f"the old {n} unbelievably" for n in range(words))
        whole, bare = tokenizer(text).input_ids, tokenizer(text, add_special_tokens=False).input_ids
        assert reader.beginning(text) == (whole if len(whole) <= 32 else [*whole[:31], tokenizer.eos_token_id])
        assert reader.end(text, 17) == bare[-17:]
    assert reader.tokenizer.most < 4000, "5000 words are 90,000 characters"
    reader.report()
    said = capsys.readouterr().err
    assert said.splitlines()[0].endswith("the model reads 32 tokens, and only the beginning of longer ones")
    assert said.splitlines()[1:] == ["synthattn: 10 of 12 lines were read only in part"]


@pytest.mark.parametrize("letter", ["a", " ", "日"])
def test_a_line_of_megabytes_is_not_tokenized_as_a_whole(tokenizer: Any, letter: str, capsys, monkeypatch):
    monkeypatch.setattr(answering, "LONGEST_PART", 1 << 14)
    reader = answering.Reader(Recording(tokenizer), 32)
    assert len(reader.beginning(letter * 20_000)) <= 32
    assert len(reader.end(letter * 20_000, 17)) <= 17
    assert reader.tokenizer.most <= answering.LONGEST_PART
    assert reader.cut == 2
    assert "line 1 is read only in part" in capsys.readouterr().err


@pytest.mark.parametrize("terminal", [False, True])
def test_generate_escapes_answers_for_a_terminal_alone(terminal: bool, tmp_path: Path, monkeypatch):
    answer = "a\x1b[2Jb\u202e\rc"
    monkeypatch.setattr(answering, "load", lambda folder: _Model())
    monkeypatch.setattr(answering, "placed", lambda model: model)
    monkeypatch.setattr(answering, "load_tokenizer_of", lambda folder: None)
    monkeypatch.setattr(answering, "check_answers", lambda model, folder: None)
    monkeypatch.setattr(answering, "_answers", lambda *arguments: iter([answer]))
    (tmp_path / "lines").write_text("one\n")
    reading, writing = pty.openpty() if terminal else os.pipe()
    with open(writing, "w", encoding="utf-8", newline="\n") as out:
        monkeypatch.setattr(sys, "stdout", out)
        generate.run(tmp_path, None, tmp_path / "lines", 1, None, 16, 0.0, 0, raw=True)
        written = os.read(reading, 1000).decode()
    os.close(reading)
    assert written == ("a\\x1b[2Jb\\u202e\\rc\r\n" if terminal else f"{answer}\n")


class _Model:
    class config:  # noqa: N801
        max_position_embeddings, is_encoder_decoder = 32, True

    def eval(self) -> "_Model":
        return self
