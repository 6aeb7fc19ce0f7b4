"""The notebooks for users run from their first cell to their last, and are kept without outputs."""

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch

# Jupyter is not installed for this: cells run in order in one namespace, which is what a kernel does with them.
pytestmark = pytest.mark.unchecked

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


def cells(file: Path) -> list[dict[str, Any]]:
    return json.loads(file.read_text(encoding="utf-8"))["cells"]


def run(file: Path) -> dict[str, Any]:
    """Return the names that a notebook defines."""
    scope: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.redirect_stdout(io.StringIO()), torch.random.fork_rng(devices=[]):
        for n, cell in enumerate(cells(file)):
            if cell["cell_type"] == "code":
                exec(compile("".join(cell["source"]), f"{file.name}, cell {n}", "exec"), scope)
    return scope


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_is_kept_without_outputs(file):
    """Outputs would go out of date, and make every difference between two versions unreadable."""
    code = [cell for cell in cells(file) if cell["cell_type"] == "code"]
    assert code
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


def test_a_classifier_is_compared(tmp_path, monkeypatch):
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SYNTHATTN_CACHE", str(tmp_path / "cache"))
    scope = run(EXAMPLES / "classifier.ipynb")
    result = scope["result"]
    assert [row.status for row in result.results.models] == ["done"] * 2
    assert result.results.answer[0] in scope["result"].answer
    assert str(scope["model"].config.encoder_attention) == "random"


def test_the_layer_learns_in_ones_own_model():
    scope = run(EXAMPLES / "own_model.ipynb")
    assert scope["scores"]["random"] > 0.9
    assert scope["scores"]["fixed_random"] < 0.9
    assert (torch.arange(24) - scope["looked_at"])[3:].float().median() == 3
    assert type(scope["encoder"].layers[1].self_attn) is torch.nn.MultiheadAttention
