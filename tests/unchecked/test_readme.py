"""What the README shows runs, and what the demo claims is so."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_python_in_the_readme_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) == 2
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)
    assert capsys.readouterr().out == "['layers.0.self_attn', 'layers.1.self_attn']\n"


def test_the_table_of_variants_is_complete():
    from synthattn.synthesizers import SYNTHESIZERS, parse

    table = (ROOT / "README.md").read_text().split("## The variants")[1]
    specs = re.findall(r"^\| `([^`]+)`", table, re.MULTILINE)[1:]  # without the heading
    assert set(SYNTHESIZERS) <= set(specs)
    assert all(parse(spec) for spec in specs)


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "docs/attention.md"])
def test_files_that_the_pages_name_exist(name):
    page = ROOT / name
    links = re.findall(r"\]\((?!http)([^)#]+)", page.read_text())
    missing = [link for link in links if not (page.parent / link).exists()]
    assert not missing


def test_the_demo_shows_that_random_learns_and_fixed_random_does_not():
    train = runpy.run_path(str(ROOT / "examples" / "layer.py"))["accuracy_after_training"]
    assert train("random") > 0.95
    assert train("fixed_random") < 0.5
