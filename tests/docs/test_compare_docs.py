"""The page on comparing: its tables are those of the code, and its examples run."""

import dataclasses
import inspect
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from synthattn.cli.app import app, main
from synthattn.compare import costs
from synthattn.compare.measure import measure
from synthattn.training import gather as defaults
from synthattn.training.settings import Settings

pytestmark = pytest.mark.unchecked

PAGE = Path(__file__).parents[2] / "docs" / "compare.md"
TABLES = PAGE.with_name("settings.md")
VERBS = ("compare", "train", "evaluate", "generate", "export")


def option_rows() -> list[str]:
    """A row for every option and argument of these verbs: its name, who has it, and its help."""
    group: Any = typer.main.get_command(app)
    found: dict[tuple[str, str], list[str]] = {}
    for verb in VERBS:
        for parameter in group.commands[verb].params:
            option = parameter.opts[0].startswith("--")
            name = parameter.opts[0] if option else parameter.opts[0].upper()
            found.setdefault((name, " ".join(parameter.help.split())), []).append(verb)
    return [f"| `{name}` | {', '.join(verbs)} | {text} |" for (name, text), verbs in found.items()]


def setting_rows(group: str) -> list[str]:
    """A row for every setting: its name, its default, and what its docstring says."""
    (field,) = [one for one in dataclasses.fields(Settings) if one.name == group]
    kind: Any = type(field.default)
    described = inspect.cleandoc(kind.__doc__).split("Args:\n")[1]
    texts = {
        name: " ".join(text.split()) for name, text in re.findall(r"^    (\w+): ((?:.|\n     )*)", described, re.M)
    }
    defaults = {one.name: one.default for one in dataclasses.fields(kind)}
    shown = {name: "" if value in (None, dataclasses.MISSING) else str(value) for name, value in defaults.items()}
    return [f"| `{group}.{name}` | {shown[name].lower()} | {texts[name].replace('``', '`')} |" for name in defaults]


def test_every_option_is_on_the_page():
    page = TABLES.read_text().splitlines()
    assert [row for row in option_rows() if row not in page] == []


@pytest.mark.parametrize("group", [field.name for field in dataclasses.fields(Settings)])
def test_every_setting_is_on_the_page(group):
    page = TABLES.read_text().splitlines()
    assert [row for row in setting_rows(group) if row not in page] == []


def test_links_and_length():
    text = PAGE.read_text()
    links = re.findall(r"\]\((?!http)([^)#]+)", text)
    assert [link for link in links if not (PAGE.parent / link).exists()] == []
    assert len(text.splitlines()) <= 250


def examples() -> Iterator[tuple[str | None, list[str]]]:
    """Every command in a block of bash: what is written to its standard input, and its words after ``synthattn``."""
    for block in re.findall(r"```bash\n(.*?)```", PAGE.read_text(), re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            command = line.split("#")[0].strip()
            given, pipe, right = command.rpartition(" | ")
            words = shlex.split((right if pipe else command).split(" > ")[0])
            start = words.index("synthattn")
            assert words[:start] in ([], ["torchrun", "--nproc-per-node", "2", "-m"]), command
            yield shlex.split(given)[1] + "\n" if pipe else None, words[start + 1 :]


SMALL = {"--preset": "tiny", "--batch-tokens": "128", "--seeds": "2", "--vocab-size": "130"}
ENDS = {"--steps": "2", "--tokens": "200", "--minutes": "0.0001"}


def smaller(words: list[str]) -> list[str]:
    """Shrink the models and data of a command; its other options stay."""
    verb = words[0]
    if verb not in ("compare", "train") or "--resume" in words:
        return words
    for n, word in enumerate(words[:-1]):
        if word in SMALL | ENDS:
            words[n + 1] = (SMALL | ENDS)[word]
    for option in ("--preset", "--batch-tokens", "--vocab-size"):
        words += [] if option in words else [option, SMALL[option]]
    words += [] if any(end in words for end in ENDS) else ["--steps", "2"]
    words += ["--set", "data.tokenizer=words", "--set", "evaluation.max_new_tokens=4", "--set", "training.warmup=1"]
    if verb == "compare" and "--attention" not in words:
        words += ["--attention", "vanilla,random"]
    return words


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with the files that the page names."""
    lines = [
        f"the {a} {b} sees the {c}" for a in ("old", "new", "red") for b in ("dog", "cat") for c in ("car", "tree")
    ]
    files = {
        "other.tsv": ["en\tde", "the old dog\tdog old the", "the new cat\tcat new the"],
        "new.txt": ["the old dog", "the new cat"],
        "more.yaml": ["training:", "  schedule: cosine", "model:", "  d_ff: 48"],
    }
    for split, part in (("train", lines), ("valid", lines[:4]), ("test", lines[4:9])):
        files[f"my-data/{split}.en"] = part
        files[f"my-data/{split}.de"] = [" ".join(reversed(line.split())) for line in part]
        files[f"my-texts/{split}.txt"] = part
        files[f"reviews/{split}.tsv"] = [
            "text\tlabel",
            *(f"{one}\t{'good' if 'dog' in one else 'bad'}" for one in part),
        ]
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("".join(f"{line}\n" for line in content))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SYNTHATTN_CACHE", str(tmp_path / "cache"))
    # Reading the documentation of Python and torch, and measuring well, take their time.
    monkeypatch.setitem(defaults.DATA, "language-modeling", "my-texts")
    monkeypatch.setattr(costs, "measure", lambda *rest: measure(*rest[:3], rounds=1, new_tokens=1))
    return tmp_path


def test_the_examples_run(place, monkeypatch, capfd):
    """In the order of the page, since some need what others leave."""
    used = set()
    for given, words in examples():
        used.add(words[0])
        (place / "given.txt").write_text(given or "")
        with (place / "given.txt").open() as stdin, monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", stdin)
            patch.setattr(sys, "argv", ["synthattn", *smaller(list(words))])
            with pytest.raises(SystemExit) as end:
                main()
        assert end.value.code == 0, f"synthattn {shlex.join(words)}: {capfd.readouterr().err}"
    assert used == set(VERBS) - {"export"}, "docs/models.md shows how to export"
