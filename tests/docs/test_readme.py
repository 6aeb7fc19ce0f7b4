"""What the README shows runs, and what the demo claims is so."""

import re
import runpy
from pathlib import Path

import pytest

from synthattn.paper.publish import COMPUTED, check
from synthattn.paper.recipes import TABLES
from synthattn.paper.study import STUDIES

pytestmark = pytest.mark.unchecked

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("name", "count", "printed"),
    [
        ("README.md", 2, "['layers.0.self_attn', 'layers.1.self_attn']\n"),
        ("docs/attention.md", 1, ""),
        ("docs/models.md", 4, "torch.Size([2, 17])\n"),
        ("docs/data.md", 1, "Ein Hund .\n"),
    ],
)
def test_the_python_in_the_pages_runs(name, count, printed, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-data").mkdir()
    for name_of, text in (("train.en", "A dog .\n"), ("train.de", "Ein Hund .\n")):
        (tmp_path / "my-data" / name_of).write_text(text)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), re.DOTALL)
    assert len(blocks) == count
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)
    assert capsys.readouterr().out == printed


def test_the_commands_in_the_pages_exist():
    """Every preset and every verb that the pages name."""
    from synthattn.cli.app import app
    from synthattn.models.presets import PRESETS

    verbs = {command.callback.__name__ for command in app.registered_commands if command.callback}
    for page in ("README.md", "docs/models.md", "docs/data.md", "docs/reproduce.md"):
        for verb, name in re.findall(r"(?:^|`)synthattn (\w+) ([\w-]+)", (ROOT / page).read_text(), re.MULTILINE):
            assert verb in verbs
            known = {"reproduce": [*TABLES, *COMPUTED, "TABLE", ""], "study": [*STUDIES]}.get(
                verb, [*PRESETS, "my-model", "my-data", "builtin"]
            )
            assert name in known or name.startswith("--")
    described = re.findall(r"^\| `(\w+)`(?:, `(\w+)`)? \|", (ROOT / "docs/models.md").read_text(), re.MULTILINE)
    assert {name for row in described for name in row} >= set(PRESETS)


def test_the_table_of_variants_is_complete():
    from synthattn.synthesizers import SYNTHESIZERS, parse

    table = (ROOT / "docs" / "attention.md").read_text().split("## The variants")[1].split("Options go")[0]
    specs = re.findall(r"^\| `([^`]+)`", table, re.MULTILINE)[1:]  # without the heading
    assert set(SYNTHESIZERS) <= set(specs)
    assert all(parse(spec) for spec in specs)


@pytest.mark.parametrize(
    "name", ["README.md", "CONTRIBUTING.md", "docs/attention.md", "docs/models.md", "docs/data.md"]
)
def test_files_that_the_pages_name_exist(name):
    page = ROOT / name
    links = re.findall(r"\]\((?!http)([^)#]+)", page.read_text())
    missing = [link for link in links if not (page.parent / link).exists()]
    assert not missing


def test_the_results_in_the_readme_are_those_of_the_run_that_is_kept():
    from synthattn.compare.page import picture
    from synthattn.compare.results import load
    from synthattn.compare.verdict import answer

    made = runpy.run_path(str(ROOT / "tools" / "update_readme.py"))
    results = load(ROOT / "docs" / "demo" / "results.json")
    assert results.answer == answer(results), "python tools/update_readme.py docs/demo"
    shown = (ROOT / "README.md").read_text().split(made["BEGIN"])[1].split(made["END"])[0]
    assert shown.strip() == made["part"](results)
    assert (ROOT / "docs" / "demo" / "picture.svg").read_text() == picture(results)


def test_a_comparison_that_is_kept_is_shown_as_it_was():
    from synthattn.compare.page import picture
    from synthattn.compare.results import load
    from synthattn.compare.verdict import answer

    made = runpy.run_path(str(ROOT / "tools" / "update_readme.py"))
    folder = ROOT / "docs" / "multi30k"
    results = load(folder / "results.json")
    assert results.answer == answer(results), "python tools/update_readme.py docs/multi30k docs/multi30k"
    assert (folder / "README.md").read_text() == made["page"](results)
    assert (folder / "picture.svg").read_text() == picture(results)


def test_the_figures_on_performance_are_those_of_the_records_that_are_kept():
    made = runpy.run_path(str(ROOT / "tools" / "update_performance.py"))
    found = made["records"]()
    assert len(found) > 0
    assert [made["folder_of"](record) for record in found.values()] == list(found)
    written = made["documents"](found)
    assert {ROOT / "README.md", ROOT / "docs" / "performance.md"} < set(written)
    for path, text in written.items():
        assert path.read_text(encoding="utf-8") == text, path
        assert path.suffix != ".md" or "not by hand" in text or text.count(made["BEGIN"]) == 1, path


def test_every_figure_of_the_readme_is_on_the_page_that_it_cites():
    results = (ROOT / "README.md").read_text().split("## What came out")[1].split("\n## ")[0]
    cited = re.findall(r"^- (.*?)\[[^\]]+\]\(([^)]+)\)", results, re.MULTILINE | re.DOTALL)
    assert len(cited) > 3
    for text, link in cited:
        page = (ROOT / link).read_text()
        assert [figure for figure in re.findall(r"\d+\.\d+", text) if figure not in page] == [], text
        # Whole numbers are short and many: all of them must be in one line.
        counts = re.findall(r"(?<![\w.])\d+(?![\w.])", text)
        assert any(all(re.search(rf"\b{count}\b", line) for count in counts) for line in page.splitlines()), text


def test_the_papers_tables_are_those_of_the_records_that_are_kept():
    assert check(ROOT / "docs" / "results") == [], "synthattn reproduce all --show --output docs/results"
    assert len((ROOT / "docs" / "results" / "README.md").read_text().split()) <= 600
    sizes = [path.stat().st_size for name in ("results", "performance") for path in (ROOT / "docs" / name).rglob("*.*")]
    assert sum(sizes) <= 4_000_000


def test_the_example_of_the_layer_shows_that_random_learns_and_fixed_random_does_not():
    train = runpy.run_path(str(ROOT / "examples" / "layer.py"))["accuracy_after_training"]
    assert train("random") > 0.95
    assert train("fixed_random") < 0.5


def test_the_page_on_data_names_every_task_and_every_source():
    from synthattn.data.builtin import BUILTINS
    from synthattn.tasks import TASKS

    page = (ROOT / "docs" / "data.md").read_text()
    assert [name for name in TASKS if f"`{name}`" not in page] == []
    assert [name for name in BUILTINS if f"`builtin:{name}`" not in page] == []
